"""The stamp of a cluster: an object that says which cluster uses an address in an object store.

Servers of another cluster refuse the address. Otherwise they would open the stores of this one,
and so end its servers again and again.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Final

import obstore
from obstore import exceptions

from magnetar_core.config import InvalidConfig
from magnetar_storage.object_store.objects import get_object, open_objects, until_answered
from magnetar_storage.object_store.shared_prefix import CLUSTER_STAMP
from magnetar_storage.object_store.url import ObjectStoreUrl

_STILL_THERE: Final = (
    "choose another address. Only if that cluster is gone for good, and this one takes its place,"
    f" remove the object {CLUSTER_STAMP} there"
)


class AddressTaken(InvalidConfig):
    """Another cluster uses the address; its servers may be running."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStamp:
    """The name of a cluster, as it tells the cluster from others.

    Attributes:
        cluster_id: its id.
        token: a random number that its etcd keeps; empty: the cluster has no etcd.
        etcd: where its etcd was when the stamp was made, for people.
    """

    cluster_id: str
    token: str = ""
    etcd: str = ""

    def is_same(self, other: ClusterStamp) -> bool:
        """Return whether both are of one cluster."""
        return (self.cluster_id, self.token) == (other.cluster_id, other.token)

    def __str__(self) -> str:
        if not self.token:
            return f"{self.cluster_id!r}, without etcd"
        return f"{self.cluster_id!r} of etcd at {self.etcd} (number {self.token})"


async def take_address(prefix: ObjectStoreUrl, cluster: ClusterStamp | None) -> None:
    """Note that a cluster uses an address, or check that this is noted.

    While the object store cannot be reached, the call waits, and the log says so.

    Args:
        cluster: None: the server is of no cluster, and may use an address that no cluster has.
    Raises:
        AddressTaken: another cluster uses the address.
        InvalidConfig: the stamp is damaged, or the object store refuses the requests.
    """
    objects = open_objects(prefix, is_new=True)

    async def found_or_made() -> ClusterStamp | None:
        content = await get_object(objects, CLUSTER_STAMP)
        if content is None and cluster is not None:
            made = json.dumps(asdict(cluster)).encode() + b"\n"
            try:
                await obstore.put_async(objects, CLUSTER_STAMP, made, mode="create")
            except exceptions.AlreadyExistsError:
                # Another server took it at the same time.
                content = await get_object(objects, CLUSTER_STAMP)
        return None if content is None else _parse(content, prefix)

    found = await until_answered(prefix, found_or_made)
    if found is None or (cluster is not None and cluster.is_same(found)):
        return
    ours = (
        f"the cluster {cluster}" if cluster is not None else "no cluster: it has no members' list"
    )
    raise AddressTaken(
        f"{prefix} belongs to the cluster {found}; this server is of {ours}: {_STILL_THERE}"
    )


async def cluster_at(prefix: ObjectStoreUrl) -> ClusterStamp | None:
    """Return the cluster that uses an address; None: none does.

    Raises:
        InvalidConfig: the stamp is damaged, or the object store refuses the request.
    """
    objects = open_objects(prefix)
    content = await until_answered(prefix, lambda: get_object(objects, CLUSTER_STAMP))
    return None if content is None else _parse(content, prefix)


def _parse(content: bytes, prefix: ObjectStoreUrl) -> ClusterStamp:
    try:
        return ClusterStamp(**json.loads(content))
    except (ValueError, TypeError) as error:
        raise InvalidConfig(
            f"{CLUSTER_STAMP} of {prefix} cannot be read, so it is not known which cluster uses"
            " this address; put back the object as it was"
        ) from error
