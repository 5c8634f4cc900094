"""What clients did and were told, and what readers saw; impossible news fail the run at once.

Every message carries a value that is used once, under which its record is found. Times are virtual
seconds; a *told* time is when an answer reached somebody.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import NoReturn

from magnetar.testing.lives import SimulationFailure
from magnetar_core.ids import TxnID
from magnetar_core.wire import common_pb2

OPEN = common_pb2.OPEN
COMMIT_STATUSES = (common_pb2.COMMITTING, common_pb2.COMMITTED)
ABORT_STATUSES = (common_pb2.ABORTING, common_pb2.ABORTED)
ENDED_STATUSES = (common_pb2.COMMITTED, common_pb2.ABORTED)

# Of messages.
KEYS = 6

# A partition of a topic; a subscription on one.
Place = tuple[str, int]
Cursor = tuple[str, int, str]


class Violation(SimulationFailure):
    """An invariant of docs/protocol/rules.md does not hold."""


class Sent:
    """One message on its way.

    Attributes:
        producer: the name of the writer, whose messages keep their order in a partition.
        position: when it takes its place among its producer's messages: a plain message when it is
            sent, a transaction's when the commit is asked for. None: no claim.
        until: it may take any place up to this one: others were sent while its commit was asked
            for. None: it has that of its position.
        confirmed_offset: where the broker said it is; plain messages only.
        input: the message that this one was made from.
        denied: what the SDK said of it, if that was that nothing had happened.
    """

    __slots__ = (
        "confirmed",
        "confirmed_offset",
        "denied",
        "index",
        "input",
        "key",
        "place",
        "position",
        "producer",
        "txn",
        "until",
        "value",
    )

    def __init__(
        self, value: bytes, producer: str, place: Place, txn: TransactionRecord | None, index: int
    ) -> None:
        self.value = value
        kind = int(value[1:].partition(b".")[0]) % KEYS
        # Of few; some have none.
        self.key = b"k%d" % kind if kind else None
        self.producer = producer
        self.place = place
        self.txn = txn
        self.index = index
        self.position: int | None = None
        self.until: float | None = None
        self.confirmed = False
        self.confirmed_offset: int | None = None
        self.input: tuple[Cursor, int] | None = None
        self.denied = ""

    @property
    def order(self) -> tuple[int, int]:
        return (self.position or 0, self.index)

    @property
    def latest(self) -> tuple[float, int]:
        return self.order if self.until is None else (self.until, self.index)

    def __str__(self) -> str:
        kind = f"in {self.txn.txn_id}" if self.txn is not None else "plain"
        return (
            f"{self.value[:20].decode()} ({kind}, {self.producer}, {self.place[0]}/{self.place[1]})"
        )


class TransactionRecord:
    """One transaction as its clients know it.

    Attributes:
        messages: in the order in which they were sent.
        acks: offsets by cursor.
        commit_asked: somebody has asked for a commit, at least once.
        expected: what a commit makes visible, when that is known exactly; set with the request.
        decision: COMMIT or ABORT, once anybody was told.
        ended_told_at: when somebody was told that every participant has carried it out.
        writers: by partition, producers whose first messages were confirmed one after the other.
    """

    def __init__(self, txn_id: TxnID, owner: str) -> None:
        self.txn_id = txn_id
        self.owner = owner
        self.messages: list[Sent] = []
        self.acks: dict[Cursor, set[int]] = {}
        self.writers: dict[Place, list[str]] = {}
        self.commit_asked = False
        self.abort_asked = False
        self.expected: list[Sent] | None = None
        self.decision: int | None = None
        self.decision_told_at: float | None = None
        self.ended_told_at: float | None = None
        # An administrator accepted a loss, or counts were left out: only all-or-nothing in general.
        self.inexact = False


class History:
    """Args:
    time: virtual seconds.
    fail: ends the run, however the caller treats exceptions.
    """

    def __init__(self, time: Callable[[], float], fail: Callable[[BaseException], None]) -> None:
        self._time = time
        self._fail = fail
        self.transactions: dict[TxnID, TransactionRecord] = {}
        # Producers that keep the order of each key only: their batches have one key each.
        self.by_key: set[str] = set()
        self.sent: dict[bytes, Sent] = {}
        # What readers saw in each partition, for ever.
        self.seen: dict[Place, dict[int, bytes]] = {}
        self.seen_txn: dict[tuple[Place, int], TxnID | None] = {}
        self.seen_at: dict[bytes, tuple[Place, int]] = {}
        # Who may have acknowledged what: None for a plain ack.
        self.ackers: dict[Cursor, dict[int, list[TransactionRecord | None]]] = {}
        self.plain_acks_confirmed: dict[Cursor, set[int]] = {}
        self.deliveries: Counter[Cursor] = Counter()
        self.unchecked_cursors: set[Cursor] = set()
        self._mark_delete: dict[Cursor, int] = {}
        # What a disk has lost, and an administrator gave up: it counts as acknowledged.
        self.given_up: dict[Place, set[int]] = {}
        # Plain messages that were sent as one batch, and whether the SDK said that it is not there.
        self.wholes: list[tuple[list[Sent], bool]] = []
        self.positions = 0
        self.counts: Counter[str] = Counter()

    def violation(self, invariant: str, text: str) -> NoReturn:
        violation = Violation(f"invariant {invariant}: {text} (at {self._time():.6f} s)")
        self._fail(violation)
        raise violation

    # Transactions.

    def begin(self, txn_id: TxnID, owner: str) -> TransactionRecord:
        if txn_id in self.transactions:
            self.violation("8", f"{txn_id} was returned twice")
        record = self.transactions[txn_id] = TransactionRecord(txn_id, owner)
        self.counts["transactions"] += 1
        return record

    def next_position(self) -> int:
        self.positions += 1
        return self.positions

    def ask_commit(self, txn: TransactionRecord, *, expected: Iterable[Sent] | None = None) -> None:
        """A commit is asked for, now.

        Args:
            expected: what it makes visible, for the first such request of this transaction.
        """
        if not txn.commit_asked:
            txn.commit_asked = True
            if expected is not None:
                txn.expected = list(expected)
            position = self.next_position()
            for message in txn.messages:
                if message.position is None:
                    message.position = position

    def never_commits(self, txn: TransactionRecord) -> None:
        """The SDK said that nothing of it will count, whether it is aborted already or not."""
        if txn.decision == common_pb2.COMMIT:
            self.violation("7", f"{txn.txn_id} is committed, the SDK says that it was aborted")
        txn.decision = common_pb2.ABORT

    def ask_abort(self, txn: TransactionRecord) -> None:
        txn.abort_asked = True

    def told(self, txn: TransactionRecord, status: int, *, asked_at: float) -> None:
        """Somebody was told of a transaction's status; the question left at asked_at."""
        now = self._time()
        if status == OPEN:
            if txn.decision_told_at is not None and asked_at > txn.decision_told_at:
                self.violation("7", f"{txn.txn_id} is OPEN again after its decision was told")
            return
        decision = common_pb2.COMMIT if status in COMMIT_STATUSES else common_pb2.ABORT
        if txn.decision is not None and txn.decision != decision:
            self.violation("7", f"the decision of {txn.txn_id} changed to {status}")
        txn.decision = decision
        if txn.decision_told_at is None:
            txn.decision_told_at = now
            self.counts["commits" if decision == common_pb2.COMMIT else "aborts"] += 1
        if decision == common_pb2.COMMIT and not txn.commit_asked:
            self.violation("7", f"{txn.txn_id} is committed, and nobody asked for it")
        if status in ENDED_STATUSES and txn.ended_told_at is None:
            txn.ended_told_at = now

    # Messages.

    def send(
        self,
        producer: str,
        topic: str,
        partition: int,
        txn: TransactionRecord | None = None,
        *,
        size: int = 0,
    ) -> Sent:
        """A message of this producer is about to be sent; returns its record, with its value.

        Args:
            size: bytes of the value, at least.
        """
        value = (b"m%d" % len(self.sent)).ljust(size, b".")
        place = (topic, partition)
        index = len(txn.messages) if txn is not None else 0
        message = self.sent[value] = Sent(value, producer, place, txn, index)
        if txn is not None:
            txn.messages.append(message)
        else:
            message.position = self.next_position()
        return message

    def confirm(self, message: Sent, *, asked_at: float, offset: int | None = None) -> None:
        """The broker said that it holds a message."""
        message.confirmed = True
        txn = message.txn
        if txn is None:
            message.confirmed_offset = offset
            seen = self.seen_at.get(message.value)
            if seen is not None and offset is not None and seen[1] != offset:
                self.violation("2", f"{message} is at {seen[1]}, its producer heard {offset}")
        elif txn.ended_told_at is not None and asked_at > txn.ended_told_at:
            self.violation("9", f"{message} was accepted after the transaction had ended")

    def place_of(self, value: bytes) -> Place | None:
        """Where a message was sent to; None: nobody here has sent it."""
        message = self.sent.get(value)
        return message.place if message is not None else None

    # Readers.

    def saw(
        self, topic: str, partition: int, offset: int, value: bytes, txn_id: TxnID | None
    ) -> None:
        """A reader or a consumer got a message."""
        place = (topic, partition)
        log = self.seen.setdefault(place, {})
        known = log.get(offset)
        if known is not None:
            if known != value:
                self.violation("2", f"{place} {offset} was {known!r} and is now {value!r}")
            if self.seen_txn[place, offset] != txn_id:
                self.violation("7", f"{place} {offset} {value!r} changed its transaction")
            return
        message = self.sent.get(value)
        if message is None:
            self.violation("4", f"{place} {offset} holds {value!r}, which nobody sent")
        if message.place != place:
            self.violation("4", f"{message} turned up at {place} {offset}")
        other = self.seen_at.get(value)
        if other is not None:
            self.violation("4", f"{message} is at {other[1]} and at {offset}")
        if message.confirmed_offset is not None and message.confirmed_offset != offset:
            self.violation(
                "2", f"{message} is at {offset}, its producer heard {message.confirmed_offset}"
            )
        expected_txn = message.txn.txn_id if message.txn is not None else None
        if expected_txn != txn_id:
            self.violation("1", f"{message} is delivered as of {txn_id}")
        if message.txn is not None:
            if message.txn.decision == common_pb2.ABORT:
                self.violation("3", f"{message} of an aborted transaction at {offset}")
            if not message.txn.commit_asked:
                self.violation("3", f"{message} is visible, and nobody asked for a commit")
        log[offset] = value
        self.seen_txn[place, offset] = txn_id
        self.seen_at[value] = (place, offset)
        self.counts["messages seen"] += 1

    # Acknowledgements.

    def ack(self, cursor: Cursor, offsets: Iterable[int], txn: TransactionRecord | None) -> None:
        """Somebody is about to acknowledge."""
        ackers = self.ackers.setdefault(cursor, {})
        for offset in offsets:
            ackers.setdefault(offset, []).append(txn)
        if txn is not None:
            txn.acks.setdefault(cursor, set()).update(offsets)

    def cover(self, cursor: Cursor, end: int, txn: TransactionRecord) -> None:
        """Somebody is about to acknowledge cumulatively: also what it received long before."""
        ackers = self.ackers.setdefault(cursor, {})
        for offset in range(self._mark_delete.get(cursor, 0), end):
            ackers.setdefault(offset, []).append(txn)

    def ack_confirmed(
        self,
        cursor: Cursor,
        offsets: Iterable[int],
        txn: TransactionRecord | None,
        *,
        asked_at: float,
    ) -> None:
        if txn is None:
            self.plain_acks_confirmed.setdefault(cursor, set()).update(offsets)
        elif txn.ended_told_at is not None and asked_at > txn.ended_told_at:
            self.violation("9", f"an ack was accepted after {txn.txn_id} had ended")

    def mark_delete(self, cursor: Cursor, offset: int, *, first_offset: int = 0) -> None:
        """Somebody was told that everything below offset is acknowledged on this cursor.

        Args:
            first_offset: of the log. A cursor may have begun there, so far as nobody knew it.
        """
        if cursor in self.unchecked_cursors:
            return
        checked = self._mark_delete.get(cursor, min(first_offset, offset))
        ackers = self.ackers.get(cursor, {})
        given_up = self.given_up.get(cursor[:2], ())
        for one in range(checked, offset):
            if one in given_up:
                continue
            for txn in ackers.get(one, ()):
                if txn is None or (txn.commit_asked and txn.decision != common_pb2.ABORT):
                    break
            else:
                self.violation("6", f"mark-delete of {cursor} is {offset}, past unacked {one}")
        self._mark_delete[cursor] = max(checked, offset)
