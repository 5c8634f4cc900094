"""Which request an answer belongs to, where copies of several may travel under one number."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeVar

Asked = TypeVar("Asked")


def take(
    waiting: deque[Asked] | None, answer: str, name_of: Callable[[Asked], str]
) -> Asked | None:
    """Take the oldest request that an answer of this name fits; None: nobody can say which."""
    if not waiting:
        return None
    if answer == "error":
        alike = len({name_of(one) for one in waiting}) == 1
        return waiting.popleft() if alike else None
    for place, one in enumerate(waiting):
        if f"{name_of(one)}_response" == answer:
            del waiting[place]
            return one
    return None
