r"""Transaction index of a participant, a partition or a subscription: open and ended transactions.

Both kinds keep the same books. A writer is a producer with its messages, or a consumer with its ack
commands; either numbers its writes from 0 without gaps, so that a count says which writes are
meant. All rules about what an end may do are here; its effect on messages or acks is elsewhere.
Pure.

    (unknown) --write--> OPEN --end--> COMMITTED or ABORTED --covered--> (forgotten)
        \_________________end__________________/

Source: PIP-31, Broker - Transaction Buffer, Transaction Index; docs/protocol/rules.md, rules c to
h.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from magnetar_broker.budgets.open_bytes import Account
from magnetar_broker.transactions.producers import check_sequence
from magnetar_core.cuts.hybrid_clock import NO_STAMP
from magnetar_core.errors import InvalidTxnState, QuotaExceeded, TxnIncomplete
from magnetar_core.history.events import EndApplied, EndsForgotten, Participant, Wrote
from magnetar_core.history.history import History
from magnetar_core.ids import NO_EPOCH, MemberName, TxnID
from magnetar_core.selections import digest_of_selection

NO_MEMBER = MemberName("")


class Outcome(Enum):
    """Outcome of a transaction."""

    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(slots=True)
class Writer:
    """A producer's or consumer's part of an open transaction."""

    ordinal: int
    writer_id: int
    next_index: int = 0
    # Transactions that its producer had ended before, and that are not settled here (rule k).
    follows: tuple[TxnID, ...] = ()
    # Index of the first message of each batch, which is in its row's key.
    batch_starts: list[int] = field(default_factory=list)
    # False if recovery could not read some of them.
    are_starts_known: bool = True
    stored_bytes: int = 0
    # Its batches, while they are few and in memory: see recent_messages.
    recent: list[bytes] | None = None
    # The account that counts their bytes; None: they are from before a restart.
    account: Account | None = None


@dataclass(slots=True)
class OpenTransaction:
    """A transaction that has written here and has not ended."""

    txn_id: TxnID
    start_time_ms: int
    # The partition's end at its first write here, by which an administrator identifies the
    # transaction.
    start_offset: int = 0
    # Epoch of its transactional producer; -1: none.
    producer_epoch: int = NO_EPOCH
    # On a group's partition: the member that acknowledged first.
    member: MemberName = NO_MEMBER
    writers: dict[int, Writer] = field(default_factory=dict)


class EndedTransaction(NamedTuple):
    """Kept until the coordinator's watermark covers it, so that late-comers are refused."""

    outcome: Outcome
    selection_digest: bytes = b""
    # Transactions that it followed and that were not settled when it ended (rule k).
    follows: tuple[TxnID, ...] = ()
    # Of a commit.
    stamp: int = NO_STAMP


class End(NamedTuple):
    """End that a coordinator asks of a participant."""

    txn_id: TxnID
    outcome: Outcome
    # Confirmed writes by writer id; None: not checked.
    counts: Mapping[int, int] | None = None
    # The writers whose writes count; None: all.
    selection: frozenset[int] | None = None
    loss_accepted: bool = False
    # For an administrator's abort: the start offset and producer epoch that the transaction must
    # have here.
    hanging: tuple[int, int] | None = None
    # The partition or subscription is being deleted: nothing of the end is remembered.
    is_dropped: bool = False
    # Of a commit.
    stamp: int = NO_STAMP
    # The partition's when it was added to the transaction; 0: not compared.
    ledger_id: int = 0

    @classmethod
    def dropping(cls, txn_id: TxnID) -> End:
        """Return the abort of a transaction of which nothing is remembered."""
        return cls(txn_id=txn_id, outcome=Outcome.ABORTED, is_dropped=True)


# A writer, and how much of it a commit keeps; 0: all of it is discarded.
KeptWriter = tuple[Writer, int]


class EndPlan(NamedTuple):
    """Plan of an end. With `already_ended` there is nothing to do."""

    already_ended: bool
    transaction: OpenTransaction | None = None
    writers: Sequence[KeptWriter] = ()


