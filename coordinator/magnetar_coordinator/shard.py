"""The coordinator's decisions: a command, or the passing of time, becomes records and an answer.

A decision changes nothing; `apply` does, and takes the same records live and in replay. Nothing
here knows of stores, links or clocks. Pure.
Source: PIP-31, Transaction Coordinator, TC Request Processing and TC Transaction Expiration; rules
e, g and h.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from magnetar_coordinator.config import CoordinatorConfig
from magnetar_coordinator.expiry import ExpiryQueue
from magnetar_coordinator.records import (
    LossAccepted,
    ParticipantsAdded,
    Record,
    StatusChanged,
    TxnEnded,
    TxnOpened,
)
from magnetar_coordinator.transaction import (
    ACTION_OF,
    REQUESTED,
    Counts,
    Owner,
    Participant,
    Transaction,
    TxnAction,
    TxnEvent,
    TxnStatus,
    next_status,
    selection_digest,
)
from magnetar_coordinator.watermark import WatermarkTracker
from magnetar_core.errors import (
    InvalidArgument,
    InvalidTxnState,
    QuotaExceeded,
    TxnForgotten,
    TxnNotFound,
)
from magnetar_core.ids import TxnID


class OutcomeMissing(Exception):
    """The transaction has ended, and its outcome is no longer in memory: look it up, or it is
    forgotten. Not an error of the client's."""

    def __init__(self, txn_id: TxnID) -> None:
        super().__init__(txn_id)
        self.txn_id = txn_id


class Decision(NamedTuple):
    """What to append and apply; the transaction's status afterwards, for the answer.

    Attributes:
        fixed: this decision fixed the outcome. Participants hear of it once it is durable.
    """

    records: tuple[Record, ...]
    txn_id: TxnID
    status: TxnStatus
    fixed: bool = False


class End(NamedTuple):
    """What CommandEndTxn says.

    Attributes:
        counts: None: omitted, not to be checked.
        selection: None: omitted; everybody counts in a first end, nothing is compared in a repeat.
        fingerprint: of a named sequence's content; empty: none. Not compared in a repeat.
    """

    txn_id: TxnID
    action: TxnAction
    counts: Counts | None = None
    selection: tuple[int, ...] | None = None
    fingerprint: str = ""


