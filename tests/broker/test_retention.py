"""docs/protocol/rules.md, rule m."""

from __future__ import annotations

from typing import Any

import pytest
from tests.broker.harness import World, ack, end, flow, run, send, subscribe, subscription, txn

from magnetar_broker import keys
from magnetar_broker.topics.retention import trim_partition
from magnetar_core.errors import OutOfRange
from magnetar_core.wire import broker_pb2 as wire
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import topic_pb2 as topic_wire

T1 = txn(1)


async def topic_with(world: World, **settings: Any) -> None:
    """ "t" again, with these limits: offsets 0, 1 plain, 2 and 3 in a transaction, 4 plain."""
    ask = world.client.ask
    await ask(topic_wire.CommandDeleteTopic(topic="t"))
    await ask(topic_wire.CommandCreateTopic(topic="t", **settings))
    await ask(subscribe())
    await ask(send(b"0", b"1"))
    await ask(send(b"2", b"3", in_txn=T1))
    await ask(end(T1))
    world.clock.advance(1000)
    await ask(send(b"4", sequence=2))


async def trim(world: World) -> int:
    topic = world.broker.topics.get("t")
    count = await trim_partition(world.broker.environment, topic, topic.partitions[0])
    await world.settle()
    return count


def test_retention_never_passes_the_slowest_subscription() -> None:
    async def scenario(world: World) -> None:
        await topic_with(world, retention_ms=500)
        assert await trim(world) == 0
        await world.client.ask(ack((0, 2)))
        assert await trim(world) == 1, "an entry goes when all of it is acknowledged"
        assert len(await world.rows(keys.TXNLOG)) == 1
        await world.client.ask(ack((3, 3), in_txn=txn(2)))
        await world.client.ask(ack((4, 4)))
        assert await trim(world) == 0, "a pending ack is not an acknowledgement"
        await world.client.ask(end(txn(2), on="s"))
        assert await trim(world) == 1
        assert await world.rows(keys.TXNLOG) == [], "a marker's messages go with it"
        assert world.partition().log.first_offset == 4
        await world.restart()
        assert world.partition().log.first_offset == 4
        assert await world.read(start=4) == [b"4"]
        with pytest.raises(OutOfRange) as raised:
            await world.read(start=3)
        assert raised.value.details["first_offset"] == "4"

    run(scenario)


DAY_MS = 24 * 3_600_000


@pytest.mark.parametrize("restarted", [False, True])
def test_a_clock_that_is_set_forward_removes_nothing_that_is_young(restarted: bool) -> None:
    """All that was there went at once."""

    async def scenario(world: World) -> None:
        await topic_with(world, retention_ms=DAY_MS, retain_unconsumed=topic_wire.NO)
        world.clock.wall_offset_ms += 2 * DAY_MS
        await world.broker._retain()
        await world.settle()
        if restarted:
            await world.restart()
        assert await trim(world) == 0
        world.clock.advance(10)
        await world.client.ask(send(b"5", sequence=3))
        world.clock.advance(DAY_MS - 1_011)
        assert await trim(world) == 0
        # What was there before goes when a day has passed, and what came then a day after that.
        world.clock.advance(500)
        assert await trim(world) == 2
        world.clock.advance(502)
        assert await trim(world) == 1
        world.clock.advance(10)
        assert await trim(world) == 1

    run(scenario)


