"""ListOffsets: first offset, end, and searches by time, whatever order times have."""

from __future__ import annotations

import pytest
from tests.broker.harness import send
from tests.kafka_clients.harness import KafkaWorld, batch, produce, records, run

from magnetar_kafka.error_codes import ErrorCode
from magnetar_kafka.wire import apis

NOW_MS = 1_700_000_000_000
YEAR_3000_MS = 32_503_680_000_000


async def offset_at(world: KafkaWorld, timestamp_ms: int, version: int = 7) -> tuple[int, int]:
    client = await world.connect()
    rows = [{"partition_index": 0, "timestamp": timestamp_ms}]
    body = {"topics": [{"name": "t", "partitions": rows}]}
    answer = await client.ask(apis.LIST_OFFSETS, body, version)
    (row,) = answer["topics"][0]["partitions"]
    assert row["error_code"] == ErrorCode.NONE
    return row["offset"], row["timestamp"]


async def append(world: KafkaWorld, *times_ms: int) -> None:
    client = await world.connect()
    made = [one for time_ms in times_ms for one in records(b"v", timestamp_ms=time_ms)]
    await client.ask(apis.PRODUCE, produce(batch(of=made)))


def test_the_first_offset_and_the_end() -> None:
    async def scenario(world: KafkaWorld) -> None:
        await append(world, NOW_MS, NOW_MS)
        for version in range(apis.LIST_OFFSETS.first, apis.LIST_OFFSETS.last + 1):
            assert await offset_at(world, -1, version) == (2, -1)
            assert await offset_at(world, -2, version) == (0, -1)

    run(scenario)


TIMES_MS = [
    [NOW_MS - 50, NOW_MS - 10],
    [1_000],
    [YEAR_3000_MS],
    [2_000, 500, 3_000],
    [NOW_MS + 5_000, NOW_MS - 5_000],
    [0, 1],
]


@pytest.mark.parametrize(
    "asked_ms", sorted({0, 1, *(t + d for ts in TIMES_MS for t in ts for d in (-1, 0, 1))})
)
def test_a_search_finds_the_first_message_at_or_after_a_time(asked_ms: int) -> None:
    async def scenario(world: KafkaWorld) -> None:
        for times_ms in TIMES_MS:
            await append(world, *times_ms)
            world.clock.advance(1_000)
        flat = [time_ms for times_ms in TIMES_MS for time_ms in times_ms]
        places = (place for place, time_ms in enumerate(flat) if time_ms >= asked_ms)
        found = next(places, -1)
        expected = (found, flat[found]) if found >= 0 else (-1, -1)
        assert await offset_at(world, max(asked_ms, 0)) == expected
        await world.restart()
        assert await offset_at(world, max(asked_ms, 0)) == expected

    run(scenario)


def test_messages_of_our_clients_count_by_their_append_time() -> None:
    async def scenario(world: KafkaWorld) -> None:
        world.clock.advance(10_000)
        await world.client.ask(send(b"a"))
        assert await offset_at(world, NOW_MS) == (0, NOW_MS + 10_000)
        assert await offset_at(world, NOW_MS + 10_001) == (-1, -1)

    run(scenario)


def test_what_cannot_be_found_is_refused() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await world.connect()
        rows = [
            {"partition_index": 0, "timestamp": -3},
            {"partition_index": 9, "timestamp": -1},
        ]
        answer = await client.ask(
            apis.LIST_OFFSETS, {"topics": [{"name": "t", "partitions": rows}]}
        )
        assert [one["error_code"] for one in answer["topics"][0]["partitions"]] == [
            ErrorCode.INVALID_REQUEST,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]

    run(scenario)
