"""Checks the cuts of a recorded history. Pure.

Each was read from the one before, so what a cut has is what all of them got until then. When the
run is over, every message is known, and what clients had been told, and when.
Source: docs/design/0015-cuts.md, Promise.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from tests.simulation.history import History, Place, Sent

from magnetar_core.ids import TxnID

T = TypeVar("T")

# A partition and an offset there.
Position = tuple[Place, int]


@dataclass(frozen=True, slots=True)
class TakenCut:
    """A cut that was taken and read.

    Attributes:
        since: the cut before it; None: it is the first.
        asked_at: when it was asked for.
        took_s: how long that took, without reading it.
        positions: what it has and the cut before has not.
    """

    token: str
    since: str | None
    asked_at: float
    took_s: float
    positions: Sequence[Position]


@dataclass(frozen=True, slots=True)
class CutAgain:
    """All that a cut has, read again."""

    token: str
    positions: Sequence[Position]


@dataclass(frozen=True, slots=True)
class Told:
    """When clients had been told, or had asked.

    Attributes:
        committed_at: when somebody was told that a transaction is committed.
        asked_at: when its commit was asked for first.
        confirmed_at: when its producer was told where a plain message is.
    """

    committed_at: Mapping[TxnID, float]
    asked_at: Mapping[TxnID, float]
    confirmed_at: Mapping[Position, float]


def check_cuts(
    history: History, cuts: Sequence[TakenCut], again: Iterable[CutAgain], told: Told
) -> None:
    """Check all cuts, in the order in which they were taken.

    Raises:
        Violation: a promise does not hold.
    """
    wanted: dict[str, list[CutAgain]] = defaultdict(list)
    for one in again:
        wanted[one.token].append(one)
    survey = _Survey(history, told)
    before: str | None = None
    for cut in cuts:
        if cut.since != before:
            raise ValueError("a cut was not read from the one before it")
        before = cut.token
        survey.take(cut)
        for one in wanted.pop(cut.token, ()):
            survey.compare(one)
    if wanted:
        raise ValueError("a cut was read again, and nobody has taken it")


class _Survey:
    """What the cuts have so far."""

    def __init__(self, history: History, told: Told) -> None:
        self._history = history
        self._told = told
        self._have: set[Position] = set()
        self._of_txn: dict[TxnID, set[Position]] = defaultdict(set)
        # The plain message of the same producer that comes before it in the partition.
        self._before: dict[Position, Position] = {}
        self._committed = _in_time(told.committed_at)
        self._confirmed = _in_time(told.confirmed_at)
        # By their owner: who is told of one commit, and asks for another, has seen the first.
        self._causes: dict[str, deque[tuple[float, TxnID]]] = defaultdict(deque)
        latest: dict[tuple[str, Place], Position] = {}
        for position, txn_id in sorted(history.seen_txn.items()):
            if txn_id is not None:
                self._of_txn[txn_id].add(position)
                continue
            writer = (self._sent(position).producer, position[0])
            if writer in latest:
                self._before[position] = latest[writer]
            latest[writer] = position
        for at, txn_id in self._committed:
            self._causes[history.transactions[txn_id].owner].append((at, txn_id))

    def take(self, cut: TakenCut) -> None:
        """The next cut."""
        twice = self._have.intersection(cut.positions)
        if twice or len(set(cut.positions)) < len(cut.positions):
            self._violation(f"what an earlier one had comes again: {sorted(twice)[:3]}")
        self._have.update(cut.positions)
        for txn_id in {self._history.seen_txn[one] for one in cut.positions}:
            if txn_id is not None:
                self._require(txn_id, "is torn")
                self._check_causes(txn_id)
        self._check_plain(cut.positions)
        for txn_id in _until(self._committed, cut.asked_at):
            self._require(txn_id, "was committed before it")
        for position in _until(self._confirmed, cut.asked_at):
            if position not in self._have:
                self._violation(f"{position} was confirmed before it, and is missing")
        total = sum(self._amount(one) for one in cut.positions)
        if total:
            self._violation(f"the sum of all accounts is {total}")

    def compare(self, again: CutAgain) -> None:
        """The cut that was taken last was read again, then or later."""
        if len(again.positions) != len(self._have) or not self._have.issuperset(again.positions):
            difference = self._have.symmetric_difference(again.positions)
            self._violation(f"another reader gets something else: {sorted(difference)[:3]}")

    def _require(self, txn_id: TxnID, what: str) -> None:
        missing = self._of_txn[txn_id] - self._have
        if missing:
            self._violation(f"{txn_id} {what}: {sorted(missing)[:3]} is missing")

    def _check_causes(self, txn_id: TxnID) -> None:
        asked_at = self._told.asked_at[txn_id]
        for cause in _until(self._causes[self._history.transactions[txn_id].owner], asked_at):
            self._require(cause, f"is a cause of {txn_id}")
        for position in self._of_txn[txn_id]:
            source = self._sent(position).input
            if source is not None and (source[0][:2], source[1]) not in self._have:
                self._violation(f"{txn_id} was made from {source}, which is missing")

    def _check_plain(self, positions: Iterable[Position]) -> None:
        for position in positions:
            before = self._before.get(position)
            if before is not None and before not in self._have:
                self._violation(
                    f"{before} of the same producer comes before {position}, and is missing"
                )

    def _sent(self, position: Position) -> Sent:
        place, offset = position
        return self._history.sent[self._history.seen[place][offset]]

    def _amount(self, position: Position) -> int:
        text = self._sent(position).value.decode().split(".")
        return int(text[3]) if len(text) == 4 else 0

    def _violation(self, text: str) -> NoReturn:
        self._history.violation("cut", text)


def _in_time(times: Mapping[T, float]) -> deque[tuple[float, T]]:
    return deque(sorted((at, one) for one, at in times.items()))


def _until(waiting: deque[tuple[float, T]], at: float) -> Iterator[T]:
    """Take what had happened before a time."""
    while waiting and waiting[0][0] < at:
        yield waiting.popleft()[1]
