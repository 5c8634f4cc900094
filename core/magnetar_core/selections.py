"""Selections of writers, compared without being kept. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable


def digest_of_selection(selection: Iterable[int] | None) -> bytes:
    """As participants keep it; empty when everybody counts."""
    if selection is None:
        return b""
    text = ",".join(str(writer_id) for writer_id in sorted(selection))
    return hashlib.sha256(text.encode()).digest()
