"""Names and patterns, in the same way for topics of a group and for transactional ids."""

from __future__ import annotations

import pytest

from magnetar_core.list_limits import ROWS_DEFAULT, ROWS_MAX, rows_of
from magnetar_core.wildcards import matcher


@pytest.mark.parametrize(
    ("pattern", "fitting", "others"),
    [
        ("orders-*", ["orders-", "orders-eu\n"], ["orders", "my-orders-eu", "Orders-eu"]),
        ("t?", ["t1", "tt"], ["t", "t11"]),
        ("[ab]*", ["a", "b1"], ["c", "[ab]"]),
        ("*", ["", "anything"], []),
        ("", [""], ["a"]),
        (".*", [".a"], ["a"]),
        ("a[", ["a["], ["a"]),
    ],
)
def test_whole_names_in_their_own_case(pattern: str, fitting: list[str], others: list[str]) -> None:
    fits = matcher(pattern)
    assert [fits(one) for one in fitting] == [True] * len(fitting)
    assert [fits(one) for one in others] == [False] * len(others)


def test_a_pattern_of_many_stars_takes_no_time() -> None:
    assert not matcher("*a" * 50)("a" * 49 + "b" * 1_000)


def test_a_list_has_a_limit_whatever_is_asked_for() -> None:
    assert rows_of(0) == ROWS_DEFAULT
    assert rows_of(7) == 7
    assert rows_of(ROWS_MAX) == rows_of((1 << 32) - 1) == ROWS_MAX
