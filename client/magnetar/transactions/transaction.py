"""A transaction, from its TxnID to its outcome.

Source: PIP-31, Public APIs, Transaction#commit and Transaction#abort;
docs/design/0001-protocol.md, One transaction.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine
from types import TracebackType
from typing import Any, NamedTuple

from magnetar.enums import TransactionStatus
from magnetar.errors import CommitRefused
from magnetar.link.connection import Connection
from magnetar.link.runtime import Runtime
from magnetar.transactions.participants import Participants, TransactionPart
from magnetar.transactions.producer_identity import ProducerIdentity
from magnetar.transactions.transaction_state import (
    DECIDED_ABORT,
    DECIDED_COMMIT,
    HEARD,
    STATUS_OF,
    UNDECIDED,
    Event,
    Phase,
    next_phase,
)
from magnetar.transactions.writer_protocols import Acks, Sender, WholeBatch
from magnetar_core.errors import (
    InvalidTxnState,
    MagnetarError,
    OutcomeUnknown,
    TxnForgotten,
    TxnNotFound,
)
from magnetar_core.ids import PartitionName, SubscriptionName, TxnID
from magnetar_core.wire import common_pb2, transaction_pb2

log = logging.getLogger("magnetar")

# After the coordinator should have expired it, its fate is asked for; then again and again.
EXPIRY_GRACE_MS = 1_000
RESOLVE_PERIOD_MS = 1_000


class Begun(NamedTuple):
    """What NewTxn has brought."""

    txn_id: TxnID
    # 0: it never expires.
    timeout_ms: int
    coordinator: Connection
    identity: ProducerIdentity | None = None


# Asks for a transaction that already has these participants.
Begin = Callable[[Collection[PartitionName], Collection[SubscriptionName]], Awaitable[Begun]]


class Transaction:
    """Made by `Client.begin_transaction` or `Client.transaction`.

    As a context manager it commits on exit and aborts on an exception.

    A lazy one begins when it has to: with its second partition, its first acknowledgement, or more
    messages than fit a batch. When none of these comes, its messages travel as one plain batch,
    which is stored whole or not at all.
    Source: PIP-31, Future Work, Single Partition Transaction.
    """

    def __init__(
        self,
        runtime: Runtime,
        begin: Begin,
        on_ended: Callable[[Transaction], None],
        on_pair: Callable[[ProducerIdentity], None] | None = None,
    ) -> None:
        """A transaction that has not written anything yet.

        Args:
            on_pair: called with the producer id and epoch that its transactional producer uses
                from now on.
        """
        self._on_pair = on_pair
        self.number = runtime.next_number()
        self._runtime = runtime
        self._begin_with = begin
        self._begun: Begun | None = None
        self._beginning: asyncio.Task[None] | None = None
        self._on_ended = on_ended
        self._phase = Phase.OPEN
        self._failure: MagnetarError | None = None
        # The messages of a lazy one that never began.
        self._whole: WholeBatch | None = None
        self._participants = Participants()
        self._commit_command: transaction_pb2.CommandEndTxn | None = None
        # Commit and abort take turns.
        self._ending = asyncio.Lock()
        self._settled = False
        self._resolving = False
        self._doubted = False
        self._finding_out = False
        self._expiry = 0

    def __repr__(self) -> str:
        return f"<Transaction {self._name} {self.status.name}>"

    @property
    def txn_id(self) -> TxnID:
        """Raises: InvalidTxnState, while a lazy one has none."""
        if self._begun is None:
            raise InvalidTxnState("this lazy transaction has not begun, and has no TxnID")
        return self._begun.txn_id

    @property
    def has_begun(self) -> bool:
        """Whether its coordinator knows of it; a lazy one may end without that."""
        return self._begun is not None

    @property
    def has_been_aborted(self) -> bool:
        """Whether this client knows that it was."""
        return self._phase in DECIDED_ABORT

    @property
    def timeout_ms(self) -> int:
        """Until its coordinator aborts it; only of one that has begun."""
        return self._known.timeout_ms

    @property
    def status(self) -> TransactionStatus:
        """What this client knows: COMMITTING and ABORTING are decided, and being carried out."""
        return STATUS_OF[self._phase]

    @property
    def failure(self) -> MagnetarError | None:
        """The first send or ack that failed; the transaction can then only be aborted."""
        return self._failure

    def require_open(self) -> None:
        """Raises: InvalidTxnState, unless the transaction takes sends and acks."""
        if self._phase is not Phase.OPEN:
            raise InvalidTxnState(f"{self._name} takes nothing more: it is {self._phase.name}")
        self._require_sound()

    async def begin(self) -> None:
        """Ask a coordinator for it now.

        Raises: what NewTxn is refused with; see Client.begin_transaction.
        """
        self._on_begun(await self._begin_with((), ()), (), ())

    def begin_soon(self) -> None:
        """A lazy one has to begin, with all that takes part at the end of the loop's turn."""
        if self._begun is None and self._beginning is None:
            self._beginning = self._runtime.spawn(self._begin_lazily(), "begin a transaction")

    async def _begin_lazily(self) -> None:
        partitions, subscriptions = self._participants.partitions, self._participants.subscriptions
        try:
            begun = await self._begin_with(partitions, subscriptions)
        except MagnetarError as error:
            self.doom(error)
        else:
            self._on_begun(begun, partitions, subscriptions)

    def _on_begun(
        self,
        begun: Begun,
        partitions: Collection[PartitionName],
        subscriptions: Collection[SubscriptionName],
    ) -> None:
        self._begun = begun
        if begun.timeout_ms:
            self._expiry = self._runtime.deadlines.call_later(
                begun.timeout_ms + EXPIRY_GRACE_MS, self._resolve_soon
            )
        self._participants.begin(
            begun.txn_id,
            begun.coordinator,
            self.doom,
            identity=begun.identity,
            # Only a coordinator that allows two-phase commit lets a transaction live for ever.
            two_phase_commit=not begun.timeout_ms,
            partitions=partitions,
            subscriptions=subscriptions,
        )

    async def _has_to_begin(self) -> None:
        """Wait until it has begun, or failed."""
        if self._begun is None:
            self.begin_soon()
            assert self._beginning is not None
            await asyncio.shield(self._beginning)

    def add_sender(self, sender: Sender, forget: Callable[[], object]) -> None:
        """A producer writes to another partition. `forget` is called when the transaction ends."""
        self._participants.add_sender(sender, forget)
        if len(self._participants) > 1:
            self.begin_soon()

    def add_acks(self, acks: Acks) -> None:
        """A consumer acknowledges on another partition."""
        self._participants.add_acks(acks)
        self.begin_soon()

    async def joined(self) -> None:
        """Wait until the coordinator knows all that take part so far.

        A participant of which it did not hear may accept a message of a transaction that has
        ended: it counts for nothing, and nobody may be told that it does.

        Raises:
            InvalidTxnState: it takes no more of them; the transaction has ended, or failed.
        """
        await self._has_to_begin()
        await self._participants.enrolled()
        if self._settled and self._phase not in DECIDED_COMMIT:
            raise InvalidTxnState(f"{self._name} was aborted")
        self._require_sound()

    def doom(self, error: MagnetarError) -> None:
        """A send or an ack failed: what is buffered is dropped, and commit() will refuse."""
        if self._failure is None:
            self._failure = error
            log.info("transaction %s failed: %s", self._name, error)
            self._participants.abandon(error)
            if isinstance(error, InvalidTxnState) and self._phase in UNDECIDED:
                self.doubt()

    async def prepare(self) -> None:
        """Flush, and take nothing more: whatever is confirmed now, a commit makes count.

        Raises:
            CommitRefused: a send or an ack had failed; it was aborted.
            InvalidTxnState: it has ended, or is not open.
        Source: KIP-939, prepareTransaction.
        """
        async with self._ending:
            if self._phase is not Phase.OPEN:
                raise InvalidTxnState(f"{self._name} cannot be prepared: it is {self._phase.name}")
            await self._prepare_commit()

    async def commit(self, *, wait_finished: bool = False, fingerprint: str = "") -> None:
        """Make everything in the transaction count, or nothing.

        Asking again is harmless, and is how to learn the outcome after OutcomeUnknown.

        Args:
            wait_finished: return only when every participant has carried it out, and not already
                when the decision is durable. Readers may see it a moment later otherwise.
            fingerprint: of a named sequence's content: see Client.begin_named_transaction().
        Raises:
            CommitRefused: a send or an ack had failed; it was aborted.
            InvalidTxnState: it was aborted, by its timeout, by an administrator, or by abort().
            OutcomeUnknown: no answer in time. It may be committed.
        Source: PIP-31, Transaction#commit.
        """
        async with self._ending:
            if self._phase is Phase.ABORT_ASKED or self._phase in DECIDED_ABORT:
                raise InvalidTxnState(f"{self._name} was aborted") from self._failure
            self._require_not_left()
            if self._phase is Phase.COMMITTED:
                return
            if self._phase is Phase.COMMITTING and not wait_finished:
                return
            if self._begun is None and self._beginning is None:
                await self._commit_whole()
                return
            if self._phase is Phase.OPEN:
                await self._prepare_commit()
            if self._phase is Phase.PREPARED:
                self._move(Event.COMMIT_REQUESTED)
            await self._ask_commit(wait_finished, fingerprint)

    async def leave(self) -> TransactionPart:
        """Flush, and say what this client has done, for somebody else to commit.

        The transaction takes nothing more here, and stays open.

        Raises:
            CommitRefused: a send or an ack had failed: nothing of this client counts. The others'
                work stands, and the transaction stays open for them.
            InvalidTxnState: it has ended, or is not open.
        """
        async with self._ending:
            if self._phase is not Phase.OPEN:
                raise InvalidTxnState(f"{self._name} cannot be left: it is {self._phase.name}")
            await self._prepare_commit(aborting=False)
            part = self._participants.part(self.txn_id)
            self._move(Event.LEFT)
            self._release(committed=True)
            return part

    def withdraw(self) -> None:
        """Drop what this client has not sent yet, and leave the rest to count for nothing.

        For one of several clients: the transaction stays open for the others, whose work stands.
        Harmless when it has ended, or was left.
        """
        if self._phase in UNDECIDED:
            self._move(Event.LEFT)
            self._release(committed=False)

    def _require_not_left(self) -> None:
        if self._phase is Phase.LEFT:
            raise InvalidTxnState(
                f"{self._name} was left here: whoever has its parts commits or aborts it"
            )

    async def abort(self) -> None:
        """Undo everything in the transaction. Harmless when it is aborted already.

        Raises:
            InvalidTxnState: it is committed. No effect.
            OutcomeUnknown: no answer in time; the coordinator aborts it at its timeout.
        Source: PIP-31, Transaction#abort.
        """
        async with self._ending:
            await self._abort()

    async def close(self) -> None:
        """The client closes: abort what is open. What is undecided, the coordinator knows."""
        self._runtime.deadlines.forget(self._expiry)
        if self._phase is Phase.OPEN:
            await self.abort()

    async def __aenter__(self) -> Transaction:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            if self._phase is Phase.OPEN:
                try:
                    await self.commit()
                except BaseException as commit_error:
                    await self._abort_after(commit_error)
                    raise
        else:
            await self._abort_after(error)

    async def _abort_after(self, error: BaseException) -> None:
        """Abort because of an error, which is not to be masked by another."""
        if self._phase is Phase.COMMIT_ASKED:
            error.add_note(f"the commit of {self._name} was asked for; its outcome is not known")
        if self._phase is Phase.OPEN:
            await self._abort_apart(self.abort(), error)

    async def _abort_apart(self, abort: Coroutine[Any, Any, None], error: BaseException) -> None:
        # In a task of its own: cancelling the caller must not leave the transaction open.
        aborting = self._runtime.spawn(abort, f"abort {self._name}")
        try:
            await asyncio.shield(aborting)
        except MagnetarError as abort_error:
            error.add_note(f"aborting {self._name} failed as well: {abort_error}")
        except asyncio.CancelledError:
            if not isinstance(error, asyncio.CancelledError):
                raise

    async def _prepare_commit(self, *, aborting: bool = True) -> None:
        """Flush, and fix what EndTxn will say.

        Args:
            aborting: abort it if something had failed; otherwise it is left as it is.
        Raises:
            CommitRefused: something had failed; it is aborted.
            InvalidTxnState: it has ended meanwhile.
        """
        self._move(Event.FLUSH_BEGUN)
        try:
            await self._has_to_begin()
            await self._participants.flush()
        except asyncio.CancelledError:
            if not self._settled:
                self._move(Event.FLUSH_CANCELLED)
            raise
        if self._settled:
            raise InvalidTxnState(
                f"{self._name} was ended meanwhile, by its timeout or by an administrator:"
                f" it is {self.status.name}"
            )
        failure = self._failure
        if failure is None:
            self._move(Event.FLUSHED)
            self._commit_command = self._participants.commit_command()
            return
        if not aborting:
            self._move(Event.LEFT)
            self._release(committed=False)
            raise CommitRefused(f"the part in {self._name} is void: {failure}") from failure
        refused = CommitRefused(f"{self._name} was aborted: {failure}")
        await self._abort_apart(self._abort(), refused)
        raise refused from failure

    async def _commit_whole(self) -> None:
        """A lazy one that never had to begin: one plain batch, or nothing at all.

        Raises: as commit.
        """
        if self._failure is not None:
            self._settle(TransactionStatus.ABORTED)
            raise CommitRefused(f"{self._name} was aborted: {self._failure}") from self._failure
        senders = self._participants.senders
        sender = senders[0] if senders else None
        if sender is None or sender.plain is None or (self._whole is None and sender.is_empty):
            self._settle(TransactionStatus.COMMITTED)
            return
        timeout_ms = self._runtime.config.commit_timeout_ms
        self._move(Event.COMMIT_REQUESTED)
        try:
            if self._whole is None:
                self._whole = sender.plain.send_alone(
                    sender.take_open_batch(), timeout_ms=timeout_ms
                )
            elif self._whole.finished:
                sender.plain.send_again(self._whole, timeout_ms=timeout_ms)
            assert self._whole.receipt is not None
            await asyncio.shield(self._whole.receipt)
        except OutcomeUnknown:
            raise
        except MagnetarError as error:
            if self._whole is not None and self._whole.attempts > 1:
                # An earlier copy may still be under way on a link that broke.
                raise OutcomeUnknown(f"{self._name} may be committed: {error}") from error
            self._failure = error
            self._settle(TransactionStatus.ABORTED)
            raise CommitRefused(f"{self._name} was aborted: {error}") from error
        self._settle(TransactionStatus.COMMITTED)

    async def _ask_commit(self, wait_finished: bool, fingerprint: str) -> None:
        assert self._commit_command is not None
        command = self._commit_command
        command.wait_finished = wait_finished
        command.fingerprint = fingerprint
        try:
            reply: transaction_pb2.CommandEndTxnResponse = await self._known.coordinator.request(
                command,
                timeout_ms=self._runtime.config.commit_timeout_ms,
                patient=wait_finished,
            )
        except InvalidTxnState:
            self._settle(TransactionStatus.ABORTED)
            raise
        except (TxnNotFound, TxnForgotten):
            raise
        except BaseException:
            # Undecided for all that we know: later sends of its producers stay behind it.
            if self._phase is Phase.COMMIT_ASKED:
                self._participants.lead_plain_sends()
                self._resolve_soon()
            raise
        self._tell_pair(reply)
        self._settle(TransactionStatus(reply.status or TransactionStatus.COMMITTING))

    async def _abort(self) -> None:
        """Raises: as abort."""
        if self._phase in DECIDED_ABORT:
            return
        if self._phase in DECIDED_COMMIT:
            raise InvalidTxnState(f"{self._name} is committed")
        self._require_not_left()
        if self._whole is not None:
            raise OutcomeUnknown(f"{self._name} may be committed: commit it again to know")
        commit_was_asked = self._phase is Phase.COMMIT_ASKED
        self._move(Event.ABORT_REQUESTED)
        error = InvalidTxnState(f"{self._name} was aborted")
        self._participants.abandon(error)
        if self._beginning is not None:
            await asyncio.shield(self._beginning)
        if self._begun is None:
            self._settle(TransactionStatus.ABORTED)
            return
        try:
            async with asyncio.timeout(self._runtime.config.abort_drain_ms / 1000):
                # Its coordinator can tell only those that it knows; others hear of it much later.
                await self._participants.drain()
        except TimeoutError:
            pass
        self._participants.give_up(error)
        identity = self._known.identity
        command = transaction_pb2.CommandEndTxn(
            txn_id=self.txn_id.to_wire(),
            txn_action=common_pb2.ABORT,
            identity=None if identity is None else identity.to_wire(),
        )
        try:
            reply: transaction_pb2.CommandEndTxnResponse = await self._known.coordinator.request(
                command, timeout_ms=self._runtime.config.abort_timeout_ms
            )
        except InvalidTxnState:
            self._settle(TransactionStatus.COMMITTED)
            raise
        except BaseException:
            if commit_was_asked:
                self._participants.lead_plain_sends()
            self._resolve_soon()
            raise
        self._tell_pair(reply)
        self._settle(TransactionStatus(reply.status or TransactionStatus.ABORTING))

    def _tell_pair(self, reply: transaction_pb2.CommandEndTxnResponse) -> None:
        if self._on_pair is not None and reply.HasField("identity"):
            self._on_pair(ProducerIdentity.from_wire(reply.identity))

    def _settle(self, status: TransactionStatus) -> None:
        """The outcome is known: tell producers and consumers, once."""
        self._move(HEARD[status])
        self._release(committed=self._phase in DECIDED_COMMIT)

    def _move(self, event: Event) -> None:
        self._phase = next_phase(self._phase, event, self._name)

    def _release(self, *, committed: bool) -> None:
        if self._settled:
            return
        self._settled = True
        self._runtime.deadlines.forget(self._expiry)
        if not committed:
            self._participants.give_up(InvalidTxnState(f"{self._name} was aborted"))
        self._participants.release(committed=committed)
        self._on_ended(self)

    @property
    def _name(self) -> str:
        """For people."""
        return "a lazy transaction" if self._begun is None else str(self._begun.txn_id)

    @property
    def _known(self) -> Begun:
        assert self._begun is not None
        return self._begun

    def _require_sound(self) -> None:
        if self._failure is not None:
            raise InvalidTxnState(f"{self._name} has failed; abort it") from self._failure

    def doubt(self) -> None:
        """Ask the coordinator at once whether somebody else has ended the transaction.

        If it was aborted, the messages that it acknowledged are received again now, and not when
        the transaction's time is up.
        """
        if self._begun is None or self._settled:
            return
        self._doubted = True
        if not self._finding_out:
            self._finding_out = True
            self._runtime.spawn(self._find_out(), f"find out about {self.txn_id}")

    async def _find_out(self) -> None:
        """Once a period at most, as long as doubts come."""
        try:
            while self._doubted and not self._settled:
                # A copy that comes while this asks may be of an abort after the answer.
                self._doubted = False
                if not await self._ask_status():
                    self._doubted = True
                if not self._settled:
                    await asyncio.sleep(RESOLVE_PERIOD_MS / 1000)
        finally:
            self._finding_out = False

    def _resolve_soon(self) -> None:
        if not self._settled and not self._resolving:
            self._resolving = True
            self._runtime.spawn(self._resolve(), f"resolve {self.txn_id}")

    async def _resolve(self) -> None:
        """Find out what became of it: messages that it acknowledged must not stay undecided."""
        try:
            while not self._settled:
                await asyncio.sleep(RESOLVE_PERIOD_MS / 1000)
                await self._ask_status()
        finally:
            self._resolving = False

    async def _ask_status(self) -> bool:
        """Whether there was an answer; if it has ended, that is carried out."""
        try:
            reply = await self._known.coordinator.request(
                transaction_pb2.CommandDescribeTxn(txn_id=self.txn_id.to_wire())
            )
        except (TxnNotFound, TxnForgotten):
            # Ended long ago, nobody knows how. If it was committed, the broker ignores nacks of
            # its acks.
            self._release(committed=False)
        except MagnetarError as error:
            log.info("cannot find out about %s: %s", self.txn_id, error)
            return False
        else:
            status = TransactionStatus(reply.transaction.status)
            if status is not TransactionStatus.OPEN and not self._settled:
                log.info("transaction %s turned out to be %s", self.txn_id, status.name)
                self._settle(status)
        return True


class TransactionScope:
    """`async with client.transaction() as txn`: begins, and then commits or aborts."""

    def __init__(self, begin: Callable[[], Awaitable[Transaction]]) -> None:
        self._begin = begin
        self._transaction: Transaction | None = None

    async def __aenter__(self) -> Transaction:
        self._transaction = await self._begin()
        return self._transaction

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._transaction is not None
        await self._transaction.__aexit__(kind, error, traceback)
