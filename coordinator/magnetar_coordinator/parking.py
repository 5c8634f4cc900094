"""Parking of what waits until records are durable: of a run of commands or answers, as one.

Source: docs/design/0001-protocol.md; rules a and b.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, TypeVar

from magnetar_storage.group_commit import GroupCommit
from magnetar_storage.ready_callbacks import guard

ItemT = TypeVar("ItemT")


class _Run:
    """Calls that a run parks.

    Attributes:
        calls: each with its arguments, in order.
        gathered: functions that take many items at once, each with its items so far.
        collected: functions that are called at the end of the run, each with its items so far.
        hurries: whether any of it does.
    """

    __slots__ = ("calls", "collected", "gathered", "hurries")

    def __init__(self) -> None:
        self.calls: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self.gathered: dict[Callable[..., None], list[Any]] = {}
        self.collected: dict[Callable[..., None], list[Any]] = {}
        self.hurries = False

    def leave(self) -> None:
        """Make all calls; one that raises does not keep the others from being made."""
        for call, arguments in self.calls:
            guard(call, *arguments)


class Parking:
    """Calls back when the records that were applied so far are durable, in order."""

    def __init__(self, commits: GroupCommit) -> None:
        self._commits = commits
        # None: there is no run at present.
        self._run: _Run | None = None

    def when_durable(self, call: Callable[..., None], *arguments: Any) -> None:
        """Call back when all records applied so far are durable; in a run, all of the run's."""
        run = self._run
        if run is None:
            callback = partial(call, *arguments) if arguments else call
            self._commits.when_durable(self._commits.position(), callback)
        else:
            run.calls.append((call, arguments))
            run.hurries = run.hurries or self._commits.hurries

    def gather(self, call: Callable[[list[ItemT]], None], item: ItemT) -> None:
        """Call back as when_durable() does, once for all items of a run that have the same call."""
        run = self._run
        if run is None:
            self.when_durable(call, [item])
        elif (items := run.gathered.get(call)) is not None:
            items.append(item)
            run.hurries = run.hurries or self._commits.hurries
        else:
            run.gathered[call] = items = [item]
            self.when_durable(call, items)

    def collect(self, call: Callable[[list[ItemT]], None], item: ItemT) -> None:
        """Call at the end of a run, with all of its items that have the same call; else at once.

        What the call parks is parked with the run.
        """
        if self._run is None:
            call([item])
        else:
            self._run.collected.setdefault(call, []).append(item)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Park all that this block parks with one call, at its end."""
        if self._run is not None:
            yield
            return
        run = self._run = _Run()
        try:
            yield
        finally:
            for call, items in run.collected.items():
                guard(call, items)
            self._run = None
            if run.calls:
                with nullcontext() if run.hurries else self._commits.unhurried():
                    self._commits.when_durable(self._commits.position(), run.leave)
