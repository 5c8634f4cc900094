"""The content of a partition's sidecar, and which of its transactions are open."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
from tests.broker.harness import World, end, partition, run, send, take_incarnations, txn, watermark

from magnetar_broker import keys
from magnetar_broker.commands import stored_transactions
from magnetar_broker.topics.retention import trim_partition
from magnetar_core import list_limits
from magnetar_core.errors import Gone, InvalidArgument, TopicNotFound
from magnetar_core.ids import TxnID
from magnetar_core.wire import broker_pb2 as wire
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import topic_pb2 as topic_wire

T1, T2, T3, T4 = txn(1), txn(2), txn(3), txn(4)


def stored(
    *,
    first: TxnID | None = None,
    limit: int = 0,
    only: Iterable[TxnID] = (),
    number: int = 0,
    topic_id: int = 0,
) -> wire.CommandListStoredTxns:
    return wire.CommandListStoredTxns(
        partition=partition(number, topic_id),
        first_txn_id=first.to_wire() if first is not None else None,
        limit=limit,
        txn_ids=[one.to_wire() for one in only],
    )


def told(answer: wire.CommandListStoredTxnsResponse) -> list[tuple[TxnID, bool]]:
    return [(TxnID.from_wire(one.txn_id), one.open) for one in answer.transactions]


async def pages(world: World, **more: Any) -> list[list[tuple[TxnID, bool]]]:
    found = []
    first: TxnID | None = None
    while True:
        answer = await world.client.ask(stored(first=first, **more))
        found.append(told(answer))
        if not answer.HasField("next_txn_id"):
            return found
        first = TxnID.from_wire(answer.next_txn_id)


async def write(world: World, *txn_ids: TxnID, batches: int = 3) -> None:
    for txn_id in txn_ids:
        for sequence in range(batches):
            await world.client.ask(send(b"m", in_txn=txn_id, sequence=sequence))


def test_what_is_stored_is_open_or_has_its_marker() -> None:
    """PIP-31: the sidecar keeps an open transaction's messages, and a committed one's."""

    async def scenario(world: World) -> None:
        ask = world.client.ask
        assert told(await ask(stored())) == []
        await ask(send(b"plain"))
        await write(world, T3, T1, T2, T4)
        await ask(end(T1))
        await ask(end(T3, common.ABORT))
        await ask(end(T4, selected=[]))
        answer = await ask(stored())
        assert told(answer) == [(T1, False), (T2, True)]
        committed, still_open = answer.transactions
        assert (still_open.start_offset, still_open.producer_epoch) == (1, -1)
        assert still_open.start_time_ms == world.clock.now_ms
        assert committed.start_time_ms == 0
        assert answer.end_offset == 4

    run(scenario)


def test_a_restart_and_the_watermark_change_nothing() -> None:
    async def scenario(world: World) -> None:
        await write(world, T1, T2)
        await world.client.ask(end(T1))
        await world.client.ask(watermark(2))
        await world.restart()
        assert told(await world.client.ask(stored())) == [(T1, False), (T2, True)]
        assert told(await world.client.ask(stored(number=1))) == []

    run(scenario)


def test_pages_tell_each_transaction_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_transactions, "STEP_COUNT", 2)
    everything = [T1, T2, T3, T4, txn(0, tcid=1)]

    async def scenario(world: World) -> None:
        await take_incarnations(world.client, 1)
        await world.client.ask(watermark(0, tcid=1, bound=1))
        await write(world, *everything)
        for limit in range(1, 7):
            found = await pages(world, limit=limit)
            assert [one for page in found for one, _ in page] == everything
            assert all(len(page) == limit for page in found[:-1])
        monkeypatch.setattr(stored_transactions, "STEPS_MAX", 1)
        assert [len(page) for page in await pages(world)] == [2, 2, 1]

    run(scenario)


def test_a_page_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_limits, "ROWS_DEFAULT", 2)
    monkeypatch.setattr(list_limits, "ROWS_MAX", 3)
    monkeypatch.setattr(stored_transactions, "ROWS_MAX", 3)

    async def scenario(world: World) -> None:
        await write(world, T1, T2, T3, T4)
        assert len(told(await world.client.ask(stored()))) == 2
        assert len(told(await world.client.ask(stored(limit=100)))) == 3
        with pytest.raises(InvalidArgument):
            await world.client.ask(stored(only=[T1, T2, T3, T4]))

    run(scenario)


def test_some_can_be_asked_for() -> None:
    async def scenario(world: World) -> None:
        await write(world, T1, T3)
        await world.client.ask(end(T1))
        assert told(await world.client.ask(stored(only=[T3, T2, T1]))) == [(T3, True), (T1, False)]

    run(scenario)


def test_others_have_their_turn_within_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_transactions, "STEP_COUNT", 1)

    async def scenario(world: World) -> None:
        await write(world, *(txn(counter) for counter in range(40)), batches=1)
        page = world.client.begin(stored())
        other = world.client.begin(wire.CommandDescribeProducers(partition=partition()))
        await other
        assert not page.done()
        await world.settle()
        assert len(told(page.result())) == 40

    run(scenario)


def test_an_end_that_is_told_is_durable() -> None:
    """docs/protocol/rules.md, rule a. A commit is under way: its marker is in memory only."""

    async def scenario(world: World) -> None:
        await write(world, T1)
        stalled = asyncio.Event()

        async def stall(seconds: float) -> None:
            await stalled.wait()

        world.disk._sleep, world.disk.sync_seconds = stall, 1.0
        committing = world.client.begin(end(T1))
        listing = world.client.begin(stored())
        await world.settle()
        assert not listing.done()
        assert world.partition().log.durable_end == 0
        stalled.set()
        await world.settle()
        assert committing.done()
        assert told(listing.result()) == [(T1, False)]
        assert listing.result().end_offset == world.partition().log.durable_end == 3

    run(scenario)


def test_retention_takes_them_away() -> None:
    async def scenario(world: World) -> None:
        await world.client.ask(topic_wire.CommandDeleteTopic(topic="t"))
        await world.client.ask(topic_wire.CommandCreateTopic(topic="t", retention_ms=500))
        await write(world, T1, T2)
        await world.client.ask(end(T1))
        world.clock.advance(1_000)
        topic = world.broker.topics.get("t")
        assert await trim_partition(world.broker.environment, topic, topic.partitions[0]) == 1
        await world.settle()
        assert told(await world.client.ask(stored())) == [(T2, True)]

    run(scenario)


def test_rows_that_nobody_ended_are_told_too() -> None:
    """They are what an audit looks for; also where no transaction has ever been."""

    async def scenario(world: World) -> None:
        name = world.partition().name
        prefix = keys.partition(name.topic_id, name.partition)
        rows = world.broker.environment.commits.batch
        rows.put(keys.TXNLOG, keys.txnlog(prefix, T1, 0, 0), b"came back")
        await world.settle()
        assert told(await world.client.ask(stored())) == [(T1, False)]

    run(scenario)


def test_a_topic_that_goes_meanwhile_is_gone() -> None:
    async def scenario(world: World) -> None:
        with pytest.raises(TopicNotFound):
            await world.client.ask(stored(number=2))
        await write(world, T1)
        await world.client.ask(end(T1))
        listing = world.client.begin(stored())
        deleting = world.client.begin(topic_wire.CommandDeleteTopic(topic="t"))
        await world.settle()
        assert deleting.done()
        with pytest.raises(Gone):
            listing.result()
        await world.client.ask(topic_wire.CommandCreateTopic(topic="t"))
        with pytest.raises(Gone):
            await world.client.ask(stored(topic_id=1))

    run(scenario)
