"""Batches of our clients as Kafka's clients read them. Pure.

Tombstones, keys and empty keys are the same in both. Properties become headers; see
magnetar_core.kafka_records.headers. The timestamp is the event time; a message without one has the
time at which the broker stored it. A batch that came compressed leaves compressed, as LZ4, which
every client reads.
"""

from __future__ import annotations

from magnetar_core.batch import NO_EVENT_TIME_MS, Codec, decode, read_header
from magnetar_core.kafka_records.headers import headers_of
from magnetar_core.kafka_records.writing import write_records
from magnetar_core.record_batch import LZ4, NONE


def records_of_batch(batch: bytes, count: int, *, base_offset: int, append_time_ms: int) -> bytes:
    """Return a RecordBatch of the first messages of a batch, which is not a part of a message.

    Args:
        count: how many messages; the batch may have more.
    Raises:
        InvalidArgument: the batch cannot be opened.
        MessageTooLarge: the batch declares to be too large.
    """
    columns = decode(batch, verify=False)
    keys, properties, times = columns.keys(), columns.properties(), columns.event_times_ms
    timestamps_ms = [append_time_ms] * count
    if times is not None:
        timestamps_ms = [
            append_time_ms if time_ms == NO_EVENT_TIME_MS else time_ms for time_ms in times[:count]
        ]
    is_compressed = read_header(batch, verify=False).codec != Codec.NONE
    return write_records(
        columns.values_or_none()[:count],
        None if keys is None else keys[:count],
        timestamps_ms,
        {place: headers_of(one) for place, one in enumerate((properties or ())[:count]) if one},
        base_offset=base_offset,
        compression=LZ4 if is_compressed else NONE,
    )
