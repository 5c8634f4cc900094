"""Fingerprints: the same in any order and division, and different for other rows."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar_spark.arrow_in import Rows
from magnetar_spark.content import Content, hashes

Row = tuple[bytes | None, bytes | None, int | None, int | None, tuple[tuple[str, str], ...]]
ROWS = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=9),
        st.none() | st.binary(max_size=3),
        st.none() | st.integers(0, 3),
        st.none() | st.integers(1, 1 << 40),
        st.dictionaries(st.text(max_size=2), st.text(max_size=2), max_size=2).map(
            lambda named: tuple(sorted(named.items()))
        ),
    ),
    max_size=20,
)


def content(rows: list[Row], topic: str = "t") -> Content:
    columns: dict[str, pa.Array] = {
        "value": pa.array([row[0] for row in rows], pa.binary()),
        "key": pa.array([row[1] for row in rows], pa.binary()),
        "partition": pa.array([row[2] for row in rows], pa.int32()),
        "event_time": pa.array(
            [None if row[3] is None else row[3] * 1000 for row in rows], pa.timestamp("us", "UTC")
        ),
        "headers": pa.array(
            [[{"key": name, "value": text.encode()} for name, text in row[4]] for row in rows],
            pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
        ),
    }
    return Rows(pa.RecordBatch.from_pydict(columns), include_headers=True).content(topic)


@given(ROWS, st.randoms(), st.integers(1, 5))
def test_order_and_tasks_do_not_matter(rows: list[Row], order: random.Random, tasks: int) -> None:
    whole = content(rows)
    order.shuffle(rows)
    assert sum((content(rows[task::tasks]) for task in range(tasks)), Content()) == whole
    assert whole.rows == len(rows)


@given(ROWS, ROWS)
def test_other_rows_are_another_content(first: list[Row], second: list[Row]) -> None:
    same = sorted(first, key=repr) == sorted(second, key=repr)
    assert (content(first) == content(second)) == same


@pytest.mark.parametrize(
    ("first", "second"),
    [
        # As many rows, and as many bytes.
        ([b"a1", b"b2"], [b"a2", b"b1"]),
        ([b"a", b"bc"], [b"ab", b"c"]),
        ([b"\0"], [b"\1"]),
        ([b"\0\0", b""], [b"\0", b"\0"]),
        (
            [b"m%d" % n for n in range(10, 60)] * 2,
            [b"m%d" % n for n in range(10, 99)] + [b"m10"] * 11,
        ),
        ([bytes(5000)], [bytes(4999) + b"\1"]),
        ([b"x" * 70_000], [b"x" * 69_999 + b"y"]),
    ],
)
def test_rows_of_one_size_are_told_apart(first: list[bytes], second: list[bytes]) -> None:
    both = [content([(value, None, None, None, ()) for value in one]) for one in (first, second)]
    assert both[0].bytes == both[1].bytes
    assert both[0].rows == both[1].rows
    assert both[0].checksum != both[1].checksum


def test_every_column_counts() -> None:
    row: Row = (b"v", b"k", 1, 5, (("n", "x"),))
    others: list[tuple[Any, str]] = [
        ((b"w", *row[1:]), "t"),
        ((b"v", b"l", *row[2:]), "t"),
        ((b"v", None, *row[2:]), "t"),
        ((*row[:2], 2, *row[3:]), "t"),
        ((*row[:2], None, *row[3:]), "t"),
        ((*row[:3], 6, row[4]), "t"),
        ((*row[:3], None, row[4]), "t"),
        ((*row[:4], (("n", "y"),)), "t"),
        ((*row[:4], ()), "t"),
        # To another topic.
        (row, "u"),
        # What was the key is the value.
        ((b"k", b"v", *row[2:]), "t"),
    ]
    checksums = {content([one], topic).checksum for one, topic in others}
    assert len(checksums | {content([row]).checksum}) == len(others) + 1


def test_a_row_counts_the_same_whatever_lies_beside_it() -> None:
    """Rows are hashed together, in pieces of 64 KiB; long ones by themselves, from 4 KiB on."""
    sizes = [0, 1, 4095, 4096, 4097, 65_535, 65_536, 65_537, 0, 3, 200_000, 1, *range(900, 1000)]
    numbers = random.Random(7)
    values = [numbers.randbytes(size) for size in sizes]
    found = hashes(pa.array(values, pa.binary()))
    assert len({*found.tolist()}) == len({*values})
    for number, value in enumerate(values):
        assert hashes(pa.array([value], pa.binary()))[0] == found[number]
    some = pa.array([b"before", *values, b"after"], pa.binary()).slice(1, len(values))
    assert (hashes(some) == found).all()


def test_what_is_kept_means_the_same_tomorrow() -> None:
    """A checksum that comes out differently in the next version would refuse every replay."""
    rows: list[Row] = [(b"v%d" % n, b"k" if n % 2 else None, None, n or None, ()) for n in range(5)]
    assert str(content(rows)) == "rows=5 bytes=12 checksum=cc2e0f05a384a7a3"
