"""The broker's commands: what each checks, what it calls, what it answers.

A handler runs whole, without waiting; its answer leaves when everything applied so far is durable.
The few that read the log answer from a task.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from random import Random
from typing import Any

from magnetar_broker import keys
from magnetar_broker.dispatch import SubscriptionType
from magnetar_broker.environment import Environment
from magnetar_broker.incarnations import Incarnations
from magnetar_broker.offset_set import Range
from magnetar_broker.partition import Accepted, Partition
from magnetar_broker.subscription import Subscription, delivered_batch
from magnetar_broker.topics import Topics
from magnetar_broker.transaction_index import End, Outcome
from magnetar_broker.views import describe_topic, messages_of
from magnetar_core import batch as columnar
from magnetar_core.commands import CommandSession, Handler, Reply
from magnetar_core.errors import (
    ClusterMismatch,
    InvalidArgument,
    InvalidTxnState,
    MagnetarError,
    MessageTooLarge,
)
from magnetar_core.frames import FRAME_BYTES_MAX
from magnetar_core.ids import PartitionName, TxnID
from magnetar_core.wire import broker_pb2 as wire
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import record_pb2 as records
from magnetar_core.wire import service_pb2 as service
from magnetar_core.wire import topic_pb2 as topic_wire
from magnetar_core.wire import transaction_pb2 as txn_wire
from magnetar_storage.disk_reserve import DiskReserve

PROTOCOL_VERSION = 1
READ_MESSAGES_DEFAULT = 1_000
READ_BYTES_DEFAULT = 1 << 20


class BrokerServer:
    """Answers conversations and unary calls; an Acceptor for any transport."""

    def __init__(
        self,
        environment: Environment,
        topics: Topics,
        incarnations: Incarnations,
        disk_reserve: DiskReserve,
        random: Random,
    ) -> None:
        self._environment = environment
        self._topics = topics
        self._incarnations = incarnations
        self._disk_reserve = disk_reserve
        self._random = random
        self.handlers: Mapping[str, Handler] = {
            "hello": self._hello,
            "send": self._send,
            "publish": self._publish,
            "read": self._read,
            "peek": self._peek,
            "subscribe": self._subscribe,
            "flow": self._flow,
            "ack": self._ack,
            "nack": self._nack,
            "seek": self._seek,
            "close_consumer": self._close_consumer,
            "unsubscribe": self._unsubscribe,
            "create_topic": self._create_topic,
            "list_topics": self._list_topics,
            "describe_topic": self._describe_topic,
            "delete_topic": self._delete_topic,
            "lookup": self._lookup,
            "get_cluster_info": self._get_cluster_info,
            "take_incarnation": self._take_incarnation,
            "end_txn_on_partition": self._end_txn_on_partition,
            "end_txn_on_subscription": self._end_txn_on_subscription,
            "low_watermark": self._low_watermark,
        }

    def accept(self, write: Callable[[service.Frame], None]) -> CommandSession:
        return CommandSession(self.handlers, write, self.refuse)

    def refuse(self, error: MagnetarError, reply: Reply) -> None:
        """A refusal, too, leaves when what it depends on is durable (rule a)."""

        def leave() -> None:
            self._environment.metrics.refusals.labels(type(error).__name__).inc()
            reply.fail(error)

        self._environment.when_durable(leave)

    def _answer(self, reply: Reply, body: Any) -> None:
        self._environment.when_durable(lambda: reply.send(body))

    def _answer_later(self, reply: Reply, work: Coroutine[Any, Any, Any]) -> None:
        """The answer is what `work` returns, or the error that it raises."""

        async def run() -> None:
            try:
                self._answer(reply, await work)
            except MagnetarError as error:
                self.refuse(error, reply)

        self._environment.spawn(run())

    def _partition(self, name: common.Partition) -> Partition:
        return self._topics.partition(name.topic, name.partition, name.topic_id)

    def _subscription(self, name: common.Subscription) -> Subscription:
        partition = self._topics.partition(name.topic, name.partition, name.topic_id)
        return partition.subscription(name.subscription)

    # Conversations and the cluster

    def _hello(self, command: common.CommandHello, reply: Reply) -> None:
        config = self._environment.config
        if command.protocol_version != PROTOCOL_VERSION:
            raise ClusterMismatch(
                f"protocol version {command.protocol_version} meets {PROTOCOL_VERSION}: upgrade"
                " the older side"
            )
        if command.cluster_hash and command.cluster_hash != config.cluster_hash:
            raise ClusterMismatch(expected=config.cluster_hash, given=command.cluster_hash)
        if reply.session is not None:
            reply.session.client_name = command.client_name
        self._answer(
            reply,
            common.CommandHelloResponse(
                protocol_version=PROTOCOL_VERSION,
                server_name=config.name,
                cluster_hash=config.cluster_hash,
                frame_bytes_max=FRAME_BYTES_MAX,
            ),
        )

    def _get_cluster_info(self, command: topic_wire.CommandGetClusterInfo, reply: Reply) -> None:
        config = self._environment.config
        info = topic_wire.CommandGetClusterInfoResponse(
            membership_version=config.membership_version,
            cluster_hash=config.cluster_hash,
            brokers=[topic_wire.Member(name=config.name, address=config.address)],
            coordinators=[
                topic_wire.Member(name=one.name, address=one.address, tcid=one.tcid)
                for one in config.coordinators
            ],
            server_version="0.1.0",
        )
        self._answer(reply, info)

    def _take_incarnation(self, command: topic_wire.CommandTakeIncarnation, reply: Reply) -> None:
        taken = self._incarnations.take(command.tcid, command.store_token)
        self._answer(reply, topic_wire.CommandTakeIncarnationResponse(incarnation=taken))

    # Topics

    def _create_topic(self, command: topic_wire.CommandCreateTopic, reply: Reply) -> None:
        self._disk_reserve.check()
        topic = self._topics.create(command)
        self._answer(reply, topic_wire.CommandCreateTopicResponse(topic_id=topic.topic_id))

    def _list_topics(self, command: topic_wire.CommandListTopics, reply: Reply) -> None:
        summaries = [
            topic_wire.TopicSummary(
                topic=topic.name, topic_id=topic.topic_id, partitions=len(topic.partitions)
            )
            for topic in sorted(self._topics.all(), key=lambda one: one.name)
        ]
        self._answer(reply, topic_wire.CommandListTopicsResponse(topics=summaries))

    def _describe_topic(self, command: topic_wire.CommandDescribeTopic, reply: Reply) -> None:
        topic = self._topics.get(command.topic)
        self._answer(reply, describe_topic(topic, self._environment.config.name))

    def _delete_topic(self, command: topic_wire.CommandDeleteTopic, reply: Reply) -> None:
        self._topics.delete(command.topic)
        self._answer(reply, topic_wire.CommandDeleteTopicResponse())

    def _lookup(self, command: topic_wire.CommandLookup, reply: Reply) -> None:
        topic = self._topics.get(command.topic)
        self._answer(
            reply,
            topic_wire.CommandLookupResponse(
                topic_id=topic.topic_id,
                broker_addresses=[self._environment.config.address] * len(topic.partitions),
            ),
        )

    # Sends and reads

    def _send(self, command: wire.CommandSend, reply: Reply) -> None:
        """CommandSend. Source: PIP-31, Broker Request Processing, CommandSend."""
        partition = self._partition(command.partition)
        follows = (
            TxnID.from_wire(command.follows_txn_id) if command.HasField("follows_txn_id") else None
        )
        transactional = command.HasField("txn_id")
        if not transactional and follows is not None and partition.is_open(follows):
            # Rule k: this plain send comes after that transaction, whose end is under way.
            partition.park(follows, lambda: self._retry(self._send, command, reply))
            return
        self._disk_reserve.check()
        batch = command.batch
        limit = self._environment.config.batch_bytes_max
        if len(batch) > limit:
            raise MessageTooLarge(
                f"a batch of {len(batch)} bytes exceeds {limit}", batch_bytes_max=limit
            )
        count = columnar.read_header(batch).count
        if count != command.num_messages:
            raise InvalidArgument(f"num_messages says {command.num_messages}, the batch {count}")
        if transactional:
            accepted = partition.send_in(
                TxnID.from_wire(command.txn_id),
                command.producer_id,
                command.sequence_id,
                count,
                batch,
                follows=follows,
            )
        else:
            accepted = partition.send(command.producer_id, command.sequence_id, count, batch)
        self._answer_send(reply, accepted, count, len(batch), transactional=transactional)

    def _answer_send(
        self, reply: Reply, accepted: Accepted, count: int, size: int, *, transactional: bool
    ) -> None:
        def leave() -> None:
            place = accepted.message_id
            if not accepted.duplicate:
                self._environment.metrics.sent(count, size, transactional=transactional)
            reply.send(
                wire.CommandSendResponse(
                    message_id=place.to_wire() if place is not None else None,
                    duplicate=accepted.duplicate,
                )
            )

        self._environment.when_durable(leave)

    def _retry(self, handler: Handler, command: Any, reply: Reply) -> None:
        try:
            handler(command, reply)
        except MagnetarError as error:
            self.refuse(error, reply)

    def _publish(self, command: wire.CommandPublish, reply: Reply) -> None:
        messages = command.messages
        has_keys = any(message.key for message in messages)
        has_times = any(message.event_time_ms for message in messages)
        has_properties = any(message.properties for message in messages)
        batch = columnar.encode(
            [message.value for message in messages],
            [message.key for message in messages] if has_keys else None,
            event_times_ms=[one.event_time_ms for one in messages] if has_times else None,
            properties=[dict(one.properties) for one in messages] if has_properties else None,
        )
        self._send(
            wire.CommandSend(
                partition=command.partition,
                producer_id=command.producer_id or self._random.getrandbits(63) | 1,
                sequence_id=command.sequence_id,
                num_messages=len(messages),
                txn_id=command.txn_id if command.HasField("txn_id") else None,
                batch=batch,
            ),
            reply,
        )

    def _read(self, command: wire.CommandRead, reply: Reply) -> None:
        partition = self._partition(command.partition)
        self._answer_later(reply, self._read_batches(partition, command))

    async def _read_batches(
        self, partition: Partition, command: wire.CommandRead
    ) -> wire.CommandReadResponse:
        messages_max = command.messages_max or READ_MESSAGES_DEFAULT
        bytes_max = min(command.bytes_max or READ_BYTES_DEFAULT, FRAME_BYTES_MAX // 4)
        start = command.start_offset
        stored = await partition.reader.read(start, bytes_max=bytes_max)
        batches: list[wire.DeliveredBatch] = []
        next_offset = start
        for one in stored:
            if next_offset - start >= messages_max:
                break
            excluded: list[Range] = []
            if start > one.first_offset:
                excluded.append((one.first_offset, start - 1))
            if one.visible_count < one.count:
                excluded.append((one.end, one.first_offset + one.count - 1))
            batches.append(delivered_batch(one, excluded))
            next_offset = one.end
        return wire.CommandReadResponse(
            ledger_id=partition.ledger_id,
            batches=batches,
            next_offset=next_offset,
            end_offset=partition.log.durable_end,
        )

    def _peek(self, command: wire.CommandPeek, reply: Reply) -> None:
        partition = self._partition(command.partition)
        self._answer_later(reply, self._peek_messages(partition, command))

    async def _peek_messages(
        self, partition: Partition, command: wire.CommandPeek
    ) -> wire.CommandPeekResponse:
        messages_max = min(command.messages_max or 10, READ_MESSAGES_DEFAULT)
        read = await self._read_batches(
            partition,
            wire.CommandRead(start_offset=command.start_offset, messages_max=messages_max),
        )
        messages = messages_of(read)[:messages_max]
        next_offset = command.start_offset
        if messages:
            place = messages[-1].message_id
            next_offset = place.entry_id + place.index + 1
        return wire.CommandPeekResponse(
            messages=messages, next_offset=next_offset, end_offset=read.end_offset
        )

    # Subscriptions

    def _subscribe(self, command: wire.CommandSubscribe, reply: Reply) -> None:
        name = command.subscription
        partition = self._topics.partition(name.topic, name.partition, name.topic_id)
        if not name.subscription:
            raise InvalidArgument("a subscription needs a name")
        try:
            subscription_type = SubscriptionType(command.type)
        except ValueError:
            raise InvalidArgument(f"unknown subscription type {command.type}") from None
        subscription = partition.subscriptions.get(name.subscription)
        if subscription is None:
            offset = (
                partition.log.end_offset
                if command.initial_position == wire.LATEST
                else partition.log.first_offset
            )
            subscription = partition.create_subscription(
                name.subscription, self._topics.take_subscription_id(), offset
            )
        if command.consumer_id and reply.session is not None:
            subscription.attach(
                reply.session,
                command.consumer_id,
                command.consumer_name,
                subscription_type,
                command.attach_epoch,
            )
        self._answer(
            reply,
            wire.CommandSubscribeResponse(
                ledger_id=partition.ledger_id, active=subscription.is_active(command.consumer_id)
            ),
        )

    def _flow(self, command: wire.CommandFlow, reply: Reply) -> None:
        subscription = self._subscription(command.subscription)
        subscription.flow(reply.session, command.consumer_id, command.permits)

    def _ack(self, command: wire.CommandAck, reply: Reply) -> None:
        """CommandAck. Source: PIP-31, Broker - Acknowledgements."""
        subscription = self._subscription(command.subscription)
        ranges: list[Range] = [(one.first, one.last) for one in command.ranges]
        for place in command.message_ids:
            offset = place.entry_id + place.index
            ranges.append((offset, offset))
        if not ranges:
            raise InvalidArgument("an ack names message_ids or ranges")
        transactional = command.HasField("txn_id")
        if transactional:
            subscription.acknowledge_in(
                TxnID.from_wire(command.txn_id), command.consumer_id, command.ack_sequence, ranges
            )
        else:
            cumulative = command.ack_type == wire.CommandAck.CUMULATIVE
            subscription.acknowledge(ranges, cumulative=cumulative)
        response = wire.CommandAckResponse(
            consumer_id=command.consumer_id, txn_id=command.txn_id if transactional else None
        )

        def leave() -> None:
            kind = "transactional" if transactional else "plain"
            self._environment.metrics.acks.labels(kind).inc()
            reply.send(response)

        self._environment.when_durable(leave)

    def _nack(self, command: wire.CommandNack, reply: Reply) -> None:
        subscription = self._subscription(command.subscription)
        subscription.nack(command.consumer_id, [(one.first, one.last) for one in command.ranges])
        self._answer(reply, wire.CommandNackResponse())

    def _seek(self, command: wire.CommandSeek, reply: Reply) -> None:
        subscription = self._subscription(command.subscription)
        name = command.subscription
        partition = self._topics.partition(name.topic, name.partition, name.topic_id)
        self._answer_later(reply, self._seek_to(partition, subscription, command))

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
        subscription.seek(offset)
        return wire.CommandSeekResponse(offset=offset)

    def _close_consumer(self, command: wire.CommandCloseConsumer, reply: Reply) -> None:
        self._subscription(command.subscription).close_consumer(reply.session, command.consumer_id)
        self._answer(reply, wire.CommandCloseConsumerResponse())

    def _unsubscribe(self, command: wire.CommandUnsubscribe, reply: Reply) -> None:
        name = command.subscription
        partition = self._topics.partition(name.topic, name.partition, name.topic_id)
        partition.delete_subscription(name.subscription)
        self._answer(reply, wire.CommandUnsubscribeResponse())

    # Ends of transactions

    def _end_txn_on_partition(
        self, command: txn_wire.CommandEndTxnOnPartition, reply: Reply
    ) -> None:
        """Source: PIP-31, Broker Request Processing, CommandEndTxnOnPartition."""
        partition = self._partition(command.partition)
        end = _end_of(command)

        def done() -> None:
            def leave() -> None:
                self._environment.metrics.txn_ends.labels(end.outcome.value).inc()
                reply.send(txn_wire.CommandEndTxnOnPartitionResponse(txn_id=command.txn_id))

            self._environment.when_durable(leave)

        def failed(error: Exception) -> None:
            if not isinstance(error, MagnetarError):
                raise error
            self.refuse(error, reply)

        partition.end(end, done, failed)

    def _end_txn_on_subscription(
        self, command: txn_wire.CommandEndTxnOnSubscription, reply: Reply
    ) -> None:
        """Source: PIP-31, Broker - Acknowledgements, New Acknowledgement State."""
        self._subscription(command.subscription).end(_end_of(command))
        self._answer(reply, txn_wire.CommandEndTxnOnSubscriptionResponse(txn_id=command.txn_id))

    def _low_watermark(self, command: txn_wire.CommandLowWatermark, reply: Reply) -> None:
        """Rule c: the watermark is stored in the batch that forgets what it covers."""
        watermarks = self._environment.watermarks
        known = watermarks.of(command.tcid)
        if command.incarnation < known.incarnation:
            raise InvalidTxnState(
                f"coordinator {command.tcid} has a newer incarnation than {command.incarnation}"
            )
        live = [(one.first, one.last) for one in command.live]
        advanced = known.advanced(command.incarnation, command.low_watermark, live)
        if advanced != known:
            watermarks.set(command.tcid, advanced)
            for partition in self._topics.partitions():
                partition.forget_covered()
        orphans = [
            orphan
            for partition in self._topics.partitions()
            for orphan in _orphans_of(partition)
            if orphan.txn_id.most_bits >> 48 == command.tcid
        ]
        if advanced != known:
            row = records.WatermarkRow(
                incarnation=advanced.incarnation,
                low_watermark=advanced.low_watermark,
                live=[txn_wire.TxnRange(first=first, last=last) for first, last in advanced.live],
                orphans=sorted({one.txn_id.least_bits for one in orphans}),
            )
            self._environment.commits.batch.put(
                keys.META, keys.watermark(command.tcid), row.SerializeToString()
            )
        self._answer(reply, txn_wire.CommandLowWatermarkResponse(orphans=orphans))


def _end_of(
    command: txn_wire.CommandEndTxnOnPartition | txn_wire.CommandEndTxnOnSubscription,
) -> End:
    committed = command.txn_action == common.COMMIT
    return End(
        txn_id=TxnID.from_wire(command.txn_id),
        outcome=Outcome.COMMITTED if committed else Outcome.ABORTED,
        counts=(
            {one.writer_id: one.count for one in command.counts} if command.counts_given else None
        ),
        selection=(frozenset(command.selected_writer_ids) if command.selection_given else None),
        loss_accepted=command.loss_accepted,
    )


def _orphans_of(partition: Partition) -> list[txn_wire.OrphanedParticipant]:
    name: PartitionName = partition.name
    found = [
        txn_wire.OrphanedParticipant(txn_id=txn_id.to_wire(), partition=name.to_wire())
        for txn_id in partition.index.orphans()
    ]
    for subscription in partition.subscriptions.values():
        found += [
            txn_wire.OrphanedParticipant(
                txn_id=txn_id.to_wire(),
                partition=name.to_wire(),
                subscription=subscription.name.subscription,
            )
            for txn_id in subscription.index.orphans()
        ]
    return found
