"""Requests of kafka-transactions.sh, and two-phase commit (KIP-939) by frames."""

from __future__ import annotations

from typing import Any

from tests.kafka_clients.coordinated import CoordinatedWorld, run
from tests.kafka_clients.harness import batch, produce
from tests.kafka_clients.test_transactions import NONE, V1, V2, Producer, made
from tests.waiting import until

from magnetar_broker.transactions.sender import Sender
from magnetar_core.ids import TxnID
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import transaction_pb2 as pb
from magnetar_kafka.error_codes import ErrorCode
from magnetar_kafka.wire import apis


async def listed(producer: Producer, **filters: Any) -> list[tuple[str, str]]:
    body = {"state_filters": [], "producer_id_filters": [], "duration_filter": -1, **filters}
    answer = await producer.client.ask(apis.LIST_TRANSACTIONS, body)
    assert answer["error_code"] == NONE
    return [
        (one["transactional_id"], one["transaction_state"]) for one in answer["transaction_states"]
    ]


async def described(producer: Producer, name: str = "app") -> dict[str, Any]:
    answer = await producer.client.ask(apis.DESCRIBE_TRANSACTIONS, {"transactional_ids": [name]})
    (found,) = answer["transaction_states"]
    return dict(found)


async def producers(producer: Producer, number: int = 0) -> list[dict[str, Any]]:
    body = {"topics": [{"name": "t", "partition_indexes": [number]}]}
    answer = await producer.client.ask(apis.DESCRIBE_PRODUCERS, body)
    (found,) = answer["topics"][0]["partitions"]
    assert found["error_code"] == NONE
    return list(found["active_producers"])


async def abort(
    producer: Producer, producer_id: int, epoch: int, *, commit: bool = False
) -> ErrorCode:
    marker = {
        "producer_id": producer_id,
        "producer_epoch": epoch,
        "transaction_result": commit,
        "topics": [{"name": "t", "partition_indexes": [0]}],
        "coordinator_epoch": 0,
    }
    answer = await producer.client.ask(apis.WRITE_TXN_MARKERS, {"markers": [marker]})
    (found,) = answer["markers"][0]["topics"][0]["partitions"]
    return ErrorCode(found["error_code"])


def test_transactions_are_listed_and_described() -> None:
    async def scenario(world: CoordinatedWorld) -> None:
        producer = await made(world, V1)
        assert await listed(producer) == [("app", "Empty")]
        assert (await described(producer))["transaction_start_time"] == -1
        await producer.send(b"a")
        await producer.send(b"b", number=1)
        found = await described(producer)
        assert found["transaction_state"] == "Ongoing"
        assert found["transaction_timeout"] == 60_000
        assert found["transaction_start_time"] == world.clock.wall_ms()
        assert (found["producer_id"], found["producer_epoch"]) == producer.pair
        assert found["topics"] == [{"topic": "t", "partitions": [0, 1]}]
        assert await listed(producer, state_filters=["Ongoing", "?"]) == [("app", "Ongoing")]
        assert await listed(producer, state_filters=["Empty"]) == []
        assert await listed(producer, producer_id_filters=[producer.pair[0]]) != []
        assert await listed(producer, producer_id_filters=[99]) == []
        assert await listed(producer, duration_filter=5_000) == []
        world.clock.advance(6_000)
        assert await listed(producer, duration_filter=5_000) == [("app", "Ongoing")]
        assert await producer.end() is NONE
        await until(world.has_ended_all)
        await world.settle()
        assert await listed(producer) == [("app", "CompleteCommit")]
        missing = await described(producer, "other")
        assert missing["error_code"] == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND

    run(scenario)


def test_producers_of_partitions_are_described() -> None:
    async def scenario(world: CoordinatedWorld) -> None:
        producer = await made(world, V1)
        plain = batch(b"p", producer_id=5, epoch=3, sequence=0)
        await producer.client.ask(apis.PRODUCE, produce(plain))
        await producer.send(b"a", b"b")
        by_id = {one["producer_id"]: one for one in await producers(producer)}
        assert by_id.keys() == {5, producer.pair[0]}
        assert by_id[5]["producer_epoch"] == 3
        assert by_id[5]["current_txn_start_offset"] == -1
        mine = by_id[producer.pair[0]]
        assert (mine["producer_epoch"], mine["last_sequence"]) == (producer.pair[1], 1)
        assert mine["current_txn_start_offset"] == 1
        await producer.end()
        await until(world.has_ended_all)
        (mine,) = [one for one in await producers(producer) if one["producer_id"] != 5]
        assert (mine["last_sequence"], mine["current_txn_start_offset"]) == (1, -1)

    run(scenario)


