"""Puts something else into the real code, and takes it out again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

Plant = Callable[[], AbstractContextManager[None]]


@contextmanager
def replaced(owner: Any, name: str, replacement: Any) -> Iterator[None]:
    """Put something else into a module's or class's place, for a while."""
    original = getattr(owner, name)
    setattr(owner, name, replacement)
    try:
        yield
    finally:
        setattr(owner, name, original)
