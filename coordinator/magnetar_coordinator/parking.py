"""Parking of what waits until records are durable: of a run of commands or answers, as one.

Source: docs/design/0001-protocol.md; rules a and b.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

from magnetar_storage.group_commit import GroupCommit


class Parking:
    """Calls back when the records that were applied so far are durable, in order."""

    def __init__(self, commits: GroupCommit) -> None:
        self._commits = commits
        # What the present run waits with; None: there is no run.
        self._together: list[Callable[[], None]] | None = None
        # Whether any of it hurries.
        self._hurries = False

    def when_durable(self, call: Callable[[], None]) -> None:
        """Call back when all records applied so far are durable; in a run, all of the run's."""
        if self._together is None:
            self._commits.when_durable(self._commits.position(), call)
        else:
            self._together.append(call)
            self._hurries |= self._commits.hurries

    @contextmanager
    def together(self) -> Iterator[None]:
        """Park all that this block parks with one call, at its end."""
        if self._together is not None:
            yield
            return
        calls: list[Callable[[], None]] = []
        self._together, self._hurries = calls, False
        try:
            yield
        finally:
            self._together = None
            if calls:
                with nullcontext() if self._hurries else self._commits.unhurried():
                    self._commits.when_durable(self._commits.position(), *calls)
