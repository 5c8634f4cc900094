"""Selections of writers, compared by their digest so that nobody has to keep them. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable


def digest_of_selection(selection: Iterable[int] | None) -> bytes:
    """Return the digest that participants keep; empty when the selection is None (all writers)."""
    if selection is None:
        return b""
    text = ",".join(str(writer_id) for writer_id in sorted(selection))
    return hashlib.sha256(text.encode()).digest()
