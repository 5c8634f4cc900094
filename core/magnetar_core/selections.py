"""Selections of writers, compared without being kept. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

# Of a digest that is not empty.
DIGEST_BYTES: Final = hashlib.sha256().digest_size


def digest_of_selection(selection: Iterable[int] | None) -> bytes:
    """Return the digest that servers keep of a selection; empty when all writers count."""
    if selection is None:
        return b""
    text = ",".join(str(writer_id) for writer_id in sorted(set(selection)))
    return hashlib.sha256(text.encode()).digest()
