"""Reader of a partition: entries from tail or store, with markers resolved into messages.

A transaction's messages lie together in the txnlog, whatever was interleaved while it was open: the
marker's counts lead from an offset to its batch by a single ordered scan.
Source: PIP-31, Broker Dispatching; docs/architecture.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from magnetar_broker import keys
from magnetar_broker.log.entries import (
    DataEntry,
    Entry,
    MarkerEntry,
    parse_entries,
    stored_batch_header,
)
from magnetar_broker.log.offset_set import Range
from magnetar_broker.log.partition_log import PartitionLog
from magnetar_broker.log.stored_batch import StoredBatch
from magnetar_broker.log.transaction_rows import Row, batches_between, rows_of_all, rows_of_writer
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
                f"offset {at} of {self._name} cannot be read: {error}; `magnetar topics"
                " skip-damaged` says how much is lost, and goes on behind it",
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
            found: dict[TxnID, list[Row]] | None = None
            for place, entry in enumerate(entries):
                if entry.entry_id >= end:
                    break
                before = len(batches)
                if isinstance(entry, DataEntry):
                    batches.append(_plain(entry))
                else:
                    if found is None and entry.messages is None:
                        found = await self._rows_ahead(entries[place:], end, bytes_max - gathered)
                    await self._resolve(
                        batches,
                        entry,
                        (found or {}).get(entry.txn_id, ()),
                        offset - entry.entry_id,
                        end,
                        bytes_max - gathered,
                    )
                gathered += sum(len(one.batch) for one in batches[before:])
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
            raise DataLoss(f"the log holds no entry for offset {offset}", offset=offset)
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

    async def _resolve(
        self,
        batches: list[StoredBatch],
        marker: MarkerEntry,
        rows: Sequence[Row],
        index: int,
        end: int,
        bytes_max: int,
    ) -> None:
        """Add the transaction's batches, from the batch that holds its message `index`.

        Args:
            rows: those of the transaction that were read already; all or none.
            end: stop before this offset.
        """
        gathered = 0
        base = 0
        for number, writer in enumerate(marker.writers):
            place = max(index - base, 0)
            wanted = min(writer.count, end - marker.entry_id - base)
            if place < wanted and gathered < bytes_max:
                async for start, count, batch in self._batches_of_writer(
                    marker, number, rows, place, wanted, bytes_max - gathered
                ):
                    batches.append(
                        StoredBatch(
                            entry_id=marker.entry_id,
                            first_index=base + start,
                            count=count,
                            visible_count=min(count, writer.count - start),
                            append_time_ms=marker.append_time_ms,
                            batch=batch,
                            txn_id=marker.txn_id,
                            stamp=marker.stamp,
                        )
                    )
                    gathered += len(batch)
            base += writer.count

    async def _batches_of_writer(
        self,
        marker: MarkerEntry,
        number: int,
        rows: Sequence[Row],
        place: int,
        count: int,
        bytes_max: int,
    ) -> AsyncIterator[tuple[int, int, bytes]]:
        """Yield a writer's batches like _batches_of: from memory, from rows, or from the store."""
        ordinal = marker.writers[number].ordinal
        at_hand: list[tuple[int, int, bytes]] | None = None
        if marker.messages is not None:
            in_memory = marker.messages.of_writers[number]
            at_hand = batches_between(in_memory, place, count, bytes_max, verify=False)
        elif rows:
            read = rows_of_writer(rows, ordinal)
            at_hand = batches_between(read, place, count, bytes_max, verify=True)
        if at_hand is not None:
            for one in at_hand:
                yield one
            return
        async for one in self._batches_of(marker.txn_id, ordinal, place, count, bytes_max):
            yield one

    async def _batches_of(
        self, txn_id: TxnID, ordinal: int, place: int, count: int, bytes_max: int
    ) -> AsyncIterator[tuple[int, int, bytes]]:
        """Yield a producer's batches in a transaction: index of the first message, count, bytes."""
        start = keys.txnlog(self._prefix, txn_id, ordinal, 0)
        end = keys.txnlog(self._prefix, txn_id, ordinal, count)
        if place:
            before = await self._store.scan(
                keys.TXNLOG,
                start,
                keys.txnlog(self._prefix, txn_id, ordinal, place + 1),
                rows_max=1,
                reverse=True,
            )
            if not before:
                raise DataLoss(f"messages of transaction {txn_id} are missing", txn_id=txn_id)
            start, first = before[0]
            if keys.last_u64(start) + stored_batch_header(first).count <= place:
                raise DataLoss(f"messages of transaction {txn_id} are missing", txn_id=txn_id)
        gathered = 0
        expected = keys.last_u64(start)
        while expected < count and gathered < bytes_max:
            rows = await scan_readable(
                self._store,
                keys.TXNLOG,
                start,
                end,
                rows_max=ENTRIES_MAX,
                bytes_max=bytes_max - gathered,
            )
            if not rows:
                raise DataLoss(f"messages of transaction {txn_id} are missing", txn_id=txn_id)
            for key, batch in rows:
                at = keys.last_u64(key)
                if at != expected:
                    raise DataLoss(f"messages of transaction {txn_id} are missing", txn_id=txn_id)
                expected += stored_batch_header(batch).count
                gathered += len(batch)
                yield at, expected - at, batch
            start = keys.txnlog(self._prefix, txn_id, ordinal, expected)


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
