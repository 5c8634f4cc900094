"""Check of a broker's store at rest: its rows keep all invariants, if nothing is lost.

Nothing is changed. A store that was killed at any moment passes: whatever belongs together is
written in one batch.
Source: docs/check.md.
"""

from __future__ import annotations

from collections.abc import Callable

from magnetar_broker import keys
from magnetar_broker.dispatch import pending_ack_rows
from magnetar_broker.dispatch.acknowledgements import Acknowledgements
from magnetar_broker.log.offset_set import OffsetSet, Range
from magnetar_broker.offline.broker import OfflineBroker, place_of, read_broker
from magnetar_broker.offline.partition import OfflinePartition, Saw, check_writers
from magnetar_core.ids import TxnID
from magnetar_core.wire import record_pb2 as records
from magnetar_storage.offline.findings import Findings
from magnetar_storage.offline.rows import OfflineRows
from magnetar_storage.store import Reader

SubscriptionPlace = tuple[int, int, int]


async def check_broker(
    reader: Reader,
    findings: Findings,
    saw: Saw,
    passed: Callable[[int], object] = lambda _: None,
) -> OfflineBroker:
    """Check a broker's store.

    Args:
        saw: called with each transaction that a participant holds as open or ended.
        passed: called with the number of rows that were read.
    Returns:
        Content of the small families, to compare it with other servers.
    """
    rows = OfflineRows(reader, findings, passed)
    broker = await read_broker(rows)
    _check_ids(broker, findings)
    for place in sorted(broker.partitions):
        if place[0] not in broker.topics and rows.is_whole(keys.TOPICS):
            findings.damage("topic", f"partition {place}", "its topic is not in the directory")
        await OfflinePartition(rows, broker, findings, place, saw).run()
    await _check_producers(rows, broker, findings)
    cursors = await _check_cursors(rows, broker, findings)
    await _check_pending_acks(rows, broker, findings, cursors, saw)
    return broker


def _check_ids(broker: OfflineBroker, findings: Findings) -> None:
    highest = max((subscription_place[2] for subscription_place in broker.subscriptions), default=0)
    bound = broker.next_subscription_id
    if bound is not None and highest >= bound:
        findings.damage(
            "ids", "subscriptions", f"id {highest} is in use, and {bound} is the next to be given"
        )
    for tcid, watermark in broker.watermarks.known():
        taken = broker.incarnations.get(tcid)
        if taken is not None and watermark.incarnation > taken:
            findings.damage(
                "incarnation",
                f"coordinator {tcid}",
                f"it announced incarnation {watermark.incarnation}, and took {taken}",
            )
    highest_of: dict[int, TxnID] = {}
    for index in broker.indexes.values():
        for txn_id in index:
            highest_of[txn_id.tcid] = max(txn_id, highest_of.get(txn_id.tcid, txn_id))
    for tcid, txn_id in highest_of.items():
        taken = broker.incarnations.get(tcid)
        if taken is not None and txn_id.incarnation > taken:
            findings.damage(
                "incarnation", str(txn_id), f"coordinator {tcid} took incarnation {taken} only"
            )


async def _check_producers(rows: OfflineRows, broker: OfflineBroker, findings: Findings) -> None:
    async for key, value in rows.rows(keys.PRODUCERS):
        place = place_of(key)
        partition = broker.partitions.get(place)
        with rows.parsing(keys.PRODUCERS, key):
            row = records.ProducerRow.FromString(value)
            if partition is not None and row.last_entry_id >= max(1, partition.end_offset):
                findings.damage(
                    "producer",
                    f"{broker.name(place)}: producer {keys.last_u64(key)}",
                    f"its last batch is at {row.last_entry_id}, and the log ends at"
                    f" {partition.end_offset}",
                )


