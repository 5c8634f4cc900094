"""Acknowledgements of a subscription's partition on their way to the broker.

Acks outside of transactions may be repeated and reordered, so they are collected freely. The acks
of a transaction are numbered commands, which never change once they have a number. Source:
docs/design/0001-protocol.md, Subscriptions; PIP-31, Modified Commands, CommandAck.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from magnetar.errors import ClientClosed, failure_of
from magnetar.link.runtime import Runtime, Scheduled, unobserved
from magnetar.link.topic_route import TopicRoute
from magnetar.link.unanswered import Item, Stream, copy_error
from magnetar.messaging.interval_set import IntervalSet, Range
from magnetar.transactions.begun import Begun
from magnetar.transactions.failed_call import FailedCall
from magnetar_core.errors import MagnetarError, OutcomeUnknown
from magnetar_core.ids import NO_EPOCH, MemberName, SubscriptionName, TxnID
from magnetar_core.transport.columns.acks import Ack, Acked
from magnetar_core.wire import broker_pb2, common_pb2

if TYPE_CHECKING:
    from magnetar.transactions.transaction_work import TransactionWork

log = logging.getLogger("magnetar")

Receipt = asyncio.Future[None]
IN_FLIGHT_ACKS_MAX = 64
RANGES_PER_COMMAND_MAX = 10_000

INDIVIDUAL = broker_pb2.CommandAck.INDIVIDUAL
CUMULATIVE = broker_pb2.CommandAck.CUMULATIVE


def ranges_to_wire(ranges: Sequence[Range]) -> list[common_pb2.OffsetRange]:
    """Return ranges as the protocol has them."""
    return [common_pb2.OffsetRange(first=first, last=last) for first, last in ranges]


class PlainAcks:
    """Collects acks while a command is under way; the next command takes all of them."""

    def __init__(
        self,
        runtime: Runtime,
        route: TopicRoute,
        name: SubscriptionName,
        consumer_id: int,
        *,
        linger_ms: float,
        ledger_id: Callable[[], int],
        attach_epoch: Callable[[], int],
        member: common_pb2.GroupMember | None,
        catch_up: Callable[[], None],
        on_confirmed: Callable[[Sequence[Range]], None],
        on_failed: Callable[[Sequence[Range], MagnetarError], None],
    ) -> None:
        """A queue without acks.

        Args:
            member: the member that acknowledges, for a partition that a group has assigned.
            catch_up: calls add() for acks that are not noted yet. There are such only after another
                call of add(), until catch_up is called.
        """
        self._runtime = runtime
        self._route = route
        self._name = name
        self._consumer_id = consumer_id
        self._linger_ms = linger_ms
        self._ledger_id = ledger_id
        self._attach_epoch = attach_epoch
        self._member = member
        self._catch_up = catch_up
        self._on_confirmed = on_confirmed
        self._on_failed = on_failed
        self._pending = IntervalSet()
        # Everything up to this offset, if any; with what the client holds of it.
        self._up_to: int | None = None
        self._up_to_ranges: list[Range] = []
        self._receipt: Receipt | None = None
        # Whether only flush() waits for some of the gathered acks.
        self._unawaited = False
        self._linger: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._failure: MagnetarError | None = None

    def add(self, ranges: Sequence[Range]) -> None:
        """Acknowledge offsets soon; flush() raises if that fails."""
        self._pending.add_all(ranges)
        self._unawaited = True
        if self._linger_ms == 0:
            self._start()
        elif self._linger is None and self._task is None:
            self._linger = self._runtime.call_later(self._died, self._linger_ms, self._start)

    async def acknowledge(self, ranges: Sequence[Range]) -> None:
        """Acknowledge offsets, and wait for the confirmation."""
        self._pending.add_all(ranges)
        await self._confirmation()

    async def acknowledge_up_to(self, offset: int, ranges: Sequence[Range]) -> None:
        """Acknowledge everything up to an offset.

        Args:
            offset: the last offset to acknowledge.
            ranges: the offsets among them that the client has.
        """
        self._up_to = max(offset, self._up_to or 0)
        self._up_to_ranges += ranges
        await self._confirmation()

    async def flush(self) -> None:
        """Wait for all confirmations.

        Raises:
            MagnetarError: an ack failed for which no caller waited. This is the first such failure.
        """
        while self._has_gathered() or self._task is not None:
            self._start()
            if self._task is not None:
                await self._runtime.result_of(self._task)
        failure, self._failure = self._failure, None
        if failure is not None:
            raise copy_error(failure)

    async def _confirmation(self) -> None:
        if self._receipt is None:
            self._receipt = unobserved(self._runtime.loop.create_future())
        receipt = self._receipt
        self._start()
        await asyncio.shield(receipt)

    def _start(self) -> None:
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        if self._task is None:
            self._task = self._runtime.spawn(self._run, f"acks of {self._name}", self._died)
            self._runtime.when_done(self._died, self._task, self._on_task_ended)

    def _on_task_ended(self, task: asyncio.Task[None]) -> None:
        """Fail the gathered acks if the client's close has ended the task: they are not sent."""
        if task is self._task:
            # It was cancelled before its first step.
            self._task = None
        if task.cancelled():
            self._refuse_receipt(ClientClosed("the client was closed"))

    def _died(self, error: MagnetarError) -> None:
        """Fail the gathered acks: neither a timer nor a task sends them."""
        self._linger = None
        if self._refuse_receipt(error) and self._failure is None:
            self._failure = error

    def _refuse_receipt(self, error: MagnetarError) -> bool:
        """Return whether only flush() waits for some of the gathered acks."""
        receipt, self._receipt = self._receipt, None
        unawaited, self._unawaited = self._unawaited, False
        if receipt is not None and not receipt.done():
            receipt.set_exception(error)
        return unawaited

    async def _run(self) -> None:
        try:
            while self._has_gathered():
                await self._send_gathered()
        finally:
            self._task = None

    def _has_gathered(self) -> bool:
        self._catch_up()
        return bool(self._pending) or self._up_to is not None

    async def _send_gathered(self) -> None:
        ranges, self._pending = list(self._pending), IntervalSet()
        up_to, self._up_to = self._up_to, None
        up_to_ranges, self._up_to_ranges = self._up_to_ranges, []
        receipt, self._receipt = self._receipt, None
        unawaited, self._unawaited = self._unawaited, False
        try:
            if up_to is not None:
                await self._request(CUMULATIVE, [(0, up_to)])
                self._on_confirmed(up_to_ranges)
                up_to_ranges = []
            while ranges:
                some = ranges[:RANGES_PER_COMMAND_MAX]
                await self._request(INDIVIDUAL, some)
                self._on_confirmed(some)
                ranges = ranges[RANGES_PER_COMMAND_MAX:]
        except asyncio.CancelledError:
            # With the client: no caller may wait for ever.
            if receipt is not None and not receipt.done():
                receipt.set_exception(
                    OutcomeUnknown("the client was closed before an answer; the ack may count")
                )
            raise
        except BaseException as cause:
            error = failure_of(cause, f"acks of {self._name}")
            log.info("%s: an ack failed: %s", self._name, error)
            if unawaited and self._failure is None:
                self._failure = error
            if receipt is not None and not receipt.done():
                receipt.set_exception(error)
            self._on_failed([*ranges, *up_to_ranges], error)
            if error is not cause:
                raise
        else:
            if receipt is not None and not receipt.done():
                receipt.set_result(None)

    async def _request(
        self, ack_type: broker_pb2.CommandAck.AckType, ranges: Sequence[Range]
    ) -> None:
        await self._route.connection(self._name.partition).request(
            broker_pb2.CommandAck(
                subscription=self._name.to_wire(),
                consumer_id=self._consumer_id,
                ack_type=ack_type,
                ranges=ranges_to_wire(ranges),
                ledger_id=self._ledger_id(),
                attach_epoch=self._attach_epoch(),
                member=self._member,
            )
        )


