"""Comparison of stores in an object store with their durable marks: whether their ends are there.

A directory has its own mark, which is compared when it is opened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar_storage.object_store.url import ObjectStoreUrl
from magnetar_storage.offline.findings import Findings

if TYPE_CHECKING:
    from magnetar_cli.stored_marks import StoredMarks

_CHECK = "durable"


class Ends:
    """Compares the ends of stores with their marks.

    Args:
        etcd: addresses of the etcd of the stores' cluster; None: they were not given.
        cluster_id: the cluster, of several in one etcd.
    """

    def __init__(self, etcd: str | None, cluster_id: str) -> None:
        self._etcd = etcd
        self._cluster_id = cluster_id
        self._marks: StoredMarks | None = None

    async def compare(self, place: str, findings: Findings) -> None:
        """Note changes that are missing from the end of a store.

        Raises:
            InvalidConfig: it is not the address of a server's store, or etcd is another one.
            StoreDamaged: the manifest is missing or damaged, or an object of the log.
            StoreFailed: the store cannot be read.
        """
        if "://" not in place:
            return
        # Packages that a check of directories does not need.
        from magnetar_cli.stored_marks import EtcdUnknown, StoredMarks
        from magnetar_storage.object_store.check import generation_at
        from magnetar_storage.slatedb.end import end_of_store, missing_from_store
        from magnetar_storage.slatedb.engine import ENGINE

        url = ObjectStoreUrl.parse(place)
        self._marks = self._marks or StoredMarks(self._etcd, self._cluster_id)
        generation = await generation_at(url, engine=ENGINE)
        if generation is None:
            findings.damage(_CHECK, place, "the stamp of the store is missing")
            return
        try:
            mark_place = await self._marks.place_of(url)
        except EtcdUnknown as error:
            await end_of_store(url)
            findings.note(_CHECK, place, str(error))
            return
        missing = await missing_from_store(url, mark_place, generation)
        if missing is not None:
            findings.damage(_CHECK, place, missing)

    async def aclose(self) -> None:
        """Close the connection to etcd."""
        if self._marks is not None:
            await self._marks.close()
