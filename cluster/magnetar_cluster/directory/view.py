"""View of the directory at one moment: members, owners, drains and pins. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

BROKER = "broker"
COORDINATOR = "coordinator"
KINDS = (BROKER, COORDINATOR)


class ShardName(NamedTuple):
    """A shard of the cluster: a kind of server, and a number from 0.

    Its text is the name that the servers know each other by: broker-3, coordinator-0.
    """

    kind: str
    number: int

    def __str__(self) -> str:
        return f"{self.kind}-{self.number}"


class MemberName(NamedTuple):
    """A server process that takes part. Two members of a kind never have one name."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A server process.

    Attributes:
        address: where servers and clients reach it, "host:port".
        external_address: where clients outside of the servers' network reach it; may be empty.
        kafka_address, kafka_external_address: where Kafka's clients reach it, inside and outside
            of that network; empty: they do not.
        version: of its program.
        leaving: it is about to stop, and gives up its shards.
        refused: the numbers of shards that it could not open, and leaves to others; in order.
    """

    address: str
    external_address: str = ""
    kafka_address: str = ""
    kafka_external_address: str = ""
    version: str = ""
    leaving: bool = False
    refused: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ShardOwner:
    """Owner of a shard.

    Attributes:
        member: the name of a member of the shard's kind.
        epoch: no other ownership of any shard has the same one.
    """

    member: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """Numbers that are fixed when a cluster is made.

    Attributes:
        token: a random number that tells the cluster from others of the same id, in other etcds.
    """

    broker_shards: int
    coordinator_shards: int
    token: str = field(default="", compare=False)

    def shards(self, kind: str) -> tuple[ShardName, ...]:
        """Return the shards of a kind, in order."""
        count = self.broker_shards if kind == BROKER else self.coordinator_shards
        return tuple(ShardName(kind, number) for number in range(count))


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The directory at one moment.

    Attributes:
        revision: a later view of the same directory has a higher one.
        members: those that are alive.
        shard_owners: shards without an owner are left out.
        draining: members that should give up their shards; they need not be alive. pins: the member
            that must have a shard, whatever the placement would be.
    """

    revision: int = 0
    members: Mapping[MemberName, Member] = field(default_factory=dict)
    shard_owners: Mapping[ShardName, ShardOwner] = field(default_factory=dict)
    draining: frozenset[MemberName] = frozenset()
    pins: Mapping[ShardName, str] = field(default_factory=dict)

    def takers(self, kind: str) -> dict[MemberName, Member]:
        """Return the members that may have shards of a kind: they neither drain nor leave."""
        return {
            name: member
            for name, member in self.members.items()
            if name.kind == kind and name not in self.draining and not member.leaving
        }
