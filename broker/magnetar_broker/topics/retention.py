"""Retention: which entries may leave the front of a partition's log.

Entries leave when they are too old, or when the log is too large. A jump of the wall clock makes
nothing older. Entries that the slowest subscription still needs stay, unless the topic says
otherwise, and so do entries that a client is reading (rule m). The messages of a trimmed marker
leave with it.
"""

from __future__ import annotations

from magnetar_broker import keys
from magnetar_broker.environment import Environment
from magnetar_broker.log.entries import Entry, parse_entries
from magnetar_broker.topics.partition import Partition
from magnetar_broker.topics.topics import Topic
from magnetar_core.errors import DataLoss
from magnetar_core.wire import topic_pb2 as wire
from magnetar_storage.store import RowsUnreadable, scan_readable

ENTRIES_AT_ONCE = 1_000


async def trim_partition(environment: Environment, topic: Topic, partition: Partition) -> int:
    """Trim all entries that may leave, a portion at a time.

    Returns:
        How many entries left.
    """
    trimmed = 0
    while portion := await _trim_portion(environment, topic, partition):
        trimmed += portion
        if portion < ENTRIES_AT_ONCE:
            break
        # Other tasks have their turn, and the open group stays small.
        await environment.commits.durable()
    return trimmed


async def _trim_portion(environment: Environment, topic: Topic, partition: Partition) -> int:
    record, log = topic.record, partition.log
    if not record.retention_ms and not record.retention_bytes:
        return 0
    try:
        entries = await oldest_entries(environment, partition)
    except (RowsUnreadable, DataLoss):
        skipped_to = log.readable_from(log.first_offset)[0]
        if skipped_to == log.first_offset:
            raise
        if skipped_to <= _limit(topic, partition):
            # Ranges that were given up leave as soon as they are at the front.
            partition.trim_skipped(skipped_to)
        return 0
    if partition.deleted:
        return 0
    limit = _limit(topic, partition)
    excess = log.retained_bytes - record.retention_bytes if record.retention_bytes else 0
    doomed: list[Entry] = []
    for entry in entries:
        too_old = (
            bool(record.retention_ms)
            and environment.ages.of(entry.append_time_ms) > record.retention_ms
        )
        if entry.end <= log.first_offset:
            continue
        if entry.end > limit or not (too_old or excess > 0):
            break
        excess -= entry.retained_bytes
        doomed.append(entry)
    if doomed:
        partition.trim(doomed)
    return len(doomed)


async def oldest_entries(environment: Environment, partition: Partition) -> list[Entry]:
    """Return a portion from the front of the log, up to the first unreadable entry.

    The log may begin inside the first one: see the module deletions.

    Raises:
        RowsUnreadable: the first entry cannot be read.
        DataLoss: the first entry is damaged.
    """
    place, log = (partition.name.topic_id, partition.name.partition), partition.log
    begins_at = log.first_offset
    rows = await scan_readable(
        environment.store,
        keys.LOG,
        keys.in_partition(*place, begins_at),
        keys.in_partition(*place, log.durable_end),
        rows_max=ENTRIES_AT_ONCE,
        bytes_max=16 * 1024 * 1024,
    )
    entries = parse_entries(rows)
    has_front = bool(entries) and entries[0].entry_id == begins_at
    if has_front or begins_at == log.end_offset or log.readable_from(begins_at)[0] != begins_at:
        return entries
    held = await partition.reader.entry_at(begins_at)
    return entries if held is None else [held, *entries]


def _limit(topic: Topic, partition: Partition) -> int:
    """Return the first offset that must stay."""
    log = partition.log
    limit = log.durable_end
    if topic.record.retain_unconsumed == wire.YES:
        limit = min(limit, partition.lowest_needed_offset)
    if log.lowest_pin is not None:
        limit = min(limit, log.lowest_pin)
    return limit
