"""Offsets of groups that count with a transaction of Kafka's clients."""

from __future__ import annotations

from typing import Any

import pytest
from tests.kafka_clients.coordinated import CoordinatedWorld, run
from tests.kafka_clients.harness import batch, produce
from tests.kafka_clients.test_transaction_tools import init
from tests.kafka_clients.test_transactions import NONE, OLD_V1, V1, V2, Producer, Protocol, made
from tests.waiting import until

from magnetar_broker.dispatch.committed_offset import CommittedOffset
from magnetar_core.wire import group_pb2
from magnetar_kafka.error_codes import ErrorCode
from magnetar_kafka.wire import apis

GROUP = "g"
VERSIONS = {V1.name: 3, OLD_V1.name: 0, V2.name: 5}
PROTOCOLS = pytest.mark.parametrize("protocol", [V1, OLD_V1, V2], ids=lambda one: one.name)
BOTH = pytest.mark.parametrize("protocol", [V1, V2], ids=lambda one: one.name)


async def filled(world: CoordinatedWorld, count: int = 10) -> None:
    client = await world.connect()
    for number in (0, 1):
        await client.ask(apis.PRODUCE, produce(batch(*[b"m"] * count), number=number))


async def add(producer: Producer, group: str = GROUP) -> ErrorCode:
    body = {
        "transactional_id": producer.name,
        "producer_id": producer.pair[0],
        "producer_epoch": producer.pair[1],
        "group_id": group,
    }
    answer = await producer.client.ask(apis.ADD_OFFSETS_TO_TXN, body)
    return ErrorCode(answer["error_code"])


async def put(
    producer: Producer,
    *offsets: tuple[int, int],
    metadata: str | None = "",
    generation: int = -1,
    member: str = "",
    group: str = GROUP,
) -> list[ErrorCode]:
    body: dict[str, Any] = {
        "transactional_id": producer.name,
        "producer_id": producer.pair[0],
        "producer_epoch": producer.pair[1],
        "group_id": group,
        "generation_id": generation,
        "member_id": member,
        "topics": [
            {
                "name": "t",
                "partitions": [
                    {
                        "partition_index": number,
                        "committed_offset": offset,
                        "committed_leader_epoch": -1,
                        "committed_metadata": metadata,
                    }
                    for number, offset in offsets
                ],
            }
        ],
    }
    version = VERSIONS[producer.protocol.name]
    answer = await producer.client.ask(apis.TXN_OFFSET_COMMIT, body, version)
    return [
        ErrorCode(one["error_code"]) for topic in answer["topics"] for one in topic["partitions"]
    ]


async def commit(producer: Producer, *offsets: tuple[int, int], **options: Any) -> list[ErrorCode]:
    """Commit offsets as a client does: the group is added before, if that is the protocol."""
    if not producer.protocol.is_v2:
        assert await add(producer) is NONE
    return await put(producer, *offsets, **options)


def committed(world: CoordinatedWorld, number: int = 0) -> CommittedOffset | None:
    access = world.broker.local_access
    return access.offsets.committed(world.partition(number), GROUP)


def pends(world: CoordinatedWorld, number: int = 0) -> bool:
    return world.broker.local_access.offsets.has_pending_acks(world.partition(number), GROUP)


async def settled(world: CoordinatedWorld) -> None:
    await until(lambda: not pends(world) and not pends(world, 1))


@PROTOCOLS
def test_offsets_count_with_the_outcome(protocol: Protocol) -> None:
    async def scenario(world: CoordinatedWorld) -> None:
        await filled(world)
        producer = await made(world, protocol)
        assert await commit(producer, (0, 3), (1, 4), metadata="a") == [NONE, NONE]
        assert committed(world) is None
        assert pends(world)
        assert pends(world, 1)
        assert await producer.end() is NONE
        await settled(world)
        assert committed(world) == CommittedOffset(3, "a")
        assert committed(world, 1) == CommittedOffset(4, "a")
        assert await commit(producer, (0, 5)) == [NONE]
        assert await producer.end(commit=False) is NONE
        await settled(world)
        assert committed(world) == CommittedOffset(3, "a")
        # The same offset: only the text.
        assert await commit(producer, (0, 3), metadata=None) == [NONE]
        assert await producer.end() is NONE
        await settled(world)
        assert committed(world) == CommittedOffset(3, "")

    run(scenario)


@BOTH
@pytest.mark.parametrize("victim", ["broker", "coordinator"])
def test_kills_between_two_commits_of_a_transaction(protocol: Protocol, victim: str) -> None:
    async def scenario(world: CoordinatedWorld) -> None:
        await filled(world)
        producer = await made(world, protocol)
        assert await commit(producer, (0, 3)) == [NONE]
        await (world.kill_broker() if victim == "broker" else world.kill_coordinator())
        producer.client = await world.connect()
        await world.linked(producer.client)
        # A repeat, and the next one, which follows it.
        assert await put(producer, (0, 3)) == [NONE]
        assert await put(producer, (0, 6), (1, 2)) == [NONE, NONE]
        await (world.kill_broker() if victim == "broker" else world.kill_coordinator())
        producer.client = await world.connect()
        await world.linked(producer.client)
        assert await put(producer, (0, 6), (1, 2)) == [NONE, NONE]
        assert await producer.end() is NONE
        await settled(world)
        assert committed(world) == CommittedOffset(6)
        assert committed(world, 1) == CommittedOffset(2)

    run(scenario)


