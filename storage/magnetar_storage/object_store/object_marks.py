"""Marks of stores as objects: of servers that keep their stores for good.

A mark lies beside the store of its server, and a copy below the store of another server. So it is
noticed as well if a store was put back together with its own mark.
Source: docs/design/0021-durable-marks.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import obstore

from magnetar_storage.durable_mark import DurableMark, read_mark, write_mark
from magnetar_storage.object_store.objects import get_object, open_objects, until_answered
from magnetar_storage.object_store.url import ObjectStoreUrl
from magnetar_storage.store import StoreDamaged


class ObjectMarkPlace:
    """An object with the mark of a store, and copies of it; implements MarkPlace.

    Of the copies the newest counts. They are written in turn, so that all of them together take as
    many requests as a single object.

    Args:
        prefix: the address that the servers of the cluster share.
        names: of the objects; see `shared_prefix.mark_names`.
    """

    is_required = True

    def __init__(self, prefix: ObjectStoreUrl, names: Sequence[str]) -> None:
        self._prefix = prefix
        self._names = tuple(names)
        self._objects = open_objects(prefix, is_new=True)
        self._write_count = 0

    async def read(self) -> DurableMark | None:
        """Return the mark; see `MarkPlace.read`."""
        marks: list[DurableMark] = []
        damage: StoreDamaged | None = None
        for name in self._names:
            content = await until_answered(self._prefix, partial(get_object, self._objects, name))
            try:
                marks += [] if content is None else [read_mark(content)]
            except ValueError as error:
                damage = StoreDamaged(
                    f"{self._prefix}/{name}, which says how far a store was durable, cannot be"
                    f" read: {error}"
                )
        if damage is not None and not marks:
            raise damage
        return max(marks, key=lambda mark: (mark.generation, mark.sequence), default=None)

    async def write(self, mark: DurableMark) -> None:
        """Replace one of the copies; see `MarkPlace.write`."""
        name = self._names[self._write_count % len(self._names)]
        await obstore.put_async(self._objects, name, write_mark(mark))
        self._write_count += 1

    def __str__(self) -> str:
        return f"{self._prefix}/{self._names[0]}"
