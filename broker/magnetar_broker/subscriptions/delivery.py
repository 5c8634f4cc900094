"""Delivery on a subscription and partition: attached consumers, and pushes to them.

`dispatch` decides who gets which message. Here are the conversations, and a task that reads the
next messages and hands them out as far as permits go.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable

from magnetar_broker.dispatch.dispatch import Assignment, Consumer, Dispatcher, SubscriptionType
from magnetar_broker.dispatch.key_shared import KeySharedDispatcher
from magnetar_broker.environment import Environment
from magnetar_broker.log.log_reader import LogReader
from magnetar_broker.log.offset_set import Range
from magnetar_broker.log.partition_log import PartitionLog
from magnetar_broker.log.stored_batch import StoredBatch
from magnetar_core.errors import (
    DataLoss,
    InvalidArgument,
    MagnetarError,
    OutOfRange,
    QuotaExceeded,
)
from magnetar_core.ids import SubscriptionName
from magnetar_core.server.commands import CommandSession, Complaint
from magnetar_core.transport.spliced import with_messages
from magnetar_core.wire import broker_pb2 as wire

log = logging.getLogger(__name__)

# How many departed consumers' attach epochs are remembered.
PAST_CONSUMERS_MAX = 1_000


class Attachment:
    """A consumer, and the conversation on which it is attached, as long as that may read."""

    def __init__(
        self,
        delivery: Delivery,
        consumer: Consumer,
        session: CommandSession,
        complaint: Complaint | None,
    ) -> None:
        self.consumer = consumer
        self.session = session
        self._delivery = delivery
        consumer.blocked = not session.writable
        session.listen(self)
        session.while_allowed(self, complaint, lambda error: delivery.turn_out(self, error))

    def session_writable(self, writable: bool) -> None:
        """Pause deliveries to the consumer, or continue."""
        self.consumer.blocked = not writable
        if writable:
            self._delivery.wake()

    def session_closed(self) -> None:
        """Detach the consumer: its conversation has ended."""
        self._delivery.close_consumer(self.session, self.consumer.consumer_id, vanished=True)


class Delivery:
    """Attached consumers of a subscription, and the stream of messages to them.

    Args:
        pending_acks: yields the ranges in PENDING_ACK, with the ids of their consumers.
        skip: acknowledges a range that an administrator has given up.
    """

    def __init__(
        self,
        environment: Environment,
        name: SubscriptionName,
        dispatcher: Dispatcher,
        partition_log: PartitionLog,
        reader: LogReader,
        pending_acks: Callable[[], Iterable[tuple[int, Range]]],
        skip: Callable[[Range], None],
    ) -> None:
        self.dispatcher = dispatcher
        self.closed = False
        self._environment = environment
        self._name = name
        self._log = partition_log
        self._reader = reader
        self._pending_acks = pending_acks
        self._skip = skip
        self._attachments: dict[int, Attachment] = {}
        self._attach_epochs: dict[int, int] = {}
        # Attach epochs at the time of the cursor's last move.
        self._epochs_at_move: dict[int, int] = {}
        self._read_ahead: deque[StoredBatch] = deque()
        self._pumping = False
        # Moves of the cursor that are not durable yet; nothing is delivered meanwhile.
        self._moves_under_way = 0
        # Increases with each event that makes batches stale which are being read.
        self._generation = 0
        # Whether a group's transactions of earlier generations are open here.
        self.waiting = False

    # Consumers

    def attach(
        self,
        session: CommandSession,
        consumer_id: int,
        consumer_name: str,
        subscription_type: SubscriptionType,
        attach_epoch: int,
        complaint: Complaint | None = None,
    ) -> None:
        """Attach a consumer on this conversation, in place of its earlier attachment.

        Args:
            complaint: returns why the client may no longer read; None: there is no access control.
        Raises:
            ConsumerBusy: as Dispatcher.check_attach; nothing has changed.
            SubscriptionExists: as Dispatcher.check_attach; nothing has changed.
            QuotaExceeded: too many consumers.
            InvalidArgument: a late copy of an earlier attempt.
        """
        earlier = self._attachments.get(consumer_id)
        if earlier is not None:
            same_attempt = earlier.consumer.attach_epoch == attach_epoch
            if same_attempt and earlier.session is session:
                return
        self.refuse_late(consumer_id, attach_epoch)
        replaced = earlier.consumer if earlier is not None else None
        self.dispatcher.check_attach(subscription_type, replaced=replaced)
        limit = self._environment.config.consumers_max
        if earlier is not None:
            self._detach(earlier)
        elif len(self._attachments) >= limit:
            raise QuotaExceeded(f"{self._name} has its {limit} consumers", consumers_max=limit)
        self._dispatch_as(subscription_type)
        consumer = Consumer(consumer_id, consumer_name, attach_epoch)
        self.dispatcher.attach(consumer, subscription_type)
        self._attachments[consumer_id] = Attachment(self, consumer, session, complaint)
        self._note_epoch(consumer_id, attach_epoch)
        self._tell_active()
        if earlier is not None:
            # Messages of its earlier attachment may go to others.
            self.wake()

    def _note_epoch(self, consumer_id: int, attach_epoch: int) -> None:
        """Keep the epochs of all consumers that are attached, and of the last that have left."""
        epochs = self._attach_epochs
        epochs.pop(consumer_id, None)
        epochs[consumer_id] = attach_epoch
        while len(epochs) > len(self._attachments) + PAST_CONSUMERS_MAX:
            oldest = next(iter(epochs))
            epoch = epochs.pop(oldest)
            if oldest in self._attachments:
                # It stays, and waits behind those that were noted later.
                epochs[oldest] = epoch

    def refuse_late(self, consumer_id: int, attach_epoch: int) -> None:
        """Refuse a late copy of an attempt to attach.

        Raises:
            InvalidArgument: this epoch, or a higher epoch, was used before.
        """
        if 0 < attach_epoch <= self._attach_epochs.get(consumer_id, 0):
            raise InvalidArgument(
                "this consumer was attached with this epoch, or a higher one, before: raise it"
                " with each attempt"
            )

    def inherit_epochs(self, earlier: Delivery) -> None:
        """Take the attach epochs of a deleted subscription of the same name."""
        self._attach_epochs.update(earlier._attach_epochs)

    def is_before_move(self, consumer_id: int, attach_epoch: int) -> bool:
        """Return whether an attachment is older than the cursor's last move."""
        return 0 < attach_epoch <= self._epochs_at_move.get(consumer_id, 0)

    def _dispatch_as(self, subscription_type: SubscriptionType) -> None:
        """Use a dispatcher of this type. Consumers of another type have left."""
        previous = self.dispatcher
        by_key = subscription_type is SubscriptionType.KEY_SHARED
        if by_key is (previous.type is SubscriptionType.KEY_SHARED):
            return
        if by_key:
            self.dispatcher = KeySharedDispatcher(
                previous.cursor,
                self._name.partition,
                waiting_max=self._environment.config.constants.key_shared_waiting_max,
                pending_acks=self._pending_acks(),
            )
        else:
            self.dispatcher = Dispatcher(previous.cursor, self._name.partition)
        self.dispatcher.inherit(previous)
        self._forget_read()

    def close_consumer(
        self, session: CommandSession | None, consumer_id: int, *, vanished: bool
    ) -> None:
        """Detach a consumer, if this conversation has attached it.

        Args:
            vanished: whether it did not leave in order.
        """
        attachment = self._attachments.get(consumer_id)
        if attachment is not None and attachment.session is session:
            self._detach(attachment, vanished=vanished)
            self._tell_active()
            self.wake()

    def is_active(self, consumer_id: int) -> bool:
        """Return whether messages go to this consumer now, in a failover subscription too."""
        active = self.dispatcher.active
        return active is None or active.consumer_id == consumer_id

    def flow(
        self, session: CommandSession | None, consumer_id: int, permits: int, permit_bytes: int
    ) -> None:
        """Give a consumer more permits."""
        attachment = self._attachments.get(consumer_id)
        if attachment is not None and attachment.session is session:
            attachment.consumer.give_permits(permits, permit_bytes)
            self.wake()

    def nack(self, consumer_id: int, ranges: Iterable[Range], redelivery_count: int) -> None:
        """Deliver these messages of a consumer again.

        Args:
            redelivery_count: the count with which its application had them.
        """
        attachment = self._attachments.get(consumer_id)
        if attachment is not None:
            self.dispatcher.nack(attachment.consumer, ranges, redelivery_count)
            self.wake()

    def close_consumers(self, error: MagnetarError | None = None) -> None:
        """Tell all consumers to attach again, or why that will not help."""
        for attachment in list(self._attachments.values()):
            self._tell(attachment, active=False, closed=True, error=error)
            self._detach(attachment)

    def turn_out(self, attachment: Attachment, error: MagnetarError) -> None:
        """Detach a consumer whose client may no longer read, and tell it so."""
        log.warning("%s: a consumer is detached: %s", self._name, error)
        self._tell(attachment, active=False, closed=True, error=error)
        self._detach(attachment)
        self._tell_active()
        self.wake()

    @property
    def consumer_names(self) -> list[str]:
        """Return the names of the attached consumers."""
        return [one.name or str(one.consumer_id) for one in self.dispatcher.consumers]

    def wait(self, waiting: bool) -> None:
        """Deliver nothing (True), or continue (False), and tell the attached consumers."""
        if waiting == self.waiting:
            return
        self.waiting = waiting
        for attachment in self._attachments.values():
            self._tell(attachment, active=True)
        self.wake()

    # Moves of the cursor

    def cursor_moved(self) -> None:
        """Deliver from the cursor's new position, once that is durable; nothing until then."""
        self._forget_read()
        self._epochs_at_move = dict(self._attach_epochs)
        self._moves_under_way += 1
        self._environment.when_durable(self._restart)
        self.close_consumers()

    def _restart(self) -> None:
        self._moves_under_way -= 1
        self._forget_read()
        self.dispatcher.restart()
        self.wake()

    def _forget_read(self) -> None:
        self._generation += 1
        self._read_ahead.clear()

    # Messages

    def wake(self) -> None:
        """Deliver the messages that can be delivered after a change."""
        if not self._pumping and self._next_offset() is not None:
            self._pumping = True
            self._environment.spawn(self._pump())

    async def _pump(self) -> None:
        try:
            while (offset := self._next_offset()) is not None:
                readable_offset = self._log.readable_from(offset)[0]
                if readable_offset > offset:
                    self._skip((offset, readable_offset - 1))
                    self.dispatcher.pass_over(offset, readable_offset - 1)
                    continue
                ahead = self._read_ahead
                while ahead and not ahead[0].first_offset <= offset < ahead[0].end:
                    ahead.popleft()
                if not ahead:
                    generation = self._generation
                    batches = await self._read(offset)
                    if generation != self._generation:
                        continue
                    ahead.extend(batches)
                self._deliver()
                # During a long backlog, other tasks have their turn.
                await asyncio.sleep(0)
        finally:
            self._pumping = False

    async def _read(self, offset: int) -> list[StoredBatch]:
        bytes_max = self._environment.config.constants.dispatch_bytes_max
        try:
            return await self._reader.read(offset, bytes_max=bytes_max)
        except OutOfRange:
            # Retention trimmed the log between the decision and the read.
            self.dispatcher.skip_to(self._log.first_offset)
        except DataLoss as error:
            if self.closed:
                return []
            log.error("%s cannot be delivered from offset %d: %s", self._name, offset, error)
            self.close_consumers(error)
        return []

    def _next_offset(self) -> int | None:
        if self.closed or self.waiting or self._moves_under_way:
            return None
        return self.dispatcher.next_offset(self._log.durable_end)

    def _deliver(self) -> None:
        """Hand out the messages that were read ahead, as far as permits go."""
        deliveries: dict[int, list[tuple[StoredBatch, Assignment]]] = {}
        ahead = self._read_ahead
        while ahead:
            offset = self._next_offset()
            stored = ahead[0]
            if offset is None or not stored.first_offset <= offset < stored.end:
                break
            for assignment in self.dispatcher.hand_out(stored):
                deliveries.setdefault(assignment.consumer.consumer_id, []).append(
                    (stored, assignment)
                )
        for consumer_id, parcels in deliveries.items():
            self._push(consumer_id, parcels)

    def _push(self, consumer_id: int, parcels: list[tuple[StoredBatch, Assignment]]) -> None:
        deliver = wire.CommandDeliver(
            consumer_id=consumer_id,
            topic_id=self._name.topic_id,
            partition=self._name.partition,
            ledger_id=self._log.ledger_id,
        )
        batches = [stored.to_wire(one.excluded, one.redelivery_count) for stored, one in parcels]
        self._attachments[consumer_id].session.push(with_messages(deliver, "batches", batches))
        self._environment.metrics.delivered(
            sum(
                stored.count - sum(last - first + 1 for first, last in one.excluded)
                for stored, one in parcels
            ),
            sum(len(stored.batch) for stored, _ in parcels),
        )

    def _detach(self, attachment: Attachment, *, vanished: bool = True) -> None:
        attachment.session.unlisten(attachment)
        attachment.session.forget(attachment)
        self.dispatcher.detach(attachment.consumer, vanished=vanished)
        del self._attachments[attachment.consumer.consumer_id]

    def _tell_active(self) -> None:
        if self.dispatcher.type is SubscriptionType.FAILOVER:
            for attachment in self._attachments.values():
                self._tell(attachment, active=attachment.consumer is self.dispatcher.active)

    def _tell(
        self,
        attachment: Attachment,
        *,
        active: bool,
        closed: bool = False,
        error: MagnetarError | None = None,
    ) -> None:
        attachment.session.push(
            wire.CommandConsumerChange(
                consumer_id=attachment.consumer.consumer_id,
                topic_id=self._name.topic_id,
                partition=self._name.partition,
                active=active,
                closed=closed,
                waiting=self.waiting,
                error=error.to_wire() if error is not None else None,
            )
        )
