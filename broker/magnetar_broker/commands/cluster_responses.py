"""Answers of a broker about the cluster: in handshakes, and to clients that ask for members."""

from __future__ import annotations

from magnetar_broker.commands.member_addresses import AddressesGiven
from magnetar_broker.config import BrokerConfig
from magnetar_core.config import FRAME_BYTES_MAX
from magnetar_core.membership.address_book import AddressBook, MemberAddress
from magnetar_core.membership.cluster_identity import ClusterIdentity
from magnetar_core.protocol_version import PROTOCOL_VERSION, check_client
from magnetar_core.server.commands import Reply
from magnetar_core.version import VERSION
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import topic_pb2 as wire


class ClusterResponses:
    """Answers about the cluster.

    Args:
        server_name: the name that clients are told; empty: that of the broker.
    """

    def __init__(self, config: BrokerConfig, book: AddressBook, server_name: str = "") -> None:
        self._config = config
        self._addresses = AddressesGiven(config, book)
        self._server_name = server_name or config.name

    def hello(self, command: common.CommandHello, reply: Reply) -> common.CommandHelloResponse:
        """Return the answer to a handshake.

        Raises:
            UnsupportedVersion: the client speaks another version of the protocol.
            ClusterMismatch: the client belongs to another cluster.
        """
        config = self._config
        check_client(command.protocol_version, command.client_name)
        ClusterIdentity.of(config).check(ClusterIdentity.of(command))
        frame_bytes_max = FRAME_BYTES_MAX
        if reply.session is not None:
            frame_bytes_max = reply.session.frame_bytes_max
        return common.CommandHelloResponse(
            protocol_version=PROTOCOL_VERSION,
            server_name=self._server_name,
            cluster_id=config.cluster_id,
            membership_version=config.membership_version,
            cluster_hash=config.cluster_hash,
            frame_bytes_max=frame_bytes_max,
            batch_bytes_max=config.batch_bytes_max,
        )

    def cluster_info(
        self, command: wire.CommandGetClusterInfo
    ) -> wire.CommandGetClusterInfoResponse:
        """Return who belongs to the cluster, and where."""
        config = self._config
        return wire.CommandGetClusterInfoResponse(
            cluster_id=config.cluster_id,
            membership_version=config.membership_version,
            cluster_hash=config.cluster_hash,
            brokers=[
                wire.Member(name=one.name, address=one.address)
                for one in self.brokers(command.reached_at)
            ],
            coordinators=[
                wire.Member(name=one.name, address=one.address, tcid=one.tcid)
                for one in self._addresses.coordinators(command.reached_at)
            ],
            server_version=VERSION,
        )

    def brokers(self, reached_at: str) -> list[MemberAddress]:
        """Return all brokers in the order of their shards; `address` is the one for the client."""
        return self._addresses.brokers(reached_at)