@pytest.mark.parametrize("restarted", [False, True])
def test_messages_that_repeat_a_later_time_stay_as_long_as_others(restarted: bool) -> None:
    """The clock was ahead, so their append times are those of messages from that time."""

    async def scenario(world: World) -> None:
        world.clock.wall_offset_ms += DAY_MS
        await topic_with(world, retention_ms=DAY_MS // 2, retain_unconsumed=topic_wire.NO)
        world.broker.environment.ages.look()
        world.clock.wall_offset_ms -= DAY_MS
        world.broker.environment.ages.look()
        if restarted:
            await world.restart()
        world.clock.advance(10)
        await world.client.ask(send(b"5", sequence=3))
        world.clock.advance(10)
        world.clock.wall_offset_ms += 2 * DAY_MS
        assert await trim(world) == 0

    run(scenario)


def test_a_clock_that_is_set_forward_makes_no_transaction_older() -> None:
    async def scenario(world: World) -> None:
        await world.client.ask(send(b"0", in_txn=T1))
        world.clock.wall_offset_ms += DAY_MS
        world.clock.advance(2_000)
        world.broker._show()
        read = world.broker.metrics.registry.get_sample_value
        assert read("magnetar_broker_oldest_open_txn_seconds") == 2
        assert read("magnetar_broker_late_partitions") == 0

    run(scenario)


def test_retention_by_size_counts_a_transactions_messages() -> None:
    async def scenario(world: World) -> None:
        await topic_with(world, retention_bytes=1)
        await world.client.ask(ack((0, 4)))
        assert await trim(world) == 3
        assert world.partition().log.retained_bytes == 0
        assert await trim(world) == 0
        await world.client.ask(send(b"5", sequence=3))
        assert await world.read(start=5) == [b"5"]

    run(scenario)


def test_without_limits_everything_stays() -> None:
    async def scenario(world: World) -> None:
        await topic_with(world)
        await world.client.ask(ack((0, 4)))
        assert await trim(world) == 0

    run(scenario)


def test_retention_stops_before_what_is_being_read() -> None:
    """Rule m: never trims a marker that is being read."""

    async def scenario(world: World) -> None:
        await topic_with(world, retention_ms=500)
        await world.client.ask(ack((0, 4)))
        log = world.partition().log
        pin = log.pin(2)
        assert await trim(world) == 1
        log.unpin(pin)
        assert await trim(world) == 1

    run(scenario)


@pytest.mark.parametrize("restarted", [False, True])
def test_what_was_not_consumed_may_go_when_the_topic_says_so(restarted: bool) -> None:
    async def scenario(world: World) -> None:
        await topic_with(world, retention_ms=500, retain_unconsumed=topic_wire.NO)
        assert await trim(world) == 2
        assert world.subscription().cursor.floor == 4
        if restarted:
            await world.restart()
        await world.client.ask(subscribe(consumer=1))
        world.client.tell(flow())
        await world.settle()
        assert world.client.values() == [b"4"]
        seek = wire.CommandSeek(subscription=subscription(), offset=0)
        with pytest.raises(OutOfRange):
            await world.client.ask(seek)

    run(scenario)


def test_an_abort_of_what_retention_removed_holds_nobody_up() -> None:
    async def scenario(world: World) -> None:
        await topic_with(world, retention_ms=500, retain_unconsumed=topic_wire.NO)
        await world.client.ask(subscribe(consumer=1))
        world.client.tell(flow())
        await world.client.ask(ack((1, 1), in_txn=txn(2)))
        assert await trim(world) == 2
        assert world.subscription().cursor.floor == 1
        await world.client.ask(end(txn(2), common.ABORT, on="s"))
        assert world.subscription().cursor.floor == 4
        await world.client.ask(ack((4, 4)))
        assert world.subscription().cursor.floor == 5
        assert world.subscription().backlog == 0

    run(scenario)


async def look_after(world: World) -> None:
    """What a broker does every few seconds, now."""
    assert world.broker._retention_timer is not None
    world.broker._retention_timer.cancel()
    await world.broker._retain()
    await world.settle()


@pytest.mark.parametrize("restarted", [False, True])
def test_a_producer_is_idle_since_its_newest_batch(restarted: bool) -> None:
    """An active one that is forgotten could repeat what it has sent, and it would count twice."""

    async def scenario(world: World) -> None:
        limit_ms = world.broker.environment.config.producer_idle_ms_max
        await world.client.ask(send(b"1"))
        await world.client.ask(send(b"1", producer=2))
        world.clock.advance(limit_ms)
        await world.client.ask(send(b"2", sequence=1))
        world.clock.advance(limit_ms - 1)
        if restarted:
            # What nobody has noted by then counts for nobody.
            await world.restart()
        world.clock.advance(1)
        await look_after(world)
        assert (await world.client.ask(send(b"2", sequence=1))).duplicate
        await world.client.ask(send(b"3", sequence=2))
        assert not (await world.client.ask(send(b"1", producer=2))).duplicate
        await world.restart()
        world.clock.advance(limit_ms + 1)
        await look_after(world)
        assert await world.rows(keys.PRODUCERS) == []
        assert not (await world.client.ask(send(b"1"))).duplicate

    run(scenario)


def test_idle_producers_are_forgotten_and_start_anew() -> None:
    async def scenario(world: World) -> None:
        await world.client.ask(send(b"0"))
        world.partition().forget_idle_producers(world.broker.environment.run_time.now_ms() + 1)
        await world.settle()
        await world.client.ask(send(b"x"))
        assert len(await world.rows(keys.PRODUCERS)) == 1
        assert await world.read() == [b"0", b"x"]

    run(scenario)


def test_one_look_removes_all_that_is_due() -> None:
    """It removed a thousand entries every five seconds: faster producers filled the disk."""

    async def scenario(world: World) -> None:
        await topic_with(world, retention_bytes=1)
        for sequence in range(3, 2_400):
            world.client.begin(send(b"x", sequence=sequence))
        await world.settle()
        await world.client.ask(ack((0, 2_401)))
        assert await trim(world) == 2_400
        assert await world.rows(keys.LOG) == []

    run(scenario)
