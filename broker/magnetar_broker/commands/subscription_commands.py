"""Commands of consumers: subscribe, flow, ack, nack, seek, close, unsubscribe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from magnetar_broker.dispatch.dispatch import SubscriptionType
from magnetar_broker.environment import Environment
from magnetar_broker.replies import Answers, Replies
from magnetar_broker.subscriptions.subscription import Subscription
from magnetar_broker.topics.partition import Partition
from magnetar_broker.topics.topics import Topics
from magnetar_core.errors import InvalidArgument, UnknownMember
from magnetar_core.history.events import WriteConfirmed
from magnetar_core.ids import MemberName, TxnID
from magnetar_core.server.commands import Handler, Reply, each_of
from magnetar_core.transport.columns.acks import Ack, Acked
from magnetar_core.wire import broker_pb2 as wire
from magnetar_core.wire import common_pb2 as common

# How many ranges a command may have; clients send 10,000 at most.
RANGES_MAX = 100_000


class SubscriptionCommands:
    """Handlers of commands about subscriptions. Source: PIP-31, Broker - Acknowledgements."""

    def __init__(self, environment: Environment, topics: Topics, replies: Replies) -> None:
        self._environment = environment
        self._topics = topics
        self._replies = replies
        self.handlers: Mapping[str, Handler] = {
            "ack": replies.together(self._ack),
            **each_of(
                {
                    "subscribe": self._subscribe,
                    "flow": self._flow,
                    "nack": self._nack,
                    "seek": self._seek,
                    "close_consumer": self._close_consumer,
                    "unsubscribe": self._unsubscribe,
                }
            ),
        }

    def _subscription(self, name: common.Subscription) -> Subscription:
        return self._topics.named(name).subscriptions.get(name.subscription)

    def _subscribe(self, command: wire.CommandSubscribe, reply: Reply) -> None:
        name = command.subscription
        partition = self._topics.named(name)
        try:
            subscription_type = SubscriptionType(command.type)
        except ValueError:
            raise InvalidArgument(f"unknown subscription type {command.type}") from None
        subscription = partition.subscriptions.find(name.subscription)
        if subscription is None:
            partition.subscriptions.refuse_late(
                name.subscription, command.consumer_id, command.attach_epoch
            )
            offset = (
                partition.log.end_offset
                if command.initial_position == wire.LATEST
                else partition.log.first_offset
            )
            subscription = partition.subscriptions.create(name.subscription, offset)
        subscription.note_use()
        if command.consumer_id and subscription.group_ownership is not None:
            subscription.group_ownership.check_attach(_member_of(command))
            subscription_type = SubscriptionType.EXCLUSIVE
        elif command.HasField("member"):
            raise UnknownMember(f"{subscription.name} belongs to no group: join one")
        if command.after_txn_ids and subscription_type is not SubscriptionType.EXCLUSIVE:
            raise InvalidArgument("after_txn_ids is for consumers that have a partition alone")
        if command.consumer_id and reply.session is not None:
            subscription.delivery.attach(
                reply.session,
                command.consumer_id,
                command.consumer_name,
                subscription_type,
                command.attach_epoch,
                reply.complaint,
            )
            subscription.deliver_after(map(TxnID.from_wire, command.after_txn_ids))
        self._replies.answer(
            reply,
            wire.CommandSubscribeResponse(
                ledger_id=partition.ledger_id,
                active=subscription.delivery.is_active(command.consumer_id),
                waiting=subscription.delivery.waiting,
                partition_count=self._partition_count(name),
            ),
        )

    def _flow(self, command: wire.CommandFlow, reply: Reply) -> None:
        subscription = self._subscription(command.subscription)
        subscription.delivery.flow(
            reply.session, command.consumer_id, command.permits, command.permit_bytes
        )

    def _ack(self, command: Ack, reply: Reply, answers: Answers) -> None:
        """Handle CommandAck. Source: PIP-31, Broker - Acknowledgements."""
        partition = self._topics.named(command.subscription)
        subscription = partition.subscriptions.get(command.subscription.subscription)
        _check_ledger(command, partition.ledger_id)
        ranges = _ranges_of(command)
        txn_id = command.txn_id
        cumulative = command.ack_type == wire.CommandAck.CUMULATIVE
        if cumulative:
            _check_cumulative(command, subscription)
        consumer_id, member = command.consumer_id, command.member
        answer = Acked(consumer_id, txn_id)
        metrics, history = self._environment.metrics, self._environment.history
        if txn_id is not None:
            sequence = command.ack_sequence
            subscription.acknowledge_in(
                txn_id,
                consumer_id,
                sequence,
                ranges,
                producer_epoch=command.producer_epoch,
                member=member,
                two_phase_commit=command.is_two_phase_commit,
            )
            answers.durable.add(reply, answer)
            answers.durable.count(metrics.transactional_acks)
            if history is not None:
                confirmed = WriteConfirmed(subscription.name, txn_id, consumer_id, sequence + 1)
                answers.durable.tell(confirmed)
        else:
            # A late copy would acknowledge messages that the seek asked for again.
            if not subscription.delivery.is_before_move(consumer_id, command.attach_epoch):
                subscription.acknowledge(ranges, cumulative=cumulative, member=member)
            answers.written.add(reply, answer)
            answers.written.count(metrics.plain_acks)

    def _nack(self, command: wire.CommandNack, reply: Reply) -> None:
        subscription = self._subscription(command.subscription)
        _check_count(len(command.ranges))
        subscription.delivery.nack(
            command.consumer_id,
            [(one.first, one.last) for one in command.ranges],
            command.redelivery_count,
        )
        self._replies.answer(reply, wire.CommandNackResponse())

    def _seek(self, command: wire.CommandSeek, reply: Reply) -> None:
        partition = self._topics.named(command.subscription)
        subscription = partition.subscriptions.get(command.subscription.subscription)
        self._replies.answer_later(reply, self._seek_to(partition, subscription, command))

    async def _seek_to(
        self, partition: Partition, subscription: Subscription, command: wire.CommandSeek
    ) -> wire.CommandSeekResponse:
        target = command.WhichOneof("target")
        if target == "append_time_ms":
            offset = await partition.reader.first_offset_at_time(command.append_time_ms)
        elif target == "position":
            latest = command.position == wire.LATEST
            offset = partition.log.end_offset if latest else partition.log.first_offset
        else:
            offset = command.offset
        subscription.check_seek(offset, _member_of(command))
        if not command.dry_run:
            subscription.seek(offset)
        return wire.CommandSeekResponse(offset=offset)

    def _close_consumer(self, command: wire.CommandCloseConsumer, reply: Reply) -> None:
        delivery = self._subscription(command.subscription).delivery
        delivery.close_consumer(reply.session, command.consumer_id, vanished=False)
        self._replies.answer(reply, wire.CommandCloseConsumerResponse())

    def _unsubscribe(self, command: wire.CommandUnsubscribe, reply: Reply) -> None:
        name = command.subscription
        self._topics.named(name).subscriptions.delete(name.subscription)
        response = wire.CommandUnsubscribeResponse(partition_count=self._partition_count(name))
        self._replies.answer(reply, response)

    def _partition_count(self, name: common.Subscription) -> int:
        return self._topics.get(name.topic).record.partitions


def _ranges_of(command: Ack) -> Sequence[tuple[int, int]]:
    """Return the ranges of offsets that an ack names.

    Raises:
        InvalidArgument: there are none, or too many.
    """
    _check_count(len(command.ranges) + len(command.message_ids))
    ranges = command.ranges
    if command.message_ids:
        ranges = [*ranges, *[(place.offset, place.offset) for place in command.message_ids]]
    if not ranges:
        raise InvalidArgument("an ack must name message_ids or ranges")
    return ranges


def _check_count(count: int) -> None:
    """Check that a command does not have too many ranges, which would delay all others.

    Raises:
        InvalidArgument: there are too many.
    """
    if count > RANGES_MAX:
        raise InvalidArgument(f"{count} ranges are more than {RANGES_MAX}: use several commands")


def _check_cumulative(command: Ack, subscription: Subscription) -> None:
    """Check a cumulative ack.

    Raises:
        InvalidArgument: it would acknowledge fewer or more messages than it says.
    """
    shared_type = subscription.dispatcher.type
    if shared_type in (SubscriptionType.SHARED, SubscriptionType.KEY_SHARED):
        raise InvalidArgument(
            f"{subscription.name} is {shared_type.name}: what lies below a message may be with"
            " other consumers, so name the messages one by one or in ranges"
        )
    if command.txn_id is not None and command.message_ids:
        raise InvalidArgument(
            "a cumulative ack in a transaction names in ranges the first and the last message: of"
            " a message id it is not known what lies below"
        )


def _member_of(command: wire.CommandSubscribe | wire.CommandSeek) -> MemberName | None:
    """Return the group's member that a command names, if any."""
    return MemberName.from_wire(command.member) if command.HasField("member") else None


def _check_ledger(command: Ack, ledger_id: int) -> None:
    """Refuse message ids of another ledger: its offsets mean nothing in this log."""
    named = {command.ledger_id}
    if command.message_ids:
        named.update([place.ledger_id for place in command.message_ids])
    if not named <= {0, ledger_id}:
        raise InvalidArgument(
            f"the ack names ledger {max(named)}, the log has ledger {ledger_id}: receive again"
        )
