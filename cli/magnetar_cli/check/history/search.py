"""Search for an order of all servers' events in which the protocol allows each of them.

Each server's lines keep their order, and its lives theirs. Between servers only the protocol says
what comes before what: the follower takes no event before those that it answers. So a search takes,
again and again, an event that may come next, the earliest by the times of the lines. These are
hints only: clocks differ. First each server finds what its store had when its history began.

What may happen may still happen later, whatever other servers do meanwhile, unless one of them
recovers, and has lost what was not durable. So if a search gets stuck, and there were recoveries,
it is repeated: they wait then as long as anything else may happen, and where several of them may
come next, each is tried. A history is refused when all of these searches are stuck.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from copy import deepcopy
from itertools import islice
from typing import NamedTuple

from magnetar_cli.check.history.mentions import Mentions
from magnetar_cli.check.history.reading import Entry, Lines
from magnetar_cli.histories.follower import Follower, HistoryRefused, Refusal
from magnetar_cli.histories.lives import RECOVERIES
from magnetar_core.history.events import Durable, Life, Sealed, Server

# Orders of recoveries that are tried before a search gives up.
ORDERS_MAX = 64
# Events of each server that are looked at to find the one to blame.
LOOK_AHEAD = 200


class Searched(NamedTuple):
    """Result of a search.

    Attributes:
        taken_count: events that were taken in an order that is allowed.
        taken: the last one of each server.
        refused: why the events that come next are not allowed, the one to blame first. Empty: all
            events were taken.
        left: how many events were not taken, of each server that has some.
        missing: what events mention, and of which there are no lines.
        doubts: how often something could not be judged, by reason.
        is_complete: False: the search has given up, and another order may be allowed.
    """

    taken_count: int
    taken: dict[Server, Entry]
    refused: list[tuple[Entry, Refusal]]
    left: dict[Server, int]
    missing: list[str]
    doubts: dict[str, int]
    is_complete: bool = True


class _Cursor:
    """Place of a search in the lines of a server."""

    def __init__(self, lines: Lines) -> None:
        self.lines = lines
        self._entries = entries = lines.read()
        self._has_recovered = False
        self._sealed: Sealed | None = None
        self._ahead: list[Entry] = []
        self.taken: Entry | None = None
        self.head: Entry | None = next(entries, None)

    @property
    def recovers(self) -> bool:
        """Whether the next event is a recovery of another life than the first one."""
        return self._has_recovered and self.head is not None and _is_recovery(self.head)

    @property
    def is_starting(self) -> bool:
        """Whether the next event belongs to the start of the first life."""
        return not self._has_recovered and self.head is not None

    def unsaid(self) -> tuple[Life, Durable] | None:
        """Return that the last group of a life is durable, if no line of the life says so.

        A killed process may lack this line, and others may know of the group.
        """
        taken, sealed = self.taken, self._sealed
        goes_on = taken is not None and self.head is not None and self.head.life == taken.life
        if taken is None or sealed is None or goes_on:
            return None
        self._sealed = None
        report = next(one for one in self.lines.lives if one.life == taken.life)
        return None if report.is_closed else (taken.life, Durable(sealed.position))

    def advance(self) -> None:
        """Go behind the next event."""
        assert self.head is not None
        if isinstance(self.head.event, Sealed):
            self._sealed = self.head.event
        self._has_recovered = self._has_recovered or _is_recovery(self.head)
        self.taken, self.head = self.head, next(self._entries, None)

    def count_rest(self) -> int:
        """Read all events that were not taken, for their damages, and return how many there are."""
        ahead = len(self._ahead) + (self.head is not None)
        return ahead + sum(1 for _ in self._entries)

    def following(self) -> list[Entry]:
        """Return the next events, LOOK_AHEAD at most."""
        self._ahead += islice(self._entries, LOOK_AHEAD - len(self._ahead))
        return [self.head, *self._ahead] if self.head is not None else []


class _Run:
    """A way through all lines.

    Args:
        choices: which recovery comes next where several may; None: recoveries do not wait.
    Attributes:
        recovery_count: recoveries that were taken, without the first of each server.
        widths: how many recoveries there were to choose from, at each of these places.
    """

    def __init__(self, servers: Sequence[Lines], choices: Sequence[int] | None) -> None:
        self.follower = Follower()
        self.cursors = {lines.server: _Cursor(lines) for lines in servers}
        self.mentions = Mentions()
        self.taken_count = 0
        self.recovery_count = 0
        self.widths: list[int] = []
        self._choices = choices

    def go(self) -> None:
        """Go on until all events are taken, or none is allowed."""
        while (cursor := self._next()) is not None or self._went_on():
            if cursor is None:
                continue
            assert cursor.head is not None
            self.recovery_count += cursor.recovers
            self.follower.accept(cursor.head.life, cursor.head.event)
            self.mentions.note(cursor.head.life, cursor.head.event)
            self.taken_count += 1
            cursor.advance()

    def _went_on(self) -> bool:
        """Take that groups of killed servers were durable; return whether there was one."""
        unsaid = [one for cursor in self.cursors.values() if (one := cursor.unsaid()) is not None]
        for life, durable in unsaid:
            if self.follower.refusal_of(life, durable) is None:
                self.follower.accept(life, durable)
        return bool(unsaid)

    def _next(self) -> _Cursor | None:
        waiting: list[_Cursor] = []
        for cursor in sorted(self._unfinished(), key=_time):
            if self._choices is not None and cursor.recovers:
                waiting.append(cursor)
            elif self._refusal(cursor) is None:
                return cursor
        allowed = [cursor for cursor in waiting if self._refusal(cursor) is None]
        if len(allowed) < 2:
            return allowed[0] if allowed else None
        assert self._choices is not None
        place = len(self.widths)
        self.widths.append(len(allowed))
        return allowed[self._choices[place] if place < len(self._choices) else 0]

    def _unfinished(self) -> Iterator[_Cursor]:
        return (cursor for cursor in self.cursors.values() if cursor.head is not None)

    def _refusal(self, cursor: _Cursor) -> Refusal | None:
        assert cursor.head is not None
        return self.follower.refusal_of(cursor.head.life, cursor.head.event)

    def result(self) -> Searched:
        """Return the result. It reads the rest of all lines."""
        refused = self._refused()
        cursors = self.cursors.items()
        left = {server: cursor.count_rest() for server, cursor in cursors}
        return Searched(
            self.taken_count,
            {server: cursor.taken for server, cursor in cursors if cursor.taken is not None},
            refused,
            {server: count for server, count in left.items() if count},
            self.mentions.missing(),
            dict(self.follower.unjudged),
        )

    def _refused(self) -> list[tuple[Entry, Refusal]]:
        """Return why what comes next is not allowed, the event to blame first."""
        heads = [cursor.head for cursor in sorted(self._unfinished(), key=_time)]
        entries = [head for head in heads if head is not None]
        if not entries:
            return self._half_done()
        # Events that only wait for others come last; all are in the order of their times.
        waiting = {one for blamed in entries for one in self._allowed_after(blamed)}
        entries.sort(key=lambda one: one in waiting)
        refusals = [self.follower.refusal_of(one.life, one.event) for one in entries]
        return [(one, why) for one, why in zip(entries, refusals, strict=True) if why is not None]

    def _half_done(self) -> list[tuple[Entry, Refusal]]:
        """Return why histories cannot end where they end, in lives that have ended in order."""
        try:
            self.follower.finish()
        except HistoryRefused as error:
            last = self.cursors[error.refusal.life.server].taken
            assert last is not None
            return [(last, error.refusal)]
        return []

    def _allowed_after(self, blamed: Entry) -> list[Entry]:
        """Return which of the next events could be taken if one of them had been allowed."""
        follower = deepcopy(self.follower)
        following = {
            server: deque(cursor.following())
            for server, cursor in self.cursors.items()
            if cursor.head is not None
        }
        taken: list[Entry] = []
        try:
            follower.accept(blamed.life, blamed.event)
            following[blamed.life.server].popleft()
            goes_on = True
            while goes_on:
                goes_on = False
                for entries in following.values():
                    while entries and not follower.refusal_of(entries[0].life, entries[0].event):
                        follower.accept(entries[0].life, entries[0].event)
                        taken.append(entries.popleft())
                        goes_on = True
        except Exception:
            return []
        return taken


def search(servers: Sequence[Lines]) -> Searched:
    """Search for an order in which everything is allowed, up to the first damage of each server.

    Raises:
        InvalidConfig: a file cannot be read.
    """
    first = _Run(servers, None)
    first.go()
    searched = first.result()
    if not searched.refused or not first.recovery_count or any(one.damage_count for one in servers):
        return searched
    choices: list[int] | None = []
    for _ in range(ORDERS_MAX):
        assert choices is not None
        run = _Run(servers, choices)
        run.go()
        result = run.result()
        if not result.refused:
            return result
        choices = _other_choices(choices, run.widths)
        if choices is None:
            return searched
    return searched._replace(is_complete=False)


def _other_choices(choices: Sequence[int], widths: Sequence[int]) -> list[int] | None:
    """Return the next choices to try; None: all were tried."""
    made = [*choices, *[0] * (len(widths) - len(choices))]
    for place in reversed(range(len(widths))):
        if made[place] + 1 < widths[place]:
            return [*made[:place], made[place] + 1]
    return None


def _is_recovery(entry: Entry) -> bool:
    return isinstance(entry.event, RECOVERIES)


def _time(cursor: _Cursor) -> tuple[bool, int]:
    assert cursor.head is not None
    return not cursor.is_starting, cursor.head.time
