"""Changes bring a viewer to the same tables as the full state does."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from magnetar_console.feed import Feed

ROWS = st.dictionaries(st.sampled_from("abc"), st.fixed_dictionaries({"n": st.integers(0, 2)}))
TABLES = st.dictionaries(st.sampled_from(["one", "two"]), ROWS)


def applied(tables: dict[str, Any], kind: str, texts: list[str]) -> dict[str, Any]:
    """Apply events to the tables of a page, as static/live.js does."""
    for text in texts:
        if kind == "state":
            tables = json.loads(text)
            continue
        for name, change in json.loads(text).items():
            rows = tables.setdefault(name, {})
            for key in change["gone"]:
                rows.pop(key, None)
            rows.update(change["set"])
    return tables


def without_empty(tables: dict[str, Any]) -> dict[str, Any]:
    return {name: rows for name, rows in tables.items() if rows}


@given(st.lists(TABLES, max_size=12), st.sets(st.integers(0, 11)), st.integers(1, 4))
def test_a_viewer_that_looks_now_and_then_has_what_there_is(
    looks: list[dict[str, Any]], turns: set[int], changes_max: int
) -> None:
    feed = Feed(changes_max=changes_max)
    shown: dict[str, Any] = {}
    version: int | None = None
    for number, tables in enumerate(looks):
        feed.replace(tables)
        if number in turns:
            shown = applied(shown, *feed.since(version))
            version = feed.version
            assert without_empty(shown) == without_empty(tables)


def test_what_has_not_changed_is_no_change() -> None:
    feed = Feed()
    assert feed.replace({"t": {"a": {"n": 1}}})
    assert not feed.replace({"t": {"a": {"n": 1}}})
    assert feed.since(1) == ("change", [])


def test_a_slow_viewer_gets_the_full_state_again() -> None:
    feed = Feed(changes_max=2)
    for number in range(5):
        feed.replace({"t": {"a": {"n": number}}})
    assert feed.since(4) == ("change", ['{"t":{"set":{"a":{"n":4}},"gone":[]}}'])
    assert len(feed.since(3)[1]) == 2
    assert feed.since(2)[0] == "state"
    assert json.loads(feed.since(2)[1][0]) == {"t": {"a": {"n": 4}}}


def test_large_changes_are_not_kept() -> None:
    feed = Feed(change_bytes_max=100)
    feed.replace({"t": {"a": {"text": "x" * 200}}})
    assert feed.since(0)[0] == "state"


def test_a_version_of_another_process_is_none() -> None:
    feed = Feed()
    feed.replace({"t": {"a": {"n": 1}}})
    assert feed.since(7)[0] == "state"