class TransactionIndex:
    """Transactions of a participant.

    Args:
        is_running: whether a TxnID is plainly issued, and neither covered nor superseded; if not,
            the other functions tell.
        covers: whether the coordinator's watermark covers a TxnID.
        covered: those of several TxnIDs that a watermark covers.
        is_superseded: whether a TxnID belongs to an abandoned incarnation of its coordinator.
        check_issued: raises TxnNotFound or LogUnavailable unless the TxnID is issued.
        on_opened: called when a transaction begins to write here.
        on_closed: called when it ends here.
        name: the participant's name in the history.
        history: notes what changes; None: there is none.
    """

    def __init__(
        self,
        is_running: Callable[[TxnID], bool],
        covers: Callable[[TxnID], bool],
        covered: Callable[[Iterable[TxnID]], Sequence[TxnID]],
        is_superseded: Callable[[TxnID], bool],
        check_issued: Callable[[TxnID], None],
        *,
        on_opened: Callable[[TxnID], None],
        on_closed: Callable[[TxnID], None],
        name: Participant,
        history: History | None = None,
    ) -> None:
        self.name = name
        self._history = history
        self._is_running = is_running
        self._covers = covers
        self._covered = covered
        self._is_superseded = is_superseded
        self._check_issued = check_issued
        self._on_opened = on_opened
        self._on_closed = on_closed
        self.open: dict[TxnID, OpenTransaction] = {}
        self.ended: dict[TxnID, EndedTransaction] = {}

    def check(self) -> None:
        """Check the invariants."""
        assert not self.open.keys() & self.ended.keys()
        for transaction in self.open.values():
            ordinals = [writer.ordinal for writer in transaction.writers.values()]
            assert ordinals == list(range(len(ordinals)))

    def check_write(
        self, txn_id: TxnID, writer_id: int, sequence_id: int, count: int, *, writers_max: int
    ) -> bool:
        """Return whether a write is a repeat.

        Raises:
            InvalidTxnState: the transaction has ended, here or for its coordinator.
            TxnNotFound: no coordinator has issued the TxnID.
            LogUnavailable: its coordinator has not announced the TxnID yet.
            SequenceGap: as check_sequence.
            InvalidArgument: as check_sequence.
            QuotaExceeded: too many writers in a transaction.
        """
        # A transaction that is still open here refuses writes once its coordinator has ended it.
        is_running = self._is_running(txn_id)
        if txn_id in self.ended or (not is_running and self._covers(txn_id)):
            raise InvalidTxnState(f"transaction {txn_id} has ended: begin another one")
        if not is_running and self._is_superseded(txn_id):
            raise InvalidTxnState(
                f"transaction {txn_id} is of a coordinator's store that was replaced"
            )
        transaction = self.open.get(txn_id)
        if transaction is None:
            if not is_running:
                self._check_issued(txn_id)
            return check_sequence(0, sequence_id, count)
        writer = transaction.writers.get(writer_id)
        if writer is None:
            if len(transaction.writers) >= writers_max:
                raise QuotaExceeded(
                    f"a transaction may have {writers_max} writers at a participant"
                )
            return check_sequence(0, sequence_id, count)
        return check_sequence(writer.next_index, sequence_id, count)

    def record_write(
        self,
        txn_id: TxnID,
        writer_id: int,
        count: int,
        *,
        follows: tuple[TxnID, ...] = (),
        now_ms: int,
        start_offset: int = 0,
        producer_epoch: int = NO_EPOCH,
        member: MemberName = NO_MEMBER,
    ) -> tuple[OpenTransaction, Writer]:
        """Count a write that check_write has accepted; return its transaction and writer."""
        transaction = self.open.get(txn_id)
        if transaction is None:
            transaction = OpenTransaction(txn_id, now_ms, start_offset, producer_epoch, member)
            self.restore_open(transaction)
        writers = transaction.writers
        writer = writers.get(writer_id)
        if writer is None:
            writer = writers[writer_id] = Writer(len(writers), writer_id, 0, follows)
        first_index = writer.next_index
        writer.batch_starts.append(first_index)
        writer.next_index += count
        if self._history is not None:
            named = () if first_index else writer.follows
            wrote = Wrote(self.name, txn_id, writer_id, first_index, count, named)
            self._history.note(wrote)
        return transaction, writer

    def restore_open(self, transaction: OpenTransaction) -> None:
        """Restore an open transaction."""
        self.open[transaction.txn_id] = transaction
        self._on_opened(transaction.txn_id)

    def plan_end(self, end: End, ledger_id: int = 0) -> EndPlan:
        """Compare an end with the writes here, and return its effect. Changes nothing.

        Args:
            ledger_id: the present one of the partition.
        Raises:
            InvalidTxnState: another outcome is recorded here, or an administrator means another
                transaction.
            TxnIncomplete: fewer writes are here than were confirmed to the client; or data was lost
                since the partition was added to the transaction.
        """
        txn_id, outcome, counts, selection, loss_accepted, hanging, _, _, taken_part = end
        if hanging is not None:
            self._check_hanging(txn_id, hanging)
        transaction = self.open.get(txn_id)
        if transaction is None:
            return self._plan_without_writes(end, ledger_id)
        if taken_part and outcome is Outcome.COMMITTED and not loss_accepted:
            _check_ledger(end, ledger_id)
        writers = transaction.writers
        if outcome is Outcome.ABORTED:
            kept = [(writer, 0) for writer in writers.values()]
        else:
            held = {}
            kept = []
            for writer_id, writer in writers.items():
                held[writer_id] = written = writer.next_index
                kept.append((writer, written))
            # Nearly always what is here is what counts.
            if selection is not None or (counts is not None and counts != held):
                if not loss_accepted:
                    _check_complete(end, held)
                kept = [(writer, _kept(end, writer)) for writer in writers.values()]
        return tuple.__new__(EndPlan, (False, transaction, kept))

    def _plan_without_writes(self, end: End, ledger_id: int) -> EndPlan:
        """Compare an end with a transaction that is not open here; see plan_end."""
        ended = self.ended.get(end.txn_id)
        if ended is not None:
            same_selection = (
                end.outcome is Outcome.ABORTED
                or end.selection is None
                or ended.selection_digest == digest_of_selection(end.selection)
            )
            if ended.outcome is not end.outcome or not same_selection:
                raise InvalidTxnState(f"transaction {end.txn_id} was {ended.outcome.value} here")
            return EndPlan(already_ended=True)
        if self._covers(end.txn_id):
            return EndPlan(already_ended=True)
        if end.outcome is Outcome.COMMITTED and not end.loss_accepted:
            if end.ledger_id:
                _check_ledger(end, ledger_id)
            _check_complete(end, {})
        return EndPlan(already_ended=False)

    def record_end(self, end: End, follows: tuple[TxnID, ...] = ()) -> EndedTransaction | None:
        """Note that a transaction has ended as planned.

        Args:
            follows: the transactions that it passes on (rule k).
        Returns:
            The ended transaction; None: nothing is remembered.
        """
        txn_id, outcome, _, selection, _, _, is_dropped, stamp, _ = end
        transaction = self.open.pop(txn_id, None)
        if transaction is not None:
            self._on_closed(txn_id)
        if self._history is not None:
            self._history.note(_applied(self.name, end, transaction, follows))
        if is_dropped:
            return None
        digest = b"" if selection is None else digest_of_selection(selection)
        fields = outcome, digest, follows, stamp
        ended = self.ended[txn_id] = tuple.__new__(EndedTransaction, fields)
        return ended

    def forget_covered(self, but: Collection[TxnID] = ()) -> Sequence[TxnID]:
        """Drop the transactions that the watermark covers, and return them."""
        forgotten = self._covered(self.ended)
        if but:
            forgotten = [one for one in forgotten if one not in but]
        for txn_id in forgotten:
            del self.ended[txn_id]
        if forgotten and self._history is not None:
            self._history.note(EndsForgotten(self.name, tuple(forgotten)))
        return forgotten

    def _check_hanging(self, txn_id: TxnID, hanging: tuple[int, int]) -> None:
        transaction = self.open.get(txn_id)
        if transaction is None:
            raise InvalidTxnState(f"transaction {txn_id} is not open here")
        found = (transaction.start_offset, transaction.producer_epoch)
        if found != hanging:
            raise InvalidTxnState(
                f"transaction {txn_id} began here at offset {found[0]} with producer epoch"
                f" {found[1]}, not at {hanging[0]} with {hanging[1]}: describe the producers again",
                start_offset=found[0],
                producer_epoch=found[1],
            )


