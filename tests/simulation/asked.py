"""Requests that servers have got and not answered yet, by link and number."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from itertools import chain
from typing import Generic, TypeVar

AskedT = TypeVar("AskedT")


class Unanswered(Generic[AskedT]):
    """What a checker keeps of each request until the answer leaves.

    A copy on the link of the request has its number: their answers come in their order. A copy on
    another link has a number of its own.
    """

    def __init__(self) -> None:
        self._waiting: defaultdict[tuple[int, int], deque[AskedT]] = defaultdict(deque)

    def add(self, link: int, number: int, asked: AskedT) -> None:
        """Keep what is known of a request."""
        self._waiting[link, number].append(asked)

    def take(self, link: int, number: int) -> AskedT | None:
        """Return what is known of the request that is answered now; None: nothing."""
        waiting = self._waiting.get((link, number))
        return waiting.popleft() if waiting else None

    def __iter__(self) -> Iterator[AskedT]:
        return chain.from_iterable(self._waiting.values())

    def forget(self, link: int) -> None:
        """Forget the requests of a link that is gone."""
        for request in [one for one in self._waiting if one[0] == link]:
            del self._waiting[request]
