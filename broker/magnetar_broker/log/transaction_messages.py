"""Messages of committed transactions: in memory, among rows read ahead, or in the sidecar.

Transactions that began close to each other lie close to each other in the sidecar, so a scan over
all of them (`rows_of_all`) costs about as much as a scan for one. In an object store, a scan for
each would cost each of them a request, one after the other. What is not found this way is looked up
in the sidecar, transaction by transaction.
Source: PIP-31, Broker Dispatching; docs/architecture.md.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Final

from magnetar_broker import keys
from magnetar_broker.log.entries import MarkerEntry, stored_batch_header
from magnetar_broker.log.stored_batch import StoredBatch
from magnetar_core.errors import DataLoss
from magnetar_core.ids import TxnID
from magnetar_storage.store import (
    KEY_END,
    RowsUnreadable,
    Store,
    end_of_prefix,
    scan_readable,
)

Row = tuple[bytes, bytes]
# A batch of a writer: the index of its first message, the count of its messages, and its bytes.
WriterBatch = tuple[int, int, bytes]

# How many rows of a transaction a scan reads.
ROWS_MAX = 512

# Messages of transactions that are open, or not asked for, may lie in between: a scan that is
# mostly of those is the last one.
USEFUL_SHARE_MIN: Final = 0.25
_ROWS_MAX: Final = 4_096
# A row's key, and more rows than were counted.
_BYTES_EACH: Final = 256


class TransactionMessages:
    """Messages of a committed transaction, wherever they are.

    Each source returns a writer's batches, from the batch that holds the index `place` up to the
    index `end`; it stops with the batch that reaches bytes_max. None says that it has not all of
    them. The last source has them, or the log is damaged.

    Args:
        prefix: of the partition's keys.
        rows: those of the transaction that were read ahead; all or none.
    """

    def __init__(
        self, store: Store, prefix: bytes, marker: MarkerEntry, rows: Sequence[Row] = ()
    ) -> None:
        self._store = store
        self._prefix = prefix
        self._marker = marker
        self._rows = rows

    async def batches(self, index: int, end: int, bytes_max: int) -> AsyncIterator[StoredBatch]:
        """Yield the batches, from the batch that holds the transaction's message `index` on.

        Args:
            end: stop before this offset of the log.
            bytes_max: stop with the batch that reaches this size.
        Raises:
            DataLoss: messages are missing, or damaged.
            RowsUnreadable: they cannot be read.
        """
        marker = self._marker
        base = 0
        for number, writer in enumerate(marker.writers):
            place = max(index - base, 0)
            wanted = min(writer.count, end - marker.entry_id - base)
            if place < wanted and bytes_max > 0:
                async for start, count, batch in self._of_writer(number, place, wanted, bytes_max):
                    yield StoredBatch(
                        entry_id=marker.entry_id,
                        first_index=base + start,
                        count=count,
                        visible_count=min(count, writer.count - start),
                        append_time_ms=marker.append_time_ms,
                        batch=batch,
                        txn_id=marker.txn_id,
                        stamp=marker.stamp,
                    )
                    bytes_max -= len(batch)
            base += writer.count

    def _of_writer(
        self, number: int, place: int, end: int, bytes_max: int
    ) -> AsyncIterator[WriterBatch]:
        return (
            self._in_memory(number, place, end, bytes_max)
            or self._read_ahead(number, place, end, bytes_max)
            or self._in_sidecar(number, place, end, bytes_max)
        )

    def _in_memory(
        self, number: int, place: int, end: int, bytes_max: int
    ) -> AsyncIterator[WriterBatch] | None:
        """Take the batches that the marker has in the tail of the log."""
        if self._marker.messages is None:
            return None
        in_memory = self._marker.messages[number]
        found = batches_between(in_memory, place, end, bytes_max, verify=False)
        return None if found is None else _each(found)

    def _read_ahead(
        self, number: int, place: int, end: int, bytes_max: int
    ) -> AsyncIterator[WriterBatch] | None:
        """Take the batches that were read together with those of other transactions."""
        if not self._rows:
            return None
        places = ((keys.txnlog_place(key), batch) for key, batch in self._rows)
        ordinal = self._marker.writers[number].ordinal
        batches = [(index, batch) for (_, writer, index), batch in places if writer == ordinal]
        found = batches_between(batches, place, end, bytes_max, verify=True)
        return None if found is None else _each(found)

    async def _in_sidecar(
        self, number: int, place: int, end: int, bytes_max: int
    ) -> AsyncIterator[WriterBatch]:
        """Read the batches from the store."""
        txn_id, ordinal = self._marker.txn_id, self._marker.writers[number].ordinal
        missing = DataLoss(f"messages of transaction {txn_id} are missing", txn_id=txn_id)
        start = keys.txnlog(self._prefix, txn_id, ordinal, 0)
        if place:
            before = await self._store.scan(
                keys.TXNLOG,
                start,
                keys.txnlog(self._prefix, txn_id, ordinal, place + 1),
                rows_max=1,
                reverse=True,
            )
            if not before:
                raise missing
            start, first = before[0]
            if keys.last_u64(start) + stored_batch_header(first).count <= place:
                raise missing
        gathered = 0
        expected = keys.last_u64(start)
        while expected < end and gathered < bytes_max:
            rows = await scan_readable(
                self._store,
                keys.TXNLOG,
                start,
                keys.txnlog(self._prefix, txn_id, ordinal, end),
                rows_max=ROWS_MAX,
                bytes_max=bytes_max - gathered,
            )
            if not rows:
                raise missing
            for key, batch in rows:
                at = keys.last_u64(key)
                if at != expected:
                    raise missing
                expected += stored_batch_header(batch).count
                gathered += len(batch)
                yield at, expected - at, batch
            start = keys.txnlog(self._prefix, txn_id, ordinal, expected)


async def rows_of_all(
    store: Store, prefix: bytes, markers: Sequence[MarkerEntry]
) -> dict[TxnID, list[Row]]:
    """Return all rows of those transactions that a few scans find.

    Args:
        prefix: of the partition's keys.
        markers: of the transactions; their messages together are about to be read.
    """
    wanted = {marker.txn_id: marker.stored_bytes for marker in markers}
    order = sorted(wanted)
    end = end_of_prefix(prefix + order[-1].to_bytes()) if order else KEY_END
    found: dict[TxnID, list[Row]] = {}
    at = 0
    while at < len(order):
        bytes_max = sum(wanted[one] + _BYTES_EACH for one in order[at:])
        try:
            rows = await scan_readable(
                store,
                keys.TXNLOG,
                prefix + order[at].to_bytes(),
                end,
                rows_max=_ROWS_MAX,
                bytes_max=bytes_max,
            )
        except RowsUnreadable:
            return found
        by_txn_id: dict[TxnID, list[Row]] = {}
        for row in rows:
            by_txn_id.setdefault(keys.txnlog_place(row[0])[0], []).append(row)
        scanned = sum(len(key) + len(value) for key, value in rows)
        if len(rows) == _ROWS_MAX or scanned >= bytes_max:
            # The last transaction may have rows after the end of the scan.
            behind = next(reversed(by_txn_id))
            del by_txn_id[behind]
        else:
            behind = None
        useful = {one: rows for one, rows in by_txn_id.items() if one in wanted}
        found.update(useful)
        gained = sum(wanted[one] for one in useful)
        if behind is None or gained < USEFUL_SHARE_MIN * scanned:
            return found
        while at < len(order) and order[at] < behind:
            at += 1
    return found


def batches_between(
    batches: Iterable[tuple[int, bytes]], place: int, end: int, bytes_max: int, *, verify: bool
) -> list[WriterBatch] | None:
    """Return a writer's batches.

    Args:
        batches: from the writer's first batch on.
        place: the first batch returned holds this index.
        end: stop before this index.
        bytes_max: stop with the batch that reaches this size.
        verify: verify the checksums.
    Returns:
        None: a batch is missing in between, or damaged.
    """
    chosen: list[WriterBatch] = []
    expected = gathered = 0
    for start, batch in batches:
        if start >= end or gathered >= bytes_max:
            return chosen
        if start != expected:
            return None
        try:
            count = stored_batch_header(batch, verify=verify).count
        except DataLoss:
            return None
        expected += count
        if expected > place:
            chosen.append((start, count, batch))
            gathered += len(batch)
    return chosen if expected >= end or gathered >= bytes_max else None


async def _each(found: list[WriterBatch]) -> AsyncIterator[WriterBatch]:
    for one in found:
        yield one