class Shard:
    """The transactions of one TCID.

    Args:
        next_counter: all counters below it were issued by this store.
    """

    def __init__(
        self, config: CoordinatorConfig, *, tcid: int, incarnation: int, next_counter: int
    ) -> None:
        self._config = config
        self._tcid = tcid
        self._incarnation = incarnation
        self.next_counter = next_counter
        self.live: dict[TxnID, Transaction] = {}
        # Of live transactions.
        self.status_counts = {
            TxnStatus.OPEN: 0,
            TxnStatus.COMMITTING: 0,
            TxnStatus.ABORTING: 0,
        }
        self.expiry = ExpiryQueue()
        self.watermark = WatermarkTracker(
            next_counter,
            listed_age_ms_min=config.watermark_listed_age_ms_min,
            ranges_max=config.watermark_ranges_max,
        )
        # The latest outcomes; those not yet durable are always among them.
        self._recent: dict[TxnID, TxnEnded] = {}
        # Of those, oldest first. To find a dictionary's first key is slow when many before it have
        # been deleted.
        self._recent_durable: deque[TxnID] = deque()

    @property
    def incarnation(self) -> int:
        return self._incarnation

    # Finding.

    def is_own(self, txn_id: TxnID) -> bool:
        """Whether it is of this coordinator's present incarnation."""
        return txn_id.tcid == self._tcid and txn_id.incarnation == self._incarnation

    def is_issued(self, txn_id: TxnID) -> bool:
        """Whether this coordinator, in this incarnation or an earlier one, gave that TxnID out."""
        if txn_id.tcid != self._tcid or txn_id.incarnation > self._incarnation:
            return False
        if txn_id.incarnation == self._incarnation:
            return txn_id.counter < self.next_counter
        return txn_id.incarnation > 0

    def find(self, txn_id: TxnID) -> Transaction | TxnEnded:
        """A live transaction, or a recent one's outcome.

        Raises:
            TxnNotFound: never issued here. No effect.
            OutcomeMissing: ended, and not in memory.
        """
        transaction = self.live.get(txn_id)
        if transaction is not None:
            return transaction
        ended = self._recent.get(txn_id)
        if ended is not None:
            return ended
        if not self.is_issued(txn_id):
            raise TxnNotFound(f"transaction {txn_id} was never opened here", txn_id=txn_id)
        raise OutcomeMissing(txn_id)

    def require_fenced(self, txn_id: TxnID) -> None:
        """Whether a participant may be told to abort a transaction that it holds open.

        Raises:
            TxnNotFound: never issued here; to abort it would harm its later owner.
            InvalidTxnState: it is live here, and comes to its end by itself or by its producer.
        """
        transaction = self.live.get(txn_id)
        if transaction is not None and transaction.status is not TxnStatus.ABORTING:
            raise InvalidTxnState(
                f"transaction {txn_id} is {transaction.status.name} at its coordinator: it is not"
                " hanging",
                status=transaction.status.name,
            )
        if not self.is_issued(txn_id):
            raise TxnNotFound(f"transaction {txn_id} was never opened here", txn_id=txn_id)

    def skip(self, txn_id: TxnID) -> None:
        """Never issue a TxnID that somebody has made up, nor those before it.

        What was done under it would be its later owner's. They count as issued and ended. Nothing
        is written: after a restart the counter goes on at a bound above all of them.
        """
        assert self.is_own(txn_id)
        self.next_counter = max(self.next_counter, txn_id.counter + 1)
        self.watermark.skipped_to(self.next_counter)

    def oldest_open(self) -> Transaction | None:
        if not self.status_counts[TxnStatus.OPEN]:
            return None
        for transaction in self.live.values():
            if transaction.status is TxnStatus.OPEN:
                return transaction
        raise AssertionError("an OPEN transaction is counted, and none is there")

    def select(self, statuses: frozenset[TxnStatus]) -> Iterator[Transaction]:
        """Live transactions in these states, oldest first."""
        return (one for one in self.live.values() if one.status in statuses)

    def recent_outcomes(self) -> list[TxnEnded]:
        """The latest ones; all that are not durable yet are among them."""
        return list(self._recent.values())

    # Deciding.

    def new_txn(
        self,
        timeout_ms: int,
        participants: Iterable[Participant],
        *,
        run_time_ms: int,
        time_ms: int,
        owner: Owner | None = None,
        expires: bool = True,
    ) -> Decision:
        """Open a transaction.

        Args:
            timeout_ms: 0 means the configured default.
            expires: not with two-phase commit, whatever the timeout says.
            time_ms: wall clock.
        Raises:
            InvalidArgument: longer than the maximum, or more participants than allowed. No effect.
            QuotaExceeded: too many transactions are live. No effect.
        Source: PIP-31, TC Request Processing, CommandNewTxn.
        """
        config = self._config
        if expires and timeout_ms > config.txn_timeout_ms_max:
            raise InvalidArgument(
                f"a timeout of {timeout_ms} ms exceeds the maximum of {config.txn_timeout_ms_max}",
                txn_timeout_ms_max=config.txn_timeout_ms_max,
            )
        if len(self.live) >= config.live_txns_max:
            raise QuotaExceeded(
                f"{len(self.live)} transactions are live already",
                live_txns_max=config.live_txns_max,
            )
        distinct = tuple(dict.fromkeys(participants))
        self._check_participants(len(distinct))
        txn_id = TxnID.of(self._tcid, self._incarnation, self.next_counter)
        timeout_ms = (timeout_ms or config.txn_timeout_ms_default) if expires else 0
        record = TxnOpened(txn_id, timeout_ms, run_time_ms, time_ms, distinct, owner)
        return Decision((record,), txn_id, TxnStatus.OPEN)

    def add_participants(
        self, txn_id: TxnID, participants: Iterable[Participant], *, time_ms: int
    ) -> Decision:
        """Add partitions, or subscriptions; adding again writes nothing.

        Args:
            participants: all of one kind.
        Raises:
            TxnNotFound: never opened. No effect.
            InvalidTxnState: not OPEN. No effect.
            QuotaExceeded: more participants than a transaction may have. No effect.
            OutcomeMissing: ended before; InvalidTxnState or TxnForgotten, as its outcome tells.
        Source: PIP-31, CommandAddPartitionToTxn and CommandAddSubscriptionToTxn.
        """
        transaction = self.find(txn_id)
        if isinstance(transaction, TxnEnded) or transaction.status is not TxnStatus.OPEN:
            raise not_open(txn_id, transaction.status)
        known = transaction.participants
        new = tuple(dict.fromkeys(one for one in participants if one not in known))
        if not new:
            return Decision((), txn_id, TxnStatus.OPEN)
        self._check_participants(len(known) + len(new))
        return Decision((ParticipantsAdded(txn_id, new, time_ms),), txn_id, TxnStatus.OPEN)

    def end(self, end: End, *, time_ms: int) -> Decision:
        """Fix a transaction's outcome; repeating the same action and selection is harmless.

        Raises:
            TxnNotFound: never opened. No effect.
            InvalidTxnState: the opposite outcome, or another selection, is fixed. No effect.
            InvalidArgument: something is counted at what is no participant. No effect.
            OutcomeMissing: ended before; `repeat_end` answers, once its outcome is at hand.
        Source: PIP-31, CommandEndTxn.
        """
        found = self.find(end.txn_id)
        if isinstance(found, TxnEnded):
            return repeat_end(end, found.status, found.selection_digest)
        if found.status is not TxnStatus.OPEN:
            return repeat_end(end, found.status, selection_digest(found.selection))
        counts, selection = end.counts, end.selection
        if end.action is TxnAction.ABORT:
            # Everything is discarded, whatever was confirmed or selected.
            counts = selection = None
        elif counts is not None:
            _check_counts(found, counts)
        if selection is not None:
            selection = tuple(sorted(set(selection)))
        status = next_status(found.status, REQUESTED[end.action])
        record = StatusChanged(
            end.txn_id, found.status, status, time_ms, counts, selection, end.fingerprint
        )
        return Decision((record,), end.txn_id, status, fixed=True)

    def expire(self, txn_id: TxnID, *, time_ms: int) -> Decision:
        """Abort an OPEN transaction whose time is up. PIP-31, TC Transaction Expiration."""
        transaction = self.live[txn_id]
        status = next_status(transaction.status, TxnEvent.EXPIRED)
        record = StatusChanged(txn_id, transaction.status, status, time_ms)
        return Decision((record,), txn_id, status, fixed=True)

    def accept_loss(self, txn_id: TxnID, *, time_ms: int) -> Decision:
        """Let a commit go on without what its participants lost; repeating is harmless.

        Raises:
            TxnNotFound: never opened. No effect.
            InvalidTxnState: it is not being committed. No effect.
            OutcomeMissing: ended before; `repeat_accept_loss` answers.
        """
        found = self.find(txn_id)
        if isinstance(found, TxnEnded) or found.status is not TxnStatus.COMMITTING:
            return repeat_accept_loss(txn_id, found.status)
        records = () if found.loss_accepted else (LossAccepted(txn_id, time_ms),)
        return Decision(records, txn_id, found.status)

    def participants_ended(self, txn_id: TxnID, *, run_time_ms: int, time_ms: int) -> Decision:
        """Replace a transaction, which every participant has ended, by its outcome.

        Source: PIP-31, TC Startup, the last step of committing and of aborting.
        """
        transaction = self.live[txn_id]
        assert not transaction.unfinished, f"{txn_id} has participants that did not answer"
        status = next_status(transaction.status, TxnEvent.PARTICIPANTS_ENDED)
        digest = selection_digest(transaction.selection)
        record = TxnEnded(
            txn_id,
            status,
            run_time_ms,
            time_ms,
            digest,
            transaction.start_time_ms,
            transaction.owner,
        )
        return Decision((record,), txn_id, status)

    # Applying.

    def apply(self, record: Record) -> Transaction | None:
        """Change memory: the one path for live records and for replay.

        Returns:
            The transaction that the record left behind; None when it ended.
        """
        if isinstance(record, TxnEnded):
            self._apply_ended(record)
            return None
        if isinstance(record, TxnOpened):
            transaction = self._apply_opened(record)
        else:
            transaction = self.live[record.txn_id]
            self._apply_change(record, transaction)
        transaction.record_count += 1
        return transaction

    def outcome_durable(self, txn_id: TxnID) -> None:
        """An outcome that was applied is durable now: the watermark may pass it."""
        if txn_id.incarnation == self._incarnation:
            self.watermark.ended_durably(txn_id.counter)
        self._recent_durable.append(txn_id)
        if len(self._recent_durable) > self._config.recent_outcomes_max:
            del self._recent[self._recent_durable.popleft()]

    def check(self) -> None:
        """Our bugs assert; clients' mistakes raise TxnError."""
        self.expiry.check()
        counted = dict.fromkeys(self.status_counts, 0)
        for txn_id, transaction in self.live.items():
            transaction.check()
            counted[transaction.status] += 1
            assert self.is_issued(txn_id)
            assert txn_id not in self._recent
            if txn_id.incarnation == self._incarnation:
                assert self.watermark.is_live(txn_id.counter)
        assert counted == self.status_counts
        expiring = [one for one in self.live.values() if one.expires]
        assert len(self.expiry) == sum(one.status is TxnStatus.OPEN for one in expiring)

    def _apply_opened(self, record: TxnOpened) -> Transaction:
        txn_id = record.txn_id
        assert txn_id not in self.live
        transaction = Transaction(
            txn_id=txn_id,
            timeout_ms=record.timeout_ms,
            start_run_time_ms=record.start_run_time_ms,
            start_time_ms=record.time_ms,
            last_modification_time_ms=record.time_ms,
            participants=dict.fromkeys(record.participants),
            owner=record.owner,
        )
        self.live[txn_id] = transaction
        self.status_counts[TxnStatus.OPEN] += 1
        if transaction.expires:
            self.expiry.add(txn_id, transaction.deadline_run_time_ms)
        if txn_id.incarnation == self._incarnation:
            self.next_counter = max(self.next_counter, txn_id.counter + 1)
            self.watermark.opened(txn_id.counter, record.start_run_time_ms)
        return transaction

    def _apply_change(
        self, record: ParticipantsAdded | StatusChanged | LossAccepted, transaction: Transaction
    ) -> None:
        transaction.last_modification_time_ms = record.time_ms
        if isinstance(record, ParticipantsAdded):
            assert transaction.status is TxnStatus.OPEN
            transaction.participants.update(dict.fromkeys(record.participants))
        elif isinstance(record, StatusChanged):
            # PIP-31, updateTxnStatus: fails unless the status is the expected one.
            assert transaction.status is record.expected
            self.status_counts[record.expected] -= 1
            self.status_counts[record.new] += 1
            if transaction.expires:
                self.expiry.remove(record.txn_id)
            transaction.status = record.new
            transaction.counts = record.counts
            transaction.selection = record.selection
            transaction.unfinished = dict.fromkeys(transaction.participants, "")
        else:
            assert transaction.status is TxnStatus.COMMITTING
            transaction.loss_accepted = True

    def _apply_ended(self, record: TxnEnded) -> None:
        transaction = self.live.pop(record.txn_id)
        self.status_counts[transaction.status] -= 1
        self._recent[record.txn_id] = record

    def _check_participants(self, count: int) -> None:
        if count > self._config.participants_max:
            raise QuotaExceeded(
                f"a transaction may have {self._config.participants_max} participants at most",
                participants_max=self._config.participants_max,
            )


