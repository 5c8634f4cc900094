"""Cuts keep the order in which Kafka's clients read and commit (docs/design/0015-cuts.md).

A commit is stamped later than what its client has read before, whichever coordinator stamped that.
Commits of another coordinator, whose clock is ahead, are made by a raised stamp of the partition
that has them.
"""

from __future__ import annotations

from tests.kafka_clients.coordinated import CoordinatedWorld, run
from tests.kafka_clients.harness import fetch
from tests.kafka_clients.test_offsets_in_transactions import BOTH, commit
from tests.kafka_clients.test_transactions import NONE, Protocol, made
from tests.waiting import until

from magnetar_kafka.wire import apis

# Ten seconds.
AHEAD = 10_000 << 16


async def raised_stamp(world: CoordinatedWorld, protocol: Protocol) -> int:
    """Let the messages of partition 1 be of a coordinator that is ahead of the other one."""
    producer = await made(world, protocol)
    for _ in range(3):
        assert (await producer.send(b"earlier", number=1))[0] is NONE
    assert await producer.end() is NONE
    await until(world.has_ended_all)
    log = world.partition(1).log
    log.highest_stamp += AHEAD
    return log.highest_stamp


async def committed_stamp(world: CoordinatedWorld, protocol: Protocol) -> int:
    producer = await made(world, protocol)
    assert (await producer.send(b"later"))[0] is NONE
    assert await producer.end() is NONE
    await until(world.has_ended_all)
    return world.partition(0).log.highest_stamp


@BOTH
def test_a_commit_is_stamped_later_than_what_a_client_has_fetched(protocol: Protocol) -> None:
    async def scenario(world: CoordinatedWorld) -> None:
        seen = await raised_stamp(world, protocol)
        client = await world.connect()
        await client.ask(apis.FETCH, fetch(0, number=1))
        assert await committed_stamp(world, protocol) > seen

    run(scenario)


@BOTH
def test_it_is_later_than_what_was_fetched_at_a_listener_that_is_gone(protocol: Protocol) -> None:
    async def scenario(world: CoordinatedWorld) -> None:
        seen = await raised_stamp(world, protocol)
        await world.listener.close(grace_ms=1)
        await world.open_listener()
        assert await committed_stamp(world, protocol) > seen

    run(scenario)


@BOTH
def test_it_is_later_than_what_it_acknowledges(protocol: Protocol) -> None:
    async def scenario(world: CoordinatedWorld) -> None:
        seen = await raised_stamp(world, protocol)
        producer = await made(world, protocol)
        assert (await producer.send(b"later"))[0] is NONE
        assert await commit(producer, (1, 3)) == [NONE]
        assert await producer.end() is NONE
        await until(world.has_ended_all)
        assert world.partition(0).log.highest_stamp > seen

    run(scenario)


@BOTH
def test_messages_that_no_client_has_seen_raise_no_stamp(protocol: Protocol) -> None:
    """Otherwise the tests above could not fail."""

    async def scenario(world: CoordinatedWorld) -> None:
        unseen = await raised_stamp(world, protocol)
        assert await committed_stamp(world, protocol) < unseen

    run(scenario)
