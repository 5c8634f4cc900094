"""Deletion of a log's first messages, up to an offset that a client names.

The offset may lie inside an entry: a batch, or the marker of a transaction. Then the log begins
there, and the row of that entry stays until its last message leaves. No other row ever begins below
the log. Readers that ask for an offset get the entry that holds it, and leave out what lies before.
"""

from __future__ import annotations

import asyncio

from magnetar_broker.environment import Environment
from magnetar_broker.topics.partition import Partition
from magnetar_broker.topics.retention import oldest_entries

# Between looks whether clients still read what is to be removed (rule m).
_READ_AGAIN_S = 0.01


async def delete_before(environment: Environment, partition: Partition, offset: int) -> None:
    """Delete the messages before an offset, at most up to the durable end, a portion at a time.

    Subscriptions that still need some of them go on after them, and retention of unconsumed
    messages does not hinder it: an administrator has asked for it.

    Raises:
        RowsUnreadable: an entry cannot be read.
        DataLoss: an entry is damaged.
    """
    log = partition.log
    while log.first_offset < offset and not _is_gone(partition):
        skipped_to = log.readable_from(log.first_offset)[0]
        if skipped_to > log.first_offset:
            partition.trim_skipped(min(skipped_to, offset))
            continue
        entries = await oldest_entries(environment, partition)
        if _is_gone(partition):
            return
        limit = offset if log.lowest_pin is None else min(offset, log.lowest_pin)
        doomed = [one for one in entries if log.first_offset < one.end <= limit]
        if doomed:
            partition.trim(doomed)
            await environment.commits.durable()
        elif limit == offset:
            partition.begin_inside(offset)
        else:
            await asyncio.sleep(_READ_AGAIN_S)


def _is_gone(partition: Partition) -> bool:
    """Return whether the partition was deleted; that may happen during each wait."""
    return partition.deleted
