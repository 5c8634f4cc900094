"""The comparison of what is printed with what is shown can fail."""

from __future__ import annotations

from typing import Any

import pytest
from tests.pages.comparison import ANYTHING, alike, alike_values

SHARDS = ["SHARD     OWNER     EPOCH  PINNED TO", "broker-0  broker-a      7  -"]


@pytest.mark.parametrize(
    ("found", "same"),
    [
        (SHARDS, True),
        ([SHARDS[0], "broker-0  broker-a     99  -"], True),
        ([SHARDS[0], "broker-0  broker-b      7  -"], False),
        ([SHARDS[0]], False),
        ([*SHARDS, "broker-1  broker-a      7  -"], False),
    ],
)
def test_tables(found: list[str], same: bool) -> None:
    assert alike(found, SHARDS) is same
    assert alike(found, [SHARDS[0], ANYTHING])


def test_lines() -> None:
    assert alike(["created a, id 7"], ["created a, id 9"])
    assert not alike(["created b, id 7"], ["created a, id 9"])
    assert alike(["a", "b", "c"], ["a", ANYTHING, "c"])
    assert alike(["a", "b", "c"], ["a", ANYTHING])
    assert not alike(["a", "b"], ["a", ANYTHING, "c"])
    assert not alike(["1999"], ["2000"])
    assert alike(["Error: no link"], ["Error: ... link"])
    assert not alike(["Error: no link"], ["Error: ... server"])


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        ({"a": 1}, {"a": 2}),
        ({"a": 1, "b": 1}, {"a": 1}),
        ({}, {"a": "1"}),
        ({"a": [1]}, {"a": []}),
    ],
)
def test_json(found: Any, wanted: Any) -> None:
    assert not alike_values(found, wanted)
    assert alike_values(found, {ANYTHING: ANYTHING})
