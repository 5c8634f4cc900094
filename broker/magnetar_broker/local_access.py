"""Local access: what a listener for another protocol, in the broker's process, may ask of it.

Appends, reads and topics need no more than this. Whatever is appended or refused may be told only
when it is durable: settle() says when that is.
Source: docs/design/0024-kafka.md.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple

from prometheus_client import Counter

from magnetar_broker import keys
from magnetar_broker.commands.service import BrokerServer
from magnetar_broker.coordinators.unannounced import WAIT_SECONDS
from magnetar_broker.environment import Environment
from magnetar_broker.groups.group_offsets import GroupOffsets
from magnetar_broker.groups.groups import Groups
from magnetar_broker.recovery import pages
from magnetar_broker.topics.deletions import delete_before
from magnetar_broker.topics.partition import Partition
from magnetar_broker.topics.topics import Topic, Topics
from magnetar_broker.transactions.producers import client_pair, wrapped
from magnetar_broker.transactions.sender import Sender
from magnetar_core import batch as columnar
from magnetar_core.access.principal import ANONYMOUS, Principal
from magnetar_core.errors import DataLoss, LogUnavailable, MagnetarError, OutOfRange, from_wire
from magnetar_core.history.events import Event, PlainConfirmed, WriteConfirmed
from magnetar_core.ids import NO_EPOCH, TxnID
from magnetar_core.server.commands import Gate, Reply, run_handler
from magnetar_core.wire import common_pb2
from magnetar_core.wire import record_pb2 as records
from magnetar_core.wire import topic_pb2 as topic_wire
from magnetar_storage.store import RowsUnreadable, end_of_prefix


class OpenProducer(NamedTuple):
    """A producer of Kafka on a partition, or one with an open transaction there.

    Attributes:
        start_offset: where the log ended when its transaction began here; -1: none is open.
        txn_id: its open transaction.
        txn_epoch: the epoch that the transaction has here.
    """

    producer_id: int
    epoch: int
    last_sequence: int
    last_time_ms: int
    start_offset: int = -1
    txn_id: TxnID | None = None
    txn_epoch: int = NO_EPOCH


class LocalAccess:
    """A broker, for a listener in its process.

    Attributes:
        offsets: those that groups of Kafka's clients have committed.
    """

    def __init__(
        self,
        environment: Environment,
        topics: Topics,
        groups: Groups,
        offsets: GroupOffsets,
        server: BrokerServer,
    ) -> None:
        self._environment = environment
        self._topics = topics
        self._groups = groups
        self.offsets = offsets
        self._server = server
        # What was appended since the counters were set last.
        self._counts: defaultdict[Counter, int] = defaultdict(int)
        config = environment.config
        self.shard = config.shard
        self.cluster_id = config.cluster_id
        self.batch_bytes_max = config.batch_bytes_max
        self.batch_body_bytes_max = config.batch_body_bytes_max
        self.batch_messages_max = config.constants.batch_messages_max
        self.shards = max(1, len(config.brokers))
        self.groups_max = config.groups_max
        self.group_members_max = config.group_members_max
        self.session_timeout_ms_min = config.constants.group_session_timeout_ms_min
        self.session_timeout_ms_max = config.group_session_timeout_ms_max
        self.rebalance_timeout_ms_max = config.group_rebalance_timeout_ms_max

    @property
    def may_serve(self) -> bool:
        """Whether its store is known to be the right one: see the module guards."""
        return self._server.may_serve

    # Topics

    def topics(self) -> list[Topic]:
        """Return all topics."""
        return self._topics.all()

    def topic(self, name: str) -> Topic:
        """Return a topic.

        Raises:
            TopicNotFound: no topic has the name.
            LogUnavailable: the topic may be too new to be known here.
        """
        return self._topics.get(name)

    def topic_of_id(self, topic_id: int) -> topic_wire.TopicRecord | None:
        """Return the topic that has the id, or None."""
        return self._topics.by_id.get(topic_id)

    def partition(self, name: str, number: int) -> Partition:
        """Return a partition that this broker keeps.

        Raises:
            PartitionMoved: another broker keeps it.
            TopicNotFound: there is none.
            LogUnavailable: as topic().
        """
        return self._topics.partition(name, number, 0)

    async def ask(
        self,
        name: str,
        command: Any,
        *,
        origin: str,
        principal: Principal = ANONYMOUS,
        gate: Gate | None = None,
    ) -> Any:
        """Return the answer to a command, as a client gets it.

        Args:
            name: the command's field in the envelope.
            origin: the client's machine.
            principal: who asks.
            gate: access control, which the command passes first.
        Raises:
            MagnetarError: the command is refused.
        """
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def respond(body: Any) -> None:
            if not answer.done():
                answer.set_result(body)

        reply = Reply(respond, None, origin, principal=principal)
        run_handler(self._handlers, name, [(command, reply)], self._server.refuse, gate)
        body = await answer
        if isinstance(body, common_pb2.ServerError):
            raise from_wire(body)
        return body

    @property
    def _handlers(self) -> Mapping[str, Any]:
        return self._server.handlers

    # Appends

    def append_records(
        self, partition: Partition, records: bytes, count: int, max_timestamp_ms: int
    ) -> int:
        """Append a RecordBatch that was checked; return its offset.

        Args:
            max_timestamp_ms: the highest timestamp of its records.
        Raises:
            DiskFull: the disk's reserve is reached.
        """
        batch = columnar.wrapped_records(records, count)
        offset = partition.send_without_sequence(count, batch)
        partition.note_timestamp(max_timestamp_ms)
        self._count(count, len(batch))
        return offset

    def append_in_sequence(
        self,
        partition: Partition,
        records: bytes,
        count: int,
        max_timestamp_ms: int,
        *,
        producer_id: int,
        producer_epoch: int,
        sequence: int,
    ) -> tuple[int | None, Event]:
        """Append a RecordBatch of an idempotent producer, unless it is a repeat.

        Returns:
            The offset of its first message, None if that of a repeat is forgotten; and the event
            of the answer, for tell().
        Raises:
            ProducerFenced: a later epoch of the producer is known.
            SequenceGap: earlier messages are missing.
            InvalidArgument: it was accepted in part before.
            DiskFull: the disk's reserve is reached.
        """
        batch = columnar.wrapped_records(records, count)
        offset, is_new, key, sequence_id = partition.send_in_epoch(
            producer_id, producer_epoch, sequence, count, batch
        )
        if is_new:
            partition.note_timestamp(max_timestamp_ms)
            self._count(count, len(batch))
        known = -1 if offset is None else offset
        confirmed = PlainConfirmed(partition.name, key, sequence_id, count, known, is_late=True)
        return offset, confirmed

    def append_in_transaction(
        self,
        partition: Partition,
        records: bytes,
        count: int,
        max_timestamp_ms: int,
        *,
        txn_id: TxnID,
        producer_id: int,
        producer_epoch: int,
        sequence: int,
        sender: Sender,
    ) -> Event:
        """Store a RecordBatch of a transactional producer, unless it is a repeat.

        Returns:
            The event of the answer, for tell(). It may be told when it is durable, not late.
        Raises:
            MagnetarError: as Partition.send_of_kafka.
        """
        batch = columnar.wrapped_records(records, count)
        is_new, place = partition.send_of_kafka(
            txn_id, producer_id, producer_epoch, sequence, count, batch, sender=sender
        )
        if is_new:
            partition.note_timestamp(max_timestamp_ms)
            self._count(count, len(batch), transactional=True)
        return WriteConfirmed(partition.name, txn_id, producer_id, place + count)

    async def announced(self, txn_id: TxnID) -> None:
        """Wait a moment until a coordinator has announced a TxnID that it gave out.

        The announcement has left before the TxnID, but on another connection.
        """
        issued, news = self._environment.issued, asyncio.Event()
        forget = issued.when_announced(news.set)
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                while not self._is_announced(txn_id):
                    news.clear()
                    await news.wait()
        except TimeoutError:
            return
        finally:
            forget()

    def _is_announced(self, txn_id: TxnID) -> bool:
        try:
            self._environment.issued.check(txn_id)
        except LogUnavailable:
            return False
        except MagnetarError:
            # It never will be: the append says so.
            return True
        return True

    def _count(self, messages: int, byte_count: int, *, transactional: bool = False) -> None:
        if not self._counts:
            self._environment.when_written(self._leave_counts)
        metrics = self._environment.metrics
        counter = metrics.transactional_in if transactional else metrics.plain_in
        self._counts[counter] += messages
        self._counts[metrics.bytes_in] += byte_count

    def _leave_counts(self) -> None:
        counts, self._counts = self._counts, defaultdict(int)
        for counter, amount in counts.items():
            counter.inc(amount)

    async def delete_before(self, partition: Partition, offset: int) -> None:
        """Delete the messages of a partition before an offset.

        Raises:
            OutOfRange: the offset lies beyond the end.
            DataLoss: they cannot be read.
        """
        log = partition.log
        if offset > log.durable_end:
            raise OutOfRange(
                f"offset {offset} lies beyond the end of {partition.name}, {log.durable_end}",
                first_offset=log.first_offset,
                end_offset=log.durable_end,
            )
        try:
            await delete_before(self._environment, partition, offset)
        except RowsUnreadable as error:
            raise DataLoss(f"messages of {partition.name} cannot be read: {error}") from error

    def producers(self, partition: Partition) -> list[OpenProducer]:
        """Return the producers of a partition, with their open transactions."""
        found: dict[int, OpenProducer] = {}
        for known, producer in partition.producers.all():
            producer_id, epoch = client_pair(known, producer)
            found[producer_id] = OpenProducer(
                producer_id, epoch, wrapped(producer.next_sequence_id - 1), producer.last_time_ms
            )
        for transaction in partition.index.open.values():
            for writer in transaction.writers.values():
                plain = found.get(writer.writer_id)
                found[writer.writer_id] = OpenProducer(
                    writer.writer_id,
                    plain.epoch if plain is not None else transaction.producer_epoch,
                    plain.last_sequence if plain is not None else wrapped(writer.next_index - 1),
                    plain.last_time_ms if plain is not None else transaction.start_time_ms,
                    transaction.start_offset,
                    transaction.txn_id,
                    transaction.producer_epoch,
                )
        return list(found.values())

    # Groups of Kafka's clients: what is stored of them, and what limits them

    def partitions(self) -> Iterable[Partition]:
        """Return the partitions that this broker keeps."""
        return self._topics.partitions()

    async def stored_groups(self) -> list[tuple[str, records.KafkaGroupRow]]:
        """Return the groups whose rows put_group() has stored."""
        prefix = keys.META_KAFKA_GROUP
        found: list[tuple[str, records.KafkaGroupRow]] = []
        async for rows in pages(self._environment.store, keys.META, prefix, end_of_prefix(prefix)):
            for key, value in rows:
                name = key.removeprefix(prefix).decode()
                found.append((name, records.KafkaGroupRow.FromString(value)))
        return found

    def put_group(self, name: str, row: records.KafkaGroupRow | None) -> None:
        """Store a group; None: delete its row. settle() says when it is durable."""
        batch = self._environment.commits.batch
        if row is None:
            batch.delete(keys.META, keys.kafka_group(name))
        else:
            batch.put(keys.META, keys.kafka_group(name), row.SerializeToString())

    def has_members_of_ours(self, group: str) -> bool:
        """Return whether a group of our clients has the name, and members here."""
        return any(one.name == group and one.members for one in self._groups.all())

    def let_ask_kafka_members(self, kafka_members: Callable[[str], Awaitable[int]]) -> None:
        """Let our groups ask how many clients of Kafka are members of a group.

        Args:
            kafka_members: may raise LogUnavailable.
        """
        self._groups.kafka_members = kafka_members

    @property
    def run_time_ms(self) -> int:
        """The time that the broker has been running, in all its lives, in milliseconds."""
        return self._environment.run_time.now_ms()

    # Answers

    def settle(self, callback: Callable[[], None], *, late: bool) -> None:
        """Call back when everything applied so far may be told.

        Args:
            late: only plain appends are told, which need to outlive the process, and not more.
        """
        if late:
            self._environment.when_written(callback)
        else:
            self._environment.when_durable(callback)

    def tell(self, event: Event) -> None:
        """Note in the history, if there is one, that an answer leaves."""
        if self._environment.history is not None:
            self._environment.history.note(event)
