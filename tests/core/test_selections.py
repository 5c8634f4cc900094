"""Coordinators and participants use the same digest of a selection."""

from __future__ import annotations

import hashlib

import pytest

from magnetar_core.selections import digest_of_selection


def test_what_is_stored_stays_as_it_is() -> None:
    assert digest_of_selection(None) == b""
    assert digest_of_selection([]) == hashlib.sha256(b"").digest()
    assert digest_of_selection([10, 9]) == hashlib.sha256(b"9,10").digest()


@pytest.mark.parametrize("selection", [(1, 2), (2, 1), (2, 1, 2), {1, 2}])
def test_order_and_repetitions_say_nothing(selection: tuple[int, ...]) -> None:
    assert digest_of_selection(selection) == digest_of_selection((1, 2))


def test_no_other_selection_has_the_digest() -> None:
    selections = [(1, 1 << 63), (1,), (1, 2), (), None]
    assert len({digest_of_selection(one) for one in selections}) == len(selections)
