"""A whole cluster in memory, behind the transport's seam: answers frames, breaks on command."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from random import Random
from typing import Any, TypeVar

from tests import virtual_time
from tests.client.fake_groups import FakeGroups
from tests.fake_link import FakeLink, FakeTransport
from tests.playbook import Playbook
from tests.virtual_loop import VirtualClock

import magnetar
from magnetar.testing.envelope import command
from magnetar_core.batch import decode, encode
from magnetar_core.errors import (
    InvalidTxnState,
    MagnetarError,
    ProducerFenced,
    ResourceInUse,
    SequenceGap,
    TopicExists,
    TopicNotFound,
    TransactionConflict,
    TxnNotFound,
)
from magnetar_core.ids import TxnID
from magnetar_core.protocol_version import PROTOCOL_VERSION
from magnetar_core.wire import broker_pb2, common_pb2, topic_pb2, transaction_pb2

T = TypeVar("T")

BROKER_ADDRESS = "broker:1"
COORDINATOR_ADDRESS = "coordinator:1"
TCID = 7


class Partition:
    def __init__(self) -> None:
        # (value, key, txn_id) by offset; batches as (first offset, count, bytes, txn_id).
        self.messages: list[bytes] = []
        self.batches: list[tuple[int, int, bytes, TxnID | None]] = []
        self.sequences: dict[int, int] = {}
        self.replies: dict[tuple[Any, ...], int] = {}
        self.pending: dict[tuple[TxnID, int], list[tuple[int, bytes]]] = {}
        self.ended: dict[TxnID, bool] = {}

    def append(self, batch: bytes, txn_id: TxnID | None = None) -> int:
        columns = decode(batch)
        first = len(self.messages)
        self.messages += [value or b"" for value in columns.values_or_none()]
        self.batches.append((first, columns.count, batch, txn_id))
        return first


class Attachment:
    def __init__(self, link: FakeLink) -> None:
        self.link = link
        self.permits = 0
        self.sent: dict[int, None] = {}


class Cursor:
    def __init__(self, offset: int) -> None:
        self.start = offset
        self.acked: set[int] = set()
        self.pending: dict[int, TxnID] = {}
        self.ack_sequences: dict[TxnID, int] = {}
        self.attached: dict[int, Attachment] = {}
        self.attach_epochs: dict[int, int] = {}
        self.redelivered: dict[int, int] = {}


class FakeCluster(FakeGroups):
    """One broker, and one coordinator or several.

    Attributes:
        coordinators: TCIDs by address.
        play: what a test says about the commands that come.
        net: the links, which a test breaks.
    """

    def __init__(self) -> None:
        super().__init__()
        # Of transactional ids: how often they were taken over, and what is open.
        self.epochs: dict[str, int] = {}
        self.open_of: dict[str, TxnID] = {}
        self.topics: dict[str, tuple[int, list[Partition]]] = {}
        self.cursors: dict[tuple[str, str, int], Cursor] = {}
        self.transactions: dict[TxnID, dict[str, Any]] = {}
        self.coordinators: dict[str, int] = {COORDINATOR_ADDRESS: TCID}
        self.frame_bytes_max = 1 << 20
        # What of that which a transaction's send follows has ended on the broker.
        self.settled: list[TxnID] = []
        # Whether the servers want the proofs back that they give with TxnIDs.
        self.gives_proofs = True
        self.hello_count = 0
        self.play = Playbook(self.handle, self.dispatch)
        self.net = FakeTransport(
            self.play,
            lambda address, service: (address in self.coordinators) != (service == "Broker"),
        )
        self.protocol_version = PROTOCOL_VERSION

    def topic(self, name: str, partitions: int = 1) -> list[Partition]:
        self.topics[name] = (len(self.topics) + 1, [Partition() for _ in range(partitions)])
        return self.topics[name][1]

    def publish(self, topic: str, values: Iterable[bytes], partition: int = 0) -> None:
        self.topics[topic][1][partition].append(encode(list(values)))
        self.dispatch()

    def transport(self) -> FakeTransport:
        return self.net

    def handle(self, link: FakeLink, name: str, body: Any) -> Any:
        """Answer as a cluster does."""
        return getattr(self, f"on_{name}")(link, body)

    # Commands.

    def on_hello(self, link: FakeLink, body: Any) -> Any:
        self.hello_count += 1
        return common_pb2.CommandHelloResponse(
            protocol_version=self.protocol_version,
            cluster_hash="hash",
            frame_bytes_max=self.frame_bytes_max,
            batch_bytes_max=self.frame_bytes_max // 2,
        )

    def on_get_cluster_info(self, link: FakeLink, body: Any) -> Any:
        return topic_pb2.CommandGetClusterInfoResponse(
            cluster_hash="hash",
            brokers=[topic_pb2.Member(name="b", address=BROKER_ADDRESS)],
            coordinators=[
                topic_pb2.Member(name=f"c-{tcid}", address=address, tcid=tcid)
                for address, tcid in self.coordinators.items()
            ],
        )

    def on_create_topic(self, link: FakeLink, body: Any) -> Any:
        if body.topic in self.topics:
            raise TopicExists()
        self.topic(body.topic, body.partitions or 1)
        return topic_pb2.CommandCreateTopicResponse(topic_id=self.topics[body.topic][0])

    def on_list_topics(self, link: FakeLink, body: Any) -> Any:
        return topic_pb2.CommandListTopicsResponse(
            topics=[
                topic_pb2.TopicSummary(topic=name, topic_id=topic_id, partitions=len(partitions))
                for name, (topic_id, partitions) in self.topics.items()
            ]
        )

    def on_describe_topic(self, link: FakeLink, body: Any) -> Any:
        topic_id, partitions = self.find(body.topic)
        return topic_pb2.CommandDescribeTopicResponse(
            topic=body.topic,
            topic_id=topic_id,
            partitions=[
                topic_pb2.PartitionDescription(
                    partition=number,
                    end_offset=len(one.messages),
                    open_txns=[key[0].to_wire() for key in one.pending],
                )
                for number, one in enumerate(partitions)
            ],
        )

    def on_delete_topic(self, link: FakeLink, body: Any) -> Any:
        _, partitions = self.find(body.topic)
        if any(partition.pending for partition in partitions):
            raise ResourceInUse()
        del self.topics[body.topic]
        return topic_pb2.CommandDeleteTopicResponse()

    def on_lookup(self, link: FakeLink, body: Any) -> Any:
        topic_id, partitions = self.find(body.topic)
        return topic_pb2.CommandLookupResponse(
            topic_id=topic_id, broker_addresses=[BROKER_ADDRESS] * len(partitions)
        )

    def find(self, topic: str) -> tuple[int, list[Partition]]:
        if topic not in self.topics:
            raise TopicNotFound()
        return self.topics[topic]

    def on_send(self, link: FakeLink, body: Any) -> Any:
        partition = self.find(body.partition.topic)[1][body.partition.partition]
        if not body.HasField("txn_id"):
            key: tuple[Any, ...] = (body.producer_id, body.sequence_id)
            expected = partition.sequences.get(body.producer_id, 0)
            if body.sequence_id > expected:
                raise SequenceGap()
            if body.sequence_id == expected:
                partition.sequences[body.producer_id] = expected + body.num_messages
                partition.replies[key] = partition.append(body.batch)
            return broker_pb2.CommandSendResponse(
                message_id=common_pb2.MessageIdData(ledger_id=1, entry_id=partition.replies[key]),
                duplicate=body.sequence_id < expected,
            )
        txn_id = TxnID.from_wire(body.txn_id)
        assert body.txn_proof == self.proof_of(txn_id)
        if txn_id in partition.ended:
            raise InvalidTxnState()
        batches = partition.pending.setdefault((txn_id, body.producer_id), [])
        expected = sum(count for count, _ in batches)
        if body.sequence_id > expected:
            raise SequenceGap()
        if body.sequence_id == expected:
            batches.append((body.num_messages, body.batch))
        named = list(body.follows_txn_ids)
        settled = [one for one in named if TxnID.from_wire(one) in self.settled]
        all_settled = bool(named) and settled == named
        return broker_pb2.CommandSendResponse(
            message_id=common_pb2.MessageIdData(index=body.sequence_id),
            settled_txn_ids=[] if all_settled else settled,
            all_settled=all_settled,
        )

    def on_read(self, link: FakeLink, body: Any) -> Any:
        partition = self.find(body.partition.topic)[1][body.partition.partition]
        batches = [batch for batch in partition.batches if batch[0] + batch[1] > body.start_offset][
            :2
        ]
        end = len(partition.messages)
        return broker_pb2.CommandReadResponse(
            ledger_id=1,
            batches=[deliverable(batch, range(0)) for batch in batches],
            next_offset=batches[-1][0] + batches[-1][1] if batches else end,
            end_offset=end,
        )

    def cursor(self, wire: Any) -> Cursor:
        return self.cursors[wire.topic, wire.subscription, wire.partition]

    def on_subscribe(self, link: FakeLink, body: Any) -> Any:
        wire = body.subscription
        partition = self.find(wire.topic)[1][wire.partition]
        self.fence(body)
        key = (wire.topic, wire.subscription, wire.partition)
        if key not in self.cursors:
            earliest = body.initial_position == broker_pb2.EARLIEST
            self.cursors[key] = Cursor(0 if earliest else len(partition.messages))
        if body.consumer_id:
            epochs = self.cursors[key].attach_epochs
            earlier = self.cursors[key].attached.get(body.consumer_id)
            is_repeated = earlier is not None and earlier.link is link
            if not is_repeated or body.attach_epoch != epochs[body.consumer_id]:
                assert body.attach_epoch > epochs.get(body.consumer_id, 0)
                epochs[body.consumer_id] = body.attach_epoch
                self.detach(self.cursors[key], body.consumer_id)
                self.cursors[key].attached[body.consumer_id] = Attachment(link)
        return broker_pb2.CommandSubscribeResponse(
            ledger_id=1, active=True, waiting=self.is_waiting(wire)
        )

    def on_flow(self, link: FakeLink, body: Any) -> Any:
        attachment = self.cursor(body.subscription).attached.get(body.consumer_id)
        if attachment is not None and attachment.link is link:
            attachment.permits += body.permits

    def on_ack(self, link: FakeLink, body: Any) -> Any:
        cursor = self.cursor(body.subscription)
        self.fence(body)
        offsets = [o for one in body.ranges for o in range(one.first, one.last + 1)]
        if not body.HasField("txn_id"):
            cursor.acked.update(o for o in offsets if o not in cursor.pending)
            return broker_pb2.CommandAckResponse(consumer_id=body.consumer_id)
        txn_id = TxnID.from_wire(body.txn_id)
        assert body.txn_proof == self.proof_of(txn_id)
        if self.transactions[txn_id]["status"] != common_pb2.OPEN:
            raise InvalidTxnState()
        expected = cursor.ack_sequences.get(txn_id, 0)
        if body.ack_sequence > expected:
            raise SequenceGap()
        if body.ack_sequence == expected:
            for offset in offsets:
                if offset in cursor.acked or cursor.pending.get(offset, txn_id) != txn_id:
                    raise TransactionConflict()
            cursor.pending.update(dict.fromkeys(offsets, txn_id))
            cursor.ack_sequences[txn_id] = expected + 1
        return broker_pb2.CommandAckResponse(consumer_id=body.consumer_id)

    def on_nack(self, link: FakeLink, body: Any) -> Any:
        cursor = self.cursor(body.subscription)
        attachment = cursor.attached.get(body.consumer_id)
        for one in body.ranges:
            for offset in range(one.first, one.last + 1):
                if attachment is not None and offset in attachment.sent:
                    del attachment.sent[offset]
                    count = cursor.redelivered.get(offset, 0)
                    if count <= body.redelivery_count:
                        cursor.redelivered[offset] = count + 1
        return broker_pb2.CommandNackResponse()

    def on_seek(self, link: FakeLink, body: Any) -> Any:
        cursor = self.cursor(body.subscription)
        self.fence(body)
        if cursor.pending:
            raise ResourceInUse()
        cursor.start, cursor.acked = body.offset, set()
        self.close_attached(cursor, body.subscription.partition)
        return broker_pb2.CommandSeekResponse(offset=body.offset)

    def close_consumers(self, error: MagnetarError) -> None:
        for (_, _, number), cursor in self.cursors.items():
            self.close_attached(cursor, number, error)

    def close_attached(
        self, cursor: Cursor, partition: int, error: MagnetarError | None = None
    ) -> None:
        for consumer_id, attachment in list(cursor.attached.items()):
            del cursor.attached[consumer_id]
            attachment.link.push(
                command(
                    broker_pb2.CommandConsumerChange(
                        consumer_id=consumer_id,
                        partition=partition,
                        closed=True,
                        error=error.to_wire() if error is not None else None,
                    )
                )
            )

    def on_close_consumer(self, link: FakeLink, body: Any) -> Any:
        self.detach(self.cursor(body.subscription), body.consumer_id)
        return broker_pb2.CommandCloseConsumerResponse()

    def detach(self, cursor: Cursor, consumer_id: int) -> None:
        cursor.attached.pop(consumer_id, None)

    def dispatch(self) -> None:
        for (topic, name, number), cursor in self.cursors.items():
            if topic not in self.topics:
                continue
            for consumer_id, attachment in list(cursor.attached.items()):
                if attachment.link.closed:
                    self.detach(cursor, consumer_id)
                    continue
                taken = {o for one in cursor.attached.values() for o in one.sent}
                taken |= cursor.acked | set(cursor.pending)
                if self.groups.get(name) and (topic, number) in self.groups[name].waiting:
                    continue
                for batch in self.topics[topic][1][number].batches:
                    first, count = batch[:2]
                    wanted = [
                        o
                        for o in range(first, first + count)
                        if o >= cursor.start and o not in taken
                    ]
                    if not wanted or attachment.permits <= 0:
                        continue
                    attachment.permits -= len(wanted)
                    attachment.sent.update(dict.fromkeys(wanted))
                    excluded = [o for o in range(first, first + count) if o not in wanted]
                    wire = deliverable(batch, excluded)
                    wire.redelivery_count = max(cursor.redelivered.get(o, 0) for o in wanted)
                    attachment.link.push(
                        command(
                            broker_pb2.CommandDeliver(
                                consumer_id=consumer_id,
                                partition=number,
                                ledger_id=1,
                                batches=[wire],
                            )
                        )
                    )

    def on_init_producer(self, link: FakeLink, body: Any) -> Any:
        name = body.transactional_id
        latest = self.open_of.pop(name, None)
        if latest is not None and self.transactions[latest]["status"] == common_pb2.OPEN:
            self.end(latest, commit=False)
        self.epochs[name] = self.epochs.get(name, -1) + 1
        return transaction_pb2.CommandInitProducerResponse(
            producer_id=1, producer_epoch=self.epochs[name]
        )

    def on_describe_transactional_id(self, link: FakeLink, body: Any) -> Any:
        return transaction_pb2.CommandDescribeTransactionalIdResponse()

    def check_store_identity(self, body: Any) -> None:
        one = body.identity
        if body.HasField("identity") and one.producer_epoch < self.epochs[one.transactional_id]:
            raise ProducerFenced()

    def on_new_txn(self, link: FakeLink, body: Any) -> Any:
        self.check_store_identity(body)
        tcid = self.coordinators[link.address]
        txn_id = TxnID.of(tcid, 1, len(self.transactions) + 1)
        self.transactions[txn_id] = {"status": common_pb2.OPEN, "participants": {}}
        timeout_ms = body.txn_timeout_ms
        if body.HasField("identity"):
            self.transactions[txn_id]["identity"] = body.identity
            self.open_of[body.identity.transactional_id] = txn_id
            # An id that starts so is of two-phase commit.
            timeout_ms = 0 if body.identity.transactional_id.startswith("2pc") else 60_000
        return transaction_pb2.CommandNewTxnResponse(
            txn_id=txn_id.to_wire(), txn_timeout_ms=timeout_ms, txn_proof=self.proof_of(txn_id)
        )

    def proof_of(self, txn_id: TxnID) -> bytes:
        return f"proof of {txn_id}".encode() if self.gives_proofs else b""

    def live(self, wire: Any) -> dict[str, Any]:
        found = self.transactions.get(TxnID.from_wire(wire))
        if found is None:
            raise TxnNotFound()
        return found

    def on_add_partition_to_txn(self, link: FakeLink, body: Any) -> Any:
        txn = self.live(body.txn_id)
        if txn["status"] != common_pb2.OPEN:
            raise InvalidTxnState()
        for one in body.partitions:
            txn["participants"]["partition", one.topic, one.partition] = None
        return transaction_pb2.CommandAddPartitionToTxnResponse(txn_id=body.txn_id)

    def on_add_subscription_to_txn(self, link: FakeLink, body: Any) -> Any:
        txn = self.live(body.txn_id)
        if txn["status"] != common_pb2.OPEN:
            raise InvalidTxnState()
        for one in body.subscriptions:
            key = ("subscription", one.topic, one.partition, one.subscription)
            txn["participants"][key] = None
        return transaction_pb2.CommandAddSubscriptionToTxnResponse(txn_id=body.txn_id)

    def on_end_txn(self, link: FakeLink, body: Any) -> Any:
        self.check_store_identity(body)
        txn = self.live(body.txn_id)
        commit = body.txn_action == common_pb2.COMMIT
        status = common_pb2.COMMITTED if commit else common_pb2.ABORTED
        if txn["status"] not in (common_pb2.OPEN, status):
            raise InvalidTxnState()
        if txn["status"] == common_pb2.OPEN:
            self.end(TxnID.from_wire(body.txn_id), commit=commit)
        return transaction_pb2.CommandEndTxnResponse(txn_id=body.txn_id, status=status)

    def end(self, txn_id: TxnID, *, commit: bool) -> None:
        """End a transaction everywhere at once."""
        status = common_pb2.COMMITTED if commit else common_pb2.ABORTED
        self.transactions[txn_id]["status"] = status
        for _, partitions in self.topics.values():
            for partition in partitions:
                partition.ended[txn_id] = commit
                for key in [key for key in partition.pending if key[0] == txn_id]:
                    for _, batch in partition.pending.pop(key):
                        if commit:
                            partition.append(batch, txn_id)
        for cursor in self.cursors.values():
            for offset in [o for o, one in cursor.pending.items() if one == txn_id]:
                del cursor.pending[offset]
                if commit:
                    cursor.acked.add(offset)
                else:
                    for attachment in cursor.attached.values():
                        attachment.sent.pop(offset, None)
                    cursor.redelivered[offset] = cursor.redelivered.get(offset, 0) + 1

    def on_describe_txn(self, link: FakeLink, body: Any) -> Any:
        found = self.live(body.txn_id)
        return transaction_pb2.CommandDescribeTxnResponse(
            transaction=transaction_pb2.TransactionDescription(
                txn_id=body.txn_id,
                status=found["status"],
                identity=found.get("identity"),
                **found.get("described", {}),
            )
        )

    def on_list_txns(self, link: FakeLink, body: Any) -> Any:
        listed = [
            transaction_pb2.TransactionDescription(
                txn_id=txn_id.to_wire(),
                status=txn["status"],
                age_ms=len(self.transactions) - number,
                ended_at_ms=int(txn["status"] in ENDED),
            )
            for number, (txn_id, txn) in enumerate(self.transactions.items())
            if txn_id.tcid == self.coordinators[link.address]
            and (
                txn["status"] in body.statuses or (not body.statuses and txn["status"] not in ENDED)
            )
        ]
        return transaction_pb2.CommandListTxnsResponse(
            transactions=listed[: body.limit], truncated=len(listed) > body.limit
        )


ENDED = (common_pb2.COMMITTED, common_pb2.ABORTED)


def deliverable(
    batch: tuple[int, int, bytes, TxnID | None], excluded: Iterable[int]
) -> broker_pb2.DeliveredBatch:
    first, count, data, txn_id = batch
    return broker_pb2.DeliveredBatch(
        entry_id=first,
        num_messages=count,
        batch=data,
        excluded=[common_pb2.OffsetRange(first=one, last=one) for one in excluded],
        txn_id=None if txn_id is None else txn_id.to_wire(),
    )


FAST = magnetar.ClientConfig(
    request_timeout_ms=2_000,
    operation_timeout_ms=2_000,
    send_timeout_ms=2_000,
    commit_timeout_ms=2_000,
    abort_timeout_ms=500,
    abort_drain_ms=50,
    close_timeout_ms=500,
    backoff_ms_min=1,
    backoff_ms_max=4,
)
# For a test in real time: a pause of the machine, or of a collection of garbage, is no failure.
REAL_TIME = replace(
    FAST,
    request_timeout_ms=60_000,
    operation_timeout_ms=60_000,
    send_timeout_ms=60_000,
    commit_timeout_ms=60_000,
    abort_timeout_ms=60_000,
    abort_drain_ms=60_000,
    close_timeout_ms=60_000,
)


async def connect(
    cluster: FakeCluster,
    config: magnetar.ClientConfig = FAST,
    seed: int = 7,
    address: str | Sequence[str] = BROKER_ADDRESS,
) -> magnetar.Client:
    return await magnetar.connect(
        address,
        transport=cluster.transport(),
        clock=VirtualClock(),
        random=Random(seed),
        config=config,
    )


def run(
    test: Callable[[FakeCluster, magnetar.Client], Awaitable[T]],
    config: magnetar.ClientConfig = FAST,
) -> T:
    """Run a test against a fresh cluster, then close its client; nothing may be left running.

    It runs in virtual time: what is due happens before the time passes that a test asks for.
    """

    async def main() -> T:
        cluster = FakeCluster()
        async with asyncio.timeout(10):
            async with await connect(cluster, config) as client:
                result = await test(cluster, client)
            left = [one for one in asyncio.all_tasks() if one is not asyncio.current_task()]
            assert not left, left
            assert not cluster.net.links
            cluster.play.check()
        return result

    return virtual_time.run(main())
