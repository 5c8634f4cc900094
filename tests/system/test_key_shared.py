"""Key_Shared with real servers: consumers come and go, and each key's order holds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from random import Random

import pytest
from tests.system.processes import BOTH, BROKER, CommandLine, Servers
from tests.system.programs import run
from tests.waiting import pace, until

import magnetar
from magnetar import Client, Consumer, MagnetarError, Message
from magnetar.enums import BatchingName

KEYS = 40
MESSAGES_PER_KEY = 50
CONSUMERS = 4
RECEIVE_S = 0.2


class Ledger:
    """Who has which value of which key in hand, and which are done.

    A key's values are numbers that count; nobody may get one while somebody else has, or has yet
    to get, a lower one. What a consumer gave back comes again to it behind what it had been given
    before that, so it may go on with that.
    """

    def __init__(self) -> None:
        self.done: dict[bytes, set[int]] = {b"k%d" % one: set() for one in range(KEYS)}
        self.in_hand: dict[tuple[bytes, int], str] = {}
        self.given_back: dict[tuple[bytes, int], str] = {}
        self.checks_order = True
        self.moves = 0
        self._last_owner: dict[bytes, str] = {}

    @property
    def done_count(self) -> int:
        return sum(map(len, self.done.values()))

    def take(self, message: Message, who: str) -> tuple[bytes, int]:
        assert message.key is not None
        key, number = message.key, int(message.value)
        if self.checks_order:
            assert number not in self.done[key], f"{number} of {key!r} comes again, after its ack"
            for lower in range(number):
                mine = who in (self.in_hand.get((key, lower)), self.given_back.get((key, lower)))
                assert mine or lower in self.done[key], f"{who} has {number}, not yet {lower}"
        self.moves += self._last_owner.get(key, who) != who
        self._last_owner[key] = who
        self.in_hand[key, number] = who
        self.given_back.pop((key, number), None)
        return key, number

    def finish(self, taken: tuple[bytes, int]) -> None:
        self.in_hand.pop(taken, None)
        self.done[taken[0]].add(taken[1])

    def give_back(self, taken: tuple[bytes, int]) -> None:
        self.given_back[taken] = self.in_hand.pop(taken)


async def produce(client: Client, random: Random, batching: BatchingName) -> None:
    producer = await client.create_producer("in", batching=batching, linger_ms=2)
    counts = [0] * KEYS
    while any(count < MESSAGES_PER_KEY for count in counts):
        for _ in range(random.randint(1, 40)):
            key = random.randrange(KEYS)
            if counts[key] < MESSAGES_PER_KEY:
                await producer.enqueue(b"%d" % counts[key], b"k%d" % key)
                counts[key] += 1
        await pace(random.uniform(0, 0.01))
    await producer.flush()


Session = Callable[[Client, Consumer, str, Random], Awaitable[None]]


async def come_and_go(servers: Servers, ledger: Ledger, session: Session, number: int) -> None:
    """One consumer after the other under the same name, until all is done."""
    random = Random(number)
    while ledger.done_count < KEYS * MESSAGES_PER_KEY:
        async with await magnetar.connect(servers.address) as client:
            consumer = await client.subscribe(
                "in",
                "s",
                type="key_shared",
                initial_position="earliest",
                receiver_queue_messages=random.choice((5, 50, 500)),
            )
            who = f"{number} {consumer.consumer_id}"
            for _ in range(random.randint(1, 12)):
                await session(client, consumer, who, random)
            await consumer.close()
        await pace(random.uniform(0, 0.1))


def plain(ledger: Ledger) -> Session:
    async def session(client: Client, consumer: Consumer, who: str, random: Random) -> None:
        messages = await consumer.receive_batch(random.randint(1, 60), timeout_s=RECEIVE_S)
        taken = [(message, ledger.take(message, who)) for message in messages]
        await pace(random.uniform(0, 0.02))
        for message, one in taken:
            # Before it is asked for: once the broker knows, the next one may go to another.
            ledger.finish(one)
            consumer.ack_nowait(message)
        await consumer.flush_acks()

    return session


def transactional(ledger: Ledger, *, aborts: float) -> Session:
    async def session(client: Client, consumer: Consumer, who: str, random: Random) -> None:
        messages = await consumer.receive_batch(random.randint(1, 60), timeout_s=RECEIVE_S)
        if not messages:
            return
        taken = [ledger.take(message, who) for message in messages]
        producer = await client.create_producer("out", batching="by_key")
        txn = await client.begin_transaction(10)
        try:
            for message in messages:
                producer.send_nowait(message.value, message.key, txn=txn)
            await consumer.ack_many(messages, txn=txn)
            await pace(random.uniform(0, 0.02))
            if random.random() >= aborts:
                for one in taken:
                    ledger.finish(one)
                await txn.commit()
                return
        except MagnetarError:
            if ledger.checks_order:
                raise
            try:
                await txn.abort()
            except MagnetarError:
                pass
            consumer.nack_many(messages, delay_s=0)
            return
        for one in taken:
            ledger.give_back(one)
        await txn.abort()

    return session


async def values_by_key(client: Client, topic: str) -> dict[bytes, list[int]]:
    found: dict[bytes, list[int]] = {}
    async for message in client.read(topic, 0):
        assert message.key is not None
        found.setdefault(message.key, []).append(int(message.value))
    return found


@pytest.mark.parametrize("batching", ["mixed", "by_key"])
@pytest.mark.parametrize("kind", ["plain", "transactional"])
def test_each_key_has_one_consumer_at_a_time_and_its_order(
    servers: Servers, kind: str, batching: BatchingName
) -> None:
    async def program() -> None:
        ledger = Ledger()
        session = plain(ledger) if kind == "plain" else transactional(ledger, aborts=0.3)
        async with await magnetar.connect(servers.address) as client:
            for topic in ("in", "out"):
                await client.admin.topics.create(topic)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(produce(client, Random(1), batching))
                for number in range(CONSUMERS):
                    tasks.create_task(come_and_go(servers, ledger, session, number))
            assert ledger.done == {key: set(range(MESSAGES_PER_KEY)) for key in ledger.done}
            assert ledger.moves > KEYS, "keys moved all the time"
            if kind == "transactional":
                out = await values_by_key(client, "out")
                assert {key: sorted(one) for key, one in out.items()} == {
                    key: list(range(MESSAGES_PER_KEY)) for key in ledger.done
                }

    run(program(), 60)


def test_no_input_is_lost_or_counted_twice_when_servers_are_killed(servers: Servers) -> None:
    """Pending acks survive, and their keys wait for them."""

    ledger = Ledger()
    ledger.checks_order = False

    async def enough(wanted: int) -> bool:
        return ledger.done_count >= wanted

    async def killer() -> None:
        for kinds in ((BROKER,), BOTH, (BROKER,)):
            before = ledger.done_count
            await until(partial(enough, before + KEYS * MESSAGES_PER_KEY // 8), 30)
            servers.kill(*kinds)
            await asyncio.to_thread(servers.start, *kinds)

    async def program() -> None:
        async with await magnetar.connect(servers.address) as client:
            for topic in ("in", "out"):
                await client.admin.topics.create(topic)
            await produce(client, Random(1), "mixed")
            out: dict[bytes, list[int]] = {}

            async def is_complete() -> bool:
                nonlocal out
                try:
                    out = await values_by_key(client, "out")
                except MagnetarError:
                    return False
                return sum(map(len, out.values())) >= KEYS * MESSAGES_PER_KEY

            kills = asyncio.create_task(killer())
            session = transactional(ledger, aborts=0.1)
            workers = [
                asyncio.create_task(keep_coming(servers, session, number))
                for number in range(CONSUMERS)
            ]
            try:
                await until(is_complete, 80)
                await kills
            finally:
                for one in (kills, *workers):
                    one.cancel()
                await asyncio.gather(*workers, return_exceptions=True)
            assert {key: sorted(one) for key, one in out.items()} == {
                key: list(range(MESSAGES_PER_KEY)) for key in ledger.done
            }

    run(program(), 90)


async def keep_coming(servers: Servers, session: Session, number: int) -> None:
    """As come_and_go, whatever happens to the servers."""
    random = Random(number)
    while True:
        try:
            async with await magnetar.connect(servers.address) as client:
                consumer = await client.subscribe(
                    "in", "s", type="key_shared", initial_position="earliest"
                )
                for _ in range(random.randint(4, 20)):
                    await session(client, consumer, f"{number}", random)
        except MagnetarError:
            await pace(0.1)


def test_on_the_command_line(servers: Servers, tmp_path: Path) -> None:
    lines = [f"k{number % 5}:{number}" for number in range(50)]
    (tmp_path / "lines").write_text("\n".join(lines) + "\n")
    magnetar_at = CommandLine(servers)
    magnetar_at.run(
        *("produce", "in", "--file", str(tmp_path / "lines")),
        *("--key-separator", ":", "--batching", "by_key"),
    )
    printed = magnetar_at.run(
        *("consume", "in", "-s", "s", "--type", "key_shared", "--until-end"),
        *("--key-separator", ":"),
    ).splitlines()
    for key in range(5):
        prefix = f"k{key}:"
        of_key = [line for line in lines if line.startswith(prefix)]
        assert [one for one in printed if one.startswith(prefix)] == of_key
    assert len(printed) == len(lines)