class AckCommand(Item[Acked]):
    """A numbered ack command of a transaction."""

    def __init__(
        self,
        ack_type: broker_pb2.CommandAck.AckType,
        ranges: list[Range],
        ack_sequence: int,
        ledger_id: int,
        receipt: Receipt | None,
    ) -> None:
        super().__init__()
        self.ack_type = ack_type
        self.ranges = ranges
        self.ack_sequence = ack_sequence
        self.ledger_id = ledger_id
        self.receipt = receipt


class AckedPartition(Protocol):
    """The consumer's partition on which transactions acknowledge: AcksInTransactions."""

    runtime: Runtime
    route: TopicRoute
    name: SubscriptionName
    consumer_id: int
    member: MemberName | None

    def confirmed(self, acks: TransactionAcks, ranges: Sequence[Range]) -> None:
        """Note that the broker has confirmed these acks."""
        ...

    def refused(self, error: MagnetarError) -> None:
        """Note the broker's refusal; not called when the client itself gives up."""
        ...

    def ended(self, acks: TransactionAcks, committed: bool) -> None:
        """Note how the transaction has ended; called once."""
        ...


class TransactionAcks(Stream[AckCommand, Acked]):
    """The acks of a transaction by a consumer on a partition.

    Acks of the same turn of the event loop travel in the same command, and so do those from before
    begin(): nothing leaves until then.

    Attributes:
        txn: the transaction.
        txn_id: its id; None while a lazy transaction has none.
        confirmed_count: commands that the broker has confirmed. Counted by CommandEndTxn.
    """

    txn_id: TxnID | None = None
    confirmed_count = 0
    failure: MagnetarError | None = None
    # What all commands say of the transaction, from when it has begun.
    _producer_epoch = NO_EPOCH
    _txn_proof = b""
    _is_two_phase_commit = False
    _open_type = INDIVIDUAL
    _ledger_id = 0
    _receipt: Receipt | None = None
    _scheduled: Scheduled | None = None
    _next_sequence = 0

    def __init__(self, owner: AckedPartition, txn: TransactionWork) -> None:
        """The acks of a transaction that has acknowledged nothing here yet."""
        super().__init__(
            owner.runtime,
            owner.route.connection(owner.name.partition).unanswered,
            IN_FLIGHT_ACKS_MAX,
            is_open=False,
        )
        self.txn = txn
        self.name = owner.name
        self.writer_id = owner.consumer_id
        self._owner = owner
        # In the order of the calls.
        self._open: list[Range] = []

    def begin(self, begun: Begun) -> None:
        """Send acks from now on, since the transaction has its id."""
        self.txn_id = begun.txn_id
        self._producer_epoch, self._txn_proof = begun.producer_epoch, begun.txn_proof
        # A group may refuse a transaction that never expires. Only a coordinator that allows
        # two-phase commit lets one live for ever.
        self._is_two_phase_commit = not begun.timeout_ms
        self.open()

    def add(self, ranges: Sequence[Range], *, cumulative: bool, ledger_id: int) -> None:
        """Acknowledge in the transaction.

        Raises:
            MagnetarError: the transaction failed before. No effect.
        """
        if self.failure is not None:
            raise copy_error(self.failure)
        ack_type = CUMULATIVE if cumulative else INDIVIDUAL
        if self._open and (ack_type != self._open_type or ledger_id != self._ledger_id):
            self.send_collected()
        self._open_type, self._ledger_id = ack_type, ledger_id
        self._open += ranges
        if self.txn_id is not None:
            self.send_soon()

    def send_soon(self) -> None:
        """Send the collected acks at the end of this turn."""
        if self._open and self._scheduled is None:
            self._scheduled = self._runtime.call_soon(self._died, self.send_collected)

    @property
    def receipt(self) -> Receipt:
        """The future that has the broker's answer to what is collected."""
        if self._receipt is None:
            self._receipt = unobserved(self._runtime.loop.create_future())
        return self._receipt

    def _died(self, error: MagnetarError) -> None:
        """Fail all acks, and the transaction, since a callback has died."""
        self.give_up(error)
        self._doom(error)

    def send_collected(self) -> None:
        """Number the collected acks and send them."""
        if self._scheduled is not None:
            self._scheduled.cancel()
            self._scheduled = None
        ranges, self._open = self._open, []
        receipt, self._receipt = self._receipt, None
        if len(ranges) > 1:
            ranges = list(IntervalSet(ranges))
        if not ranges:
            if receipt is not None and not receipt.done():
                receipt.set_result(None)
            return
        if self.failure is not None:
            if receipt is not None and not receipt.done():
                receipt.set_exception(copy_error(self.failure))
            return
        try:
            for start in range(0, len(ranges), RANGES_PER_COMMAND_MAX):
                some = ranges[start : start + RANGES_PER_COMMAND_MAX]
                is_last = start + len(some) == len(ranges)
                # If an earlier one fails, so does the transaction, and the last one with it.
                self._submit(some, receipt if is_last else None)
        except BaseException as error:
            if receipt is not None and not receipt.done():
                receipt.set_exception(failure_of(error, f"acks of {self.name}"))
            raise

    def _submit(self, ranges: list[Range], receipt: Receipt | None) -> None:
        self.submit(
            AckCommand(self._open_type, ranges, self._next_sequence, self._ledger_id, receipt),
            timeout_ms=self._runtime.config.operation_timeout_ms,
        )
        self._next_sequence += 1

    def abandon(self, error: MagnetarError) -> None:
        """Fail and drop buffered acks; answers that are under way still count."""
        if self.failure is None:
            self.failure = error
        self.send_collected()
        super().abandon(error)

    def give_up(self, error: MagnetarError) -> None:
        """Fail everything that is not confirmed, now."""
        if self.failure is None:
            self.failure = error
        self.send_collected()
        super().give_up(error)

    # What the stream asks for, and tells.

    def moved(self) -> None:
        """Look up the broker again, since the partition has moved."""
        self._owner.route.refresh_soon()

    def build(self, item: AckCommand) -> Ack:
        """Return the command of a numbered ack."""
        return Ack(
            self.name,
            self.writer_id,
            item.ack_type,
            item.ranges,
            self.txn_id,
            item.ack_sequence,
            item.ledger_id,
            self._producer_epoch,
            self._owner.member,
            self._is_two_phase_commit,
            txn_proof=self._txn_proof,
        )

    def confirmed(self, item: AckCommand, reply: Acked) -> None:
        """Note that the broker has confirmed a command."""
        self.confirmed_count += 1
        if item.receipt is not None and not item.receipt.done():
            item.receipt.set_result(None)
        self._owner.confirmed(self, item.ranges)

    def refused(self, tail: list[AckCommand], error: MagnetarError) -> None:
        """Note that the broker has refused a command, and with it those behind it."""
        is_first = self.failure is None
        if is_first:
            self.failure = error
        for item in tail:
            if item.receipt is not None and not item.receipt.done():
                item.receipt.set_exception(copy_error(error))
        self._doom(error)
        if is_first:
            self._owner.refused(error)

    def on_ended(self, committed: bool) -> None:
        """Note how the transaction ended, and forget everything."""
        self._owner.ended(self, committed)
        self._is_abandoned = True

    def _doom(self, error: MagnetarError) -> None:
        self.txn.doom(error, FailedCall.ack_on(self.name))