@PROTOCOLS
def test_what_a_transaction_cannot_survive_has_a_code_to_abort(protocol: Protocol) -> None:
    abortable = {
        V1.name: ErrorCode.ILLEGAL_GENERATION,
        OLD_V1.name: ErrorCode.ILLEGAL_GENERATION,
        V2.name: ErrorCode.TRANSACTION_ABORTABLE,
    }[protocol.name]

    async def scenario(world: CoordinatedWorld) -> None:
        await filled(world)
        first, second = await made(world, protocol), await made(world, protocol)
        second = Producer(await world.connect(), protocol, "other")
        assert await second.init() is NONE
        assert await first.init() is NONE
        assert await commit(first, (0, 3)) == [NONE]
        # Another transaction holds these messages; and one cannot go back.
        assert await commit(second, (0, 5)) == [abortable]
        assert await put(first, (0, 2)) == [abortable]
        assert await second.end(commit=False) is NONE
        assert await first.end(commit=False) is NONE
        await settled(world)
        assert await commit(second, (0, 5)) == [NONE]
        assert await second.end() is NONE
        await settled(world)
        assert committed(world) == CommittedOffset(5)
        # It ended otherwise.
        assert await first.init(timeout_ms=1_000) is NONE
        assert await commit(first, (0, 7)) == [NONE]
        world.clock.advance(1_500)
        await settled(world)
        assert await put(first, (0, 8)) == [abortable]
        assert await first.end(commit=False) is NONE
        assert committed(world) == CommittedOffset(5)

    run(scenario)


async def join(world: CoordinatedWorld) -> tuple[str, int]:
    """Join the group as its only member; return the member's id, and the generation."""
    client = await world.connect()
    body = {
        "group_id": GROUP,
        "session_timeout": 30_000,
        "rebalance_timeout": 30_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    joined = await client.ask(apis.JOIN_GROUP, body, 3)
    assert joined["error_code"] == NONE
    return joined["member_id"], joined["generation_id"]


@BOTH
def test_who_is_no_member_of_this_generation_commits_nothing(protocol: Protocol) -> None:
    """KIP-447: the group's coordinator checks, and the owner of the partition once more."""

    async def scenario(world: CoordinatedWorld) -> None:
        await filled(world)
        producer = await made(world, protocol)
        member, generation = await join(world)
        refused = [ErrorCode.ILLEGAL_GENERATION]
        assert await commit(producer, (0, 3), member=member, generation=generation) == [NONE]
        assert await put(producer, (0, 4), member=member, generation=generation + 1) == refused
        unknown = await put(producer, (0, 4), member="other", generation=generation)
        assert unknown == [ErrorCode.UNKNOWN_MEMBER_ID]
        assert await producer.end() is NONE
        await settled(world)
        assert committed(world) == CommittedOffset(3)
        # It was checked, and arrives after a member of the next generation has asked for offsets.
        access = world.broker.local_access
        access.offsets.note_generation(world.partition(), GROUP, generation + 1)
        assert await commit(producer, (0, 5), member=member, generation=generation) == refused
        await world.kill_broker()
        producer.client = await world.connect()
        await world.linked(producer.client)
        assert await put(producer, (0, 5), member=member, generation=generation) == refused
        # A client that is not a member does not name a generation.
        assert await put(producer, (0, 6)) == [NONE]
        assert await producer.end() is NONE
        await settled(world)
        assert committed(world) == CommittedOffset(6)

    run(scenario)


def test_before_kip_890_the_group_is_added_first() -> None:
    async def scenario(world: CoordinatedWorld) -> None:
        await filled(world)
        producer = await made(world, V1)
        assert await put(producer, (0, 3)) == [ErrorCode.INVALID_TXN_STATE]
        assert await add(producer, "") is ErrorCode.INVALID_GROUP_ID
        assert await add(producer) is NONE
        # Nothing follows it, and its transaction still ends.
        assert await producer.end() is NONE
        assert committed(world) is None

    run(scenario)


def test_offsets_that_are_refused_by_themselves() -> None:
    async def scenario(world: CoordinatedWorld) -> None:
        await filled(world)
        producer = await made(world, V2)
        assert await put(producer, (0, 3), (7, 3), (1, -1)) == [
            NONE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.INVALID_REQUEST,
        ]
        assert await put(producer, (0, 4), metadata="x" * 4_097) == [
            ErrorCode.OFFSET_METADATA_TOO_LARGE
        ]
        assert await put(producer, (0, 4), group="") == [ErrorCode.INVALID_GROUP_ID]
        assert await producer.end() is NONE
        await settled(world)
        assert committed(world) == CommittedOffset(3)

    run(scenario)


@pytest.mark.parametrize("allowed", [True, False])
def test_a_group_of_ours_says_whether_prepared_transactions_may_hold_it(allowed: bool) -> None:
    """Also a broker that was killed knows that the producer commits in two phases."""

    async def scenario(world: CoordinatedWorld) -> None:
        await world.native.ask(
            group_pb2.CommandJoinGroup(
                group=GROUP,
                member_id="ours",
                topics=["t"],
                join_epoch=1,
                allow_two_phase_commit=allowed,
            )
        )
        await world.native.ask(group_pb2.CommandLeaveGroup(group=GROUP, member_id="ours"))
        await filled(world)
        producer = await made(world, V2)
        assert (await init(producer, two_phase=True))["error_code"] == NONE
        await world.kill_broker()
        producer.client = await world.connect()
        await world.linked(producer.client)
        found = await commit(producer, (0, 3))
        assert found == [NONE if allowed else ErrorCode.TRANSACTION_ABORTABLE]
        assert pends(world) is allowed
        assert await producer.end(commit=allowed) is NONE
        await settled(world)

    run(scenario, two_phase_commit_enabled=True)
