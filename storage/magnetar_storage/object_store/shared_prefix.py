"""Names below the address in an object store that the servers of a cluster share. Pure.

The address has the stamp of the cluster; the stores, each below its kind and name, as
brokers/broker-0/; and without etcd a mark for each store, as durable/brokers/broker-0.json, with a
copy below another store, as coordinators/coordinator-0/marks/brokers/broker-0.json.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from magnetar_storage.object_store.url import ObjectStoreUrl

CLUSTER_STAMP: Final = "magnetar-cluster.json"
KINDS: Final = ("broker", "coordinator")
# Below a store: copies of the marks of other stores.
COPIES: Final = "marks/"


class StorePlace(NamedTuple):
    """The server that a store belongs to, and the address that it shares with others."""

    prefix: ObjectStoreUrl
    kind: str
    name: str


def store_url(prefix: ObjectStoreUrl, kind: str, name: str) -> ObjectStoreUrl:
    """Return the address of a server's store."""
    return prefix.below(folder_of(kind), name)


def place_of_store(url: ObjectStoreUrl) -> StorePlace | None:
    """Return whose store has this address; None: it is not below a shared address."""
    _, _, name = url.path.rpartition("/")
    _, _, folder = url.above.path.rpartition("/")
    for kind in KINDS:
        if folder == folder_of(kind):
            return StorePlace(url.above.above, kind, name)
    return None


def mark_names(kind: str, name: str, others: Iterable[str]) -> list[str]:
    """Return the names of the object with a store's mark, and of its copies.

    Args:
        others: names of servers of the other kind, below whose stores copies lie.
    """
    (other_kind,) = (each for each in KINDS if each != kind)
    below = f"{folder_of(kind)}/{name}.json"
    return [
        f"durable/{below}",
        *(f"{folder_of(other_kind)}/{other}/{COPIES}{below}" for other in others),
    ]


def folder_of(kind: str) -> str:
    """Return the part of an address below which the stores of a kind of servers lie."""
    return f"{kind}s"
