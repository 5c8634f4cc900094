"""Marks of stores as objects beside them: of servers that keep their stores for good."""

from __future__ import annotations

import obstore

from magnetar_storage.durable_mark import DurableMark, read_mark, write_mark
from magnetar_storage.object_store_url import ObjectStoreUrl
from magnetar_storage.objects import get_object, open_objects, until_answered
from magnetar_storage.shared_prefix import mark_name
from magnetar_storage.store import StoreDamaged


class ObjectMarkPlace:
    """Implements MarkPlace.

    Args:
        prefix: the address that the servers of the cluster share.
        kind: "broker" or "coordinator".
        name: of the server.
    """

    is_required = True

    def __init__(self, prefix: ObjectStoreUrl, kind: str, name: str) -> None:
        self._prefix = prefix
        self._name = mark_name(kind, name)
        self._objects = open_objects(prefix, is_new=True)

    async def read(self) -> DurableMark | None:
        """Return the mark; see `MarkPlace.read`."""
        content = await until_answered(self._prefix, lambda: get_object(self._objects, self._name))
        if content is None:
            return None
        try:
            return read_mark(content)
        except ValueError as error:
            raise StoreDamaged(
                f"{self}, which says how far a store was durable, cannot be read: {error}; put"
                " back an earlier version of it"
            ) from error

    async def write(self, mark: DurableMark) -> None:
        """Replace the mark; see `MarkPlace.write`."""
        await obstore.put_async(self._objects, self._name, write_mark(mark))

    def __str__(self) -> str:
        return f"{self._prefix}/{self._name}"
