"""A message in parts is complete or absent; parts of different messages are never joined."""

from __future__ import annotations

import pytest

from magnetar.message import AssembledBatch, ReceivedBatch
from magnetar.messaging.receiving.assembly import Assembly
from magnetar_core.batch import decode, encode, split
from magnetar_core.wire import broker_pb2

LIMIT = 1 << 20


def parts_of(value: bytes) -> list[bytes]:
    """Three of them."""
    batch = encode([value])
    parts = split(batch, -(-len(batch) // 3))
    assert len(parts) == 3
    return parts


def received(part: bytes, offset: int) -> ReceivedBatch:
    wire = broker_pb2.DeliveredBatch(entry_id=offset, num_messages=1, batch=part)
    return ReceivedBatch("t", 0, 1, wire, message_bytes_max=LIMIT)


def deliver(
    assembly: Assembly, parts: list[tuple[int, bytes]]
) -> tuple[list[AssembledBatch], list[int]]:
    """Returns the messages, and the offsets of parts that belong to none."""
    whole: list[AssembledBatch] = []
    cut: list[int] = []
    for offset, part in parts:
        message, left_over = assembly.add(received(part, offset))
        whole += [message] if message is not None else []
        cut += [one.first_offset for one in left_over]
    return whole, cut


ONE, OTHER = parts_of(b"one" * 100), parts_of(b"other" * 100)


@pytest.mark.parametrize("missing", [[2], [1, 2]])
def test_the_next_message_begins_anew_where_the_last_one_was_cut(missing: list[int]) -> None:
    """A dead letter, or a seek, may have taken the rest of it: the offsets follow each other."""
    assembly = Assembly(LIMIT)
    begun = [part for number, part in enumerate(ONE) if number not in missing]
    whole, cut = deliver(assembly, list(enumerate([*begun, *OTHER])))
    assert [one.first_offset for one in whole] == [len(begun)]
    assert decode(whole[0].data).values() == [b"other" * 100]
    assert cut == list(range(len(begun)))
    assert not assembly.is_under_way


def test_parts_with_a_gap_between_them_are_no_message() -> None:
    assembly = Assembly(LIMIT)
    whole, cut = deliver(assembly, [(0, ONE[0]), (2, ONE[2]), *enumerate(OTHER, start=3)])
    assert [one.first_offset for one in whole] == [3]
    assert decode(whole[0].data).values() == [b"other" * 100]
    assert cut == [0, 2]


def test_a_part_without_its_beginning_is_told() -> None:
    assembly = Assembly(LIMIT)
    assert deliver(assembly, [(7, ONE[1]), (8, ONE[2])]) == ([], [7, 8])
    assert not assembly.is_under_way
