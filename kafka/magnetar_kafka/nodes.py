"""Nodes: the brokers of the cluster as Kafka's clients know them. Pure.

A client keeps its connection to a node for as long as it works, whatever address metadata tells
for the node meanwhile. So a number must not wander from one process to another: where shards move,
it is made of the address, and not of a shard. A list of members names a process for each shard.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import google_crc32c

from magnetar_core.config import split_address
from magnetar_core.membership.address_book import MemberAddress
from magnetar_kafka.error_codes import ErrorCode, Refused

# The number of a process that is the only one.
ALONE = 1
_NUMBER_MASK = 0x7FFF_FFFF


class Node(NamedTuple):
    """A broker process.

    Attributes:
        host, port: empty and 0: where the client has reached this process.
    """

    number: int
    host: str = ""
    port: int = 0


class Nodes:
    """The processes that have shards.

    Attributes:
        own: the address for Kafka's clients of this process, as others know it; empty: it is
            alone, and tells clients the address that they have reached.

    Args:
        members: returns the brokers in the order of their shards, with their present addresses.
        own: as the attribute.
        have_fixed_shards: whether each process keeps its shard.
    """

    def __init__(
        self, members: Callable[[], Sequence[MemberAddress]], own: str, *, have_fixed_shards: bool
    ) -> None:
        self._members = members
        self.own = own
        self._have_fixed_shards = have_fixed_shards

    def by_shard(self, *, is_external: bool) -> list[Node | None]:
        """Return the node of each shard; None: it has no owner that Kafka's clients can reach.

        Args:
            is_external: whether the client came through the port for clients outside.
        """
        return [
            self._node(shard, member, is_external=is_external)
            for shard, member in enumerate(self._members())
        ]

    def check_alone(self, what: str) -> None:
        """Check that one process has all shards.

        What is known of a transactional id would be at several processes otherwise, which do not
        tell each other of commits.

        Args:
            what: needs that.
        Raises:
            Refused: there are several, or a shard has none at the moment.
        """
        if len(set(self.by_shard(is_external=False))) > 1:
            raise Refused(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"{what} of Kafka's clients need a cluster with one broker process",
            )

    @property
    def own_number(self) -> int:
        """The number of this process."""
        if not self.own:
            return ALONE
        if not self._have_fixed_shards:
            return number_of(self.own)
        addresses = [one.kafka_address for one in self._members()]
        return addresses.index(self.own) + 1

    def _node(self, shard: int, member: MemberAddress, *, is_external: bool) -> Node | None:
        if not member.kafka_address:
            return Node(ALONE) if not self.own else None
        number = shard + 1 if self._have_fixed_shards else number_of(member.kafka_address)
        told = member.kafka_external_address if is_external else member.kafka_address
        host, port = split_address(told or member.kafka_address)
        return Node(number, host.strip("[]"), port)


def number_of(address: str) -> int:
    """Return the number of the process that has an address."""
    return int(google_crc32c.value(address.encode())) & _NUMBER_MASK or 1


def alone(shards: int = 1) -> Nodes:
    """Return the nodes of a process that has all shards."""
    members = [MemberAddress(name=f"broker-{shard}", address="") for shard in range(shards)]
    return Nodes(lambda: members, "", have_fixed_shards=True)
