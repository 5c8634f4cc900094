"""Finds the marks of stores in an object store, for commands about stopped servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import obstore

from magnetar_cli.cluster.options import open_directory
from magnetar_cluster.directory.cluster_directory import ClusterDirectory
from magnetar_cluster.directory.shard_marks import ShardMarkPlace
from magnetar_cluster.directory.view import ShardName
from magnetar_core.config import InvalidConfig
from magnetar_storage.object_store.cluster_stamp import ClusterStamp, cluster_at
from magnetar_storage.object_store.object_marks import ObjectMarkPlace
from magnetar_storage.object_store.objects import open_objects
from magnetar_storage.object_store.shared_prefix import (
    COPIES,
    KINDS,
    StorePlace,
    folder_of,
    mark_names,
    place_of_store,
)
from magnetar_storage.object_store.url import ObjectStoreUrl

if TYPE_CHECKING:
    from magnetar_storage.durable_mark import MarkPlace


def servers_at(prefix: ObjectStoreUrl) -> list[tuple[str, str]]:
    """Return kind and name of each server that has a store below the address of a cluster."""
    objects = open_objects(prefix)
    servers = []
    for kind in KINDS:
        below = obstore.list_with_delimiter(objects, f"{folder_of(kind)}/")["common_prefixes"]
        for folder in below:
            listed = obstore.list_with_delimiter(objects, folder)
            folders = {one.rstrip("/").rpartition("/")[2] for one in listed["common_prefixes"]}
            # A server that has not started yet has only copies of others' marks there.
            if listed["objects"] or folders - {COPIES.rstrip("/")}:
                servers.append((kind, folder.rstrip("/").rpartition("/")[2]))
    return servers


class EtcdUnknown(InvalidConfig):
    """The marks are in etcd, and the command was not told where etcd is."""


class StoredMarks:
    """Finds the marks of stores: beside the stores, or in the etcd of their cluster.

    Args:
        etcd: addresses of etcd's members; None: they were not given.
        cluster_id: the cluster, of several in one etcd.
    """

    def __init__(self, etcd: str | None, cluster_id: str) -> None:
        self._etcd = etcd
        self._cluster_id = cluster_id
        self._directory: ClusterDirectory | None = None

    async def place_of(self, url: ObjectStoreUrl) -> MarkPlace:
        """Return where the mark of a store lies.

        Raises:
            EtcdUnknown: it is in etcd.
            InvalidConfig: the address is not that of a server's store, or etcd is another one.
            ClusterDirectoryUnavailable: etcd does not answer.
        """
        store = place_of_store(url)
        if store is None:
            raise InvalidConfig(
                f"{url} does not end as the address of a store does: brokers/NAME or"
                " coordinators/NAME"
            )
        cluster = await cluster_at(store.prefix)
        if cluster is None or not cluster.token:
            others = [name for kind, name in servers_at(store.prefix) if kind != store.kind]
            names = mark_names(store.kind, store.name, others)
            return ObjectMarkPlace(store.prefix, names)
        directory = await self._directory_of(cluster, store)
        number = store.name.removeprefix(f"{store.kind}-")
        if not number.isdecimal():
            raise InvalidConfig(
                f"{url} is not the address of a shard: shards are called {store.kind}-NUMBER"
            )
        return ShardMarkPlace(directory, ShardName(store.kind, int(number)))

    async def close(self) -> None:
        """Close the connection to etcd."""
        if self._directory is not None:
            await self._directory.close()

    async def _directory_of(self, cluster: ClusterStamp, store: StorePlace) -> ClusterDirectory:
        if self._etcd is None:
            raise EtcdUnknown(
                f"how far {store.name} was durable is kept by the etcd of the cluster {cluster}: "
                "name its address with --etcd HOST:PORT or MAGNETAR_ETCD"
            )
        if self._directory is None:
            self._directory = open_directory(self._etcd, self._cluster_id)
        found = await self._directory.format(None)
        if found is None or found.token != cluster.token or self._cluster_id != cluster.cluster_id:
            raise InvalidConfig(
                f"{store.prefix} belongs to the cluster {cluster}, and etcd at {self._etcd} has"
                f" another cluster of the id {self._cluster_id!r}, or none: name the right etcd,"
                " and the cluster with --cluster-id"
            )
        return self._directory
