"""A partition's log in memory: what is durable may be shown, and the tail is bounded."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.harness import txn

from magnetar_broker.log.entries import DataEntry, MarkerEntry, MarkerWriter, parse_entry
from magnetar_broker.log.partition_log import PartitionLog
from magnetar_core.batch import encode


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=30), st.integers(0, 30), st.integers(0, 1500)
)
def test_the_tail_shows_durable_entries_only(
    counts: list[int], durable: int, tail_bytes_max: int
) -> None:
    log = PartitionLog(first_offset=7, end_offset=7, tail_bytes_max=tail_bytes_max)
    entries = []
    for count in counts:
        entries.append(DataEntry(log.end_offset, count, 0, b"v" * 10 * count))
        log.append(entries[-1])
        log.check()
    assert log.end_offset == 7 + sum(counts)
    assert log.retained_bytes == 10 * sum(counts)
    assert log.durable_end == 7
    assert log.tail_from(7, entries_max=99) == []
    shown = entries[: min(durable, len(entries))]
    if shown:
        log.advance(shown[-1].end)
        log.advance(8)
    for offset in range(7, log.durable_end):
        tail = log.tail_from(offset, entries_max=3)
        expected = [one for one in shown if one.end > offset][:3]
        assert tail in ([], expected)
        if tail_bytes_max == 1500 and len(counts) < 5:
            assert tail == expected
    assert log.tail_from(6, entries_max=3) == []


def test_an_entry_goes_where_the_log_ends() -> None:
    log = PartitionLog(end_offset=3, tail_bytes_max=100)
    with pytest.raises(AssertionError):
        log.append(DataEntry(4, 1, 0, b""))


def test_what_the_tail_drops_is_freed_at_once() -> None:
    """The broker counts on it when its memory is short."""
    batches = [b"%03d" % number * 1_000 for number in range(100)]
    log = PartitionLog(tail_bytes_max=1 << 20)
    for batch in batches:
        log.append(DataEntry(log.end_offset, 1, 0, batch))
    log.advance(log.end_offset)
    assert sys.getrefcount(batches[0]) == sys.getrefcount(batches[1])
    log.drop_oldest()
    assert sys.getrefcount(batches[0]) == sys.getrefcount(batches[1]) - 1
    assert log.tail_from(0, entries_max=1) == []
    assert log.tail_from(1, entries_max=1) == [DataEntry(1, 1, 0, batches[1])]


def test_pins_hold_the_lowest_offset_that_is_read() -> None:
    assert PartitionLog(tail_bytes_max=100).lowest_pin is None
    log = PartitionLog(tail_bytes_max=100)
    first, second = log.pin(9), log.pin(4)
    assert log.lowest_pin == 4
    log.unpin(second)
    assert log.lowest_pin == 9
    log.unpin(first)
    assert log.lowest_pin is None


@pytest.mark.parametrize(
    "entry",
    [
        DataEntry(5, 3, -1, encode([b"a", b"b", b"c"])),
        MarkerEntry(9, 4, 7, txn(1), (MarkerWriter(0, 8, 3), MarkerWriter(2, 9, 1)), 77, stamp=5),
    ],
)
def test_entries_are_read_as_they_were_written(entry: DataEntry | MarkerEntry) -> None:
    assert parse_entry(entry.entry_id, entry.to_bytes()) == entry
    assert entry.end == entry.entry_id + entry.count


def test_what_leaves_the_tail_leaves_memory() -> None:
    """A thousand dropped batches were kept: 34 MiB where 4 were allowed."""
    log = PartitionLog(tail_bytes_max=10_000)
    for _ in range(900):
        log.append(DataEntry(log.end_offset, 1, 0, bytes(800)))
    assert len(log._tail) <= 14
