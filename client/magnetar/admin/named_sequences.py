"""Administration of named sequences: describe and remove names."""

from __future__ import annotations

from magnetar.admin.producer_descriptions import NameDescription
from magnetar.arguments import checked
from magnetar.link.cluster import Cluster
from magnetar_core.ids import TxnID
from magnetar_core.wire import transaction_pb2


class NamedSequenceAdmin:
    """Administers named sequences: `client.admin.named_sequences`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @checked
    async def describe(self, name: str) -> NameDescription:
        """Describe a name: its last committed sequence and its open transaction."""
        coordinator = await self._cluster.coordinator_for(name)
        reply = await coordinator.request(transaction_pb2.CommandDescribeName(name=name))
        return NameDescription(
            name,
            reply.committed_sequence if reply.has_committed else None,
            reply.open.sequence if reply.HasField("open") else None,
            TxnID.from_wire(reply.open_txn_id) if reply.HasField("open") else None,
            reply.committed_fingerprint or None,
        )

    @checked
    async def remove(self, name: str) -> None:
        """Remove a name. Its sequences can then be committed again.

        Raises:
            InvalidArgument: the coordinator does not know this name.
            ResourceInUse: a transaction of this name is open.
        """
        coordinator = await self._cluster.coordinator_for(name)
        await coordinator.request(transaction_pb2.CommandRemoveName(name=name))
