"""A transaction, from its TxnID to its outcome.

Source: PIP-31, Public APIs, Transaction#commit and Transaction#abort; docs/design/protocol.md, One
transaction.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from enum import Enum, auto
from types import TracebackType
from typing import TYPE_CHECKING, Any

from magnetar.connection import Connection
from magnetar.enrollment import Enrollment
from magnetar.errors import CommitRefused
from magnetar.model import TransactionStatus
from magnetar.runtime import Runtime
from magnetar_core.errors import (
    InvalidTxnState,
    MagnetarError,
    OutcomeUnknown,
    TxnForgotten,
    TxnNotFound,
)
from magnetar_core.ids import TxnID
from magnetar_core.wire import common_pb2, transaction_pb2

if TYPE_CHECKING:
    from magnetar.acks import TransactionAcks
    from magnetar.partition_sender import PartitionSender

log = logging.getLogger("magnetar")

# After the coordinator should have expired it, its fate is asked for; then again and again.
EXPIRY_GRACE_MS = 1_000
RESOLVE_PERIOD_MS = 1_000

COMMITTED_STATUSES = (TransactionStatus.COMMITTING, TransactionStatus.COMMITTED)


class _Phase(Enum):
    """OPEN -> FLUSHING -> COMMIT_ASKED -> COMMITTED; from all but the last, ABORTING -> ABORTED.

    FLUSHING goes back to OPEN when commit() is cancelled before anything was decided.
    """

    OPEN = auto()
    FLUSHING = auto()
    # The coordinator may have decided: only its answer moves us on.
    COMMIT_ASKED = auto()
    COMMITTED = auto()
    ABORTING = auto()
    ABORTED = auto()


class Transaction:
    """Made by `Client.begin_transaction` or `Client.transaction`.

    As a context manager it commits on exit and aborts on an exception.
    """

    def __init__(
        self,
        runtime: Runtime,
        txn_id: TxnID,
        timeout_ms: int,
        coordinator: Connection,
        on_ended: Callable[[Transaction], None],
    ) -> None:
        self.txn_id = txn_id
        self.timeout_ms = timeout_ms
        self._runtime = runtime
        self._coordinator = coordinator
        self._on_ended = on_ended
        self._phase = _Phase.OPEN
        self._status = TransactionStatus.OPEN
        self._failure: MagnetarError | None = None
        self._enrollment = Enrollment(txn_id, coordinator, self.doom)
        self._senders: list[PartitionSender] = []
        self._forget_senders: list[Callable[[], object]] = []
        self._acks: list[TransactionAcks] = []
        self._commit_command: transaction_pb2.CommandEndTxn | None = None
        # Commit and abort take turns.
        self._ending = asyncio.Lock()
        self._settled = False
        self._resolving = False
        self._expiry = runtime.deadlines.call_later(
            timeout_ms + EXPIRY_GRACE_MS, self._resolve_soon
        )

    def __repr__(self) -> str:
        return f"<Transaction {self.txn_id} {self._status.name}>"

    @property
    def status(self) -> TransactionStatus:
        """What this client knows: COMMITTING and ABORTING are decided, and being carried out."""
        return self._status

    @property
    def failure(self) -> MagnetarError | None:
        """The first send or ack that failed; the transaction can then only be aborted."""
        return self._failure

    def require_open(self) -> None:
        """Raises: InvalidTxnState, unless the transaction takes sends and acks."""
        if self._phase is not _Phase.OPEN:
            raise InvalidTxnState(f"{self.txn_id} takes nothing more: it is {self._phase.name}")
        if self._failure is not None:
            raise InvalidTxnState(f"{self.txn_id} has failed; abort it") from self._failure

    def add_sender(self, sender: PartitionSender, forget: Callable[[], object]) -> None:
        """A producer writes to another partition. `forget` is called when the transaction ends."""
        self._senders.append(sender)
        self._forget_senders.append(forget)
        self._enrollment.partition(sender.name)

    def add_acks(self, acks: TransactionAcks) -> None:
        """A consumer acknowledges on another partition."""
        self._acks.append(acks)
        self._enrollment.subscription(acks.name)

    async def joined(self) -> None:
        """Wait until the coordinator knows all that take part so far.

        A participant of which it did not hear may accept a message of a transaction that has
        ended: it counts for nothing, and nobody may be told that it does.

        Raises:
            InvalidTxnState: it takes no more of them; the transaction has ended, or failed.
        """
        await self._enrollment.answered()
        if self._failure is not None:
            raise InvalidTxnState(f"{self.txn_id} has failed; abort it") from self._failure

    def doom(self, error: MagnetarError) -> None:
        """A send or an ack failed: what is buffered is dropped, and commit() will refuse."""
        if self._failure is None:
            self._failure = error
            log.info("transaction %s failed: %s", self.txn_id, error)
            self._abandon(error)

    async def commit(self, *, wait_finished: bool = False) -> None:
        """Make everything in the transaction count, or nothing.

        Asking again is harmless, and is how to learn the outcome after OutcomeUnknown.

        Args:
            wait_finished: return only when every participant has carried it out, and not already
                when the decision is durable. Readers may see it a moment later otherwise.
        Raises:
            CommitRefused: a send or an ack had failed; it was aborted.
            InvalidTxnState: it was aborted, by its timeout, by an administrator, or by abort().
            OutcomeUnknown: no answer in time. It may be committed.
        Source: PIP-31, Transaction#commit.
        """
        async with self._ending:
            if self._phase in (_Phase.ABORTING, _Phase.ABORTED):
                raise InvalidTxnState(f"{self.txn_id} was aborted") from self._failure
            if self._phase is _Phase.COMMITTED:
                finished = self._status is TransactionStatus.COMMITTED
                if finished or not wait_finished:
                    return
            if self._phase is _Phase.OPEN:
                await self._prepare_commit()
            await self._ask_commit(wait_finished)

    async def abort(self) -> None:
        """Undo everything in the transaction. Harmless when it is aborted already.

        Raises:
            InvalidTxnState: it is committed. No effect.
            OutcomeUnknown: no answer in time; the coordinator aborts it at its timeout.
        Source: PIP-31, Transaction#abort.
        """
        async with self._ending:
            if self._phase is _Phase.ABORTED:
                return
            if self._phase is _Phase.COMMITTED:
                raise InvalidTxnState(f"{self.txn_id} is committed")
            await self._abort()

    async def close(self) -> None:
        """The client closes: abort what is open. What is undecided, the coordinator knows."""
        self._runtime.deadlines.forget(self._expiry)
        if self._phase is _Phase.OPEN:
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
            if self._phase is _Phase.OPEN:
                try:
                    await self.commit()
                except BaseException as commit_error:
                    await self._abort_after(commit_error)
                    raise
        else:
            await self._abort_after(error)

    async def _abort_after(self, error: BaseException) -> None:
        """Abort because of an error, which is not to be masked by another."""
        if self._phase is _Phase.COMMIT_ASKED:
            error.add_note(f"the commit of {self.txn_id} was asked for; its outcome is not known")
        if self._phase is _Phase.OPEN:
            await self._abort_apart(self.abort(), error)

    async def _abort_apart(self, abort: Coroutine[Any, Any, None], error: BaseException) -> None:
        # In a task of its own: cancelling the caller must not leave the transaction open.
        aborting = self._runtime.spawn(abort, f"abort {self.txn_id}")
        try:
            await asyncio.shield(aborting)
        except MagnetarError as abort_error:
            error.add_note(f"aborting {self.txn_id} failed as well: {abort_error}")
        except asyncio.CancelledError:
            if not isinstance(error, asyncio.CancelledError):
                raise

    async def _prepare_commit(self) -> None:
        """Flush, and fix what EndTxn will say.

        Raises:
            CommitRefused: something had failed; it is aborted.
            InvalidTxnState: it has ended meanwhile.
        """
        self._phase = _Phase.FLUSHING
        try:
            await self._flush()
        except asyncio.CancelledError:
            if not self._settled:
                self._phase = _Phase.OPEN
            raise
        if self._settled:
            raise InvalidTxnState(
                f"{self.txn_id} was ended meanwhile, by its timeout or by an administrator:"
                f" it is {self._status.name}"
            )
        failure = self._failure
        if failure is None:
            self._phase = _Phase.COMMIT_ASKED
            self._commit_command = self._count()
            return
        refused = CommitRefused(f"{self.txn_id} was aborted: {failure}")
        await self._abort_apart(self._abort(), refused)
        raise refused from failure

    async def _flush(self) -> None:
        """Wait until every send, ack and participant is confirmed, or one has failed.

        The producers' plain sends to the same partitions were sent before the commit, so they come
        before its markers.
        """
        for sender in self._senders:
            sender.close_batch()
            if sender.plain is not None:
                sender.plain.close_batch()
        for acks in self._acks:
            acks.close_command()
        for sender in self._senders:
            await sender.drain()
        for acks in self._acks:
            await acks.drain()
        for sender in self._senders:
            if sender.plain is not None and self._failure is None:
                await sender.plain.drain()
        if self._failure is None:
            await self._enrollment.answered()

    def _count(self) -> transaction_pb2.CommandEndTxn:
        command = transaction_pb2.CommandEndTxn(
            txn_id=self.txn_id.to_wire(), txn_action=common_pb2.COMMIT, counts_given=True
        )
        producers = {}
        for partition in self._enrollment.partitions:
            partition_counts = command.partition_counts.add()
            partition_counts.partition.CopyFrom(partition.to_wire())
            producers[partition] = partition_counts.producers
        for sender in self._senders:
            producers[sender.name].add(writer_id=sender.producer_id, count=sender.confirmed_count)
        consumers = {}
        for subscription in self._enrollment.subscriptions:
            subscription_counts = command.subscription_counts.add()
            subscription_counts.subscription.CopyFrom(subscription.to_wire())
            consumers[subscription] = subscription_counts.consumers
        for acks in self._acks:
            consumers[acks.name].add(writer_id=acks.consumer_id, count=acks.confirmed_count)
        return command

    async def _ask_commit(self, wait_finished: bool) -> None:
        assert self._commit_command is not None
        command = self._commit_command
        command.wait_finished = wait_finished
        try:
            reply: transaction_pb2.CommandEndTxnResponse = await self._coordinator.request(
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
            if self._phase is _Phase.COMMIT_ASKED:
                self._lead_plain_sends()
                self._resolve_soon()
            raise
        self._settle(TransactionStatus(reply.status or TransactionStatus.COMMITTING))

    async def _abort(self) -> None:
        commit_was_asked = self._phase is _Phase.COMMIT_ASKED
        self._phase = _Phase.ABORTING
        self._status = TransactionStatus.ABORTING
        error = InvalidTxnState(f"{self.txn_id} was aborted")
        self._abandon(error)
        try:
            async with asyncio.timeout(self._runtime.config.abort_drain_ms / 1000):
                for sender in self._senders:
                    await sender.drain()
                for acks in self._acks:
                    await acks.drain()
                # It can only tell those that it knows; others hear of it much later.
                await self._enrollment.answered()
        except TimeoutError:
            pass
        for sender in self._senders:
            sender.give_up(error)
        for acks in self._acks:
            acks.give_up(error)
        command = transaction_pb2.CommandEndTxn(
            txn_id=self.txn_id.to_wire(), txn_action=common_pb2.ABORT
        )
        try:
            reply: transaction_pb2.CommandEndTxnResponse = await self._coordinator.request(
                command, timeout_ms=self._runtime.config.abort_timeout_ms
            )
        except InvalidTxnState:
            self._settle(TransactionStatus.COMMITTED)
            raise
        except BaseException:
            if commit_was_asked:
                self._lead_plain_sends()
            self._resolve_soon()
            raise
        self._settle(TransactionStatus(reply.status or TransactionStatus.ABORTING))

    def _abandon(self, error: MagnetarError) -> None:
        for sender in self._senders:
            sender.abandon(error)
        for acks in self._acks:
            acks.abandon(error)

    def _lead_plain_sends(self) -> None:
        """The producers' plain sends come after this transaction's messages (order, k)."""
        for sender in self._senders:
            if sender.plain is not None:
                sender.plain.follow(self.txn_id)

    def _settle(self, status: TransactionStatus) -> None:
        """The outcome is known: tell producers and consumers, once."""
        self._status = status
        committed = status in COMMITTED_STATUSES
        self._phase = _Phase.COMMITTED if committed else _Phase.ABORTED
        self._release(committed=committed)

    def _release(self, *, committed: bool) -> None:
        if self._settled:
            return
        self._settled = True
        self._runtime.deadlines.forget(self._expiry)
        self._enrollment.seal()
        if committed:
            self._lead_plain_sends()
        else:
            error = InvalidTxnState(f"{self.txn_id} was aborted")
            for sender in self._senders:
                sender.give_up(error)
                # Nothing of it becomes visible: whatever the producer followed before still leads.
                if sender.plain is not None and sender.plain.follows is None:
                    sender.plain.follow(sender.follows or self.txn_id)
            for acks in self._acks:
                acks.give_up(error)
        for acks in self._acks:
            acks.on_ended(committed)
        for forget in self._forget_senders:
            forget()
        for sender in self._senders:
            sender.retire()
        for acks in self._acks:
            acks.retire()
        self._senders.clear()
        self._acks.clear()
        self._forget_senders.clear()
        self._on_ended(self)

    def _resolve_soon(self) -> None:
        if not self._settled and not self._resolving:
            self._resolving = True
            self._runtime.spawn(self._resolve(), f"resolve {self.txn_id}")

    async def _resolve(self) -> None:
        """Find out what became of it: messages that it acknowledged must not stay undecided."""
        try:
            while not self._settled:
                await asyncio.sleep(RESOLVE_PERIOD_MS / 1000)
                try:
                    reply = await self._coordinator.request(
                        transaction_pb2.CommandDescribeTxn(txn_id=self.txn_id.to_wire())
                    )
                except (TxnNotFound, TxnForgotten):
                    # Ended long ago, nobody knows how. If it was committed, the broker ignores
                    # nacks of its acks.
                    self._release(committed=False)
                except OutcomeUnknown:
                    continue
                except MagnetarError as error:
                    log.info("cannot find out about %s: %s", self.txn_id, error)
                else:
                    status = TransactionStatus(reply.transaction.status)
                    if status is not TransactionStatus.OPEN and not self._settled:
                        log.info("transaction %s turned out to be %s", self.txn_id, status.name)
                        self._settle(status)
        finally:
            self._resolving = False


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
