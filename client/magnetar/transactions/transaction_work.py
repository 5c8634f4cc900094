"""The work of a transaction, from its TxnID to its outcome.

`magnetar.Transaction` is what users have of it. Producers, consumers and the client use this.

Source: PIP-31, Public APIs, Transaction#commit and Transaction#abort;
docs/design/0001-protocol.md, One transaction.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from magnetar.enums import TransactionStatus
from magnetar.errors import CommitRefused, failure_of
from magnetar.link.runtime import Runtime
from magnetar.link.unanswered import copy_error
from magnetar.transactions.beginning import Begin, Beginning
from magnetar.transactions.begun import Begun
from magnetar.transactions.end_requests import EndRequests
from magnetar.transactions.failed_call import FailedCall
from magnetar.transactions.outcome_inquiry import OutcomeInquiry
from magnetar.transactions.participants import Participants
from magnetar.transactions.producer_identity import ProducerIdentity
from magnetar.transactions.transaction_block import TransactionBlock
from magnetar.transactions.transaction_part import TransactionPart
from magnetar.transactions.transaction_state import (
    COMMIT_REQUESTED,
    COMMIT_WAS_ASKED,
    DECIDED_ABORT,
    DECIDED_COMMIT,
    ENDED,
    FLUSH_BEGUN,
    FLUSHED,
    HEARD,
    IN_DOUBT,
    MACHINE,
    OPEN,
    OVER,
    PREPARED,
    STANDS,
    STATUS_OF,
    UNDECIDED,
    TransactionEvent,
    TransactionPhase,
)
from magnetar.transactions.whole_batch import WholeBatchCommit
from magnetar.transactions.writer_protocols import Sender, Writer
from magnetar_core.errors import (
    Gone,
    InvalidArgument,
    InvalidTxnState,
    MagnetarError,
    OutcomeUnknown,
    TopicNotFound,
    TxnForgotten,
    TxnNotFound,
)
from magnetar_core.ids import TxnID
from magnetar_core.transport.columns.participants import Counted
from magnetar_core.wire import transaction_pb2

log = logging.getLogger("magnetar")

BLOCK_REMEDY = "use txn.send(), txn.ack(), or txn=txn"


class TransactionWork:
    """The state of a transaction, its participants, and its conversation with the coordinator."""

    def __init__(
        self,
        runtime: Runtime,
        begin: Begin,
        on_ended: Callable[[TransactionWork], None],
        *,
        forget_topic: Callable[[str], None],
    ) -> None:
        """A transaction that has not written anything yet.

        Args:
            on_ended: called once, when this client takes no further part in it.
            forget_topic: called with the name of a topic that is gone.
        """
        self._block: TransactionBlock | None = None
        self.number = runtime.next_number()
        self._runtime = runtime
        self._on_ended = on_ended
        self._forget_topic = forget_topic
        self._phase = OPEN
        # Whether the application has prepared, committed, aborted or left it, or tried to.
        self._is_ended_here = False
        self._failure: MagnetarError | None = None
        # Which send or ack that was; None: it was neither, or nothing has failed.
        self._failed_call: FailedCall | None = None
        # The error of a coordinator that no longer knows the transaction.
        self._forgotten: TxnNotFound | TxnForgotten | None = None
        # The messages of a lazy transaction that never began, when it is committed.
        self._whole: WholeBatchCommit | None = None
        self._participants = Participants()
        self._beginning = Beginning(
            runtime, begin, self._participants, on_begun=self._on_begun, on_failed=self.doom
        )
        # Both are there when the transaction has begun.
        self._inquiry: OutcomeInquiry | None = None
        self._end_requests: EndRequests | None = None
        # What a commit counts; there is that when everything is flushed.
        self._counts: list[Counted] | None = None
        # Commit and abort take turns.
        self._ending = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<Transaction {self._name} {self.status.name}>"

    @property
    def txn_id(self) -> TxnID:
        """The id of the transaction; see Transaction.txn_id."""
        if self._beginning.begun is None:
            raise InvalidTxnState("this lazy transaction has not begun, and has no TxnID")
        return self._beginning.begun.txn_id

    @property
    def block(self) -> TransactionBlock:
        """The block that `async with` opens; there is none before."""
        assert self._block is not None
        return self._block

    def cover(self, remedy: str) -> TransactionBlock:
        """Return a block in which sends and acks without `txn` make the transaction fail.

        Args:
            remedy: how to send or acknowledge in the transaction, for people.
        """
        return TransactionBlock(self._runtime, self, remedy)

    @property
    def has_begun(self) -> bool:
        """Whether the coordinator knows the transaction. A lazy one may end without that."""
        return self._beginning.begun is not None

    @property
    def has_ended(self) -> bool:
        """Whether this client knows that the transaction has ended, if not always how."""
        return self._phase in ENDED

    @property
    def is_in_doubt(self) -> bool:
        """Whether its end was asked for, and no answer has told its outcome."""
        return self._phase in IN_DOUBT

    @property
    def next_identity(self) -> ProducerIdentity | None:
        """With what its transactional producer begins the next one; None: this is not known."""
        return None if self._end_requests is None else self._end_requests.next_identity

    @property
    def timeout_ms(self) -> int:
        """After how many milliseconds the coordinator aborts it; only for a begun transaction."""
        assert self._beginning.begun is not None
        return self._beginning.begun.timeout_ms

    @property
    def status(self) -> TransactionStatus:
        """The status, as far as this client knows it."""
        return STATUS_OF[self._phase]

    @property
    def failure(self) -> MagnetarError | None:
        """The error of the first send or ack that failed; then only abort() is possible."""
        return self._failure

    def require_open(self) -> None:
        """Check that the transaction takes sends and acks.

        Raises:
            InvalidTxnState: it has ended, or failed.
        """
        if self._phase is not OPEN:
            raise InvalidTxnState(f"{self._name} takes nothing more: it is {self._phase.name}")
        # Asked for each message: a call less.
        if self._failure is not None:
            self._require_sound()

    def require_client(self, runtime: Runtime) -> None:
        """Check that the transaction and a producer or consumer in it belong to one client.

        Raises:
            InvalidArgument: they do not.
        """
        if runtime is not self._runtime:
            raise InvalidArgument(
                f"{self._name} belongs to another client: begin the transaction with the client of"
                " this producer or consumer"
            )

    async def begin(self) -> None:
        """Begin the transaction at a coordinator now.

        Raises:
            MagnetarError: the coordinator refused it; see Client.begin_transaction.
        """
        await self._beginning.now()

    def begin_soon(self) -> None:
        """Begin a lazy transaction at the end of the event loop's turn, with its participants."""
        if self._beginning.begun is None:
            self._beginning.soon()

    def join_soon(self) -> None:
        """Begin it soon, and have the coordinator confirm all participants: `joined` will wait."""
        self._participants.confirm_soon()
        self.begin_soon()

    def _on_begun(self, begun: Begun) -> None:
        self._inquiry = OutcomeInquiry(
            self._runtime,
            begun.txn_id,
            begun.coordinator,
            begun.timeout_ms,
            on_ended=self._settle,
            on_forgotten=self._on_forgotten,
        )
        self._end_requests = EndRequests(self._runtime, begun)
        if self._phase in OVER:
            self._inquiry.end()

    def add_sender(self, sender: Sender) -> None:
        """Add a partition to which a producer writes."""
        self._participants.add_sender(sender)
        if len(self._participants) > 1:
            self.begin_soon()

    def add_acks(self, acks: Writer) -> None:
        """Add a partition on which a consumer acknowledges."""
        self._participants.add(acks)
        self.begin_soon()

    async def joined(self) -> None:
        """Wait until the coordinator knows all participants so far.

        A participant that the coordinator does not know may accept a message after the transaction
        has ended. Such a message does not count, so the application must not be told that it
        does.

        Raises:
            InvalidTxnState: the transaction has ended, or failed.
        """
        self._participants.confirm_soon()
        await self._beginning.ensure()
        await self._participants.enrolled()
        if self._phase in OVER - DECIDED_COMMIT:
            raise InvalidTxnState(f"{self._name} was aborted")
        self._require_sound()

    def fail(self, error: BaseException, call: FailedCall | None = None) -> None:
        """Make an open transaction fail, since a send or an ack in it did not succeed.

        The reason does not matter: a program that continues in spite of the error must not commit
        the rest. A call that came too late for the transaction changes nothing.

        Args:
            error: what the call raises.
            call: the call; None: not known.
        Source: KafkaProducer.doSend, which puts the transaction into an abortable error.
        """
        if self._phase is not OPEN or self._failure is not None:
            return
        if isinstance(error, GeneratorExit):
            # The call is not cancelled, but forgotten: its event loop has ended.
            return
        name = "a send or an ack" if call is None else str(call)
        failure: MagnetarError
        if isinstance(error, asyncio.CancelledError):
            failure = OutcomeUnknown(f"{name} was cancelled before it was confirmed")
        elif isinstance(error, MagnetarError):
            failure = copy_error(error)
        else:
            failure = failure_of(error, name)
        try:
            self._runtime.require_loop()
        except MagnetarError:
            # This may be another thread: the commit does the rest.
            self._failure, self._failed_call = failure, call
        else:
            self.doom(failure, call)

    def doom(self, error: MagnetarError, call: FailedCall | None = None) -> None:
        """Make the transaction fail.

        Buffered messages and acks are dropped, and commit() will raise CommitRefused.

        Args:
            error: the reason.
            call: the send or the ack that has failed; None: it was neither.
        """
        if self._failure is None:
            self._failure, self._failed_call = error, call
            log.info("transaction %s failed: %s", self._name, error)
            for sender in self._participants.senders:
                if isinstance(sender.failure, Gone | TopicNotFound):
                    self._forget_topic(sender.name.topic)
            self._participants.abandon(error)
            if isinstance(error, InvalidTxnState) and self._phase in UNDECIDED:
                self.doubt()

    async def prepare(self) -> None:
        """Confirm all sends and acks, and refuse further ones. A commit can follow.

        Raises:
            CommitRefused: a send or an ack had failed; the transaction was aborted.
            InvalidTxnState: the transaction has ended, or is not open.
        Source: KIP-939, prepareTransaction.
        """
        async with self._end_here():
            if self._phase is not OPEN:
                raise InvalidTxnState(f"{self._name} cannot be prepared: it is {self._phase.name}")
            await self._tell_seen()
            await self._prepare_commit()

    async def commit(self, *, wait_finished: bool, fingerprint: str) -> None:
        """Commit the transaction; see Transaction.commit."""
        async with self._end_here():
            if self._phase is not OPEN and self._is_committed(wait_finished):
                return
            if not self._beginning.was_asked_for:
                await self._commit_whole()
                return
            if self._phase is OPEN:
                await self._prepare_commit()
            if self._phase is PREPARED:
                self._move(COMMIT_REQUESTED)
            await self._ask_commit(wait_finished, fingerprint)

    def _is_committed(self, is_finished: bool) -> bool:
        """Return whether nothing is left to ask for: the commit is decided, or finished.

        Raises:
            InvalidTxnState: the transaction was aborted, or left.
            TxnForgotten: its outcome is no longer known.
            TxnNotFound: as TxnForgotten.
        """
        if self._phase is TransactionPhase.ABORT_ASKED or self._phase in DECIDED_ABORT:
            raise InvalidTxnState(f"{self._name} was aborted") from self._failure
        self._require_not_left()
        self._require_remembered()
        if self._phase is TransactionPhase.COMMITTING:
            return not is_finished
        return self._phase is TransactionPhase.COMMITTED

    async def leave(self) -> TransactionPart:
        """Confirm what this client did, for another one to commit; see Transaction.leave."""
        async with self._end_here():
            if self._phase is not OPEN:
                raise InvalidTxnState(f"{self._name} cannot be left: it is {self._phase.name}")
            await self._prepare_commit(aborting=False)
            part = self._participants.part(self.txn_id, self._runtime.seen_stamp)
            self._move(TransactionEvent.LEFT)
            return part

    def withdraw(self) -> None:
        """Give up the part of this client; see Transaction.withdraw."""
        self._end_here()
        if self._phase in UNDECIDED:
            self._move(TransactionEvent.WITHDRAWN)

    def _end_here(self) -> asyncio.Lock:
        """Note that the application ends the transaction; return the lock of its ends."""
        self._runtime.require_loop()
        self._is_ended_here = True
        return self._ending

    def _require_not_left(self) -> None:
        if self._phase in (TransactionPhase.LEFT, TransactionPhase.WITHDRAWN):
            raise InvalidTxnState(
                f"{self._name} was left here: the program that has its parts commits or aborts it"
            )

    async def abort(self) -> None:
        """Abort the transaction; see Transaction.abort."""
        async with self._end_here():
            await self._abort()

    async def close(self) -> None:
        """Abort the transaction if it is open, since the client closes."""
        if self._inquiry is not None:
            self._inquiry.forget_expiry()
        if self._phase is OPEN:
            async with self._ending:
                await self._abort()

    def open_block(self) -> None:
        """Open the block that `async with` stands for. Repeating it is harmless."""
        if self._block is None:
            self._block = self.cover(BLOCK_REMEDY)
            self._block.open()

    async def end_block(self, error: BaseException | None) -> None:
        """Commit a transaction that is open, or abort it because of an error; end the block."""
        try:
            await self._end_by_block(error)
        finally:
            self.block.end()

    async def _end_by_block(self, error: BaseException | None) -> None:
        if error is None:
            # If another program or the coordinator has aborted it, or the client's close aborts
            # it now, commit() raises: the application must not continue as if its block had been
            # committed.
            is_aborted = self._phase is TransactionPhase.ABORT_ASKED or self._phase in DECIDED_ABORT
            is_lost = is_aborted and not self._is_ended_here
            if is_lost or self._phase in (OPEN, TransactionPhase.FORGOTTEN):
                try:
                    await self.commit(wait_finished=False, fingerprint="")
                except BaseException as commit_error:
                    await self._abort_after(commit_error)
                    raise
        else:
            await self._abort_after(error)

    async def _abort_after(self, error: BaseException) -> None:
        """Abort because of an error, and do not let another error mask it."""
        if self._phase in COMMIT_WAS_ASKED:
            error.add_note(f"the commit of {self._name} was asked for; its outcome is not known")
        if self._phase is OPEN:
            await self._abort_apart(self.abort, error)

    async def _abort_apart(
        self, abort: Callable[[], Coroutine[Any, Any, None]], error: BaseException
    ) -> None:
        # In a task of its own: cancelling the caller must not leave the transaction open.
        aborting = self._runtime.spawn(abort, f"abort {self._name}", self._on_abort_died)
        try:
            await self._runtime.result_of(aborting)
        except MagnetarError as abort_error:
            error.add_note(f"aborting {self._name} failed as well: {abort_error}")
        except asyncio.CancelledError:
            if not isinstance(error, asyncio.CancelledError):
                raise

    def _on_abort_died(self, error: MagnetarError) -> None:
        """Learn whether it was aborted: consumers wait for that."""
        self.doom(error)
        if self._inquiry is not None:
            self._inquiry.resolve_soon()

    async def _tell_seen(self) -> None:
        """Tell the coordinator what this client has seen: another program may decide the commit.

        A commit by this client carries it, without this round trip.

        Raises:
            MagnetarError: the coordinator does not answer, or the transaction has ended.
        """
        seen_stamp = self._runtime.seen_stamp
        if not seen_stamp or self._runtime.has_one_coordinator:
            return
        await self._beginning.ensure()
        begun = self._beginning.begun
        if begun is not None and seen_stamp > begun.seen_stamp:
            await begun.coordinator.request(
                transaction_pb2.CommandAddPartitionToTxn(
                    txn_id=begun.txn_id.to_wire(),
                    identity=None if begun.identity is None else begun.identity.to_wire(),
                    seen_stamp=seen_stamp,
                )
            )

    async def _prepare_commit(self, *, aborting: bool = True) -> None:
        """Confirm all sends and acks, and build the command EndTxn.

        Args:
            aborting: whether to abort the transaction if a send or an ack had failed.
        Raises:
            CommitRefused: a send or an ack had failed.
            InvalidTxnState: the transaction has ended meanwhile.
        """
        self._move(FLUSH_BEGUN)
        try:
            self._participants.complete()
            if not self.has_begun:
                await self._beginning.ensure()
            await self._participants.flush()
        except BaseException:
            if self._phase not in OVER:
                self._move(TransactionEvent.FLUSH_CANCELLED)
            raise
        if self._phase in OVER:
            self._require_remembered()
            raise InvalidTxnState(
                f"{self._name} was ended meanwhile, by its timeout or by an administrator:"
                f" it is {self.status.name}"
            )
        failure = self._failure
        if failure is None:
            self._move(FLUSHED)
            self._counts = self._participants.counts()
            return
        if not aborting:
            self._move(TransactionEvent.WITHDRAWN)
            raise self._refusal(f"the part in {self._name} is void") from failure
        refused = self._refusal(f"{self._name} was aborted")
        # Now: if the client is closed, the abort does not begin.
        self._move(TransactionEvent.ABORT_REQUESTED)
        await self._abort_apart(self._abort, refused)
        if self._phase in DECIDED_COMMIT:
            raise InvalidTxnState(
                f"{self._name} was committed by another client or an administrator,"
                f" although {self._reason}"
            ) from failure
        raise refused from failure

    async def _commit_whole(self) -> None:
        """Commit a lazy transaction that never had to begin: send its messages as a plain batch.

        Raises:
            MagnetarError: as commit.
        """
        if self._failure is not None:
            self._settle(TransactionStatus.ABORTED)
            raise self._refusal(f"{self._name} was aborted") from self._failure
        senders = self._participants.senders
        sender = senders[0] if senders else None
        self._whole = self._whole or WholeBatchCommit()
        if sender is None or not self._whole.has_something(sender):
            self._settle(TransactionStatus.COMMITTED)
            return
        self._move(TransactionEvent.BATCH_SENT)
        try:
            await self._whole.send(
                sender,
                sender.plain,
                name=self._name,
                timeout_ms=self._runtime.config.commit_timeout_ms,
            )
        except OutcomeUnknown:
            raise
        except MagnetarError as error:
            self._failure = error
            self._failed_call = FailedCall.send_to(sender.name)
            self._settle(TransactionStatus.ABORTED)
            raise self._refusal(f"{self._name} was aborted") from error
        self._settle(TransactionStatus.COMMITTED)

    async def _ask_commit(self, wait_finished: bool, fingerprint: str) -> None:
        assert self._end_requests is not None
        assert self._inquiry is not None
        assert self._counts is not None
        try:
            status = await self._end_requests.commit(
                self._counts, wait_finished=wait_finished, fingerprint=fingerprint
            )
        except InvalidTxnState:
            self._settle(TransactionStatus.ABORTED)
            raise
        except (TxnNotFound, TxnForgotten):
            raise
        except BaseException:
            # Undecided for all that we know: later sends of its producers stay behind it.
            if self._phase in COMMIT_WAS_ASKED:
                self._participants.lead_plain_sends()
                self._inquiry.resolve_soon()
            raise
        self._settle(status)

    async def _abort(self) -> None:
        if self._phase in DECIDED_ABORT:
            return
        if self._phase in DECIDED_COMMIT:
            raise InvalidTxnState(f"{self._name} is committed")
        self._require_not_left()
        self._require_remembered()
        if self._phase is TransactionPhase.BATCH_ASKED:
            raise OutcomeUnknown(f"{self._name} may be committed: commit it again to know")
        commit_was_asked = self._phase in COMMIT_WAS_ASKED
        self._move(TransactionEvent.ABORT_REQUESTED)
        error = InvalidTxnState(f"{self._name} was aborted")
        self._participants.abandon(error)
        await self._beginning.settled()
        if self._end_requests is None or self._inquiry is None:
            # It never began.
            self._settle(TransactionStatus.ABORTED)
            return
        try:
            async with asyncio.timeout(self._runtime.config.abort_drain_ms / 1000):
                # Its coordinator tells only participants that it knows; others learn it much later.
                await self._participants.drain()
        except TimeoutError:
            pass
        self._participants.give_up(error)
        try:
            status = await self._end_requests.abort()
        except InvalidTxnState:
            self._settle(TransactionStatus.COMMITTED)
            raise
        except BaseException:
            if commit_was_asked:
                self._participants.lead_plain_sends()
            self._inquiry.resolve_soon()
            raise
        self._settle(status)

    def _settle(self, status: TransactionStatus) -> None:
        """Note the outcome."""
        self._move(HEARD[status])

    def _move(self, event: TransactionEvent) -> None:
        """Go to the next phase. When nothing is left to do, tell producers and consumers, once."""
        before = self._phase
        self._phase = MACHINE.next(before, event, self._beginning)
        if self._phase in OVER and before not in OVER:
            self._release(committed=self._phase in STANDS)

    def _release(self, *, committed: bool) -> None:
        """Let go of the participants.

        Args:
            committed: whether this client's sends and acks count; False, too, if the outcome is
                not known. The broker ignores nacks of acks that were committed after all.
        """
        if self._inquiry is not None:
            self._inquiry.end()
        if not committed:
            self._participants.give_up(InvalidTxnState(f"{self._name} was aborted"))
        self._participants.release(committed=committed)
        self._on_ended(self)

    @property
    def _name(self) -> str:
        """The transaction's name in messages for people."""
        return str(self._beginning)

    def _require_sound(self) -> None:
        if self._failure is not None:
            raise InvalidTxnState(
                f"{self._name} has failed, abort it: {self._reason}"
            ) from self._failure

    def _refusal(self, happened: str) -> CommitRefused:
        """Return the error of a commit when a send or an ack has failed."""
        details = {} if self._failed_call is None else self._failed_call.details
        return CommitRefused(f"{happened}: {self._reason}", **details)

    @property
    def _reason(self) -> str:
        """Why it has failed, in messages for people."""
        error = f"{type(self._failure).__name__}: {self._failure}"
        return error if self._failed_call is None else f"{self._failed_call} failed: {error}"

    def doubt(self) -> None:
        """Ask the coordinator at once whether the transaction was ended elsewhere.

        If it was aborted, the messages that it acknowledged are received again now, and not when
        the transaction's time is up.
        """
        if self._inquiry is not None:
            self._inquiry.doubt()

    def _on_forgotten(self, error: TxnNotFound | TxnForgotten) -> None:
        self._forgotten = error
        self._move(TransactionEvent.HEARD_FORGOTTEN)

    def _require_remembered(self) -> None:
        """Raises: TxnNotFound, TxnForgotten: its outcome can no longer be known."""
        if self._phase is TransactionPhase.FORGOTTEN:
            assert self._forgotten is not None
            raise self._forgotten
