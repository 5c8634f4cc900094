"""Reader of a partition: entries from tail or store, with markers resolved into messages.

A transaction's messages lie together in the txnlog, whatever was interleaved while it was open: the
marker's counts lead from an offset to its batch by a single ordered scan.
Source: PIP-31, Broker Dispatching; docs/architecture.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from magnetar_broker import keys
from magnetar_broker.log.entries import DataEntry, Entry, MarkerEntry, parse_entries
from magnetar_broker.log.offset_set import Range
from magnetar_broker.log.partition_log import PartitionLog
from magnetar_broker.log.stored_batch import StoredBatch
from magnetar_broker.log.transaction_messages import Row, TransactionMessages, rows_of_all
from magnetar_core.errors import DAMAGED, DataLoss, OutOfRange
from magnetar_core.ids import PartitionName, TxnID
from magnetar_storage.store import RowsUnreadable, Store, scan_readable

ENTRIES_MAX = 512
# More than any partition has.
MESSAGES_MAX = 1 << 63
# How many damaged offsets are checked before other tasks have their turn.
DAMAGED_IN_A_TURN = 32


class LogReader:
    """Reader of a partition's committed messages."""

    def __init__(self, store: Store, log: PartitionLog, name: PartitionName) -> None:
        self._store = store
        self._log = log
        self._name = name
        self._topic_id = name.topic_id
        self._number = name.partition
        self._prefix = keys.partition(name.topic_id, name.partition)

    async def read(
        self, offset: int, *, bytes_max: int, messages_max: int = MESSAGES_MAX
    ) -> list[StoredBatch]:
        """Return batches in order, beginning with the batch that holds `offset`.

        Args:
            bytes_max: stop with the batch that reaches this size; a first batch is always returned.
            messages_max: stop with the batch that reaches so many messages.

        The result is empty at the durable end. Offsets that were given up are skipped; the result
        ends before unreadable batches.

        Raises:
            OutOfRange: retention has removed the offset, or it lies beyond the end.
            DataLoss: rows are missing, or cannot be read.
        """
        log = self._log
        if not log.first_offset <= offset <= log.durable_end:
            raise OutOfRange(
                f"offset {offset} is outside of {log.first_offset} to {log.durable_end}",
                first_offset=log.first_offset,
                end_offset=log.durable_end,
            )
        batches: list[StoredBatch] = []
        pin = log.pin(offset)
        try:
            while not await self._try(batches, offset, bytes_max, messages_max):
                pass
        finally:
            log.unpin(pin)
        return batches

    async def _try(
        self, batches: list[StoredBatch], offset: int, bytes_max: int, messages_max: int
    ) -> bool:
        """Gather the result of read().

        Return False to try again: a failed range was given up meanwhile.
        """
        at = self._log.readable_from(offset)[0]
        try:
            await self._gather(batches, offset, bytes_max, messages_max)
        except (RowsUnreadable, DataLoss) as error:
            if batches:
                return True
            if self._log.readable_from(offset)[0] != at:
                return False
            # The cause may name the transaction of the messages.
            known = error.details if isinstance(error, DataLoss) else {"state": DAMAGED}
            raise DataLoss(
                f"offset {at} of {self._name} cannot be read: {error}; to see how much is lost"
                " and continue after it, run `magnetar topics skip-damaged`",
                **{**known, "offset": at},
            ) from error
        return True

    async def _gather(
        self, batches: list[StoredBatch], offset: int, bytes_max: int, messages_max: int
    ) -> None:
        """Gather the result of read(); after a failure, `batches` has the batches before it."""
        log = self._log
        gathered = 0
        offset, readable_end = log.readable_from(offset)
        enough = offset + messages_max
        while offset < (end := min(readable_end, enough)):
            # Each has a message at least.
            entries_max = min(ENTRIES_MAX, end - offset)
            entries = await self._entries_from(offset, bytes_max, entries_max)
            ahead: dict[TxnID, list[Row]] | None = None
            for place, entry in enumerate(entries):
                if entry.entry_id >= end:
                    break
                left = bytes_max - gathered
                if isinstance(entry, DataEntry):
                    batches.append(_plain(entry))
                    gathered += len(entry.batch)
                else:
                    if ahead is None and entry.messages is None:
                        ahead = await self._rows_ahead(entries[place:], end, left)
                    rows = (ahead or {}).get(entry.txn_id, ())
                    messages = TransactionMessages(self._store, self._prefix, entry, rows)
                    async for batch in messages.batches(offset - entry.entry_id, end, left):
                        batches.append(batch)
                        gathered += len(batch.batch)
                offset = entry.end
                if gathered >= bytes_max:
                    return
            offset, readable_end = log.readable_from(min(offset, end))

    async def damage_from(self, offset: int, *, offsets_max: int) -> Range | None:
        """Return the unreadable range from an offset on, among offsets_max; None: it is readable.

        Each offset is checked, so that readable offsets between two damaged places are not given
        up.
        """
        end = min(self._log.durable_end, offset + offsets_max)
        at = offset
        while at < end and not await self._is_readable(at):
            at += 1
            if at % DAMAGED_IN_A_TURN == 0:
                await asyncio.sleep(0)
        return (offset, at - 1) if at > offset else None

    async def _damage_around(self, offset: int) -> Range | None:
        """Return a range like damage_from, but quickly: it may include readable offsets in between.

        Steps that double lead out of the damage, and halve back to its end.
        """
        if await self._is_readable(offset):
            return None
        end = self._log.durable_end
        last_damaged, step = offset, 1
        while (at := offset + step) < end and not await self._is_readable(at):
            last_damaged, step = at, step * 2
        readable = min(at, end)
        while readable - last_damaged > 1:
            middle = (last_damaged + readable) // 2
            if await self._is_readable(middle):
                readable = middle
            else:
                last_damaged = middle
        return offset, last_damaged

    async def _is_readable(self, offset: int) -> bool:
        try:
            await self.read(offset, bytes_max=1)
        except DataLoss:
            return False
        return True

    async def entry_at(self, offset: int) -> Entry | None:
        """Return the entry that holds `offset`; None at the end.

        Raises:
            RowsUnreadable: it cannot be read.
            DataLoss: it is damaged.
        """
        entries = await self._entries_from(offset, 1) if offset < self._log.durable_end else []
        return entries[0] if entries else None

    async def first_offset_at_time(self, append_time_ms: int) -> int:
        """Return the offset of the first entry appended at or after a time.

        Without such an entry, return the durable end. The search bisects over offsets: append times
        never decrease with them. An unreadable entry counts as old as the entry after it.
        """
        low, high = self._log.first_offset, self._log.durable_end
        while low < high:
            middle = (low + high) // 2
            entry = await self._readable_entry_from(middle)
            if entry is None or entry.append_time_ms >= append_time_ms:
                high = middle if entry is None else min(middle, entry.entry_id)
            else:
                low = entry.end
        return low

    async def _readable_entry_from(self, offset: int) -> Entry | None:
        try:
            return await self.entry_at(offset)
        except (RowsUnreadable, DataLoss):
            damage = await self._damage_around(offset)
            if damage is None:
                raise
            return await self._readable_entry_from(damage[1] + 1)

    async def _entries_from(
        self, offset: int, bytes_max: int, entries_max: int = ENTRIES_MAX
    ) -> list[Entry]:
        tail = self._log.tail_from(offset, entries_max=entries_max)
        if tail:
            return tail
        try:
            rows = await scan_readable(
                self._store,
                keys.LOG,
                keys.in_partition(self._topic_id, self._number, offset),
                keys.in_partition(self._topic_id, self._number, self._log.durable_end),
                rows_max=entries_max,
                bytes_max=bytes_max,
            )
        except RowsUnreadable:
            # The damage concerns this offset only if no readable entry before it reaches so far.
            rows = await self._row_around(offset)
            if not rows or not _holds(parse_entries(rows, verify=True)[0], offset):
                raise
        if not rows or keys.last_u64(rows[0][0]) != offset:
            rows = await self._row_around(offset)
        entries = parse_entries(rows, verify=True)
        if not entries or not _holds(entries[0], offset):
            raise DataLoss(f"the log does not have an entry for offset {offset}", offset=offset)
        return entries

    async def _row_around(self, offset: int) -> Sequence[tuple[bytes, bytes]]:
        """Return the last row that begins at an offset or before it."""
        return await self._store.scan(
            keys.LOG,
            self._prefix,
            keys.in_partition(self._topic_id, self._number, offset + 1),
            rows_max=1,
            reverse=True,
        )

    async def _rows_ahead(
        self, entries: Sequence[Entry], end: int, bytes_max: int
    ) -> dict[TxnID, list[Row]]:
        """Return rows of the transactions that read() is about to reach, read together."""
        markers: list[MarkerEntry] = []
        for entry in entries:
            if entry.entry_id >= end or bytes_max <= 0:
                break
            bytes_max -= entry.retained_bytes
            if isinstance(entry, MarkerEntry) and entry.messages is None:
                markers.append(entry)
        if len(markers) < 2:
            return {}
        return await rows_of_all(self._store, self._prefix, markers)


def _holds(entry: Entry, offset: int) -> bool:
    return entry.entry_id <= offset < entry.end


def _plain(entry: DataEntry) -> StoredBatch:
    return StoredBatch(
        entry_id=entry.entry_id,
        first_index=0,
        count=entry.count,
        visible_count=entry.count,
        append_time_ms=entry.append_time_ms,
        batch=entry.batch,
    )
