"""Selections of writers, compared without being kept. Pure."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable


def digest_of_selection(selection: Iterable[int] | None) -> bytes:
    """Return the digest that servers keep of a selection; empty when all writers count."""
    if selection is None:
        return b""
    text = ",".join(str(writer_id) for writer_id in sorted(set(selection)))
    return hashlib.sha256(text.encode()).digest()


def is_digest_of(digest: bytes, selection: Iterable[int] | None) -> bool:
    """Return whether a stored digest belongs to this selection, whichever version stored it."""
    if selection is None:
        return not digest
    writer_ids = sorted(set(selection))
    if digest == digest_of_selection(writer_ids):
        return True
    # Coordinators of before kept that of the numbers in 64 bits each, with the outcome.
    numbers = struct.pack(f">{len(writer_ids)}Q", *writer_ids)
    return digest == hashlib.sha256(numbers).digest()
