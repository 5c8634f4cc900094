"""A broker on a disk in memory, spoken to as clients do: frames in, frames out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Any, Protocol

from tests import virtual_time
from tests.configs import broker_config
from tests.core.envelope import parsed
from tests.waiting import turns

from magnetar.testing.envelope import command, in_columns, singles
from magnetar_broker.broker import Broker
from magnetar_broker.keys import FAMILIES
from magnetar_broker.subscriptions.subscription import Subscription
from magnetar_broker.topics.partition import Partition
from magnetar_broker.transactions.transaction_index import TransactionIndex
from magnetar_core import batch as columnar
from magnetar_core.errors import from_wire
from magnetar_core.ids import PartitionName, TxnID
from magnetar_core.server.commands import Conversation
from magnetar_core.transport.transport import Link, LinkClosed
from magnetar_core.wire import broker_pb2 as wire
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import group_pb2 as group_wire
from magnetar_core.wire import service_pb2 as service
from magnetar_core.wire import topic_pb2 as topic_wire
from magnetar_core.wire import transaction_pb2 as txn_wire
from magnetar_storage.memory.engine import MemoryDisk, MemoryStore

TURNS = 60
# What a server says unasked, besides messages.
Pushed = wire.CommandConsumerChange | group_wire.CommandGroupChange | txn_wire.CommandAbortExpelled
# What coordinator 0 has announced before a scenario begins.
COUNTER_BOUND = 1 << 40


def txn(counter: int, *, tcid: int = 0, incarnation: int = 1) -> TxnID:
    return TxnID.of(tcid, incarnation, counter)


def new_index(
    covers: Callable[[TxnID], bool] = lambda _: False,
    is_superseded: Callable[[TxnID], bool] = lambda _: False,
    check_issued: Callable[[TxnID], None] = lambda _: None,
    told: list[tuple[str, TxnID]] | None = None,
) -> TransactionIndex:
    """One of a participant; what is opened and closed there goes to `told`."""
    told = [] if told is None else told
    return TransactionIndex(
        lambda _: False,
        covers,
        lambda txn_ids: [one for one in txn_ids if covers(one)],
        is_superseded,
        check_issued,
        on_opened=lambda txn_id: told.append(("opened", txn_id)),
        on_closed=lambda txn_id: told.append(("closed", txn_id)),
        name=PartitionName("t", 0, 1),
    )


class ManualClock:
    """Moves when told; the wall clock may jump alone."""

    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000
        self.wall_offset_ms = 0

    def wall_ms(self) -> int:
        return self.now_ms + self.wall_offset_ms

    def monotonic_ms(self) -> float:
        return float(self.now_ms)

    def advance(self, milliseconds: int) -> None:
        self.now_ms += milliseconds


class Alone:
    """The transport of a broker that has no others."""

    async def connect(self, address: str, *_: Any) -> Link:
        raise LinkClosed(f"nobody is at {address}")

    async def close(self) -> None:
        return


class Asking(Protocol):
    """A client of any harness."""

    async def ask(self, body: Any) -> Any: ...


class Client:
    """One conversation. What the server pushes is kept in `delivered` and `pushed`."""

    def __init__(self, world: World, *, origin: str = "") -> None:
        self.world = world
        self.delivered: list[wire.CommandDeliver] = []
        self.pushed: list[Pushed] = []
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._next_request = 0
        self._session = world.broker.server.accept(
            Conversation(write=parsed(self._on_frame), origin=origin)
        )

    def begin(self, body: Any) -> asyncio.Future[Any]:
        """Send a command; its answer comes to the future, an error as an exception."""
        self._next_request += 1
        future = asyncio.get_running_loop().create_future()
        self._answers[self._next_request] = future
        self._session.on_frame(service.Frame(commands=[command(body, self._next_request)]))
        self.world.broker.check()
        return future

    def begin_together(self, bodies: Sequence[Any]) -> list[asyncio.Future[Any]]:
        """Send commands of one kind in columns."""
        asked = {}
        for _ in bodies:
            self._next_request += 1
            asked[self._next_request] = asyncio.get_running_loop().create_future()
        self._answers.update(asked)
        data = in_columns(*map(command, bodies, asked))
        self._session.on_frame(service.Frame.FromString(data))
        self.world.broker.check()
        return list(asked.values())

    def begin_again(self, body: Any) -> None:
        """Send a copy of the last command, under the same number."""
        self._session.on_frame(service.Frame(commands=[command(body, self._next_request)]))
        self.world.broker.check()

    def tell(self, body: Any) -> None:
        self._session.on_frame(service.Frame(commands=[command(body)]))
        self.world.broker.check()

    async def ask(self, body: Any) -> Any:
        future = self.begin(body)
        await self.world.settle()
        assert future.done(), f"no answer to {type(body).__name__}"
        return future.result()

    def congested(self, congested: bool) -> None:
        """The transport says that much is unread, or that there is room again."""
        self._session.on_writable(not congested)

    async def close(self) -> None:
        self._session.on_closed()
        await self.world.settle()

    def values(self) -> list[bytes]:
        """What was delivered, in order, without what was excluded."""
        return [value for _, value in self.messages()]

    def messages(self) -> list[tuple[int, bytes]]:
        return [
            message
            for delivery in self.delivered
            for batch in delivery.batches
            for message in messages_of(batch)
        ]

    def parts(self) -> list[int]:
        """Offsets of the batches pushed, opened or not, in order."""
        return [
            batch.entry_id + batch.first_index
            for deliver in self.delivered
            for batch in deliver.batches
        ]

    def offsets(self) -> list[int]:
        return [offset for offset, _ in self.messages()]

    @property
    def changes(self) -> list[wire.CommandConsumerChange]:
        """What its consumers were told about themselves."""
        return [one for one in self.pushed if isinstance(one, wire.CommandConsumerChange)]

    def _on_frame(self, frame: service.Frame) -> None:
        for one in singles(frame).commands:
            body = getattr(one, one.WhichOneof("body"))
            if one.request_id:
                future = self._answers.pop(one.request_id)
                if isinstance(body, common.ServerError):
                    future.set_exception(from_wire(body))
                else:
                    future.set_result(body)
            elif isinstance(body, wire.CommandDeliver):
                self.delivered.append(body)
            else:
                self.pushed.append(body)


def messages_of(batch: wire.DeliveredBatch) -> list[tuple[int, bytes]]:
    excluded = {offset for one in batch.excluded for offset in range(one.first, one.last + 1)}
    first = batch.entry_id + batch.first_index
    values = [value or b"" for value in columnar.decode(batch.batch).values_or_none()]
    assert len(values) == batch.num_messages
    return [
        (first + place, value)
        for place, value in enumerate(values)
        if first + place not in excluded
    ]


class World:
    """One broker and the disk that outlives it, with a topic "t" of two partitions."""

    def __init__(self, **settings: Any) -> None:
        self.disk = MemoryDisk(sleep=self._stalled)
        self._syncs = asyncio.Semaphore(0)
        self.clock = ManualClock()
        self.settings = {"free_space_floor_bytes": 1 << 20, **settings}
        self.fatal: list[BaseException] = []
        self.failures: list[dict[str, Any]] = []

    async def start(self) -> None:
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: self.failures.append(context)
        )
        await self._open()
        await take_incarnations(self.client, 0)
        await self.client.ask(topic_wire.CommandCreateTopic(topic="t", partitions=2))
        await self.client.ask(watermark(0, bound=COUNTER_BOUND))

    async def _open(self) -> None:
        config = broker_config(**self.settings)
        self.broker = Broker(
            config,
            MemoryStore(self.disk, FAMILIES, late_syncs=config.late_syncs),
            Alone(),
            self.clock,
            Random(7),
            self.fatal.append,
        )
        await self.broker.start()
        self.broker.check()
        self.client = Client(self)

    async def restart(self, losing: Random | None = None) -> None:
        """Kill the process and start it again; with `losing`, the power fails too."""
        self.disk.crash(losing)
        broker, fatal = self.broker, self.fatal
        self.fatal = []
        broker._on_fatal = lambda _: None
        writing = broker.environment.commits._task
        assert writing is not None
        writing.cancel()
        if broker._retention_timer is not None:
            broker._retention_timer.cancel()
        await self.settle(check=False)
        self.fatal = fatal
        await self._open()

    def stall(self) -> None:
        """From now on nothing becomes durable but what sync_once() lets through."""
        self.disk.sync_seconds = 1.0

    async def sync_once(self) -> None:
        """One group more is durable."""
        assert self.disk.sync_seconds, "the disk is not stalled"
        self._syncs.release()
        await self.settle()

    async def go_on(self) -> None:
        """The disk is as quick as ever."""
        self.disk.sync_seconds = 0.0
        self._syncs.release()
        await self.settle()
        self._syncs = asyncio.Semaphore(0)

    async def _stalled(self, _: float) -> None:
        await self._syncs.acquire()

    async def settle(self, *, check: bool = True) -> None:
        await turns(TURNS)
        if check:
            self.broker.check()

    async def stop(self) -> None:
        await self.broker.close()
        assert not self.fatal
        assert not self.failures, self.failures

    def partition(self, number: int = 0) -> Partition:
        return self.broker.topics.get("t").partitions[number]

    def subscription(self, name: str = "s") -> Subscription:
        return self.partition().subscriptions.get(name)

    async def rows(self, family: str) -> list[tuple[bytes, bytes]]:
        store = self.broker.environment.store
        return await store.scan(family, b"", b"\xff" * 32, rows_max=10_000)

    async def read(self, start: int = 0, number: int = 0) -> list[bytes]:
        """All that a reader sees, in order."""
        values: list[bytes] = []
        while True:
            answer = await self.client.ask(
                wire.CommandRead(partition=partition(number), start_offset=start)
            )
            values += [value for batch in answer.batches for _, value in messages_of(batch)]
            start = answer.next_offset
            if start >= answer.end_offset:
                return values


def run(scenario: Callable[[World], Awaitable[None]], **settings: Any) -> None:
    async def within() -> None:
        world = World(**settings)
        await world.start()
        await scenario(world)
        await world.stop()

    virtual_time.run(within())


def partition(number: int = 0, topic_id: int = 0) -> common.Partition:
    return common.Partition(topic="t", partition=number, topic_id=topic_id)


def subscription(name: str = "s", number: int = 0) -> common.Subscription:
    return common.Subscription(topic="t", partition=number, subscription=name)


def send(
    *values: bytes,
    producer: int = 1,
    sequence: int = 0,
    in_txn: TxnID | None = None,
    follows: TxnID | list[TxnID] | None = None,
    number: int = 0,
    topic_id: int = 0,
) -> wire.CommandSend:
    named = [follows] if isinstance(follows, TxnID) else follows or []
    return wire.CommandSend(
        partition=partition(number, topic_id),
        producer_id=producer,
        sequence_id=sequence,
        num_messages=len(values),
        txn_id=in_txn.to_wire() if in_txn is not None else None,
        follows_txn_ids=[one.to_wire() for one in named],
        batch=columnar.encode(list(values)),
    )


def end(
    txn_id: TxnID,
    action: common.TxnAction = common.COMMIT,
    *,
    counts: dict[int, int] | None = None,
    selected: list[int] | None = None,
    loss_accepted: bool = False,
    on: str = "",
    topic_id: int = 0,
) -> Any:
    """An end on the partition, or on the subscription that `on` names."""
    fields: dict[str, Any] = {
        "txn_id": txn_id.to_wire(),
        "txn_action": action,
        "counts_given": counts is not None,
        "counts": [
            txn_wire.WriterCount(writer_id=writer_id, count=count)
            for writer_id, count in (counts or {}).items()
        ],
        "selection_given": selected is not None,
        "selected_writer_ids": selected or [],
        "loss_accepted": loss_accepted,
    }
    if on:
        return txn_wire.CommandEndTxnOnSubscription(subscription=subscription(on), **fields)
    return txn_wire.CommandEndTxnOnPartition(partition=partition(topic_id=topic_id), **fields)


def subscribe(
    name: str = "s",
    *,
    consumer: int = 0,
    kind: int = wire.EXCLUSIVE,
    epoch: int = 1,
    earliest: bool = True,
    number: int = 0,
    consumer_name: str = "",
) -> wire.CommandSubscribe:
    return wire.CommandSubscribe(
        subscription=subscription(name, number),
        consumer_id=consumer,
        consumer_name=consumer_name,
        type=kind,  # type: ignore[arg-type]  # It may be none that exists.
        initial_position=wire.EARLIEST if earliest else wire.LATEST,
        attach_epoch=epoch,
    )


def flow(permits: int = 1000, *, consumer: int = 1, name: str = "s") -> wire.CommandFlow:
    return wire.CommandFlow(subscription=subscription(name), consumer_id=consumer, permits=permits)


def ack(
    *ranges: tuple[int, int],
    consumer: int = 1,
    in_txn: TxnID | None = None,
    sequence: int = 0,
    cumulative: bool = False,
    name: str = "s",
) -> wire.CommandAck:
    return wire.CommandAck(
        subscription=subscription(name),
        consumer_id=consumer,
        ack_type=wire.CommandAck.CUMULATIVE if cumulative else wire.CommandAck.INDIVIDUAL,
        ranges=[common.OffsetRange(first=first, last=last) for first, last in ranges],
        txn_id=in_txn.to_wire() if in_txn is not None else None,
        ack_sequence=sequence,
    )


def nack(*ranges: tuple[int, int], consumer: int = 1, count: int = 0) -> wire.CommandNack:
    return wire.CommandNack(
        subscription=subscription(),
        consumer_id=consumer,
        ranges=[common.OffsetRange(first=first, last=last) for first, last in ranges],
        redelivery_count=count,
    )


def watermark(
    low: int,
    *live: tuple[int, int],
    incarnation: int = 1,
    tcid: int = 0,
    bound: int = COUNTER_BOUND,
    issued: int | None = None,
) -> txn_wire.CommandLowWatermark:
    return txn_wire.CommandLowWatermark(
        tcid=tcid,
        incarnation=incarnation,
        low_watermark=low,
        live=[txn_wire.TxnRange(first=first, last=last) for first, last in live],
        next_counter=bound if issued is None else issued,
        counter_bound=bound,
        store_token=store_token(incarnation),
    )


def describe_ends(*txn_ids: TxnID, incarnation: int = 1) -> txn_wire.CommandDescribeEnds:
    """The question of a coordinator about its transactions, all of the same TCID."""
    return txn_wire.CommandDescribeEnds(
        txn_ids=[one.to_wire() for one in txn_ids],
        tcid=txn_ids[0].tcid,
        incarnation=incarnation,
        store_token=store_token(incarnation),
    )


def store_token(incarnation: int) -> str:
    """The token of a coordinator's store."""
    return f"store {incarnation}"


async def take_incarnations(client: Asking, tcid: int, count: int = 1) -> None:
    """A coordinator takes so many incarnations, one with each of its stores."""
    for number in range(1, count + 1):
        command = topic_wire.CommandTakeIncarnation(tcid=tcid, store_token=store_token(number))
        await client.ask(command)
