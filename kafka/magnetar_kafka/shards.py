"""Shards that the listener's process has: each a broker, which may end before the process.

A server may lose a shard at any moment. What is answered in its name is looked at when it leaves,
as frames are; and what waits for its store is told when it has ended.
Source: docs/design/0009-owners.md, Zombies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import google_crc32c

from magnetar_broker.local_access import LocalAccess
from magnetar_core.errors import MagnetarError
from magnetar_core.ids import PartitionName
from magnetar_core.membership.placement import shard_of
from magnetar_core.wire import topic_pb2


def shard_of_group(group: str, shards: int) -> int:
    """Return the number of the shard whose broker coordinates a group of Kafka's clients."""
    found: int = google_crc32c.value(group.encode()) % shards
    return found


class Shard:
    """A shard of this process.

    Args:
        may_speak: whether its lease lasts, and its store has not failed.
    """

    def __init__(self, access: LocalAccess, may_speak: Callable[[], bool] = lambda: True) -> None:
        self.access = access
        self.number = access.shard
        self._may_speak = may_speak
        self._ended = False
        self._waiting: dict[object, Callable[[], None]] = {}

    def may_speak(self) -> bool:
        """Return whether an answer in the shard's name may leave now."""
        return not self._ended and self._may_speak() and self.access.may_serve

    def settle(self, callback: Callable[[], None], *, late: bool) -> None:
        """Call back when everything applied so far may be told, or when the shard has ended.

        Args:
            late: as of LocalAccess.settle.
        """
        if self._ended:
            callback()
            return
        key = object()
        self._waiting[key] = callback

        def settled() -> None:
            waiting = self._waiting.pop(key, None)
            if waiting is not None:
                waiting()

        self.access.settle(settled, late=late)

    @contextmanager
    def watched(self, callback: Callable[[], None]) -> Iterator[None]:
        """Call back if the shard ends inside of the block."""
        key = object()
        self._waiting[key] = callback
        try:
            yield
        finally:
            self._waiting.pop(key, None)

    def end(self) -> None:
        """Answer nothing in the shard's name from now on. Repeating it is harmless."""
        self._ended = True
        waiting, self._waiting = self._waiting, {}
        for callback in waiting.values():
            callback()


class Shards:
    """The shards that this process has now."""

    def __init__(self) -> None:
        self._shards: dict[int, Shard] = {}

    def add(self, shard: Shard) -> None:
        """Answer in the name of a shard."""
        self._shards[shard.number] = shard

    def remove(self, shard: Shard) -> None:
        """End a shard. Repeating it is harmless."""
        if self._shards.get(shard.number) is shard:
            del self._shards[shard.number]
        shard.end()

    def directory(self) -> Shard | None:
        """Return the shard that knows the topics best; None: none may speak."""
        for number in sorted(self._shards):
            if self._shards[number].may_speak():
                return self._shards[number]
        return None

    def ledger_id_of(self, name: PartitionName) -> int:
        """Return the ledger id of a partition; 0: the partition is not here."""
        shard = self._shards.get(shard_of(name.topic_id, name.partition))
        if shard is None or not shard.may_speak():
            return 0
        try:
            partition = shard.access.partition(name.topic, name.partition)
        except MagnetarError:
            return 0
        return partition.ledger_id if partition.name == name else 0

    def numbered(self, number: int) -> Shard | None:
        """Return a shard; None: it is not here, or may not speak."""
        shard = self._shards.get(number)
        return shard if shard is not None and shard.may_speak() else None

    def all(self) -> list[Shard]:
        """Return the shards that may speak."""
        return [one for _, one in sorted(self._shards.items()) if one.may_speak()]

    def of(self, topic: topic_pb2.TopicRecord, partition: int) -> Shard | None:
        """Return the shard that has a partition; None: it is not here, or may not speak."""
        return self.numbered(shard_of(topic.topic_id, partition))
