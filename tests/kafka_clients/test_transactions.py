"""Transactions of Kafka's clients: both protocols, fences, kills, and what is seen of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from tests.kafka_clients.coordinated import CoordinatedWorld, run
from tests.kafka_clients.harness import KafkaClient, batch, produce, produced
from tests.waiting import until

from magnetar_core.record_batch import TRANSACTIONAL
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import transaction_pb2 as pb
from magnetar_kafka.error_codes import ErrorCode
from magnetar_kafka.wire import apis

NONE = ErrorCode.NONE


class Protocol(NamedTuple):
    """Versions of requests that a client sends, with or without KIP-890."""

    name: str
    produce: int
    end: int
    init: int = 4

    @property
    def is_v2(self) -> bool:
        return self.end >= 5


V1 = Protocol("v1", 11, 4)
OLD_V1 = Protocol("old v1", 7, 1, 1)
V2 = Protocol("v2", 12, 5, 5)
BOTH = pytest.mark.parametrize("protocol", [V1, V2], ids=["v1", "v2"])


class Producer:
    """A transactional producer that sends what it is told to."""

    def __init__(self, client: KafkaClient, protocol: Protocol, name: str = "app") -> None:
        self.client = client
        self.protocol = protocol
        self.name = name
        self.pair = -1, -1
        self.sequences: dict[int, int] = {}

    async def init(self, *, named: bool = False, timeout_ms: int = 60_000) -> ErrorCode:
        body: dict[str, Any] = {
            "transactional_id": self.name,
            "transaction_timeout": timeout_ms,
            "producer_id": self.pair[0] if named else -1,
            "producer_epoch": self.pair[1] if named else -1,
        }
        answer = await self.client.ask(apis.INIT_PRODUCER_ID, body, self.protocol.init)
        if not answer["error_code"]:
            self.pair = answer["producer_id"], answer["producer_epoch"]
            self.sequences.clear()
        return ErrorCode(answer["error_code"])

    async def add(self, *numbers: int, version: int = 3) -> list[ErrorCode]:
        body = {
            "v3_and_below_transactional_id": self.name,
            "v3_and_below_producer_id": self.pair[0],
            "v3_and_below_producer_epoch": self.pair[1],
            "v3_and_below_topics": [{"name": "t", "partitions": list(numbers)}],
        }
        answer = await self.client.ask(apis.ADD_PARTITIONS_TO_TXN, body, version)
        return [
            ErrorCode(one["partition_error_code"])
            for topic in answer["results_by_topic_v3_and_below"]
            for one in topic["results_by_partition"]
        ]

    async def send(self, *values: bytes, number: int = 0) -> tuple[ErrorCode, int]:
        """Send as a client does: the partition is added before it, if that is the protocol."""
        if not self.protocol.is_v2:
            codes = await self.add(number)
            if codes != [NONE]:
                return codes[0], -1
        return await self.put(*values, number=number)

    async def put(
        self, *values: bytes, number: int = 0, sequence: int | None = None
    ) -> tuple[ErrorCode, int]:
        at = self.sequences.get(number, 0) if sequence is None else sequence
        made = batch(
            *values,
            producer_id=self.pair[0],
            epoch=self.pair[1],
            sequence=at,
            attributes=TRANSACTIONAL,
        )
        body = {"transactional_id": self.name, **produce(made, number=number)}
        (found,) = produced(await self.client.ask(apis.PRODUCE, body, self.protocol.produce))
        if not found[0] and sequence is None:
            self.sequences[number] = at + len(values)
        return found

    async def end(self, *, commit: bool = True) -> ErrorCode:
        body = {
            "transactional_id": self.name,
            "producer_id": self.pair[0],
            "producer_epoch": self.pair[1],
            "committed": commit,
        }
        answer = await self.client.ask(apis.END_TXN, body, self.protocol.end)
        if self.protocol.is_v2 and not answer["error_code"]:
            self.pair = answer["producer_id"], answer["producer_epoch"]
            self.sequences.clear()
        return ErrorCode(answer["error_code"])


async def made(world: CoordinatedWorld, protocol: Protocol, **options: Any) -> Producer:
    producer = Producer(await world.connect(), protocol)
    await world.linked(producer.client)
    assert await producer.init(**options) is NONE
    return producer


@pytest.mark.parametrize("protocol", [V1, OLD_V1, V2], ids=lambda one: one.name)
def test_transactions_one_after_the_other(protocol: Protocol) -> None:
    async def scenario(world: CoordinatedWorld) -> None:
        producer = await made(world, protocol)
        for count in range(4):
            commits = count % 2 == 0
            for number in (0, 1):
                sent = await producer.send(b"%d" % count, b"%d." % count, number=number)
                assert sent == (NONE, -1)
                assert await producer.put(b"%d,%d" % (count, number), number=number) == (NONE, -1)
            assert await world.read() == [b"0", b"0.", b"0,0"] * (count > 0) + [
                b"2",
                b"2.",
                b"2,0",
            ] * (count > 2)
            before = producer.pair
            assert await producer.end(commit=commits) is NONE
            assert (producer.pair != before) is protocol.is_v2
            await until(world.has_ended_all)
        assert await world.read(1) == [b"0", b"0.", b"0,1", b"2", b"2.", b"2,1"]

    run(scenario)


@BOTH
def test_another_instance_fences_the_first(protocol: Protocol) -> None:
    async def scenario(world: CoordinatedWorld) -> None:
        first = await made(world, protocol)
        await first.send(b"lost")
        second = await made(world, protocol)
        assert second.pair > first.pair
        assert (await first.put(b"late"))[0] is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await first.add(1) == [ErrorCode.PRODUCER_FENCED]
        assert await first.add(1, version=1) == [ErrorCode.INVALID_PRODUCER_EPOCH]
        assert await first.end() is ErrorCode.PRODUCER_FENCED
        assert await first.init(named=True) is ErrorCode.PRODUCER_FENCED
        await second.send(b"kept")
        assert await first.end(commit=False) is ErrorCode.PRODUCER_FENCED
        assert await second.end() is NONE
        await until(world.has_ended_all)
        assert await world.read() == [b"kept"]

    run(scenario)


ENDED = {
    V1: (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    OLD_V1: (ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    V2: (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
}


@pytest.mark.parametrize("protocol", ENDED, ids=lambda one: one.name)
@pytest.mark.parametrize("way", ["expiry", "administrator"])
@pytest.mark.parametrize("kill", ["", "broker", "coordinator"])
def test_nothing_is_seen_of_a_transaction_that_ended_in_the_middle(
    protocol: Protocol, way: str, kill: str
) -> None:
    """Another partition, and the commit, come after the end."""

    async def scenario(world: CoordinatedWorld) -> None:
        producer = await made(world, protocol, timeout_ms=1_000)
        assert await producer.send(b"before") == (NONE, -1)
        if way == "expiry":
            world.clock.advance(1_500)
        else:
            (txn_id,) = world.partition().index.open
            await world.coordinators.ask_one(
                0,
                pb.CommandEndTxn(txn_id=txn_id.to_wire(), txn_action=common.ABORT, by_hand=True),
            )
        await until(world.has_ended_all)
        if kill == "broker":
            await world.kill_broker()
        elif kill == "coordinator":
            await world.kill_coordinator()
        producer.client = await world.connect()
        await world.linked(producer.client)
        of_produce, of_others = ENDED[protocol]
        if protocol.is_v2:
            assert (await producer.put(b"after", number=1))[0] is of_produce
        else:
            assert await producer.add(1) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
            assert (await producer.put(b"after", number=1))[0] is of_produce
            assert (await producer.put(b"more", number=0))[0] is of_produce
        assert await producer.end() is of_others
        await until(world.has_ended_all)
        assert await world.read() == await world.read(1) == []
        # It begins anew, as its client does after these codes.
        if protocol.is_v2:
            assert await producer.end(commit=False) is NONE
        elif protocol is V1:
            assert await producer.init(named=True) is NONE
        else:
            assert await producer.init() is NONE
        assert await producer.send(b"anew") == (NONE, -1)
        assert await producer.end() is NONE
        await until(world.has_ended_all)
        assert await world.read() == [b"anew"]

    run(scenario)


@BOTH
@pytest.mark.parametrize("victims", ["broker", "coordinator", "broker coordinator"])
def test_kills_between_the_batches_of_a_transaction(protocol: Protocol, victims: str) -> None:
    async def scenario(world: CoordinatedWorld) -> None:
        async def kill() -> None:
            for victim in victims.split():
                await (world.kill_broker() if victim == "broker" else world.kill_coordinator())
            producer.client = await world.connect()
            await world.linked(producer.client)

        producer = await made(world, protocol)
        for count in range(3):
            assert await producer.send(b"a%d" % count) == (NONE, -1)
            await kill()
            # A repeat, and the next one.
            at = producer.sequences[0] - 1
            assert await producer.put(b"a%d" % count, sequence=at) == (NONE, -1)
            assert await producer.put(b"b%d" % count) == (NONE, -1)
            # A batch in between was lost.
            lost = await producer.put(b"x", sequence=producer.sequences[0] + 1)
            assert lost[0] is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            assert await producer.end() is NONE
            await until(world.has_ended_all)
        assert await world.read() == [b"a0", b"b0", b"a1", b"b1", b"a2", b"b2"]

    run(scenario)


@BOTH
@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("victim", ["", "broker", "coordinator"])
def test_a_decision_is_told_again_after_a_kill(
    protocol: Protocol, commits: bool, victim: str
) -> None:
    async def scenario(world: CoordinatedWorld) -> None:
        too_late = ErrorCode.INVALID_TXN_STATE
        if protocol.is_v2 and not commits:
            # As after an expiry, which it cannot be told from: an abort is all that is left.
            too_late = ErrorCode.TRANSACTION_ABORTABLE
        producer = await made(world, protocol)
        await producer.send(b"a")
        before = producer.pair
        assert await producer.end(commit=commits) is NONE
        after = producer.pair
        if victim == "broker":
            await world.kill_broker()
        elif victim == "coordinator":
            await world.kill_coordinator()
        producer.client = await world.connect()
        await world.linked(producer.client)
        for _ in range(2):
            producer.pair = before
            assert await producer.end(commit=commits) is NONE
            assert producer.pair == after
            producer.pair = before
            assert await producer.end(commit=not commits) is too_late
        producer.pair = after
        await until(world.has_ended_all)
        assert await world.read() == [b"a"] * commits
        assert await producer.send(b"b") == (NONE, -1)
        assert await producer.end() is NONE
        await until(world.has_ended_all)
        assert await world.read() == [b"a"] * commits + [b"b"]

    run(scenario)


def test_before_kip_890_a_partition_is_added_in_each_transaction() -> None:
    async def scenario(world: CoordinatedWorld) -> None:
        producer = await made(world, V1._replace(produce=10))
        assert (await producer.put(b"x"))[0] is ErrorCode.INVALID_TXN_STATE
        assert await producer.add(1) == [NONE]
        assert (await producer.put(b"x"))[0] is ErrorCode.INVALID_TXN_STATE
        assert await producer.send(b"a") == (NONE, -1)
        assert await producer.end() is NONE
        assert (await producer.put(b"x"))[0] is ErrorCode.INVALID_TXN_STATE
        assert await producer.add(1) == [NONE]
        assert (await producer.put(b"x"))[0] is ErrorCode.INVALID_TXN_STATE
        assert await producer.end(commit=False) is NONE
        await until(world.has_ended_all)
        assert await world.read() == [b"a"]

    run(scenario)


def test_sequences_run_over_transactions_before_kip_890() -> None:
    async def scenario(world: CoordinatedWorld) -> None:
        producer = await made(world, V1)
        await producer.send(b"a")
        await producer.end(commit=False)
        await producer.add(0)
        # As if the first batch of this transaction was lost; and a copy of the one before it.
        refused = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        assert await producer.put(b"x", sequence=2) == refused
        assert await producer.put(b"a", sequence=0) == refused
        assert await producer.put(b"b") == (NONE, -1)
        assert await producer.end() is NONE
        await until(world.has_ended_all)
        assert await world.read() == [b"b"]

    run(scenario)


def test_partitions_are_added_all_or_none() -> None:
    async def scenario(world: CoordinatedWorld) -> None:
        producer = await made(world, V1)
        assert await producer.add(0, 7) == [
            ErrorCode.OPERATION_NOT_ATTEMPTED,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert await producer.end() is ErrorCode.INVALID_TXN_STATE
        assert await producer.end(commit=False) is ErrorCode.INVALID_TXN_STATE

    run(scenario)


def test_brokers_add_for_many_and_may_only_ask() -> None:
    async def scenario(world: CoordinatedWorld) -> None:
        producer = await made(world, V1)

        async def said(version: int, *numbers: int, verify_only: bool) -> list[ErrorCode]:
            body = {
                "transactions": [
                    {
                        "transactional_id": "app",
                        "producer_id": producer.pair[0],
                        "producer_epoch": producer.pair[1],
                        "verify_only": verify_only,
                        "topics": [{"name": "t", "partitions": list(numbers)}],
                    }
                ]
            }
            answer = await producer.client.ask(apis.ADD_PARTITIONS_TO_TXN, body, version)
            return [
                ErrorCode(one["partition_error_code"])
                for row in answer["results_by_transaction"]
                for topic in row["topic_results"]
                for one in topic["results_by_partition"]
            ]

        assert await said(5, 0, verify_only=True) == [ErrorCode.INVALID_TXN_STATE]
        assert await said(4, 0, verify_only=False) == [NONE]
        assert await said(5, 0, verify_only=True) == [NONE]
        assert await said(5, 0, 1, verify_only=True) == [ErrorCode.INVALID_TXN_STATE] * 2

    run(scenario)


def test_an_empty_transaction_of_kip_890_raises_the_epoch() -> None:
    async def scenario(world: CoordinatedWorld) -> None:
        producer = await made(world, V2)
        first = producer.pair
        assert await producer.end() is ErrorCode.INVALID_TXN_STATE
        assert await producer.end(commit=False) is NONE
        assert producer.pair == (first[0], first[1] + 1)

    run(scenario)


def test_timeouts_that_are_refused() -> None:
    async def scenario(world: CoordinatedWorld) -> None:
        producer = await made(world, V1)
        for timeout_ms in (0, -1, 1 << 30):
            code = await producer.init(timeout_ms=timeout_ms)
            assert code is ErrorCode.INVALID_TRANSACTION_TIMEOUT

    run(scenario)


def test_without_a_coordinator_clients_are_told_to_ask_again() -> None:
    async def scenario(world: CoordinatedWorld) -> None:
        old, new = await made(world, V1), await made(world, V2, named=False)
        world.loopback.cut("127.0.0.1:6651")
        await world.settle(check=False)
        away = ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await old.add(0) == [away]
        assert (await new.put(b"x"))[0] is ErrorCode.NOT_ENOUGH_REPLICAS
        assert await new.end() is away
        assert await new.init() is away

    run(scenario)


def test_the_coordinator_of_transactions_is_this_broker() -> None:
    async def scenario(world: CoordinatedWorld) -> None:
        client = await world.connect()
        for version in range(1, apis.FIND_COORDINATOR.last + 1):
            body = {"key": "app", "key_type": 1, "coordinator_keys": ["app"]}
            answer = await client.ask(apis.FIND_COORDINATOR, body, version)
            (found,) = answer.get("coordinators", [answer])
            assert (found["error_code"], found["node_id"]) == (NONE, 1)
            assert f"{found['host']}:{found['port']}" == world.address
        versions = await client.ask(apis.API_VERSIONS, {"client_software_name": "a"}, 3)
        (feature,) = versions["finalized_features"]
        assert (feature["name"], feature["max_version_level"]) == ("transaction.version", 2)

    run(scenario)