async def _check_cursors(
    rows: OfflineRows, broker: OfflineBroker, findings: Findings
) -> dict[SubscriptionPlace, Acknowledgements]:
    chunks: dict[SubscriptionPlace, list[tuple[int, bytes]]] = {}
    async for key, value in rows.rows(keys.CURSORS):
        subscription_place = (*place_of(key), int.from_bytes(key[12:20], "big"))
        chunks.setdefault(subscription_place, []).append((keys.last_u64(key), value))
    cursors: dict[SubscriptionPlace, Acknowledgements] = {}
    for subscription_place, found in chunks.items():
        record = broker.subscriptions.get(subscription_place)
        name = _name(broker, subscription_place)
        if record is None or record.absent:
            if rows.is_whole(keys.SUBSCRIPTIONS):
                findings.damage("cursor", name, "a cursor is stored, and its subscription is not")
            continue
        cursor = cursors[subscription_place] = Acknowledgements.restored(found)
        partition = broker.partitions.get(subscription_place[:2])
        if partition is not None and cursor.known_end > partition.end_offset:
            findings.damage(
                "cursor",
                name,
                f"it has acknowledged up to {cursor.known_end - 1}, and the log ends at"
                f" {partition.end_offset}",
            )
    if rows.is_whole(keys.CURSORS):
        for subscription_place, record in broker.subscriptions.items():
            if (
                not record.absent
                and subscription_place not in chunks
                and subscription_place[:2] in broker.partitions
            ):
                findings.damage(
                    "cursor", _name(broker, subscription_place), "its cursor is missing"
                )
    return cursors


async def _check_pending_acks(
    rows: OfflineRows,
    broker: OfflineBroker,
    findings: Findings,
    cursors: dict[SubscriptionPlace, Acknowledgements],
    saw: Saw,
) -> None:
    acks: dict[tuple[SubscriptionPlace, TxnID], dict[int, set[int]]] = {}
    held: dict[SubscriptionPlace, dict[TxnID, OffsetSet]] = {}
    async for key, value in rows.rows(keys.PENDINGACKS):
        subscription_place = (*place_of(key), int.from_bytes(key[12:20], "big"))
        txn_id, ordinal, sequence = keys.pending_ack_place(key)
        ranges: list[Range] = []
        with rows.parsing(keys.PENDINGACKS, key):
            ranges = list(pending_ack_rows.unpack(ordinal, sequence, value).ranges)
        where = f"{_name(broker, subscription_place)}: {txn_id}"
        entry = broker.index(*subscription_place).get(txn_id)
        if entry is None or not entry.is_open:
            if rows.is_whole(keys.TXNINDEX):
                findings.damage("pending-ack", where, "its transaction is not open here")
            continue
        acks.setdefault((subscription_place, txn_id), {}).setdefault(ordinal, set()).add(sequence)
        _check_ranges(
            broker, findings, subscription_place, where, ranges, cursors.get(subscription_place)
        )
        held.setdefault(subscription_place, {}).setdefault(txn_id, OffsetSet()).update(
            OffsetSet(ranges)
        )
    for subscription_place, by_txn_id in held.items():
        together = OffsetSet()
        for txn_id, offsets in by_txn_id.items():
            if together.intersection(offsets):
                findings.damage(
                    "pending-ack",
                    f"{_name(broker, subscription_place)}: {txn_id}",
                    "it holds a message that another transaction holds, too",
                )
            together.update(offsets)
    for subscription_place, index in broker.indexes.items():
        if not subscription_place[2]:
            continue
        for txn_id, entry in index.items():
            where = f"{_name(broker, subscription_place)}: {txn_id}"
            if entry.row is None:
                findings.damage("index", where, "its writers are known, and its own row is not")
                continue
            saw(txn_id, _name(broker, subscription_place), entry.status)
            check_writers(findings, _name(broker, subscription_place), txn_id, entry)
            for ordinal, (consumer_id, count) in entry.writers.items():
                found = acks.get((subscription_place, txn_id), {}).get(ordinal, set())
                if found != set(range(count)) and rows.is_whole(keys.PENDINGACKS):
                    findings.damage(
                        "pending-ack",
                        where,
                        f"consumer {consumer_id} acknowledged {count} times, and {len(found)} of"
                        " these acks are stored",
                    )


def _check_ranges(
    broker: OfflineBroker,
    findings: Findings,
    subscription_place: SubscriptionPlace,
    where: str,
    ranges: list[Range],
    cursor: Acknowledgements | None,
) -> None:
    partition = broker.partitions.get(subscription_place[:2])
    for _, last in ranges:
        if partition is not None and last >= partition.end_offset:
            findings.damage(
                "pending-ack", where, f"it holds {last}, the log ends at {partition.end_offset}"
            )
    if cursor is not None and cursor.deleted.intersection(OffsetSet(ranges)):
        findings.damage("pending-ack", where, "it holds a message that is acknowledged already")


def _name(broker: OfflineBroker, subscription_place: SubscriptionPlace) -> str:
    record = broker.subscriptions.get(subscription_place)
    named = record.subscription if record is not None else str(subscription_place[2])
    return f"{broker.name(subscription_place[:2])}, subscription {named}"
