"""Records what the workers report: which transactions they began, and how these ended.

It waits, and does no other I/O.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from magnetar import TxnID


@dataclass(slots=True)
class Entry:
    """A transaction of a worker; `committed_at_s` and `aborted_because` are its outcome.

    Attributes:
        worker: the worker's process id.
        begun_at_s: when it began, by the machine's monotonic clock.
        committed_at_s: when it was committed, by the same clock.
    """

    worker: int
    begun_at_s: float
    committed_at_s: float | None = None
    aborted_because: str | None = None

    @property
    def undecided(self) -> bool:
        """Whether it has no outcome yet."""
        return self.committed_at_s is None and self.aborted_because is None


class Journal:
    """All transactions of all workers."""

    def __init__(self) -> None:
        self.entries: dict[TxnID, Entry] = {}
        self.ready: set[int] = set()
        self.message_count = 0
        self._changed = asyncio.Condition()

    async def note(self, worker: int, line: str) -> None:
        """Read a line of a worker; see `tell` in worker.py."""
        at, verb, *rest = line.split()
        if verb == "ready":
            self.ready.add(worker)
        else:
            txn_id = TxnID.parse(rest[0])
            if verb == "begun":
                self.entries[txn_id] = Entry(worker, float(at))
            elif verb == "committed":
                self.entries[txn_id].committed_at_s = float(at)
                self.message_count += int(rest[1])
            elif verb == "aborted":
                self.entries[txn_id].aborted_because = rest[1]
        async with self._changed:
            self._changed.notify_all()

    def undecided_of(self, worker: int) -> TxnID | None:
        """Return the transaction that a worker has begun and not ended; None without."""
        for txn_id, entry in reversed(self.entries.items()):
            if entry.worker == worker:
                return txn_id if entry.undecided else None
        return None

    def committed_count(self) -> int:
        """Return the number of committed transactions."""
        return sum(entry.committed_at_s is not None for entry in self.entries.values())

    async def until_messages(self, count: int) -> None:
        """Wait until the committed transactions have this number of messages."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.message_count >= count)

    async def first_commit(self, since_s: float, worker: int | None = None) -> float:
        """Wait for the first committed transaction that began after a time, and return it.

        A transaction that began earlier may have needed nothing more of a server that is dead now.
        """

        def found() -> float | None:
            return min(
                (
                    entry.committed_at_s
                    for entry in self.entries.values()
                    if entry.committed_at_s is not None
                    and entry.begun_at_s > since_s
                    and worker in (None, entry.worker)
                ),
                default=None,
            )

        async with self._changed:
            await self._changed.wait_for(lambda: found() is not None)
        at_s = found()
        assert at_s is not None
        return at_s
