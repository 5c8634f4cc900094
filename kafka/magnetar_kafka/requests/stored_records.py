"""Stored batches, as Kafka's clients read them.

Their own batches leave as they came, but for base offset and leader epoch. Messages of our clients
become a RecordBatch. A message in parts has the offset of its last part.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from magnetar_broker.log.stored_batch import StoredBatch
from magnetar_broker.topics.partition import Partition
from magnetar_core import batch as columnar
from magnetar_core.batch import Part
from magnetar_core.errors import MessageTooLarge
from magnetar_core.record_batch import at_offset
from magnetar_kafka.transcoding import records_of_batch

Pieces = list[bytes | memoryview]


async def read_records(partition: Partition, offset: int, *, bytes_max: int) -> Pieces:
    """Return record batches in order, beginning with the one that holds an offset.

    Args:
        bytes_max: stop with the batch that reaches this size.
    Raises:
        OutOfRange: as LogReader.read.
        DataLoss: as LogReader.read.
        InvalidArgument: a batch cannot be opened.
        MessageTooLarge: a message in parts exceeds bytes_max.
    """
    pieces: Pieces = []
    parts: list[StoredBatch] = []
    gathered = 0
    while True:
        stored = await partition.reader.read(offset, bytes_max=max(1, bytes_max - gathered))
        for one in stored:
            offset = one.end
            if columnar.is_of_kafka(one.batch):
                found: Sequence[bytes | memoryview] = at_offset(
                    columnar.stored_records(one.batch), one.first_offset
                )
            elif columnar.part_of(one.batch) is Part.WHOLE:
                found = (_records_of(one.batch, one, one.visible_count),)
                # Each batch is opened: others have their turn.
                await asyncio.sleep(0)
            elif gathered:
                # The message follows in the next answer, which begins with it.
                return pieces
            else:
                found = _joined(parts, one, bytes_max)
            pieces += found
            gathered += sum(map(len, found))
        # A message in parts is read to its end, and one without its beginning is passed over.
        if not stored or gathered or offset >= partition.log.durable_end:
            return pieces


def _joined(parts: list[StoredBatch], one: StoredBatch, bytes_max: int) -> Sequence[bytes]:
    """Take the next part of a message; return the message if it is complete.

    Raises:
        MessageTooLarge: it exceeds bytes_max.
    """
    part = columnar.part_of(one.batch)
    if part is Part.FIRST or (parts and parts[-1].end != one.first_offset):
        parts.clear()
    if part is not Part.FIRST and not parts:
        return ()
    parts.append(one)
    if sum(len(part.batch) for part in parts) > bytes_max:
        raise MessageTooLarge(
            f"a message in parts at offset {parts[0].first_offset} exceeds {bytes_max} bytes"
        )
    if part is not Part.LAST:
        return ()
    whole = columnar.join([part.batch for part in parts])
    parts.clear()
    return (_records_of(whole, one, 1),)


def _records_of(batch: bytes, stored: StoredBatch, count: int) -> bytes:
    return records_of_batch(
        batch, count, base_offset=stored.first_offset, append_time_ms=stored.append_time_ms
    )
