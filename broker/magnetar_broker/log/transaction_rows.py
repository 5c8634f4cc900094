"""Rows of several committed transactions of a partition, read together.

Transactions that began close to each other lie close to each other in the sidecar, so a scan over
all of them costs about as much as a scan for one. In an object store, a scan for each would cost
each of them a request, one after the other. Rows that are not found this way are looked up one by
one, by the code that needs them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from magnetar_broker import keys
from magnetar_broker.log.entries import MarkerEntry, stored_batch_header
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

# Messages of transactions that are open, or not asked for, may lie in between: a scan that is
# mostly of those is the last one.
USEFUL_SHARE_MIN: Final = 0.25
_ROWS_MAX: Final = 4_096
# A row's key, and more rows than were counted.
_BYTES_EACH: Final = 256


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
            # The last transaction may go on after the end of the scan.
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


def rows_of_writer(rows: Sequence[Row], ordinal: int) -> list[tuple[int, bytes]]:
    """Return first indexes and batches of a writer, among the rows of its transaction."""
    places = ((keys.txnlog_place(key), batch) for key, batch in rows)
    return [(index, batch) for (_, found, index), batch in places if found == ordinal]


def batches_between(
    batches: Iterable[tuple[int, bytes]], place: int, end: int, bytes_max: int, *, verify: bool
) -> list[tuple[int, int, bytes]] | None:
    """Return index of the first message, count, and bytes of a writer's batches.

    Args:
        batches: from the writer's first batch on.
        place: the first batch returned holds this index.
        end: stop before this index.
        bytes_max: stop with the batch that reaches this size.
        verify: verify the checksums.
    Returns:
        None: a batch is missing in between, or damaged.
    """
    chosen: list[tuple[int, int, bytes]] = []
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
