"""A topic of three real brokers that grows under load: by key, in transactions, groups and cuts.

Brokers restart meanwhile. Everything that was confirmed is there once, each transaction is whole
in the topic and in every cut, and a group and a subscription without consumers get all of it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.histories import check_history, settings_in
from tests.system.processes import Servers
from tests.system.programs import run
from tests.waiting import until

import magnetar
from magnetar import Client, ClientConfig
from magnetar_core.errors import MagnetarError

TOPIC = "grown"
CONFIG = ClientConfig(topic_refresh_ms=300)
COUNTS = (5, 9, 14)
ROUNDS_BETWEEN = 15
PATIENCE_S = 120.0


class _Load:
    """What was sent, and what is known of it.

    Attributes:
        stored: values whose sending was confirmed.
        partitions: where single messages of them are.
        together: the values of each transaction that was begun.
        rounds: how many transactions were tried.
    """

    def __init__(self) -> None:
        self.stored: set[bytes] = set()
        self.partitions: set[int] = set()
        self.together: list[list[bytes]] = []
        self.rounds = 0
        self.grown = False

    def is_torn(self, seen: set[bytes]) -> bool:
        return any(0 < len(seen.intersection(one)) < len(one) for one in self.together)


async def produce(client: Client, load: _Load, name: str) -> None:
    """Send by key, alone and three at a time in transactions."""
    producer = await client.create_producer(TOPIC)
    number = 0
    while not load.grown:
        number += 1
        value = b"%s-%d" % (name.encode(), number)
        try:
            at = await producer.send(value, key=value)
            load.stored.add(value)
            load.partitions.add(at.partition)
        except MagnetarError:
            pass  # It may be stored, or not.
        values = [value + b"-in-%d" % one for one in range(3)]
        load.together.append(values)
        try:
            async with client.transaction() as txn:
                for one in values:
                    await producer.send(one, key=one, txn=txn)
            load.stored.update(values)
        except MagnetarError:
            pass  # The same, as a whole.
        load.rounds += 1


async def consume(client: Client, got: Counter[bytes]) -> None:
    member = await client.consumer_group("workers", [TOPIC], initial_position="earliest")
    while True:
        message = await member.receive()
        try:
            await member.ack(message)
        except MagnetarError:
            continue  # The partition was given to another member, which gets it again.
        got[message.value] += 1


async def cut(client: Client, load: _Load) -> int:
    """Take cuts until the topic is grown; return how many were read."""
    taken = 0
    while not load.grown:
        known = set(load.stored)
        try:
            at = await client.cut(TOPIC)
            seen = {one.value async for one in client.read(TOPIC, at=at)}
        except MagnetarError:
            continue  # A broker is away.
        assert known <= seen, "a cut lacks what was confirmed before"
        assert not load.is_torn(seen), "a cut tears a transaction"
        taken += 1
    return taken


@pytest.fixture
def three_brokers(tmp_path: Path) -> Any:
    running = Servers(tmp_path, settings_in(tmp_path), {"broker": 3, "coordinator": 1})
    with running.running():
        yield running
        running.stop()
    check_history(tmp_path)


def test_a_topic_grows_under_load_and_loses_nothing(three_brokers: Servers) -> None:
    async def program() -> None:
        load, got = _Load(), Counter[bytes]()
        async with (
            await magnetar.connect(three_brokers.address, config=CONFIG) as client,
            await magnetar.connect(three_brokers.address, config=CONFIG) as other,
        ):
            await client.admin.topics.create(TOPIC, partitions=2)
            await client.admin.subscriptions.create(TOPIC, "later", initial_position="earliest")
            producing = [spawn(produce(client, load, "a")), spawn(produce(other, load, "b"))]
            members = [spawn(consume(one, got)) for one in (client, other)]
            cutting = spawn(cut(other, load))
            async with asyncio.timeout(PATIENCE_S):
                for place, count in enumerate(COUNTS):
                    await reach(load, ROUNDS_BETWEEN * (place + 1))
                    await client.admin.topics.alter(TOPIC, partitions=count, keys_move=True)
                    # Each broker in turn is away for a moment.
                    await asyncio.to_thread(three_brokers.restart, "broker", place)
                # Keys decide where a message goes: some partitions are reached late.
                await until(lambda: len(load.partitions) == COUNTS[-1], PATIENCE_S)
                load.grown = True
                await asyncio.gather(*producing)
                assert await cutting > 0
                messages = [one async for one in client.read(TOPIC)]
                values = [one.value for one in messages]
                assert len(set(values)) == len(values), "a message is doubled"
                assert load.stored <= set(values), "a confirmed message is lost"
                assert not load.is_torn(set(values))
                assert {one.partition for one in messages} == set(range(COUNTS[-1]))
                later = await client.subscribe(TOPIC, "later")
                missed = Counter(values)
                while missed:
                    message = await later.receive()
                    await later.ack(message)
                    missed.pop(message.value, None)
                await until(lambda: set(values) <= set(got), PATIENCE_S)
                for one in members:
                    one.cancel()
                await asyncio.gather(*members, return_exceptions=True)

    run(program())


async def reach(load: _Load, rounds: int) -> None:
    """Wait until so many transactions were tried."""
    await until(lambda: load.rounds >= rounds, PATIENCE_S)


def spawn(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    return asyncio.ensure_future(work)
