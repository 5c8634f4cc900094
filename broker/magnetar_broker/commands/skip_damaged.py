"""CommandSkipDamaged: an administrator gives up unreadable ranges of a partition.

Nothing is skipped without a command: readers get DataLoss until an administrator has decided that
the range is lost.
"""

from __future__ import annotations

import asyncio
import logging

from magnetar_broker.log.offset_set import Range
from magnetar_broker.topics.partition import Partition
from magnetar_core.errors import DataLoss, Gone, OutOfRange
from magnetar_core.wire import broker_pb2 as wire

log = logging.getLogger(__name__)

# How many bytes a call checks.
LOOKED_AT_BYTES_MAX = 64 << 20
RANGES_MAX = 100
_READ_BYTES = 1 << 20
# Each damaged offset costs a failing read.
_DAMAGED_AT_ONCE = 256


async def skip_damaged(
    partition: Partition, command: wire.CommandSkipDamaged
) -> wire.CommandSkipDamagedResponse:
    """Check a portion of the log, and return the response. It may leave when everything is durable.

    Raises:
        Gone: the topic was deleted meanwhile.
    """
    end = partition.log.durable_end
    at = min(max(command.start_offset, partition.log.first_offset), end)
    damaged: list[Range] = []
    looked_at = 0
    while at < end and looked_at < LOOKED_AT_BYTES_MAX and len(damaged) < RANGES_MAX:
        at, looked = await _look(partition, at, damaged)
        looked_at += looked
        # Other tasks have their turn.
        await asyncio.sleep(0)
        if partition.deleted:
            raise Gone(f"{partition.name} was deleted while it was looked at")
    if damaged and not command.dry_run:
        log.warning("%s: given up as unreadable: %s", partition.name, damaged)
        partition.skip_damaged(damaged)
    response = wire.CommandSkipDamagedResponse(next_offset=at, end_offset=end)
    for first, last in damaged:
        response.damaged.add(first=first, last=last)
    return response


async def _look(partition: Partition, at: int, damaged: list[Range]) -> tuple[int, int]:
    """Check from an offset on. Returns where to continue, and how many bytes were read."""
    at, end = partition.log.readable_from(at)
    if at == end:
        return at, 0
    try:
        batches = await partition.reader.read(at, bytes_max=_READ_BYTES)
    except OutOfRange:
        return partition.log.first_offset, 0
    except DataLoss:
        found = await partition.reader.damage_from(at, offsets_max=_DAMAGED_AT_ONCE)
        if found is None:
            return at, 0
        if damaged and damaged[-1][1] == found[0] - 1:
            damaged[-1] = damaged[-1][0], found[1]
        else:
            damaged.append(found)
        return found[1] + 1, _READ_BYTES
    return batches[-1].end, sum(len(batch.batch) for batch in batches)
