"""Fetch: what is read, how long it waits, and what wakes it."""

from __future__ import annotations

import asyncio

from tests.broker.harness import end, send, txn
from tests.kafka_clients.harness import KafkaWorld, batch, fetch, fetched, produce, run
from tests.waiting import until

from magnetar_core import batch as columnar
from magnetar_core.kafka_records.reading import read_records
from magnetar_core.record_batch import read_head
from magnetar_core.wire import topic_pb2
from magnetar_kafka.error_codes import ErrorCode
from magnetar_kafka.wire import apis


def opened(data: bytes) -> list[tuple[int, bytes | None]]:
    """Offset and value of each record of several batches."""
    found: list[tuple[int, bytes | None]] = []
    while data:
        size = int.from_bytes(data[8:12], "big") + 12
        one, data = data[:size], data[size:]
        base = read_head(one).base_offset
        values = read_records(one, bytes_max=1 << 20).values
        found += [(base + place, value) for place, value in enumerate(values)]
    return found


def test_batches_leave_as_they_came_but_for_offset_and_leader_epoch() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await world.connect()
        first, second = batch(b"a", b"b"), batch(b"c")
        await client.ask(apis.PRODUCE, produce(first))
        await client.ask(apis.PRODUCE, produce(second))
        for version in range(apis.FETCH.first, apis.FETCH.last + 1):
            (part,) = fetched(await client.ask(apis.FETCH, fetch(), version))
            assert part["error_code"] == ErrorCode.NONE
            assert part["high_watermark"] == part["last_stable_offset"] == 3
            assert part["aborted_transactions"] is None
            assert opened(part["records"]) == [(0, b"a"), (1, b"b"), (2, b"c")]
        data = part["records"]
        second_got = data[len(first) :]
        assert second_got[:8] == (2).to_bytes(8, "big")
        assert second_got[8:12] == second[8:12]
        assert second_got[12:16] == b"\xff" * 4
        assert second_got[16:] == second[16:]

    run(scenario)


def test_messages_of_our_clients_are_record_batches() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await world.connect()
        await world.client.ask(send(b"x", b"y"))
        (part,) = fetched(await client.ask(apis.FETCH, fetch(1)))
        assert opened(part["records"]) == [(0, b"x"), (1, b"y")]
        assert part["error_code"] == ErrorCode.NONE

    run(scenario)


def test_a_message_in_parts_is_joined_and_has_the_offset_of_its_last_part() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await world.connect()
        large = bytes(range(256)) * 40
        await world.client.ask(send(b"before"))
        parts = columnar.split(columnar.encode([large], [b"k"]), 3_000)
        for number, one in enumerate(parts):
            command = send(b"", producer=5, sequence=number, in_txn=txn(1))
            command.batch = one
            await world.client.ask(command)
        await world.client.ask(end(txn(1), counts={5: len(parts)}))
        await world.client.ask(send(b"after", sequence=1))
        last = len(parts)
        (got,) = fetched(await client.ask(apis.FETCH, fetch()))
        assert opened(got["records"]) == [(0, b"before")]
        (got,) = fetched(await client.ask(apis.FETCH, fetch(1)))
        assert opened(got["records"]) == [(last, large), (last + 1, b"after")]
        # Without its beginning it is passed over.
        (got,) = fetched(await client.ask(apis.FETCH, fetch(2)))
        assert opened(got["records"]) == [(last + 1, b"after")]
        (got,) = fetched(await client.ask(apis.FETCH, fetch(1, max_bytes=4_000)))
        assert got["error_code"] == ErrorCode.CORRUPT_MESSAGE

    run(scenario)


def test_a_waiting_fetch_is_told_that_the_topic_was_deleted() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await world.connect()
        client.tell(apis.FETCH, fetch(max_wait=50_000, min_bytes=1))
        waiting = asyncio.ensure_future(client.answer())
        await until(lambda: world.metric("parked_fetches"))
        await world.client.ask(topic_pb2.CommandDeleteTopic(topic="t"))
        (part,) = fetched(await waiting)
        assert part["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(scenario)


def test_a_fetch_waits_until_a_transaction_of_ours_commits() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await world.connect()
        await world.client.ask(send(b"in", in_txn=txn(1)))
        client.tell(apis.FETCH, fetch(max_wait=50_000, min_bytes=1))
        waiting = asyncio.ensure_future(client.answer())
        await until(lambda: world.metric("parked_fetches"))
        assert not waiting.done()
        await world.client.ask(end(txn(1), counts={1: 1}))
        (part,) = fetched(await waiting)
        assert opened(part["records"]) == [(0, b"in")]
        assert not world.metric("parked_fetches")

    run(scenario)


def test_a_fetch_waits_for_as_many_bytes_as_it_asks_for() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client, other = await world.connect(), await world.connect()
        client.tell(apis.FETCH, fetch(max_wait=50_000, min_bytes=1_500))
        waiting = asyncio.ensure_future(client.answer())
        await until(lambda: world.metric("parked_fetches"))
        await other.ask(apis.PRODUCE, produce(batch(bytes(1_000))))
        assert not waiting.done()
        await other.ask(apis.PRODUCE, produce(batch(bytes(1_000))))
        (part,) = fetched(await waiting)
        assert [offset for offset, _ in opened(part["records"])] == [0, 1]

    run(scenario)


def test_a_stopping_server_answers_a_fetch_that_waits() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await world.connect()
        client.tell(apis.FETCH, fetch(max_wait=50_000, min_bytes=1))
        waiting = asyncio.ensure_future(client.answer())
        await until(lambda: world.metric("parked_fetches"))
        await world.listener.close(grace_ms=10_000)
        (part,) = fetched(await waiting)
        assert part["error_code"] == ErrorCode.NONE
        assert await client.is_closed()

    run(scenario)


def test_offsets_outside_of_the_log_are_refused_with_its_range() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await world.connect()
        await client.ask(apis.PRODUCE, produce(batch(b"a")))
        for offset in (-1, 2):
            (part,) = fetched(await client.ask(apis.FETCH, fetch(offset, max_wait=50_000)))
            assert part["error_code"] == ErrorCode.OFFSET_OUT_OF_RANGE
            assert (part["log_start_offset"], part["high_watermark"]) == (0, 1)
        for topic, number in (("none", 0), ("t", 9), ("t", -1)):
            (part,) = fetched(
                await client.ask(apis.FETCH, fetch(topic=topic, number=number, max_wait=50_000))
            )
            assert part["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(scenario)


def test_a_session_is_refused() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await world.connect()
        answer = await client.ask(apis.FETCH, fetch(session_id=7, session_epoch=1))
        assert answer["error_code"] == ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    run(scenario)


def test_an_answer_has_a_batch_at_least_and_not_many_more_bytes_than_allowed() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await world.connect()
        for _ in range(4):
            await client.ask(apis.PRODUCE, produce(batch(bytes(1_000))))
        (part,) = fetched(await client.ask(apis.FETCH, fetch(max_bytes=1)))
        assert [offset for offset, _ in opened(part["records"])] == [0]
        (part,) = fetched(await client.ask(apis.FETCH, fetch(1, max_bytes=2_000)))
        assert [offset for offset, _ in opened(part["records"])] == [1, 2]

    run(scenario)
