"""Mistakes of users and trouble around servers: a typed error each, and nothing lost."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.system.processes import BROKER, COORDINATOR, MAGNETAR, CommandLine, Servers
from tests.waiting import until

import magnetar
from magnetar import Client, Consumer, MessageId, Producer, TxnID
from magnetar_core.batch import encode
from magnetar_core.errors import ChecksumMismatch, MagnetarError, SequenceGap
from magnetar_core.wire import broker_pb2

# Low limits, so that they are reached.
SETTINGS = {
    "MAGNETAR_TOPICS_MAX": "3",
    "MAGNETAR_BATCH_BYTES_MAX": str(1 << 20),
    "MAGNETAR_OUTCOMES_MAX": "3",
    "MAGNETAR_LIVE_TXNS_MAX": "5",
    "MAGNETAR_PARTICIPANTS_MAX": "2",
    "MAGNETAR_TXN_TIMEOUT_MS_MAX": "900000",
}


class Scene:
    """A topic with a message, a producer and a consumer that holds the message."""

    def __init__(self, client: Client, producer: Producer, consumer: Consumer) -> None:
        self.client = client
        self.producer = producer
        self.consumer = consumer

    async def ended(self) -> TxnID:
        txn = await self.client.begin_transaction()
        await self.producer.send(b"in a transaction", partition=0, txn=txn)
        await txn.commit(wait_finished=True)
        return txn.txn_id

    async def forgotten(self) -> TxnID:
        first = await self.ended()
        for _ in range(5):
            await self.ended()
        await until(partial(self._is_forgotten, first))
        return first

    async def _is_forgotten(self, txn_id: TxnID) -> bool:
        try:
            await self.client.admin.transactions.describe(txn_id)
        except magnetar.TxnForgotten:
            return True
        return False

    async def send_by_hand(self, **fields: Any) -> None:
        route = await self.client._cluster.route("t")
        command = broker_pb2.CommandSend(
            **{
                "partition": route.partition_name(0).to_wire(),
                "producer_id": 77,
                "num_messages": 1,
                "batch": encode([b"x"]),
                **fields,
            }
        )
        await route.connection(0).request(command)

    async def conflicting_ack(self) -> None:
        message = await self.consumer.receive()
        async with self.client.transaction() as holder:
            await self.consumer.ack(message, txn=holder)
            async with self.client.transaction() as other:
                await self.consumer.ack(message, txn=other)

    async def too_many(self) -> None:
        for _ in range(10):
            await self.client.begin_transaction()

    async def wide(self) -> None:
        async with self.client.transaction() as txn:
            for partition in range(3):
                await self.producer.send(b"x", partition=partition, txn=txn)


Attempt = Callable[[Scene], Awaitable[object]]

Expected = type[MagnetarError] | tuple[type[MagnetarError], ...]

MISTAKES: dict[str, tuple[Attempt, Expected]] = {
    "unknown topic": (lambda s: s.client.create_producer("u"), magnetar.TopicNotFound),
    "unknown subscription": (
        lambda s: s.client.admin.subscriptions.seek("t", "none", offset=0),
        magnetar.SubscriptionNotFound,
    ),
    "invalid topic name": (
        lambda s: s.client.admin.topics.create("no spaces"),
        magnetar.InvalidArgument,
    ),
    "topic that exists": (lambda s: s.client.admin.topics.create("t"), magnetar.TopicExists),
    "unknown TxnID": (
        lambda s: s.client.admin.transactions.describe(TxnID.of(0, 1, 1 << 40)),
        magnetar.TxnNotFound,
    ),
    "TxnID of no coordinator": (
        lambda s: s.client.admin.transactions.describe(TxnID.of(9, 1, 1)),
        magnetar.TxnNotFound,
    ),
    "forgotten TxnID": (
        lambda s: _then(s.forgotten(), s.client.admin.transactions.describe),
        magnetar.TxnForgotten,
    ),
    "ended TxnID": (
        lambda s: _then(
            s.ended(), lambda one: s.send_by_hand(txn_id=one.to_wire(), producer_id=78)
        ),
        magnetar.InvalidTxnState,
    ),
    "conflicting ack": (lambda s: s.conflicting_ack(), magnetar.TransactionConflict),
    "oversized message": (
        lambda s: s.producer.send(bytes((256 << 20) + 1)),
        magnetar.MessageTooLarge,
    ),
    "oversized batch": (
        lambda s: s.send_by_hand(batch=encode([bytes(2 << 20)])),
        magnetar.MessageTooLarge,
    ),
    "timeout beyond the limit": (
        lambda s: s.client.begin_transaction(timeout_s=901),
        magnetar.InvalidArgument,
    ),
    # It is sent again until the time is up, when one more may be on its way.
    "bad checksum": (
        lambda s: s.send_by_hand(batch=_damaged()),
        (ChecksumMismatch, magnetar.OutcomeUnknown),
    ),
    "no batch at all": (lambda s: s.send_by_hand(batch=b"junk"), magnetar.InvalidArgument),
    "wrong count": (lambda s: s.send_by_hand(num_messages=2), magnetar.InvalidArgument),
    "sequence gap": (lambda s: s.send_by_hand(sequence_id=5), SequenceGap),
    "ack of what was never there": (
        lambda s: s.consumer.ack(MessageId(1, 1 << 30, 0, 0)),
        magnetar.InvalidArgument,
    ),
    "offset beyond the end": (
        lambda s: s.consumer.seek(offset=1 << 30, partition=0),
        magnetar.OutOfRange,
    ),
    "busy subscription": (lambda s: s.client.subscribe("t", "s"), magnetar.ConsumerBusy),
    "limit of topics": (lambda s: _topics(s.client), magnetar.QuotaExceeded),
    "limit of transactions": (lambda s: s.too_many(), magnetar.QuotaExceeded),
    "limit of participants": (lambda s: s.wide(), MagnetarError),
}


async def _then(first: Awaitable[Any], second: Callable[[Any], Awaitable[Any]]) -> object:
    return await second(await first)


async def _topics(client: Client) -> None:
    for number in range(4):
        await client.admin.topics.create(f"more-{number}")


def _damaged() -> bytes:
    data = bytearray(encode([b"x" * 100]))
    data[-1] ^= 1
    return bytes(data)


@pytest.fixture
def strict_servers(tmp_path: Path) -> Iterator[Servers]:
    running = Servers(tmp_path, SETTINGS)
    running.start()
    yield running
    running.stop()


def test_mistakes_get_typed_errors_and_lose_nothing(strict_servers: Servers) -> None:
    config = magnetar.ClientConfig(operation_timeout_ms=700)

    async def attempt(name: str, mistake: Attempt, error: Expected) -> None:
        """A client of its own each: nothing that one leaves open meets the next."""
        async with await magnetar.connect(strict_servers.address, config=config) as client:
            await client.admin.topics.create("t", partitions=3)
            producer = await client.create_producer("t")
            await producer.send(b"kept", partition=0)
            consumer = await client.subscribe("t", "s", initial_position="earliest")
            with pytest.raises(error) as raised:
                await mistake(Scene(client, producer, consumer))
            assert str(raised.value), name
            assert type(raised.value) is not magnetar.InternalError, name
        # What came for a transaction that was refused goes with the watermark's next round.
        async with await magnetar.connect(strict_servers.address) as client:
            plain = [one.value async for one in client.read("t") if one.txn_id is None]
            assert plain == [b"kept"], name
            for topic in await client.admin.topics.list():
                await client.admin.topics.delete(topic.topic, force=True)

    async def scenario() -> None:
        for name, (mistake, error) in MISTAKES.items():
            try:
                await attempt(name, mistake, error)
            except BaseException as failure:
                failure.add_note(f"at: {name}")
                raise

    asyncio.run(scenario())


def refused_start(servers: Servers, *arguments: str, **environ: str) -> str:
    """Start a server that must refuse; returns what it says."""
    done = subprocess.run(
        [*MAGNETAR, *arguments],
        capture_output=True,
        text=True,
        env={**servers.environ, **environ},
        timeout=20,
        check=False,
    )
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    return done.stderr


# Shards that move are in no directory.
@pytest.mark.keeps_shards
def test_data_directories_that_belong_elsewhere(servers: Servers, tmp_path: Path) -> None:
    broker_dir, own = str(tmp_path / BROKER), ("--name", "broker-0")
    said = refused_start(servers, "broker", *own, "--data-dir", broker_dir, "--port", "0")
    assert "another process uses this data directory" in said
    servers.kill()
    said = refused_start(
        servers,
        *("broker", "--name", "broker-1", "--data-dir", broker_dir, "--port", "0"),
        MAGNETAR_BROKERS="broker-1=127.0.0.1:1",
    )
    assert "belongs to the broker 'broker-0'" in said
    said = refused_start(
        servers,
        *("broker", *own, "--data-dir", str(tmp_path / COORDINATOR), "--port", "0"),
    )
    assert "belongs to the coordinator 'coordinator-0'" in said
    servers.start()


def test_a_list_without_a_coordinator_says_so(servers: Servers) -> None:
    """A script that reads it must not take it for whole."""
    command_line = CommandLine(servers)
    assert command_line.json("transactions", "list") == []
    servers.kill(COORDINATOR)
    said = command_line.run("transactions", "list", status=1)
    assert "Warning: coordinator 0 does not answer" in said
    servers.start(COORDINATOR)


def test_a_server_that_is_away(servers: Servers) -> None:
    """Whoever asks is told; whoever sent is served when it is back."""
    config = magnetar.ClientConfig(operation_timeout_ms=500)

    async def scenario() -> None:
        async with await magnetar.connect(servers.address) as patient:
            await patient.admin.topics.create("t")
        async with await magnetar.connect(servers.address, config=config) as client:
            producer = await client.create_producer("t")
            servers.kill(COORDINATOR)
            with pytest.raises(magnetar.LogUnavailable):
                await client.begin_transaction()
            await producer.send(b"plain sends need no coordinator")
            servers.kill(BROKER)
            sending = asyncio.create_task(producer.send(b"sent while away"))
            with pytest.raises((magnetar.LogUnavailable, magnetar.OutcomeUnknown)):
                await client.admin.topics.list()
            servers.start()
            await sending
        async with await magnetar.connect(servers.address) as client:
            producer = await client.create_producer("t")
            txn = await client.begin_transaction()
            await producer.send(b"in a transaction", txn=txn)
            await txn.commit(wait_finished=True)
            assert len([one async for one in client.read("t")]) == 3

    asyncio.run(scenario())


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "disk"
    directory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=160m", "tmpfs", str(directory)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("a file system of its own needs the right to mount one")
    yield directory
    subprocess.run(["umount", "-l", str(directory)], check=True)


async def refusals(client: Client, probes: Producer) -> list[bool]:
    """Whether the broker, and whether the coordinator, says that the disk is full."""
    found = []
    for ask in (partial(probes.send, b"probe"), partial(_begin_and_abort, client)):
        try:
            await ask()
        except magnetar.DiskFull:
            found.append(True)
        else:
            found.append(False)
    return found


async def _begin_and_abort(client: Client) -> None:
    await (await client.begin_transaction()).abort()


async def is_full(client: Client, probes: Producer) -> bool:
    return all(await refusals(client, probes))


async def has_room(client: Client, probes: Producer) -> bool:
    return not any(await refusals(client, probes))


def test_a_full_disk(small_disk: Path) -> None:
    """Writes are refused; reads, acks and ends go on; with room again, everything does."""
    servers = Servers(small_disk, {"MAGNETAR_FREE_SPACE_FLOOR_BYTES": str(32 << 20)})
    servers.start()
    filler = small_disk / "filler"

    async def scenario() -> None:
        async with await magnetar.connect(servers.address) as client:
            await client.admin.topics.create("t")
            await client.admin.topics.create("probes")
            producer = await client.create_producer("t")
            probes = await client.create_producer("probes")
            consumer = await client.subscribe("t", "s", initial_position="earliest")
            await producer.send(b"before")
            txn = await client.begin_transaction()
            await producer.send(b"in a transaction", txn=txn)
            with filler.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, 135 << 20)
            # Servers look at the disk now and then.
            await until(partial(is_full, client, probes))
            with pytest.raises(magnetar.DiskFull):
                await producer.send(b"refused")
            with pytest.raises(magnetar.DiskFull):
                await client.begin_transaction()
            message = await consumer.receive()
            assert message.value == b"before"
            await consumer.ack(message, txn=txn)
            await txn.commit(wait_finished=True)
            assert (await consumer.receive()).value == b"in a transaction"
            filler.unlink()
            await until(partial(has_room, client, probes))
            await producer.send(b"after")
            async with client.transaction() as again:
                await producer.send(b"also in a transaction", txn=again)
            await again.commit(wait_finished=True)
        servers.kill()
        servers.start()
        async with await magnetar.connect(servers.address) as client:
            assert [one.value async for one in client.read("t")] == [
                b"before",
                b"in a transaction",
                b"after",
                b"also in a transaction",
            ]

    try:
        asyncio.run(scenario())
    finally:
        servers.stop()