def not_open(txn_id: TxnID, status: TxnStatus) -> InvalidTxnState:
    """The refusal of what only an OPEN transaction allows."""
    return InvalidTxnState(
        f"transaction {txn_id} is {status.name}, not OPEN", txn_id=txn_id, status=status.name
    )


def forgotten(txn_id: TxnID) -> TxnForgotten:
    """The refusal of anything about a transaction whose outcome is no longer kept."""
    return TxnForgotten(f"transaction {txn_id} ended, and its outcome is forgotten", txn_id=txn_id)


def repeat_end(end: End, status: TxnStatus, digest: bytes) -> Decision:
    """Answer an end of what is being ended, or has ended.

    Counts, and a selection that is omitted, are not compared: what was fixed stays as it is.

    Args:
        digest: of the selection that was fixed.
    Raises:
        InvalidTxnState: the opposite outcome, or another selection, is fixed. No effect.
    Source: PIP-31, CommandEndTxn, step 2; rule e.
    """
    if ACTION_OF[status] is not end.action:
        raise InvalidTxnState(
            f"transaction {end.txn_id} is {status.name}: {end.action.name} comes too late",
            txn_id=end.txn_id,
            status=status.name,
        )
    if (
        end.action is TxnAction.COMMIT
        and end.selection is not None
        and selection_digest(end.selection) != digest
    ):
        raise InvalidTxnState(
            f"transaction {end.txn_id} is {status.name} with another selection",
            txn_id=end.txn_id,
            status=status.name,
        )
    return Decision((), end.txn_id, status)


def repeat_accept_loss(txn_id: TxnID, status: TxnStatus) -> Decision:
    """Answer an acceptance of loss of what is not COMMITTING.

    Raises:
        InvalidTxnState: it was not committed. No effect.
    """
    if status is not TxnStatus.COMMITTED:
        raise InvalidTxnState(
            f"transaction {txn_id} is {status.name}: there is no commit that could lack something",
            txn_id=txn_id,
            status=status.name,
        )
    return Decision((), txn_id, status)


def _check_counts(transaction: Transaction, counts: Counts) -> None:
    """What was confirmed elsewhere could not be committed: to go on would lose it silently."""
    for participant, writers in counts.items():
        if participant not in transaction.participants and any(count for _, count in writers):
            raise InvalidArgument(
                f"{participant} is counted but is no participant of {transaction.txn_id}",
                txn_id=transaction.txn_id,
                participant=participant,
            )
