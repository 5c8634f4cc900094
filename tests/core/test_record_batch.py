"""The head of Kafka's RecordBatch, and the batch of ours that stores one."""

from __future__ import annotations

import struct

import pytest

from magnetar_core import batch as columnar
from magnetar_core import record_batch
from magnetar_core.errors import ChecksumMismatch, InvalidArgument
from magnetar_core.kafka_records.writing import write_records


def made_of(count: int) -> bytes:
    return write_records([b"v"] * count, None, [0] * count, {}, base_offset=0)


@pytest.mark.parametrize(
    ("at", "layout", "value", "text"),
    [
        (8, ">i", -20, "says that it has"),
        (16, ">b", 1, "format 1"),
        (23, ">i", 5, "ends at offset delta"),
        (57, ">i", 0, "records ends"),
        (57, ">i", -1, "records ends"),
    ],
)
def test_a_head_that_contradicts_itself(at: int, layout: str, value: int, text: str) -> None:
    made = bytearray(made_of(2))
    struct.pack_into(layout, made, at, value)
    with pytest.raises(InvalidArgument, match=text):
        record_batch.read_head(bytes(made))


def test_a_wrong_checksum_is_noticed() -> None:
    made = bytearray(made_of(1))
    made[-2] ^= 1
    with pytest.raises(ChecksumMismatch):
        record_batch.check_checksum(bytes(made), record_batch.read_head(bytes(made)))


def test_a_batch_of_ours_tells_what_it_stores_and_is_not_sent_by_our_clients() -> None:
    made = made_of(2)
    wrapped = columnar.wrapped_records(made, 2)
    assert columnar.is_of_kafka(wrapped)
    assert not columnar.is_of_kafka(columnar.encode([b"v"]))
    assert columnar.stored_records(wrapped) == made
    with pytest.raises(InvalidArgument, match="port for Kafka's clients"):
        columnar.check_claims(columnar.read_header(wrapped), body_bytes_max=9, messages_max=100)
