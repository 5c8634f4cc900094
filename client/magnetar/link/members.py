"""Answers of brokers about a cluster: its members, and the owners of partitions. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from magnetar.link.addresses import shard_of

BROKER = "Broker"
COORDINATOR = "TransactionCoordinator"


@dataclass(frozen=True, slots=True)
class Member:
    """A server of the cluster; where shards change their owner, a shard.

    Attributes:
        tcid: the number of a coordinator; None for a broker.
    """

    name: str
    address: str
    tcid: int | None = None


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """The members of a cluster.

    Attributes:
        cluster_id: identifies the cluster; empty if the servers have no id.
        membership_version: raised when the members change.
    """

    cluster_id: str
    membership_version: int
    cluster_hash: str
    brokers: tuple[Member, ...]
    coordinators: tuple[Member, ...]
    server_version: str


class Lookup(NamedTuple):
    """The brokers of a topic's partitions.

    Attributes:
        addresses: the address of each partition's broker.
    """

    topic_id: int
    addresses: tuple[str, ...]


def is_earlier(address: str, than: str) -> bool:
    """Return whether both are addresses of a shard, and the first is of an earlier ownership.

    A member that watches the directory late tells of owners that have long been replaced.
    """
    told, known = shard_of(address), shard_of(than)
    return told is not None and known is not None and told.place.epoch < known.place.epoch
