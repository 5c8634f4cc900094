"""Coordinators and participants use the same digest of a selection, and recognise older digests."""

from __future__ import annotations

import hashlib
import struct

import pytest

from magnetar_core.selections import digest_of_selection, is_digest_of


def numbers_digest(*writer_ids: int) -> bytes:
    """As coordinators kept it before."""
    return hashlib.sha256(struct.pack(f">{len(writer_ids)}Q", *writer_ids)).digest()


def test_what_is_stored_stays_as_it_is() -> None:
    assert digest_of_selection(None) == b""
    assert digest_of_selection([]) == hashlib.sha256(b"").digest()
    assert digest_of_selection([10, 9]) == hashlib.sha256(b"9,10").digest()


@pytest.mark.parametrize("selection", [(1, 2), (2, 1), (2, 1, 2), {1, 2}])
def test_order_and_repetitions_say_nothing(selection: tuple[int, ...]) -> None:
    assert digest_of_selection(selection) == digest_of_selection((1, 2))
    assert is_digest_of(digest_of_selection((1, 2)), selection)


@pytest.mark.parametrize("digest", [digest_of_selection((1, 1 << 63)), numbers_digest(1, 1 << 63)])
def test_both_formats_are_recognised_and_no_other_selection(digest: bytes) -> None:
    assert is_digest_of(digest, (1 << 63, 1))
    for other in ((1,), (1, 2), (), None):
        assert not is_digest_of(digest, other)


def test_none_and_nobody_differ() -> None:
    assert is_digest_of(b"", None)
    assert not is_digest_of(b"", ())
    assert is_digest_of(numbers_digest(), ())
    assert not is_digest_of(numbers_digest(), None)
