"""Judges histories: accepted, refused, damaged, or not decided; an operator is told why."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise

from magnetar_cli.check.history.mentions import Name, names_in
from magnetar_cli.check.history.reading import Damage, Entry, LifeReport, Lines, lines_at
from magnetar_cli.check.history.search import ORDERS_MAX, Searched, search
from magnetar_cli.errors import STATUS_OF_KIND
from magnetar_core.error_kinds import ErrorKind
from magnetar_core.history.event_text import to_text
from magnetar_core.ids import TxnID

# Lines before a refused one that a report shows.
BEFORE_MAX = 12
_TXN_ID = re.compile(r"\b\d+:\d+:\d+\b")


class Verdict(Enum):
    """Verdict on histories. The value is for people."""

    ACCEPTED = "accepted"
    VIOLATION = "violation"
    DAMAGED = "damaged"
    UNDECIDED = "undecided"


STATUS_OF_VERDICT = {
    Verdict.ACCEPTED: 0,
    Verdict.VIOLATION: STATUS_OF_KIND[ErrorKind.BUG],
    Verdict.DAMAGED: STATUS_OF_KIND[ErrorKind.DATA_LOST],
    Verdict.UNDECIDED: 18,
}
SENTENCE_OF_VERDICT = {
    Verdict.ACCEPTED: "the servers did what the protocol allows",
    Verdict.VIOLATION: "the servers did what the protocol forbids: report it, with these files",
    Verdict.DAMAGED: "lines are missing or damaged: what they told cannot be judged",
    Verdict.UNDECIDED: "it could not be decided whether the protocol allows this",
}


@dataclass(slots=True)
class ServerReport:
    """Report of a server's lines.

    Attributes:
        judged_count: how many of its events are in an order that the protocol allows.
        damage_count: of all damages; `damages` has the first of them.
    """

    server: str
    name: str
    event_count: int
    judged_count: int
    damage_count: int
    lives: list[LifeReport]
    damages: list[Damage]


@dataclass(slots=True)
class ShownLine:
    """A line as a report shows it."""

    server: str
    life: int
    line: int
    event: str

    @classmethod
    def of(cls, entry: Entry) -> ShownLine:
        """Return an entry as a line to show."""
        event = f"{{{to_text(entry.event)}}}"
        return cls(str(entry.life.server), entry.life.number, entry.number, event)


@dataclass(slots=True)
class Refusal:
    """An event that the protocol does not allow after the others.

    Attributes:
        rule: that it breaks.
    """

    at: ShownLine
    rule: str
    text: str


@dataclass(slots=True)
class Report:
    """Verdict on histories.

    Attributes:
        refused: what comes next at each server, where no event is allowed; the first is to blame.
        before: lines before that one which speak of the same transactions or participants.
        missing: what others mention, and of which there are no lines.
        unjudged: which events were not judged, and why.
        doubts: how often a rule could not be applied, by reason.
    """

    verdict: Verdict
    event_count: int
    servers: list[ServerReport]
    refused: list[Refusal] = field(default_factory=list)
    before: list[ShownLine] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    unjudged: list[str] = field(default_factory=list)
    doubts: dict[str, int] = field(default_factory=dict)


def judge(places: Sequence[str]) -> Report:
    """Judge the histories at some places.

    Args:
        places: files of histories, and directories with such files in them or below.
    Raises:
        InvalidConfig: there are no histories, or they cannot be read.
    """
    servers = lines_at(places)
    searched = search(servers)
    reports = [_report(lines, searched) for lines in servers]
    unjudged = [why for lines in servers for why in _unjudged(lines, searched)]
    return Report(
        verdict=_verdict(servers, searched),
        event_count=searched.taken_count + sum(searched.left.values()),
        servers=reports,
        refused=[
            Refusal(ShownLine.of(entry), refusal.rule, refusal.text)
            for entry, refusal in searched.refused
        ],
        before=_before(servers, searched) if searched.refused else [],
        missing=searched.missing,
        unjudged=unjudged,
        doubts=searched.doubts,
    )


def _verdict(servers: Sequence[Lines], searched: Searched) -> Verdict:
    if any(lines.damage_count for lines in servers):
        return Verdict.DAMAGED
    if not searched.refused:
        return Verdict.ACCEPTED
    if not searched.is_complete or any(_may_lack_lines(lines, searched) for lines in servers):
        return Verdict.UNDECIDED
    return Verdict.VIOLATION


def _may_lack_lines(lines: Lines, searched: Searched) -> bool:
    """Return whether there may have been more events than there are lines, before the refusal.

    A killed process leaves all lines that matter; a machine that goes down, or files that were
    copied while their server was running, may lack the last ones.
    """
    lives = lines.lives
    if lines.server not in searched.left and not lives[-1].is_closed:
        return True
    return any(
        not one.is_closed and (one.stopped or not one.boot or one.boot != following.boot)
        for one, following in pairwise(lives)
    )


def _report(lines: Lines, searched: Searched) -> ServerReport:
    left = searched.left.get(lines.server, 0)
    return ServerReport(
        server=str(lines.server),
        name=next((life.name for life in lines.lives if life.name), ""),
        event_count=lines.event_count,
        judged_count=lines.event_count - left,
        damage_count=lines.damage_count,
        lives=lines.lives,
        damages=lines.damages,
    )


def _unjudged(lines: Lines, searched: Searched) -> Iterator[str]:
    """Return which lines of a server are missing or were not judged, and why."""
    server = lines.server
    for life in lines.lives:
        if life.stopped:
            yield f"{life.life}: recording ended at line {life.line_count - 1}: {life.stopped}"
        elif life.unjudged_from is not None:
            yield f"{life.life}: nothing was judged from line {life.unjudged_from} on"
        elif not life.is_closed:
            torn = "the last line is torn, and " if life.is_torn else ""
            yield f"{life.life}: {torn}there is no line that says how it ended"
    if server in searched.left and searched.refused[0][0].life.server != server:
        yield f"{server}: {searched.left[server]:,} events, since others come before them"
    if not searched.is_complete and server == searched.refused[0][0].life.server:
        yield f"all: there are more than {ORDERS_MAX} orders of starts to try"


def _before(servers: Sequence[Lines], searched: Searched) -> list[ShownLine]:
    """Read again the lines that speak of the same transactions or participants."""
    blamed, refusal = searched.refused[0]
    names = _names(blamed, refusal.text)
    found: list[Entry] = []
    for lines in servers:
        last = searched.taken.get(lines.server)
        kept: deque[Entry] = deque(maxlen=BEFORE_MAX)
        again = Lines(lines.server, lines.files)
        for entry in again.read() if last is not None else ():
            if not names.isdisjoint(names_in(entry.event)):
                kept.append(entry)
            if entry == last:
                break
        found += kept
    found.sort(key=lambda entry: entry.time)
    return [ShownLine.of(entry) for entry in found[-BEFORE_MAX:]]


def _names(entry: Entry, text: str) -> AbstractSet[Name]:
    """Return the names that a refusal is about: transactions, or else participants."""
    named = {TxnID.parse(one) for one in _TXN_ID.findall(text)}
    txn_id = getattr(entry.event, "txn_id", None)
    if txn_id is not None:
        named.add(txn_id)
    return named or frozenset(names_in(entry.event))