def _check_ledger(end: End, ledger_id: int) -> None:
    """Check that nothing can have been lost since the partition took part.

    Raises:
        TxnIncomplete: something may be missing.
    """
    if end.ledger_id < ledger_id:
        raise TxnIncomplete(
            f"transaction {end.txn_id}: the partition lost data since it took part, its ledger id"
            f" was {end.ledger_id} and is {ledger_id}; an administrator must accept the loss",
            ledger_id=ledger_id,
        )


def _check_complete(end: End, held: Mapping[int, int]) -> None:
    """Check that everything is here that was confirmed to the client and counts.

    Args:
        held: how many writes each writer has here.
    Raises:
        TxnIncomplete: something is missing.
    """
    for writer_id, confirmed in (end.counts or {}).items():
        if end.selection is not None and writer_id not in end.selection:
            continue
        present = held.get(writer_id, 0)
        if present < confirmed:
            raise TxnIncomplete(
                f"transaction {end.txn_id}: writer {writer_id} had {confirmed} confirmed,"
                f" {present} are here; an administrator must accept the loss",
                writer_id=writer_id,
                confirmed=confirmed,
                present=present,
            )


def _kept(end: End, writer: Writer) -> int:
    if end.selection is not None and writer.writer_id not in end.selection:
        return 0
    if end.counts is None:
        return writer.next_index
    return min(end.counts.get(writer.writer_id, 0), writer.next_index)


def _applied(
    name: Participant, end: End, transaction: OpenTransaction | None, follows: tuple[TxnID, ...]
) -> EndApplied:
    """Return the event of an end."""
    writers = transaction.writers.values() if transaction is not None else ()
    is_commit = end.outcome is Outcome.COMMITTED
    return EndApplied(
        name,
        end.txn_id,
        is_commit,
        held=tuple((one.writer_id, one.next_index) for one in writers),
        kept=tuple((one.writer_id, _kept(end, one)) for one in writers) if is_commit else (),
        is_counted=end.counts is not None,
        is_selected=end.selection is not None,
        passes_on=follows,
        loss_accepted=end.loss_accepted,
        is_dropped=end.is_dropped,
    )