def test_a_marker_aborts_what_hangs_and_nothing_else() -> None:
    async def scenario(world: CoordinatedWorld) -> None:
        producer = await made(world, V1)
        await producer.send(b"a")
        producer_id, epoch = producer.pair
        # Its coordinator has it: it does not hang.
        assert await abort(producer, producer_id, epoch) is ErrorCode.INVALID_TXN_STATE
        assert await abort(producer, producer_id, epoch + 1) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await abort(producer, 99, 0) is NONE
        refused = await abort(producer, producer_id, epoch, commit=True)
        assert refused is ErrorCode.INVALID_REQUEST
        assert world.partition().index.open
        assert await producer.end() is NONE
        await until(world.has_ended_all)
        assert await world.read() == [b"a"]
        # A copy.
        assert await abort(producer, producer_id, epoch) is NONE

    run(scenario)


def test_a_marker_aborts_a_transaction_that_its_coordinator_has_lost() -> None:
    async def scenario(world: CoordinatedWorld) -> None:
        producer = await made(world, V1)
        # It has written where its coordinator does not know of it.
        begun = await world.coordinators.ask_one(0, pb.CommandNewTxn())
        world.broker.local_access.append_in_transaction(
            world.partition(),
            batch(b"a", producer_id=5, epoch=3, sequence=0),
            1,
            0,
            txn_id=TxnID.from_wire(begun.txn_id),
            producer_id=5,
            producer_epoch=3,
            sequence=0,
            sender=Sender(""),
        )
        await world.coordinators.ask_one(
            0, pb.CommandEndTxn(txn_id=begun.txn_id, txn_action=common.ABORT)
        )
        (hanging,) = await producers(producer)
        assert hanging["current_txn_start_offset"] == 0
        assert await abort(producer, 5, 2) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert world.partition().index.open
        assert await abort(producer, 5, 3) is NONE
        assert not world.partition().index.open

    run(scenario)


# KIP-939


async def init(
    producer: Producer, *, two_phase: bool = False, keep: bool = False, timeout_ms: int = 60_000
) -> dict[str, Any]:
    body = {
        "transactional_id": producer.name,
        "transaction_timeout": timeout_ms,
        "producer_id": -1,
        "producer_epoch": -1,
        "enable2_pc": two_phase,
        "keep_prepared_txn": keep,
    }
    answer = await producer.client.ask(apis.INIT_PRODUCER_ID, body, 6)
    if not answer["error_code"]:
        producer.pair = answer["producer_id"], answer["producer_epoch"]
        producer.sequences.clear()
    return answer


def test_a_prepared_transaction_is_kept_and_committed_by_the_next_instance() -> None:
    async def scenario(world: CoordinatedWorld) -> None:
        first = await made(world, V2)
        assert (await init(first, two_phase=True))["error_code"] == NONE
        await first.send(b"prepared")
        prepared = first.pair
        # It never expires.
        world.clock.advance(10_000_000)
        second = Producer(await world.connect(), V2)
        assert (await init(second))["error_code"] == ErrorCode.INVALID_TXN_STATE
        await world.kill_coordinator()
        await world.kill_broker()
        second.client = first.client = await world.connect()
        await world.linked(second.client)
        answer = await init(second, two_phase=True, keep=True)
        assert answer["error_code"] == NONE
        ongoing = answer["ongoing_txn_producer_id"], answer["ongoing_txn_producer_epoch"]
        assert ongoing == prepared
        assert second.pair != prepared
        assert await first.end() is ErrorCode.PRODUCER_FENCED
        # It only ends.
        assert (await second.put(b"x"))[0] is ErrorCode.INVALID_TXN_STATE
        assert await second.end() is NONE
        await until(world.has_ended_all)
        assert await world.read() == [b"prepared"]
        assert (await init(second, two_phase=True, keep=True))["ongoing_txn_producer_id"] == -1

    run(scenario, two_phase_commit_enabled=True)


def test_without_keeping_it_the_next_instance_aborts_it() -> None:
    async def scenario(world: CoordinatedWorld) -> None:
        producer = await made(world, V2)
        assert (await init(producer, two_phase=True))["error_code"] == NONE
        await producer.send(b"lost")
        assert (await init(producer, two_phase=True))["error_code"] == NONE
        await until(world.has_ended_all)
        assert await world.read() == []

    run(scenario, two_phase_commit_enabled=True)


def test_two_phase_commit_is_off_unless_it_is_allowed() -> None:
    async def scenario(world: CoordinatedWorld) -> None:
        producer = await made(world, V2)
        answer = await init(producer, two_phase=True)
        assert answer["error_code"] == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

    run(scenario)
