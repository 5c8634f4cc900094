"""Groups with real servers and real processes: the example, killed; and members of this process."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random

import pytest
from tests.system.processes import BROKER, COORDINATOR, Servers
from tests.system.programs import run
from tests.waiting import pace, until, wait_until

import magnetar
from magnetar import Client, GroupConsumer, Message, Output, blocking, process

ROOT = Path(__file__).parents[2]
WORDS = ["to", "be", "or", "not"]
PARTITIONS = 4


@contextmanager
def example(servers: Servers, *options: str) -> Iterator[subprocess.Popen[str]]:
    working = subprocess.Popen(
        [
            *(sys.executable, str(ROOT / "examples" / "word_count.py")),
            *("--broker", servers.address, "--session-timeout-s", "1", *options),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield working
    finally:
        working.kill()
        working.communicate()


async def count_in(client: Client) -> Counter[str]:
    counts: Counter[str] = Counter()
    async for message in client.read("words"):
        assert message.key is not None
        counts[message.key.decode()] += int(message.value)
    return counts


async def has_counted(client: Client, more_than: int) -> bool:
    return (await count_in(client)).total() > more_than


def test_every_word_counts_once_while_counters_are_killed(servers: Servers) -> None:
    random = Random(7)
    lines = [" ".join(random.choices(WORDS, k=6)) for _ in range(2_000)]
    expected = Counter(word for line in lines for word in line.split())

    async def program() -> None:
        async with await magnetar.connect(servers.address) as client:
            await client.admin.topics.create("lines", partitions=PARTITIONS)
            await client.admin.topics.create("words")
            producer = await client.create_producer("lines")

            async def produce() -> None:
                for number, line in enumerate(lines):
                    await producer.enqueue(line.encode(), b"%d" % number)
                    if number % 20 == 0:
                        await producer.flush()
                        await pace(0.02)
                await producer.flush()

            producing = asyncio.create_task(produce())
            for _ in range(2):
                with example(servers) as one, example(servers):
                    await asyncio.to_thread(one.stdout.readline)  # type: ignore[union-attr]
                    before = (await count_in(client)).total()
                    await until(partial(has_counted, client, before))
            with example(servers):
                await producing

                async def is_complete() -> bool:
                    return (await count_in(client)).total() >= expected.total()

                await until(is_complete, 20)
            assert await count_in(client) == expected

    run(program(), timeout_s=90)


def test_the_example_says_in_one_line_what_is_wrong(servers: Servers) -> None:
    with example(servers) as working:
        _, errors = working.communicate(timeout=20)
    assert working.returncode == 1
    assert errors.startswith("TopicNotFound: ")
    assert len(errors.splitlines()) == 1


async def inputs(client: Client, count: int) -> None:
    await client.admin.topics.create("in", partitions=PARTITIONS)
    await client.admin.topics.create("out", partitions=PARTITIONS)
    producer = await client.create_producer("in")
    for partition in range(PARTITIONS):
        await producer.send_many(
            [b"%d-%d" % (partition, n) for n in range(count)], partition=partition
        )
    await producer.flush()


async def outputs(client: Client) -> list[bytes]:
    found: list[bytes] = []
    for partition in range(PARTITIONS):
        found += [one.value async for one in client.read("out", partition)]
    return found


async def has_more_outputs(client: Client, than: int) -> bool:
    return len(await outputs(client)) > than


def echo(message: Message) -> list[Output]:
    return [Output("out", message.value, b"%d" % message.partition)]


async def receive_for_ever(consumer: GroupConsumer) -> None:
    async for _ in consumer:
        pass


async def receive_all(consumer: GroupConsumer, count: int) -> list[Message]:
    """Receive so many messages: what has arrived comes first, of some partitions perhaps alone."""
    messages: list[Message] = []
    while len(messages) < count:
        messages += await consumer.receive_batch(count - len(messages), timeout_s=5)
    return messages


async def slowly(message: Message) -> list[Output]:
    await pace(0.001)
    return echo(message)


async def member(client: Client, **options: object) -> GroupConsumer:
    return await client.consumer_group(
        "g",
        "in",
        initial_position="earliest",
        session_timeout_s=1,
        **options,  # type: ignore[arg-type]
    )


async def has_members(client: Client, count: int) -> bool:
    return len((await client.admin.groups.describe("g")).members) == count


async def is_alone(client: Client, left: GroupConsumer) -> bool:
    """Whether the group has no other member, and this one has heard of it."""
    described = await client.admin.groups.describe("g")
    members = [one.member_id for one in described.members]
    return members == [left.member_id] and described.summary.generation == left.generation


async def has_share_to_come(client: Client, waiting: GroupConsumer) -> bool:
    """Whether the group wants it to have something that another member still holds."""
    described = await client.admin.groups.describe("g")
    return any(one.next_member_id == waiting.member_id for one in described.partitions)


async def heartbeats(client: Client) -> None:
    """Until the broker has heard from every member once more."""
    silent_ms: dict[str, int] = {}
    heard: set[str] = set()

    async def from_all() -> bool:
        members = (await client.admin.groups.describe("g")).members
        for one in members:
            if one.silent_ms < silent_ms.get(one.member_id, 0):
                heard.add(one.member_id)
            silent_ms[one.member_id] = one.silent_ms
        return heard == {one.member_id for one in members}

    await until(from_all)


async def wait_for_shares(*members: GroupConsumer) -> None:
    async def shared() -> bool:
        places = [place for one in members for place in one.assignment]
        counts = [len(one.assignment) for one in members]
        even = max(counts) - min(counts) <= 1
        return even and len(places) == len(dict.fromkeys(places)) == PARTITIONS

    await until(shared, 10)


def test_members_come_and_go(servers: Servers) -> None:
    async def program() -> None:
        async with (
            await magnetar.connect(servers.address) as client,
            await magnetar.connect(servers.address) as other_client,
        ):
            await inputs(client, 10)
            one = await member(client)
            await wait_for_shares(one)
            # A partition of which nothing was given out may move at once.
            first = await receive_all(one, PARTITIONS * 10)
            other = await member(other_client)
            # Nothing moves before what was given out is settled.
            await until(partial(has_share_to_come, client, other))
            for _ in range(2):
                # With one heartbeat each member hears of it; by the next one it would have moved.
                await heartbeats(client)
            assert not other.assignment
            await one.ack_many(first)
            receiving = asyncio.create_task(one.receive_batch(1_000, timeout_s=20))
            await wait_for_shares(one, other)
            assert len(one.assignment) == len(other.assignment) == 2
            receiving.cancel()
            await other.close()
            await wait_for_shares(one)
            # A server that had no share of the other one tells nobody at once that it has left.
            await until(partial(is_alone, client, one))

    run(program(), timeout_s=60)


def test_a_zombie_is_fenced_and_its_transaction_aborted(servers: Servers) -> None:
    async def program() -> None:
        async with (
            await magnetar.connect(servers.address) as client,
            await magnetar.connect(servers.address) as other_client,
        ):
            await inputs(client, 5)
            zombie = await member(client, max_poll_interval_s=2)
            messages = await receive_all(zombie, PARTITIONS * 5)
            producer = client.transactional_producer()
            await producer.init_transactions(zombie)
            await producer.begin()
            await producer.send("out", b"never")
            await producer.acknowledge(zombie, messages[:10])
            # It does not come back: others take over, and wait for what it left.
            other = await member(other_client)
            await wait_for_shares(other)
            again: list[Message] = []
            while len(again) < len(messages):
                batch = await other.receive_batch(100, timeout_s=10)
                assert batch
                again += batch
            with pytest.raises(magnetar.IllegalGeneration):
                await zombie.ack_many(messages[10:], txn=producer.transaction)
            with pytest.raises(magnetar.TxnError):
                await producer.commit()
            await other.ack_many(again)
            assert await outputs(client) == []
            # With its next receive it is a member again.
            assert await zombie.poll(0.1) == []
            await wait_for_shares(zombie, other)

    run(program(), timeout_s=60)


def test_a_static_member_that_restarts_moves_nothing(servers: Servers) -> None:
    async def program() -> None:
        async with await magnetar.connect(servers.address) as client:
            await inputs(client, 1)
            one, other = (
                await member(client, instance_id="a"),
                await member(client, instance_id="b"),
            )
            await wait_for_shares(one, other)
            before = other.assignment
            mine = one.assignment
            await one.close()
            again = await member(client, instance_id="a")
            await wait_for_shares(again, other)
            assert (other.assignment, sorted(again.assignment)) == (before, sorted(mine))
            third = await member(client, instance_id="a")
            with pytest.raises(magnetar.FencedInstance):
                await receive_for_ever(again)
            await wait_for_shares(third, other)

    run(program(), timeout_s=60)


@pytest.mark.parametrize(
    ("killed", "transactional"),
    [
        (BROKER, True),
        (COORDINATOR, False),
        pytest.param(BROKER, False, marks=pytest.mark.soak),
        pytest.param(COORDINATOR, True, marks=pytest.mark.soak),
    ],
)
def test_the_loop_goes_on_through_kills_and_rebalances(
    servers: Servers, killed: str, transactional: bool
) -> None:
    count = 800

    async def program() -> None:
        async with (
            await magnetar.connect(servers.address) as client,
            await magnetar.connect(servers.address) as other_client,
        ):
            await inputs(client, count)
            stop = asyncio.Event()

            async def work(worker: Client, name: str) -> magnetar.ProcessSummary:
                consumer = await member(worker)
                producer = worker.transactional_producer(name if transactional else None)
                return await process(
                    consumer, slowly, producer, batch_messages_max=50, batch_wait_s=0, stop=stop
                )

            working = [asyncio.create_task(work(client, "one"))]
            await until(partial(outputs, client))
            working.append(asyncio.create_task(work(other_client, "two")))
            await until(partial(has_members, client, 2))
            before = len(await outputs(client))
            await until(partial(has_more_outputs, client, before))
            assert len(await outputs(client)) < PARTITIONS * count
            await asyncio.to_thread(servers.kill, killed)
            await asyncio.to_thread(servers.start, killed)

            async def is_complete() -> bool:
                for one in working:
                    if one.done():
                        one.result()
                description = await client.admin.topics.describe("out")
                ends = [one.end_offset for one in description.partitions]
                return sum(ends) >= PARTITIONS * count

            await until(is_complete, 60)
            stop.set()
            summaries = await asyncio.gather(*working)
            assert sum(summary.messages_in for summary in summaries) == PARTITIONS * count
            found = await outputs(client)
            print([str(summary) for summary in summaries])
            assert len(found) == PARTITIONS * count
            for partition in range(PARTITIONS):
                mine = [one for one in found if one.startswith(b"%d-" % partition)]
                assert mine == [b"%d-%d" % (partition, n) for n in range(count)]

    run(program(), timeout_s=120)


def test_without_asyncio(servers: Servers) -> None:
    with blocking.connect(servers.address) as client:
        client.admin.topics.create("in", partitions=2)
        client.admin.topics.create("out")
        with client.create_producer("in") as sender:
            sender.send_many([b"%d" % n for n in range(10)])
        told: list[int] = []
        consumer = client.consumer_group(
            "g",
            "in",
            initial_position="earliest",
            on_assigned=lambda places: told.append(len(client.admin.topics.list())),
        )
        producer = client.transactional_producer()
        producer.init_transactions(consumer)
        done = 0
        while done < 5:
            messages = consumer.poll(5, max_messages=5 - done)
            producer.begin()
            producer.send_offsets_to_transaction(magnetar.offsets(messages))
            producer.commit()
            done += len(messages)
        # Once, unless the group's shard has moved and the member had to join again.
        assert set(told) == {2}

        # An operator's signal ends it after the batch under way.
        operator = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGTERM))
        operator.start()
        summary = blocking.process(consumer, lambda one: [Output("out", one.value)], producer)
        operator.join()
        assert summary.messages_in == 5
        wait_until(lambda: len(list(client.read("out"))) == 5)
        consumer.close()
