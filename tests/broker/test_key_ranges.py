"""Slots of the key hash: equal shares, few moves; what is known of stored batches."""

from __future__ import annotations

from array import array
from collections import Counter
from random import Random

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar_broker.dispatch.key_ranges import EMPTY_KEY_SLOT, SLOT_COUNT, Targets, slot_of_hash
from magnetar_broker.dispatch.key_slots import OPENED_BYTES_MAX, KnownSlots, slots_of
from magnetar_core.batch import HEADER, Codec, encode, split


def slot_of(key: bytes) -> int:
    return slot_of_hash(google_crc32c.value(key))


def shares(targets: Targets) -> Counter[int | None]:
    return Counter(targets.of(slot) for slot in range(SLOT_COUNT))


def joined(*ids: int) -> Targets:
    targets = Targets()
    for one in ids:
        targets.add(one, f"consumer-{one}")
    return targets


@pytest.mark.parametrize("seed", range(20))
def test_ten_consumers_have_shares_within_a_fifth_of_each_other(seed: int) -> None:
    random = Random(seed)
    targets = Targets()
    for number in range(10):
        targets.add(random.getrandbits(64), f"worker-{seed}-{number}")
    counts = shares(targets)
    assert len(counts) == 10
    mean = SLOT_COUNT / 10
    assert all(0.8 * mean < count < 1.2 * mean for count in counts.values()), counts


def test_one_that_joins_takes_its_share_and_moves_nothing_else() -> None:
    targets = joined(*range(1, 10))
    before = [targets.of(slot) for slot in range(SLOT_COUNT)]
    targets.add(10, "consumer-10")
    moved = [slot for slot in range(SLOT_COUNT) if targets.of(slot) != before[slot]]
    assert all(targets.of(slot) == 10 for slot in moved)
    assert 0.08 * SLOT_COUNT < len(moved) < 0.12 * SLOT_COUNT


def test_one_that_leaves_gives_up_its_share_and_moves_nothing_else() -> None:
    targets = joined(*range(1, 11))
    before = [targets.of(slot) for slot in range(SLOT_COUNT)]
    targets.remove(4)
    for slot in range(SLOT_COUNT):
        assert targets.of(slot) != 4
        assert before[slot] in (4, targets.of(slot))
    assert max(shares(targets).values()) < 1.2 * SLOT_COUNT / 9


def test_targets_depend_on_who_is_there_and_not_on_the_way_there() -> None:
    direct, roundabout = joined(1, 2, 3), joined(3, 4, 1)
    roundabout.remove(4)
    roundabout.add(2, "consumer-2")
    assert shares(direct) == shares(roundabout)
    assert all(direct.of(slot) == roundabout.of(slot) for slot in range(SLOT_COUNT))
    for one in (1, 2, 3):
        direct.remove(one)
    assert direct.of(0) is None


@pytest.mark.parametrize("pattern", [b"key-%d", b"%08d", b"user:%x"])
@pytest.mark.parametrize("partitions", [1, 3, 4])
def test_keys_that_count_spread_over_all_slots_of_each_partition(
    partitions: int, pattern: bytes
) -> None:
    """Clients choose the partition by the same hash; the slot must not follow from that."""
    hashes = (google_crc32c.value(pattern % number) for number in range(partitions * 20_000))
    used = Counter(slot_of_hash(one) for one in hashes if one % partitions == partitions - 1)
    assert len(used) > 0.9 * SLOT_COUNT
    assert max(used.values()) < 40


# What a batch says


@pytest.mark.parametrize("codec", list(Codec))
def test_mixed_keys_are_read_from_the_batch(codec: Codec) -> None:
    keys = [b"a", b"b", b"", b"a"]
    slots = slots_of(encode([b"v"] * 4, keys, codec=codec))
    assert slots == array("H", [slot_of(key) for key in keys])


def test_a_batch_of_one_key_is_not_opened() -> None:
    batch = bytearray(encode([b"v"] * 3, [b"k"] * 3))
    batch[HEADER.size :] = bytes(len(batch) - HEADER.size)
    assert slots_of(bytes(batch)) == slot_of(b"k")


def test_messages_without_a_key_have_the_empty_one() -> None:
    assert slot_of(b"") == EMPTY_KEY_SLOT
    assert slots_of(encode([b"v"])) == EMPTY_KEY_SLOT
    assert slots_of(encode([b"v", b"w"], [b"", b""])) == EMPTY_KEY_SLOT


def test_the_first_part_tells_the_key_of_its_message() -> None:
    first, *rest = split(encode([bytes(1000)], [b"k"]), 100)
    assert slots_of(first) == slot_of(b"k")
    assert [slots_of(part) for part in rest] == [None] * len(rest)
    assert slots_of(split(encode([bytes(1000)]), 100)[0]) == EMPTY_KEY_SLOT
    assert slots_of(split(encode([b""]), 1)[0]) == EMPTY_KEY_SLOT, "it is too short to tell"


def test_a_batch_that_would_fill_the_memory_is_not_opened() -> None:
    batch = bytearray(encode([b"v", b"w"], [b"a", b"b"], codec=Codec.ZSTD))
    batch[8:12] = (OPENED_BYTES_MAX + 1).to_bytes(4, "little")
    assert slots_of(bytes(batch)) == EMPTY_KEY_SLOT


@given(
    codec=st.sampled_from(list(Codec)),
    damage=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=8),
    cut=st.integers(0, 40),
)
def test_a_damaged_batch_gets_some_slot(
    codec: Codec, damage: list[tuple[int, int]], cut: int
) -> None:
    values = [b"value-%d" % one for one in range(20)]
    batch = bytearray(encode(values, [b"k%d" % (one % 7) for one in range(20)], codec=codec))
    for at, byte in damage:
        batch[at % len(batch)] = byte
    slots = slots_of(bytes(batch[: len(batch) - cut]))
    if slots is not None:
        found = [slots] if isinstance(slots, int) else slots
        assert all(0 <= one < SLOT_COUNT for one in found)


def test_what_is_known_comes_as_runs() -> None:
    known = KnownSlots()
    known.add(10, 13, array("H", [1, 1, 2, 1]))
    known.add(20, 29, 7)
    known.add(0, 4, 5)
    assert list(known.runs(0, 100)) == [
        (5, 0, 4),
        (1, 10, 11),
        (2, 12, 12),
        (1, 13, 13),
        (7, 20, 29),
    ]
    assert list(known.runs(11, 22)) == [(1, 11, 11), (2, 12, 12), (1, 13, 13), (7, 20, 22)]
    assert list(known.runs(5, 9)) == list(known.runs(14, 19)) == list(known.runs(30, 99)) == []
    assert (known.slot_at(12), known.slot_at(14), known.knows(20)) == (2, None, True)
    assert known.batches(13, 20) == [(10, 13), (20, 29)]
    for ranges in ([(0, 100)], [(11, 22)], [(5, 9), (10, 10), (12, 13), (14, 14), (20, 20)]):
        apart = [run for one in ranges for run in known.runs(*one)]
        assert list(known.runs_of(ranges)) == apart
    known.forget(10)
    assert list(known.runs(0, 21)) == [(5, 0, 4), (7, 20, 21)]
