"""Decisions of the coordinator: a command, or the passing of time, becomes a record and an answer.

A decision changes nothing; `TransactionTable.apply` does, and takes the same records live and in
replay. Nothing here knows stores, links or clocks. Pure.
Source: PIP-31, Transaction Coordinator, TC Request Processing and TC Transaction Expiration; rules
e, g and h.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from magnetar_coordinator.metadata.participant_counts import writer_counts
from magnetar_coordinator.metadata.records import (
    LossAccepted,
    ParticipantsAdded,
    StatusChanged,
    TxnEnded,
    TxnOpened,
)
from magnetar_coordinator.metadata.transaction import (
    REQUESTED,
    TRANSITIONS,
    Counts,
    Participant,
    Transaction,
    TxnAction,
    TxnEvent,
    TxnOwner,
    TxnStatus,
)
from magnetar_coordinator.transactions.decision import (
    Decision,
    EndTxnRequest,
    OutcomeMissing,
    may_be_prepared,
    not_open,
    repeat_accept_loss,
    repeat_end,
)
from magnetar_coordinator.transactions.transaction_table import TransactionTable
from magnetar_core.cuts.hybrid_clock import NO_STAMP
from magnetar_core.errors import InvalidArgument, InvalidTxnState, QuotaExceeded, TxnNotFound
from magnetar_core.ids import TxnID
from magnetar_core.invariants import BrokenInvariant
from magnetar_core.selections import digest_of_selection
from magnetar_core.transitions import Machine


class Shard(TransactionTable):
    """Transactions of a TCID, and the rules about them."""

    def find(self, txn_id: TxnID) -> Transaction | TxnEnded:
        """Return a live transaction, or the outcome of an ended transaction.

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
        if self._recalled is not None and self._recalled.txn_id == txn_id:
            return self._recalled
        if not self.is_issued(txn_id):
            raise TxnNotFound(f"transaction {txn_id} was never opened here", txn_id=txn_id)
        raise OutcomeMissing(txn_id)

    def new_txn(
        self,
        timeout_ms: int,
        participants: Iterable[Participant],
        *,
        run_time_ms: int,
        time_ms: int,
        txn_owner: TxnOwner | None = None,
        principal: str = "",
        expires: bool = True,
        ledger_ids: Sequence[int] = (),
    ) -> Decision:
        """Open a transaction.

        Args:
            ledger_ids: of the participants; none: they are not compared.
            timeout_ms: 0 means the configured default.
            time_ms: wall clock.
            principal: the client that begins it; empty: a client that did not authenticate.
            expires: False with two-phase commit, whatever the timeout says.
        Raises:
            InvalidArgument: timeout above the maximum, or too many participants. No effect.
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
        named = tuple(participants)
        by_name = _ledgers_of(named, ledger_ids)
        distinct = tuple(dict.fromkeys(named))
        self._check_participants(len(distinct))
        txn_id = TxnID(self._most_bits, self.next_counter)
        timeout_ms = (timeout_ms or config.txn_timeout_ms_default) if expires else 0
        record = TxnOpened(
            txn_id,
            timeout_ms,
            run_time_ms,
            time_ms,
            distinct,
            txn_owner,
            principal,
            tuple(by_name.values()),
        )
        return Decision(record, TxnStatus.OPEN)

    def add_participants(
        self,
        txn_id: TxnID,
        participants: Sequence[Participant],
        *,
        time_ms: int,
        ledger_ids: Sequence[int] = (),
    ) -> Decision:
        """Add partitions, or subscriptions; adding again writes nothing.

        Args:
            participants: all of the same kind.
            ledger_ids: as in new_txn.
        Raises:
            InvalidArgument: there are not as many ledger ids as participants. No effect.
            TxnNotFound: never opened. No effect.
            InvalidTxnState: not OPEN. No effect.
            QuotaExceeded: more participants than a transaction may have. No effect.
            OutcomeMissing: ended before, and not in memory.
        Source: PIP-31, CommandAddPartitionToTxn and CommandAddSubscriptionToTxn.
        """
        transaction = self.find(txn_id)
        if isinstance(transaction, TxnEnded) or transaction.status is not TxnStatus.OPEN:
            raise not_open(txn_id, transaction.status)
        known = transaction.participants
        new = tuple(
            dict.fromkeys(participant for participant in participants if participant not in known)
        )
        if not new:
            return Decision(None, TxnStatus.OPEN)
        self._check_participants(len(known) + len(new))
        by_name = _ledgers_of(participants, ledger_ids)
        added = tuple([by_name[one] for one in new]) if by_name else ()
        return Decision(ParticipantsAdded(txn_id, new, time_ms, added), TxnStatus.OPEN)

    def end(self, end: EndTxnRequest, *, time_ms: int) -> Decision:
        """Fix a transaction's outcome; repeating the same action and selection is harmless.

        Raises:
            TxnNotFound: never opened. No effect.
            InvalidTxnState: the opposite outcome, or another selection, is fixed; or a
                transactional producer owns it, whose identity was not shown, and expiry could not
                do the same: in two-phase commit it may be prepared. No effect.
            InvalidArgument: counts name a partition or subscription that takes no part. No effect.
            OutcomeMissing: ended before, and not in memory.
        Source: PIP-31, CommandEndTxn.
        """
        found = self.find(end.txn_id)
        if isinstance(found, TxnEnded):
            return repeat_end(end, found.status, found.selection_digest, found.stamp)
        could_expire = end.action is TxnAction.ABORT and found.expires
        if found.txn_owner is not None and not end.identity_shown and not could_expire:
            if found.may_be_prepared:
                raise may_be_prepared(found.txn_id, found.txn_owner.transactional_id)
            raise InvalidTxnState(
                f"{end.txn_id} is of {found.txn_owner.transactional_id!r}: end it with that"
                " identity, or force-terminate it",
                transactional_id=found.txn_owner.transactional_id,
            )
        if found.status is not TxnStatus.OPEN:
            digest = digest_of_selection(found.selection)
            return repeat_end(end, found.status, digest, found.stamp)
        self._check_past_commit(end)
        counts, selection = end.counts, end.selection
        if end.action is TxnAction.ABORT:
            # An abort discards everything, whatever was confirmed or selected.
            counts = selection = None
        elif counts is not None:
            _check_counts(found, counts)
        if selection is not None:
            selection = tuple(sorted(set(selection)))
        status = next_status(found.status, REQUESTED[end.action])
        stamp = NO_STAMP if end.action is TxnAction.ABORT else self._stamp_of(end.txn_id, time_ms)
        record = StatusChanged(
            end.txn_id,
            found.status,
            status,
            time_ms,
            counts,
            selection,
            end.fingerprint,
            stamp,
            keep_epoch=end.keep_epoch,
        )
        return Decision(record, status, stamp)

    def _stamp_of(self, txn_id: TxnID, time_ms: int) -> int:
        """Return the stamp of a commit: that of its first decision, if that was lost."""
        past = self.past_stamps.get(txn_id)
        return self.clock.next(time_ms) if past is None else past

    def _check_past_commit(self, end: EndTxnRequest) -> None:
        digest = self.past_commits.get(end.txn_id)
        if digest is None:
            return
        if end.action is TxnAction.ABORT or digest != digest_of_selection(end.selection):
            raise InvalidTxnState(
                f"transaction {end.txn_id} was committed before a loss: commit it again, with the"
                " same selection; or accept that it may be torn, and then abort it",
                txn_id=end.txn_id,
            )

    def expire(self, txn_id: TxnID, *, time_ms: int) -> Decision:
        """Abort an OPEN transaction whose time is up. PIP-31, TC Transaction Expiration."""
        transaction = self.live[txn_id]
        status = next_status(transaction.status, TxnEvent.EXPIRED)
        record = StatusChanged(txn_id, transaction.status, status, time_ms)
        return Decision(record, status)

    def accept_loss(self, txn_id: TxnID, *, time_ms: int) -> Decision:
        """Let a commit go on without the writes that its participants lost; repeating is harmless.

        Raises:
            TxnNotFound: never opened. No effect.
            InvalidTxnState: it is not being committed. No effect.
            OutcomeMissing: ended before, and not in memory.
        """
        found = self.find(txn_id)
        if self.past_commits.pop(txn_id, None) is not None:
            # From now on the transaction may be aborted, though some participants have committed
            # it.
            return Decision(None, found.status)
        if isinstance(found, TxnEnded) or found.status is not TxnStatus.COMMITTING:
            return repeat_accept_loss(txn_id, found.status)
        record = None if found.loss_accepted else LossAccepted(txn_id, time_ms)
        return Decision(record, found.status)

    def participants_ended(self, txn_id: TxnID, *, run_time_ms: int, time_ms: int) -> Decision:
        """Replace a transaction, which every participant has ended, by its outcome.

        Source: PIP-31, TC Startup, the last step of committing and of aborting.
        """
        transaction = self.live[txn_id]
        if transaction.unfinished:
            raise BrokenInvariant(f"{txn_id} has participants that did not answer")
        status = next_status(transaction.status, TxnEvent.PARTICIPANTS_ENDED)
        digest = digest_of_selection(transaction.selection)
        record = TxnEnded(
            txn_id,
            status,
            run_time_ms,
            time_ms,
            digest,
            transaction.start_time_ms,
            transaction.txn_owner,
            transaction.principal,
            transaction.stamp,
        )
        return Decision(record, status, transaction.stamp)

    def _check_participants(self, count: int) -> None:
        if count > self._config.participants_max:
            raise QuotaExceeded(
                f"a transaction may have {self._config.participants_max} participants at most",
                participants_max=self._config.participants_max,
            )


_MACHINE: Final = Machine(TRANSITIONS, "the transaction")


def next_status(status: TxnStatus, event: TxnEvent) -> TxnStatus:
    """Return the status to which an event leads.

    Raises:
        InvalidTxnState: the event is not possible in this status. No effect.
    """
    return _MACHINE.next(status, event)


def _ledgers_of(
    participants: Sequence[Participant], ledger_ids: Sequence[int]
) -> dict[Participant, int]:
    if ledger_ids and len(ledger_ids) != len(participants):
        raise InvalidArgument(
            f"{len(ledger_ids)} ledger ids come with {len(participants)} participants"
        )
    return dict(zip(participants, ledger_ids, strict=False)) if ledger_ids else {}


def _check_counts(transaction: Transaction, counts: Counts) -> None:
    """Check that counts name participants only: other confirmed writes would be lost silently."""
    if counts.keys() <= transaction.participants.keys():
        return
    for participant, packed in counts.items():
        if participant not in transaction.participants and any(
            count for _, count in writer_counts(participant, packed)
        ):
            raise InvalidArgument(
                f"{participant} is counted but is not a participant of {transaction.txn_id}",
                txn_id=transaction.txn_id,
                participant=participant,
            )
