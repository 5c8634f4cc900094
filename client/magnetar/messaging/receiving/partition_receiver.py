"""Receives the messages of a partition for a consumer, ahead of the application.

It attaches to the broker again whenever the link breaks or the partition moves.
Source: docs/design/0001-protocol.md, Subscriptions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from magnetar.config import ConsumerConfig
from magnetar.enums import InitialPosition, SubscriptionType
from magnetar.errors import ClientClosed
from magnetar.link.runtime import Runtime, unobserved
from magnetar.link.session import LinkSession, Push, Result
from magnetar.link.shard_connection import ShardConnection
from magnetar.link.topic_route import TopicRoute
from magnetar.message import Message
from magnetar.messaging.acknowledging.acks import PlainAcks, TransactionAcks
from magnetar.messaging.acknowledging.acks_in_transactions import AcksInTransactions
from magnetar.messaging.acknowledging.delayed_nacks import DelayedNacks
from magnetar.messaging.acknowledging.nack_requests import NackRequests
from magnetar.messaging.acknowledging.unacked_tracker import UnackedTracker
from magnetar.messaging.interval_set import Range
from magnetar.messaging.receiving.fast_lane import AckRun
from magnetar.messaging.receiving.partition_ownership import LOSSES, PartitionOwnership, Settling
from magnetar.messaging.receiving.permits import PrefetchBudget
from magnetar.messaging.receiving.receive_queue import ReceiveQueue
from magnetar_core.error_kinds import ErrorKind
from magnetar_core.errors import (
    LogUnavailable,
    MagnetarError,
    OutOfRange,
    from_wire,
)
from magnetar_core.transport.transport import LinkClosed
from magnetar_core.wire import broker_pb2, common_pb2, group_pb2

if TYPE_CHECKING:
    from magnetar.transactions.transaction_work import TransactionWork

log = logging.getLogger("magnetar")


class PartitionReceiver:
    """Subscribes, gives permits, queues messages, and tracks what the application has."""

    def __init__(
        self,
        runtime: Runtime,
        route: TopicRoute,
        partition: int,
        subscription: str,
        consumer_id: int,
        consumer_name: str,
        subscription_type: SubscriptionType,
        initial_position: InitialPosition,
        config: ConsumerConfig,
        prefetch: PrefetchBudget,
        on_change: Callable[[], None],
        ownership: PartitionOwnership | None = None,
        *,
        received_by: int,
    ) -> None:
        """A receiver that has not subscribed yet.

        Args:
            consumer_id: under which brokers know the receiver.
            prefetch: the bytes that the client's partitions share.
            received_by: the id of the consumer that the application has.
            on_change: called when a message can be received, and when none ever will be.
            ownership: who owns the partition, if a group has assigned it.
        """
        self.name = route.subscription_name(partition, subscription)
        # Deliveries carry it; no receiver has 0.
        self.number = runtime.next_number()
        self.unacked = UnackedTracker(self._catch_up)
        self._ack_run = AckRun()
        self.ledger_id = 0
        # FAILOVER: whether this consumer is the one that gets messages here.
        self.active = False
        # A group's partition: messages come when transactions of earlier owners have ended.
        self.waiting = False
        # The group asks for it back: nothing more is taken from it.
        self.stopped = False
        self.failure: MagnetarError | None = None
        # Raised when the cursor moved, and all that was delivered before became void.
        self.resets = 0
        self._runtime = runtime
        self._route = route
        self._consumer_id = consumer_id
        self._consumer_name = consumer_name
        self._type = subscription_type
        self._initial_position = initial_position
        self._config = config
        self._on_change = on_change
        self._ownership = ownership
        self._attached: LinkSession | None = None
        # Ends the watch over the last session that it was attached on.
        self._unwatch: Callable[[], None] = _nothing
        # Raised with each attempt: the broker refuses late copies of earlier ones.
        self._attach_epoch = 0
        self._detached = asyncio.Event()
        # What the broker says that attaching again will not help against.
        self._closed_by: MagnetarError | None = None
        self.queue = ReceiveQueue(
            self.name,
            self.number,
            received_by,
            config,
            prefetch,
            self.unacked,
            flow=self._flow,
            give_back=self.nack,
        )
        self._last_refusal: MagnetarError | None = None
        self._started: asyncio.Future[None] = unobserved(runtime.loop.create_future())
        self._nack_requests = NackRequests(
            runtime, self.name, consumer_id, lambda: self._attached, self._stop
        )
        self._nacks = DelayedNacks(
            runtime, config, self.unacked, self._nack_requests.ask, self._stop
        )
        self._closing = False
        self.acks = PlainAcks(
            runtime,
            route,
            self.name,
            consumer_id,
            linger_ms=config.ack_linger_ms,
            ledger_id=lambda: self.ledger_id,
            attach_epoch=lambda: self._attach_epoch,
            member=self.member,
            catch_up=self._catch_up,
            on_confirmed=self._on_acked,
            on_failed=self._on_ack_failed,
        )
        self._acks_in_transactions = AcksInTransactions(
            runtime,
            route,
            self.name,
            consumer_id,
            subscription_type,
            self.member,
            self.unacked,
            ask_again=self._ask_again,
            attach_again=self._detach,
            on_ended=self._tell_settled,
            on_refused=self._tell_lost,
        )
        self._connection = route.connection(partition)
        self._connection.register(
            (consumer_id, partition), runtime.owned(self._stop, self._on_push)
        )
        self._task = runtime.spawn(self._run, f"receive {self.name}", self._stop)

    @property
    def member(self) -> common_pb2.GroupMember | None:
        """With a group: the member that commands about the partition name."""
        return None if self._ownership is None else self._ownership.member

    @property
    def connection(self) -> ShardConnection:
        """The connection to the broker that has the partition now."""
        return self._connection

    async def started(self) -> None:
        """Wait for the first attachment.

        Raises:
            MagnetarError: the broker refuses, or does not answer in time.
        """
        timeout_ms = self._runtime.config.operation_timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await asyncio.shield(self._started)
        except TimeoutError:
            if self._last_refusal is not None:
                raise self._last_refusal from None
            raise LogUnavailable(
                f"the broker at {self._connection.title} did not take the subscription"
                f" {self.name} within {timeout_ms:.0f} ms"
            ) from None

    def check_ledger(self, ledger_id: int) -> None:
        """Check that a message belongs to the present log.

        Raises:
            OutOfRange: the message is from before the log was restored.
        """
        if ledger_id and self.ledger_id and ledger_id != self.ledger_id:
            raise OutOfRange(
                f"{self.name} is in ledger {self.ledger_id}; the message is of {ledger_id}"
            )

    def ack_nowait(self, ranges: Sequence[Range]) -> None:
        """Acknowledge without waiting; flush() of the acks raises if it fails."""
        self.queue.claim(ranges)
        self.unacked.ack_begins(ranges)
        self.acks.add(ranges)

    def ack_one_nowait(self, message: Message) -> AckRun:
        """Acknowledge a message without waiting.

        Returns:
            The run of acks behind the message, which the acks of the messages after it may extend.
        """
        offset = message.offset
        self.ack_nowait([(offset, message.last_offset)])
        batch, place = message.batch, message.place
        end = self.queue.acks_until(batch, offset)
        self._ack_run.begin(batch, place + 1, end - batch.first_offset)
        return self._ack_run

    async def ack(self, ranges: Sequence[Range]) -> None:
        """Acknowledge, and wait for the confirmation."""
        self.queue.claim(ranges)
        self.unacked.ack_begins(ranges)
        await self.acks.acknowledge(ranges)

    async def ack_up_to(self, offset: int) -> None:
        """Acknowledge everything up to an offset, and wait for the confirmation."""
        self.queue.claim([(0, offset)])
        ranges = self.unacked.held_up_to(offset)
        self.unacked.ack_begins(ranges)
        await self.acks.acknowledge_up_to(offset, ranges)

    def ack_in_transaction(
        self, ranges: Sequence[Range], txn: TransactionWork, *, cumulative: bool = False
    ) -> TransactionAcks:
        """Acknowledge in a transaction, and return its acks, which have a receipt.

        Raises:
            InvalidTxnState: the transaction has ended, or failed. No effect.
        """
        acks = self._acks_in_transactions.add(
            ranges, txn, cumulative=cumulative, ledger_id=self.ledger_id
        )
        self.queue.claim(ranges)
        self.unacked.ack_in_transaction(txn.number, ranges)
        return acks

    def nack(self, ranges: Iterable[Range], delay_ms: float | None = None) -> None:
        """Give messages back after a delay, if the application has them.

        Args:
            ranges: the offsets.
            delay_ms: the delay in milliseconds; None: as configured.
        """
        self._nacks.add(ranges, delay_ms)
        self._tell_settled()

    def _ask_again(self, ranges: Iterable[Range]) -> None:
        """Ask for messages again that the application has had."""
        self._nack_requests.ask(self.unacked.by_count(ranges))

    def reset(self) -> None:
        """Attach again, since earlier deliveries no longer count.

        The messages of a group come in order: first those that transactions without an outcome have
        acknowledged, if they come.
        """
        self.resets += 1
        self.queue.take_back()
        # What the application has had counts as delivered; what it has not had does not.
        self._nack_requests.ask(self.unacked.unacknowledged())
        if self._ownership is not None:
            self._acks_in_transactions.reset()
        self.unacked.reset()
        self._nacks.clear()
        self.queue.given_end = None
        self._detach()

    @property
    def settling(self) -> Settling:
        """Messages of this partition that the application has not settled."""
        return Settling(not self.unacked.is_settled, bool(self._acks_in_transactions))

    def stop(self) -> None:
        """Stop taking messages; queued messages go to the next owner."""
        self.stopped = True
        self.queue.clear()

    def resume(self) -> None:
        """Take messages again; those that were queued come again."""
        self.stopped = False
        self._detach()

    def lose(self, error: MagnetarError) -> None:
        """Note that the partition is lost; acks that are under way will be refused."""
        session = self._attached
        self._nack_requests.ask(self.unacked.unacknowledged())
        self._stop(error)
        if session is not None:
            # Where the broker does not know that yet, it would keep others from attaching.
            session.request(self._close_command(), lambda _: None)

    async def close(self) -> MagnetarError | None:
        """Confirm acks and leave the subscription. Other consumers get the messages that are left.

        Returns:
            The error of an ack for which no caller waited; None without.
        """
        self._closing = True
        failure: MagnetarError | None = None
        try:
            async with asyncio.timeout(self._runtime.config.close_timeout_ms / 1000):
                await self.acks.flush()
                self._nack_requests.ask(self.unacked.unacknowledged())
                if self._attached is not None:
                    await self._attached.call(self._close_command())
        except (MagnetarError, LinkClosed, TimeoutError) as error:
            log.info("closing %s: %s", self.name, error)
            if isinstance(error, MagnetarError):
                failure = error
        finally:
            self._stop(ClientClosed("the consumer is closed"))
        return failure

    def _close_command(self) -> broker_pb2.CommandCloseConsumer:
        return broker_pb2.CommandCloseConsumer(
            subscription=self.name.to_wire(), consumer_id=self._consumer_id
        )

    def _stop(self, error: MagnetarError) -> None:
        """Give the partition up, with what is queued."""
        self.queue.take_back()
        self.queue.ready.clear()
        self._end(error)

    def _end(self, error: MagnetarError) -> None:
        """Nothing more comes. The application meets the error behind what is queued."""
        self.failure = error
        self._task.cancel()
        self._unwatch()
        self._connection.unregister((self._consumer_id, self.name.partition))
        self._nacks.clear()
        self._attached = None
        self.queue.close()
        if not self._started.done():
            self._started.set_exception(error)
        self._on_change()

    def _catch_up(self) -> None:
        """Note messages that were received and acknowledged the short way.

        The receipts come first: what was acknowledged was received before.
        """
        self.queue.note_received()
        acked = self._ack_run.end()
        if acked is not None:
            self.ack_nowait([acked])

    async def _run(self) -> None:
        backoff = self._runtime.backoff()
        while True:
            try:
                session = await self._connection.session()
                self._detached.clear()
                await self._attach(session)
            except LinkClosed:
                continue
            except MagnetarError as error:
                if not error.retriable:
                    self._refused(error)
                    return
                self._last_refusal = error
                if error.kind is ErrorKind.LOOK_UP:
                    self._connection.moved()
                await asyncio.sleep(backoff.next_ms() / 1000)
                continue
            backoff.reset()
            if not self._started.done():
                self._started.set_result(None)
            await self._detached.wait()
            closed_by, self._closed_by = self._closed_by, None
            if closed_by is None:
                continue
            if not closed_by.retriable:
                self._refused(closed_by)
                return
            if closed_by.kind is ErrorKind.LOOK_UP:
                self._connection.moved()
            await asyncio.sleep(backoff.next_ms() / 1000)

    def _refused(self, error: MagnetarError) -> None:
        """Fail: the broker refuses this consumer, and asking again cannot help."""
        if self._tell_lost(error):
            return
        log.warning("%s: the broker does not take this consumer: %s", self.name, error)
        self._stop(error)

    def _tell_lost(self, error: MagnetarError) -> bool:
        """Whether this means that the group has given the partition away, and others know now."""
        if self._ownership is None or not isinstance(error, LOSSES):
            return False
        self._ownership.on_lost(error)
        return True

    def _tell_settled(self) -> None:
        if self._ownership is not None:
            self._ownership.on_settled()

    async def _attach(self, session: LinkSession) -> None:
        """Subscribe on this link. Whatever an earlier attachment still brings is ignored."""
        self.queue.clear()
        self._attach_epoch += 1
        reply: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        # At once, and not when the task runs again: a push may follow the reply in its frame.
        def on_reply(result: Result[broker_pb2.CommandSubscribeResponse]) -> None:
            if isinstance(result, Exception):
                if not reply.done():
                    reply.set_exception(result)
                return
            self._on_subscribed(session, result)
            if not reply.done():
                reply.set_result(None)

        session.request(
            broker_pb2.CommandSubscribe(
                subscription=self.name.to_wire(),
                consumer_id=self._consumer_id,
                type=int(self._type),  # type: ignore[arg-type]
                initial_position=int(self._initial_position),  # type: ignore[arg-type]
                consumer_name=self._consumer_name,
                attach_epoch=self._attach_epoch,
                member=self.member,
                after_txn_ids=[txn_id.to_wire() for txn_id in self._acks_in_transactions.after],
            ),
            on_reply,
        )
        await reply

    def _on_subscribed(
        self, session: LinkSession, reply: broker_pb2.CommandSubscribeResponse
    ) -> None:
        if self._closing or self.failure is not None:
            # It was asked for before that.
            session.request(self._close_command(), lambda _: None)
            return
        if self.ledger_id and reply.ledger_id != self.ledger_id:
            self.resets += 1
            self.unacked.reset()
        self.ledger_id = reply.ledger_id
        if self._detached.is_set():
            # Another attachment follows. Messages of this one may be later than those of that one.
            return
        self.active = reply.active
        self.waiting = reply.waiting
        self._attached = session
        self._unwatch()
        closed = partial(self._on_session_closed, session)
        self._unwatch = session.on_close(self._runtime.owned(self._stop, closed))
        # Before the broker may send: then the messages wait there, and no other consumer has them.
        self._nack_requests.on_attached()
        if not self.stopped:
            self.queue.begin()

    def _on_session_closed(self, session: LinkSession) -> None:
        if session is self._attached:
            self._detach()

    def _detach(self) -> None:
        self._attached = None
        self.active = False
        self.queue.clear()
        self._detached.set()

    def _on_push(self, session: LinkSession, body: Push) -> None:
        if session is not self._attached:
            return
        if isinstance(body, broker_pb2.CommandDeliver):
            self._on_deliver(body)
        elif isinstance(body, group_pb2.CommandGroupChange):
            pass  # For members of groups.
        elif body.HasField("error"):
            self._closed_by = from_wire(body.error)
            self._detach()
        elif body.closed:
            log.info("%s: the broker closed this consumer; attaching again", self.name)
            self.reset()
        else:
            self.active = body.active
            self.waiting = body.waiting

    def _on_deliver(self, deliver: broker_pb2.CommandDeliver) -> None:
        if self.stopped:
            return
        for batch in deliver.batches:
            if batch.stamp:
                self._runtime.saw(batch.stamp)
        try:
            cut = self.queue.add(deliver.ledger_id or self.ledger_id, deliver.batches)
        except MagnetarError as error:
            log.error("%s: %s", self.name, error)
            # What came before it can still be taken and acknowledged: else a consumer that starts
            # again would meet the same batches, and never get further.
            self._end(error)
            return
        if cut:
            self.acks.add(cut)
        self._acks_in_transactions.doubt(self.unacked.take_doubted())
        if self.queue.ready:
            self._on_change()

    def _flow(self, permits: int, byte_count: int) -> None:
        if self._attached is not None:
            self._attached.post(
                broker_pb2.CommandFlow(
                    subscription=self.name.to_wire(),
                    consumer_id=self._consumer_id,
                    permits=permits,
                    permit_bytes=byte_count,
                )
            )

    def _on_acked(self, ranges: Sequence[Range]) -> None:
        self.unacked.ack_confirmed(ranges)
        self._tell_settled()

    def _on_ack_failed(self, ranges: Sequence[Range], error: MagnetarError) -> None:
        self.unacked.ack_failed(ranges)
        self._tell_lost(error)


def _nothing() -> None:
    return
