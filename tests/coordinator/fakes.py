"""A world for a coordinator: virtual time, a disk that survives, a broker that can misbehave."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

from prometheus_client import CollectorRegistry
from tests.configs import coordinator_config
from tests.core.envelope import parsed
from tests.fake_link import FakeLink, FakeTransport
from tests.virtual_loop import VirtualClock
from tests.virtual_time import time_passes

from magnetar.testing.envelope import command
from magnetar_coordinator.coordinator import Coordinator
from magnetar_coordinator.ending.end_command_sender import GONE_CODES
from magnetar_coordinator.metadata.records import FAMILIES
from magnetar_core.errors import InvalidTxnState, MagnetarError, from_wire
from magnetar_core.ids import PartitionName, SubscriptionName, TxnID
from magnetar_core.protocol_version import PROTOCOL_VERSION
from magnetar_core.server.commands import Conversation
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import service_pb2, topic_pb2
from magnetar_core.wire import transaction_pb2 as pb
from magnetar_storage.memory.engine import MemoryDisk, MemoryStore

BROKER_ADDRESS = "broker:1"
P0 = PartitionName("orders", 0, 7)
P1 = PartitionName("orders", 1, 7)
S0 = SubscriptionName("orders", 0, 7, "billing")


Answer = Callable[[str, Any], Any]
SILENCE = object()


def counted(participant: Any, *writers: tuple[int, int]) -> bytes:
    """The field in which a client says what it had confirmed at a participant, as on the wire."""
    counts = [pb.WriterCount(writer_id=writer, count=count) for writer, count in writers]
    if isinstance(participant, SubscriptionName):
        acked = pb.SubscriptionCounts(subscription=participant.to_wire(), consumers=counts)
        return pb.CommandEndTxn(subscription_counts=[acked]).SerializeToString()
    produced = pb.PartitionCounts(partition=participant.to_wire(), producers=counts)
    return pb.CommandEndTxn(partition_counts=[produced]).SerializeToString()


class FakeBroker:
    """Ends transactions as a broker does, as far as a coordinator sees it.

    Attributes:
        answer: may answer a command in place of the broker; None leaves it to the broker, SILENCE
            swallows it.
        ended: how each (TxnID, participant) was ended.
    """

    def __init__(self) -> None:
        self.answer: Answer = lambda name, body: None
        self.received: list[tuple[str, Any]] = []
        self.ended: dict[tuple[TxnID, Any], common.TxnAction] = {}
        # It says of these only that they have ended everywhere.
        self.forgotten: set[TxnID] = set()
        self.orphans: list[pb.OrphanedParticipant] = []
        self.incarnations: dict[str, int] = {}
        # Of every commit that it describes.
        self.digest = b""
        # The stamps of commits that it was told.
        self.stamps: dict[tuple[TxnID, Any], int] = {}
        # `received` has each participant alone.
        self.ended_together: list[pb.CommandEndTxnOnParticipants] = []

    def names(self) -> list[str]:
        return [name for name, _ in self.received]

    def all_of(self, name: str) -> list[Any]:
        return [body for one, body in self.received if one == name]

    def on_frame(self, link: FakeLink, frame: service_pb2.Frame) -> None:
        answers = []
        for one in frame.commands:
            name = one.WhichOneof("body")
            assert name is not None
            answer = self.handle(name, getattr(one, name))
            if answer is not SILENCE:
                answers.append(command(answer, one.request_id))
        if answers:
            link.push(*answers)

    def handle(self, name: str, body: Any) -> Any:
        if isinstance(body, pb.CommandEndTxnOnParticipants):
            self.ended_together.append(body)
            return self._end_together(body)
        self.received.append((name, body))
        answer = self.answer(name, body)
        if answer is not None:
            return answer
        if name.startswith("end_txn") and body.HasField("hanging"):
            return InvalidTxnState("nothing is open here").to_wire()
        return getattr(self, f"_{name}")(body)

    def _hello(self, body: common.CommandHello) -> Any:
        return common.CommandHelloResponse(protocol_version=PROTOCOL_VERSION, server_name="fake")

    def _take_incarnation(self, body: topic_pb2.CommandTakeIncarnation) -> Any:
        number = self.incarnations.setdefault(body.store_token, len(self.incarnations) + 1)
        return topic_pb2.CommandTakeIncarnationResponse(incarnation=number)

    def _end_txn_on_partition(self, body: pb.CommandEndTxnOnPartition) -> Any:
        self._end(body, PartitionName.from_wire(body.partition))
        return pb.CommandEndTxnOnPartitionResponse(txn_id=body.txn_id)

    def _end_txn_on_subscription(self, body: pb.CommandEndTxnOnSubscription) -> Any:
        self._end(body, SubscriptionName.from_wire(body.subscription))
        return pb.CommandEndTxnOnSubscriptionResponse(txn_id=body.txn_id)

    def _end_together(self, body: pb.CommandEndTxnOnParticipants) -> Any:
        """Ends each participant as if it were told alone, partitions first."""
        given: dict[str, Any] = {
            name: getattr(body, name)
            for name in (
                "txn_id",
                "txn_action",
                "counts_given",
                "selection_given",
                "loss_accepted",
                "stamp",
            )
        }
        given["selected_writer_ids"] = body.selected_writer_ids
        answer = pb.CommandEndTxnOnParticipantsResponse(txn_id=body.txn_id)
        results = [
            self.handle(
                "end_txn_on_partition",
                pb.CommandEndTxnOnPartition(partition=one.partition, counts=one.producers, **given),
            )
            for one in body.partitions
        ]
        for one, result in zip(body.partitions, results, strict=True):
            if isinstance(result, common.ServerError):
                answer.unfinished.add(partition=one.partition, error=result)
        waits = SILENCE in results or any(
            one.error.code not in GONE_CODES for one in answer.unfinished
        )
        for other in body.subscriptions:
            result = None
            if body.txn_action == common.ABORT or not waits:
                alone = pb.CommandEndTxnOnSubscription(
                    subscription=other.subscription, counts=other.consumers, **given
                )
                result = self.handle("end_txn_on_subscription", alone)
                results.append(result)
            if result is None or isinstance(result, common.ServerError):
                place = SubscriptionName.from_wire(other.subscription)
                answer.unfinished.add(
                    partition=place.partition_name.to_wire(),
                    subscription=place.subscription,
                    error=result,
                )
        return SILENCE if SILENCE in results else answer

    def _end(self, body: Any, participant: Any) -> None:
        key = (TxnID.from_wire(body.txn_id), participant)
        # A decision never changes.
        assert self.ended.setdefault(key, body.txn_action) == body.txn_action
        # Nor does its stamp: a cut would tear it.
        assert self.stamps.setdefault(key, body.stamp) == body.stamp

    def _txns_issued(self, body: pb.CommandTxnsIssued) -> Any:
        return SILENCE

    def _describe_ends(self, body: pb.CommandDescribeEnds) -> Any:
        asked = {TxnID.from_wire(one) for one in body.txn_ids}
        assert {one.tcid for one in asked} == {body.tcid}
        # Only the first broker has given incarnations out.
        assert self.incarnations.get(body.store_token, body.incarnation) == body.incarnation
        forgotten = asked & self.forgotten
        asked -= forgotten
        ends = {txn_id: action for (txn_id, _), action in self.ended.items() if txn_id in asked}
        return pb.CommandDescribeEndsResponse(
            ends=[
                pb.CommandDescribeEndsResponse.DescribedEnd(
                    txn_id=txn_id.to_wire(),
                    txn_action=action,
                    selection_digest=self.digest,
                    stamp=max(
                        (stamp for (ended, _), stamp in self.stamps.items() if ended == txn_id),
                        default=0,
                    ),
                )
                for txn_id, action in ends.items()
            ],
            forgotten=[one.to_wire() for one in sorted(forgotten)],
        )

    def _low_watermark(self, body: pb.CommandLowWatermark) -> Any:
        return pb.CommandLowWatermarkResponse(orphans=self.orphans)


class FakeClient:
    """One conversation with the coordinator."""

    def __init__(self, coordinator: Coordinator, *, origin: str = "") -> None:
        self._session = coordinator.server.accept(
            Conversation(write=parsed(self._on_frame), origin=origin)
        )
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._request_id = 0

    def ask(self, body: Any) -> asyncio.Future[Any]:
        """Send a command now; the future brings its answer or its error."""
        self._request_id += 1
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._answers[self._request_id] = future
        frame = service_pb2.Frame(commands=[command(body, self._request_id)])
        self._session.on_frame(frame)
        return future

    def _on_frame(self, frame: service_pb2.Frame) -> None:
        for one in frame.commands:
            future = self._answers.pop(one.request_id)
            name = one.WhichOneof("body")
            assert name is not None
            if name == "error":
                future.set_exception(from_wire(one.error))
                future.exception()
            else:
                future.set_result(getattr(one, name))

    async def new(self, *partitions: PartitionName, **fields: Any) -> TxnID:
        wire = [partition.to_wire() for partition in partitions]
        response = await self.ask(pb.CommandNewTxn(partitions=wire, **fields))
        return TxnID.from_wire(response.txn_id)

    async def add(self, txn_id: TxnID, *participants: PartitionName | SubscriptionName) -> None:
        for participant in participants:
            await self.ask(add_command(txn_id, participant))

    async def end(self, txn_id: TxnID, action: int = common.COMMIT, **fields: Any) -> int:
        response = await self.ask(end_command(txn_id, action, **fields))
        status: int = response.status
        return status

    async def status(self, txn_id: TxnID) -> int:
        return int((await self.describe(txn_id)).status)

    async def describe(self, txn_id: TxnID) -> pb.TransactionDescription:
        response = await self.ask(pb.CommandDescribeTxn(txn_id=txn_id.to_wire()))
        description: pb.TransactionDescription = response.transaction
        return description


def add_command(txn_id: TxnID, participant: PartitionName | SubscriptionName) -> Any:
    if isinstance(participant, PartitionName):
        return pb.CommandAddPartitionToTxn(
            txn_id=txn_id.to_wire(), partitions=[participant.to_wire()]
        )
    return pb.CommandAddSubscriptionToTxn(
        txn_id=txn_id.to_wire(), subscriptions=[participant.to_wire()]
    )


def end_command(txn_id: TxnID, action: int = common.COMMIT, **fields: Any) -> pb.CommandEndTxn:
    return pb.CommandEndTxn(txn_id=txn_id.to_wire(), txn_action=action, **fields)  # type: ignore[arg-type]


class FakeBrokers:
    """Brokers at several addresses."""

    def __init__(self, addresses: Iterable[str]) -> None:
        self.at = {address: FakeBroker() for address in addresses}

    def on_frame(self, link: FakeLink, frame: service_pb2.Frame) -> None:
        self.at[link.address].on_frame(link, frame)


class World:
    """What outlives a coordinator, and the coordinator that lives in it now.

    Attributes:
        brokers: in the order of their shards.
        broker: the first of them.
    """

    coordinator: Coordinator
    client: FakeClient
    registry: CollectorRegistry

    def __init__(self, **settings: Any) -> None:
        self.config = coordinator_config(**{"broker_addresses": (BROKER_ADDRESS,), **settings})
        self.disk = MemoryDisk()
        self.clock = VirtualClock()
        servers = FakeBrokers(self.config.broker_addresses)
        self.brokers = list(servers.at.values())
        self.broker = self.brokers[0]
        self.transport = FakeTransport(
            servers, lambda address, service: address in servers.at and service == "Broker"
        )
        self.random = Random(7)
        self.fatal_errors: list[BaseException] = []
        # Kept, or their tasks would be collected unfinished.
        self._corpses: list[Coordinator] = []

    def make(self) -> Coordinator:
        self.registry = CollectorRegistry()
        return Coordinator(
            self.config,
            MemoryStore(self.disk, FAMILIES),
            self.transport,
            self.clock,
            self.random,
            self.fatal_errors.append,
            self.registry,
        )

    async def start(self) -> World:
        self.coordinator = self.make()
        await self.coordinator.start()
        self.client = FakeClient(self.coordinator)
        return self

    def crash(self, random: Random | None = None) -> None:
        """kill -9; with a random: power loss."""
        self.coordinator.abandon()
        self._corpses.append(self.coordinator)
        self.disk.crash(random)
        self.transport.break_links()

    async def restart(self, random: Random | None = None) -> None:
        self.crash(random)
        await self.start()

    async def close(self) -> None:
        await self.coordinator.close()

    def lose_broker(self, shard: int) -> None:
        """A broker goes away: nobody listens at its address."""
        address = self.config.broker_addresses[shard]
        self.transport.dead.add(address)
        for link in list(self.transport.links):
            if link.address == address:
                link.break_now()

    async def get_broker_back(self, shard: int) -> None:
        """A broker that was away listens again, and links have had the time to come back."""
        self.transport.dead.remove(self.config.broker_addresses[shard])
        await self.settle(2 * self.config.constants.reconnect_delay_ms_max / 1_000)

    async def settle(self, seconds: float = 0.02) -> None:
        """Let what is under way happen."""
        await time_passes(seconds)

    def metric(self, name: str, **labels: str) -> float:
        value = self.registry.get_sample_value(f"magnetar_coordinator_{name}", labels)
        assert value is not None
        return value


async def refused(answer: asyncio.Future[Any], error: type[MagnetarError]) -> MagnetarError:
    """The error with which a command was refused."""
    try:
        body = await answer
    except error as found:
        return found
    raise AssertionError(f"answered with {body}")
