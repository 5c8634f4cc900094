"""Checks a recorded history against the invariants of docs/protocol/rules.md. Pure.

It replays the records, in the order of their times, into the history of the simulation, whose
checkers judge the rest: whole transactions, nothing lost or doubled or seen too early, order. What
only real time can tell is checked here: reads that go back, and orders that come again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from tests.namespaces.cut_checks import CutAgain, Position, TakenCut, Told, check_cuts
from tests.namespaces.records import ABORT, NO_EFFECT, OK, UNKNOWN, Record, place_of
from tests.simulation import checks
from tests.simulation.history import Cursor, History, Place, Sent, TransactionRecord, Violation

from magnetar_core.ids import TxnID
from magnetar_core.wire import common_pb2

__all__ = ["Summary", "Violation", "check"]


@dataclass(frozen=True, slots=True)
class Summary:
    """What a history without a violation consists of.

    Attributes:
        counts: of what happened.
        longest_outage_s: the longest time in which no commit was answered.
        cut_s: how long it took to take a cut; the median, and the longest.
    """

    counts: dict[str, int]
    longest_outage_s: float
    cut_s: tuple[float, float]


def check(records: Sequence[Record]) -> Summary:
    """Check a whole history.

    Raises:
        Violation: an invariant does not hold.
    """
    replay = _Replay()
    for record in records:
        replay.take(record)
    replay.check_all()
    return replay.summary()


@dataclass
class _Reached:
    """How far anybody has seen a partition, and since when: who looks later sees as much."""

    times: list[float] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)

    def note(self, at: float, end: int) -> None:
        if not self.ends or end > self.ends[-1]:
            self.times.append(at)
            self.ends.append(end)

    def before(self, at: float) -> int:
        count = bisect_left(self.times, at)
        return self.ends[count - 1] if count else 0


class _Replay:
    def __init__(self) -> None:
        self.now = 0.0
        # A violation is raised where it is found: nobody has to be told besides.
        self.history = History(lambda: self.now, lambda error: None)
        self._outcomes: dict[TxnID, int] = {}
        self._first: dict[Place, int] = {}
        self._end: dict[Place, int] = {}
        self._reached: dict[Place, _Reached] = {}
        self._reads: list[tuple[Place, float, int]] = []
        self._attached_at: dict[str, float] = {}
        self._deliveries: list[tuple[float, str, Cursor, int]] = []
        self._drained: dict[str, float] = {}
        self._cursors: list[Cursor] = []
        self._committed_at: dict[TxnID, float] = {}
        self._finished_at: dict[TxnID, float] = {}
        self._counts: Counter[str] = Counter()
        self._commits_at: list[float] = []
        self._commit_asked_at: dict[TxnID, float] = {}
        self._confirmed_at: dict[Position, float] = {}
        self._cuts: list[TakenCut] = []
        self._cuts_again: list[CutAgain] = []
        self._handlers: dict[str, Callable[[Record], None]] = {
            "begun": self._begun,
            "send": self._send,
            "sent": self._sent,
            "ack": self._ack,
            "acked": self._acked,
            "end": self._asked_to_end,
            "ended": self._ended,
            "attach": self._attach,
            "delivered": self._delivered,
            "read": self._read,
            "cut": self._cut,
            "cut again": self._cut_again,
            "status": self._status,
            "log": self._log,
            "cursor": self._cursor,
            "drained": self._has_drained,
        }

    def take(self, record: Record) -> None:
        """The next record."""
        self.now = float(record["at"])
        handler = self._handlers.get(record["kind"])
        if handler is not None:
            handler(record)

    # Transactions.

    def _begun(self, record: Record) -> None:
        self.history.begin(TxnID.parse(record["txn"]), record["owner"])

    def _txn(self, record: Record) -> TransactionRecord:
        return self.history.transactions[TxnID.parse(record["txn"])]

    def _asked_to_end(self, record: Record) -> None:
        txn = self._txn(record)
        if record["action"] == ABORT:
            self.history.ask_abort(txn)
        else:
            expected = [self.history.sent[value.encode()] for value in record["values"]]
            self.history.ask_commit(txn, expected=expected)
            self._commit_asked_at.setdefault(txn.txn_id, self.now)

    def _ended(self, record: Record) -> None:
        txn, outcome, history = self._txn(record), record["outcome"], self.history
        self._counts[f"{record['action']}: {outcome}"] += 1
        if outcome == UNKNOWN:
            return
        asked_at = float(record["asked_at"])
        if record["action"] == ABORT:
            # A refused abort says no more than that it was refused.
            if outcome == OK:
                history.told(txn, common_pb2.ABORTING, asked_at=asked_at)
        elif outcome == NO_EFFECT:
            history.never_commits(txn)
        else:
            finished = bool(record["finished"])
            status = common_pb2.COMMITTED if finished else common_pb2.COMMITTING
            history.told(txn, status, asked_at=asked_at)
            self._committed_at.setdefault(txn.txn_id, self.now)
            if finished:
                self._finished_at.setdefault(txn.txn_id, self.now)
            self._commits_at.append(self.now)

    def _status(self, record: Record) -> None:
        txn, status = self._txn(record), record["status"]
        if status is None:
            self.history.violation("7", f"nobody knows {txn.txn_id} any more")
        self._outcomes[txn.txn_id] = status
        self.history.told(txn, status, asked_at=self.now)

    # Messages.

    def _send(self, record: Record) -> None:
        history = self.history
        value, place = record["value"].encode(), place_of(record)
        txn = None if record["txn"] is None else self._txn(record)
        message = Sent(value, record["producer"], place, txn, len(txn.messages) if txn else 0)
        history.sent[value] = message
        if txn is None:
            message.position = history.next_position()
        else:
            txn.messages.append(message)
        if record["input"] is not None:
            topic, partition, offset = record["input"]
            message.input = (_cursor(topic, partition), offset)

    def _sent(self, record: Record) -> None:
        message, offset = self.history.sent[record["value"].encode()], record["offset"]
        self._counts[f"send: {record['outcome']}"] += 1
        if record["outcome"] == OK:
            self.history.confirm(message, asked_at=float(record["asked_at"]), offset=offset)
            if offset is not None:
                self._known(message.place).note(self.now, int(offset) + 1)
                self._confirmed_at[message.place, int(offset)] = self.now
        elif record["outcome"] == NO_EFFECT and message.txn is None:
            message.denied = record["error"]

    # Readers.

    def _known(self, place: Place) -> _Reached:
        return self._reached.setdefault(place, _Reached())

    def _read(self, record: Record) -> None:
        place, start = place_of(record), int(record["start"])
        for expected, (offset, value, txn) in enumerate(record["messages"], start):
            if offset != expected:
                self.history.violation("2", f"{place}: a reader got {offset}, not {expected}")
            self._saw(place, offset, value, txn)
        end = start + len(record["messages"])
        began_at = float(record["began_at"])
        before = self._known(place).before(began_at)
        if end < before:
            self.history.violation(
                "2", f"{place} ended at {before}, and for a later reader at {end}"
            )
        self._known(place).note(self.now, end)
        self._reads.append((place, began_at, end))
        self._counts["reads"] += 1

    def _saw(self, place: Place, offset: int, value: str, txn: str | None) -> None:
        txn_id = None if txn is None else TxnID.parse(txn)
        self.history.saw(*place, offset, value.encode(), txn_id)

    def _cut(self, record: Record) -> None:
        self._cuts.append(
            TakenCut(
                record["token"],
                record["since"],
                float(record["asked_at"]),
                float(record["took_s"]),
                self._saw_all(record["rows"]),
            )
        )
        self._counts["cuts"] += 1

    def _cut_again(self, record: Record) -> None:
        self._cuts_again.append(CutAgain(record["token"], self._saw_all(record["rows"])))
        self._counts["cuts read again"] += 1

    def _saw_all(self, rows: Sequence[tuple[str, int, int, str, str | None]]) -> list[Position]:
        for topic, partition, offset, value, txn in rows:
            self._saw((topic, partition), offset, value, txn)
        return [((topic, partition), offset) for topic, partition, offset, _, _ in rows]

    def _log(self, record: Record) -> None:
        place = place_of(record)
        self._first[place], self._end[place] = int(record["first"]), int(record["end"])

    # Acknowledgements.

    def _ack(self, record: Record) -> None:
        cursor = _cursor(*place_of(record))
        self.history.ack(cursor, [int(record["offset"])], self._txn(record))

    def _acked(self, record: Record) -> None:
        if record["outcome"] == OK:
            self.history.ack_confirmed(
                _cursor(*place_of(record)),
                [int(record["offset"])],
                self._txn(record),
                asked_at=float(record["asked_at"]),
            )

    def _attach(self, record: Record) -> None:
        self._attached_at[record["session"]] = self.now

    def _delivered(self, record: Record) -> None:
        place = place_of(record)
        self._saw(place, int(record["offset"]), record["value"], record["txn"])
        cursor = _cursor(*place)
        self._deliveries.append((self.now, record["session"], cursor, int(record["offset"])))
        self._counts["deliveries"] += 1

    def _cursor(self, record: Record) -> None:
        cursor = _cursor(*place_of(record))
        self._cursors.append(cursor)
        self.history.mark_delete(cursor, int(record["mark_delete"]))
        if record["pending"]:
            self.history.violation("6", f"{cursor} has {record['pending']} pending acks in the end")

    def _has_drained(self, record: Record) -> None:
        self._drained[record["session"]] = self.now

    # The end.

    def check_all(self) -> None:
        history = self.history
        if not self._end or len(self._outcomes) < len(history.transactions) or not self._drained:
            raise ValueError("the history has no end: what there was then is missing")
        checks.check_all(history, self._outcomes, self._first, self._end)
        checks.check_denied(history, arrived_again=set())
        checks.check_processed_once(history, self._cursors, complete=False)
        self._check_visible_in_time()
        self._check_acknowledged_once()
        self._check_orders_again()
        self._check_drained()
        self._check_sums()
        told = Told(self._committed_at, self._commit_asked_at, self._confirmed_at)
        check_cuts(history, self._cuts, self._cuts_again, told)

    def _check_visible_in_time(self) -> None:
        """Invariant 2: who reads after a commit has been finished sees all of it."""
        for place, began_at, end in self._reads:
            log = self.history.seen.get(place, {})
            for offset in range(end, self._end[place]):
                txn = self.history.sent[log[offset]].txn
                finished_at = None if txn is None else self._finished_at.get(txn.txn_id)
                if finished_at is not None and finished_at < began_at:
                    self.history.violation(
                        "2", f"{place} {offset} was committed, and a later reader ended at {end}"
                    )

    def _effective(self, cursor: Cursor, offset: int) -> list[TransactionRecord]:
        """The committed transactions that have acknowledged a message."""
        return [
            txn
            for txn in self.history.ackers.get(cursor, {}).get(offset, ())
            if txn is not None
            and self._outcomes[txn.txn_id] == common_pb2.COMMITTED
            and txn.expected is not None
        ]

    def _check_acknowledged_once(self) -> None:
        """Invariant 6: an input belongs to the outputs of one transaction."""
        for cursor, ackers in self.history.ackers.items():
            for offset in ackers:
                found = [one.txn_id for one in self._effective(cursor, offset)]
                if len(found) > 1:
                    self.history.violation("6", f"{cursor} {offset} was acknowledged by {found}")

    def _check_orders_again(self) -> None:
        """Invariant 6: what was acknowledged is not delivered to who attaches later."""
        for _, session, cursor, offset in self._deliveries:
            attached_at = self._attached_at[session]
            for txn in self._effective(cursor, offset):
                committed_at = self._committed_at.get(txn.txn_id)
                if committed_at is not None and committed_at < attached_at:
                    self.history.violation(
                        "6",
                        f"{cursor} {offset} came again to {session}, it was acknowledged in"
                        f" {txn.txn_id}",
                    )

    def _check_drained(self) -> None:
        """Invariants 4 and 6: in the end, what nobody has acknowledged comes, once."""
        for session in self._drained:
            got = Counter(
                (cursor, offset) for _, who, cursor, offset in self._deliveries if who == session
            )
            for one, count in got.items():
                if count > 1:
                    self.history.violation("4", f"{one} came {count} times to {session}")
                if self._effective(*one):
                    self.history.violation("6", f"{one} came again, and is acknowledged")
            for cursor in self._cursors:
                for offset in range(self._first[cursor[:2]], self._end[cursor[:2]]):
                    if not self._effective(cursor, offset) and (cursor, offset) not in got:
                        self.history.violation(
                            "6", f"{cursor} {offset} is not acknowledged, and does not come again"
                        )

    def _check_sums(self) -> None:
        """Whatever else is said: no money comes into being, none is lost."""
        totals: Counter[str] = Counter()
        for value in self.history.seen_at:
            text = value.decode().split(".")
            if len(text) == 4:
                totals["all"] += int(text[3])
        if totals["all"]:
            self.history.violation("1", f"the sum of all accounts is {totals['all']}")

    def summary(self) -> Summary:
        counts = {**self._counts, **self.history.counts}
        counts["plain messages"] = sum(one.txn is None for one in self.history.sent.values())
        gaps = [later - before for before, later in pairwise(self._commits_at)]
        took_s = [cut.took_s for cut in self._cuts] or [0.0]
        return Summary(
            dict(sorted(counts.items())),
            round(max(gaps, default=0.0), 2),
            (round(median(took_s), 3), round(max(took_s), 2)),
        )


def _cursor(topic: str, partition: int) -> Cursor:
    return (topic, partition, "tellers")
