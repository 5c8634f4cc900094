"""One flipped bit in a server's files: refused at the start, or DataLoss for what it damaged.

A broker and a coordinator fill their stores, are stopped, go on, and are killed: tables, files of
values, logs and manifests are there. Then one bit is flipped in one file of a copy, and the server
starts on it. It may refuse, and say what to do; or serve, and then everything is right, but for
DataLoss; nothing is silently missing, and nothing ends the process.
"""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from tests.broker import harness as brokers
from tests.configs import broker_config
from tests.coordinator import fakes as coordinators

from magnetar_broker.broker import Broker
from magnetar_broker.keys import FAMILIES, PAYLOAD_FAMILIES
from magnetar_coordinator.coordinator import Coordinator
from magnetar_coordinator.metadata.records import FAMILIES as COORDINATOR_FAMILIES
from magnetar_core.errors import DataLoss
from magnetar_core.ids import TxnID
from magnetar_core.wire import broker_pb2 as wire
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import topic_pb2 as topic_wire
from magnetar_storage.rocksdb.engine import RocksStore
from magnetar_storage.store import StoreDamaged

SETTINGS = {"free_space_floor_bytes": 1, "tail_bytes_max": 1}
TRANSACTIONS = 60
KINDS = ("*.sst", "*.values", "*.log", "MANIFEST-*")
REFUSED, LOST, WHOLE = "refused", "DataLoss", "whole"
# Of the places, half in each server.
SAMPLE = 24
ALL = 200


class BrokerWorld(brokers.World):
    """A broker on a data directory."""

    def __init__(self, path: Path) -> None:
        super().__init__(**SETTINGS)
        self.config = broker_config(**self.settings)
        self.path = path
        self.store: RocksStore | None = None

    async def open(self) -> None:
        self.store = RocksStore.open(self.path, FAMILIES, payload_families=PAYLOAD_FAMILIES)
        self.broker = Broker(
            self.config, self.store, brokers.Alone(), self.clock, Random(7), self.fatal.append
        )
        await self.broker.start()
        self.client = brokers.Client(self)
        # The same again for the same store.
        await self.ask(topic_wire.CommandTakeIncarnation(store_token=brokers.store_token(1)))
        await self.ask(brokers.watermark(0, bound=brokers.COUNTER_BOUND))

    async def ask(self, body: Any) -> Any:
        """A sync runs on a thread: there is no telling after how many turns it is done."""
        async with asyncio.timeout(30):
            return await self.client.begin(body)

    async def close(self) -> None:
        if self.store is not None:
            try:
                await self.broker.close()
            finally:
                await self.store.close()


Messages = dict[int, bytes]


async def fill_broker(path: Path, left: Path) -> tuple[Messages, dict[TxnID, list[bytes]]]:
    """Returns messages by their offsets, and what open transactions hold."""
    random = Random(1)
    expected: Messages = {}
    opened: dict[TxnID, list[bytes]] = {}
    world = BrokerWorld(path)
    await world.open()
    await world.ask(topic_wire.CommandCreateTopic(topic="t", partitions=2))
    await world.ask(brokers.subscribe())
    end_offset = sequence = 0
    for number in range(TRANSACTIONS):
        if number == TRANSACTIONS // 2:
            # What an orderly end flushes becomes tables.
            await world.close()
            await world.open()
        size = random.choice((10, 300, 3_000, 20_000))
        values = [random.randbytes(size) for _ in range(random.randint(1, 4))]
        await world.ask(brokers.send(*values, sequence=sequence))
        sequence += len(values)
        expected |= dict(enumerate(values, start=end_offset))
        end_offset += len(values)
        txn_id = brokers.txn(number + 1)
        batches = [[random.randbytes(size)] * count for count in (1, 2)]
        for index, batch in enumerate(batches):
            await world.ask(brokers.send(*batch, in_txn=txn_id, sequence=index))
        values = [value for batch in batches for value in batch]
        if number % 5 == 4:
            opened[txn_id] = values
        elif number % 5 == 3:
            await world.ask(brokers.end(txn_id, common.ABORT))
        else:
            await world.ask(brokers.end(txn_id))
            expected |= dict(enumerate(values, start=end_offset))
            end_offset += len(values)
        await world.ask(brokers.ack((number, number)))
    shutil.copytree(path, left, ignore=shutil.ignore_patterns("LOCK"))
    await world.close()
    return expected, opened


async def judge_broker(path: Path, expected: Messages, opened: dict[TxnID, list[bytes]]) -> str:
    """Start a broker on damaged files, and hold what it serves against what it had."""
    world = BrokerWorld(path)
    try:
        await world.open()
    except StoreDamaged as error:
        refusal = str(error)
    else:
        refusal = ""
    if refusal:
        assert "put back" in refusal
        await world.close()
        return REFUSED
    # What is open may end, and is then there like everything else.
    for txn_id, values in opened.items():
        end_offset = world.partition().log.end_offset
        await world.ask(brokers.end(txn_id, counts={1: len(values)}))
        expected = expected | dict(enumerate(values, start=end_offset))
    world.partition().log.check()
    assert world.partition().log.end_offset == len(expected)
    found: Messages = {}
    lost: set[int] = set()
    offset = 0
    while offset < len(expected):
        read = wire.CommandRead(partition=brokers.partition(), start_offset=offset)
        try:
            answer = await world.ask(read)
        except DataLoss as error:
            lost.add(int(error.details["offset"]))
            offset += 1
            assert max(lost) == offset - 1
            continue
        assert answer.next_offset > offset
        found |= dict(message for batch in answer.batches for message in brokers.messages_of(batch))
        offset = answer.next_offset
    assert found == {key: value for key, value in expected.items() if key not in lost}
    # It goes on writing, and reads behind what is lost once that was given up.
    await world.ask(brokers.send(b"new", producer=2))
    answer = await world.ask(wire.CommandSkipDamaged(partition=brokers.partition()))
    skipped = {one for gap in answer.damaged for one in range(gap.first, gap.last + 1)}
    assert skipped >= lost
    read = wire.CommandRead(partition=brokers.partition(), start_offset=len(expected))
    assert (await world.ask(read)).next_offset == len(expected) + 1
    assert not world.fatal
    assert not world.failures
    await world.close()
    return LOST if lost else WHOLE


class CoordinatorWorld(coordinators.World):
    """A coordinator on a data directory."""

    def __init__(self, path: Path) -> None:
        super().__init__(free_space_floor_bytes=1)
        self.path = path
        self.store: RocksStore | None = None

    def make(self) -> Coordinator:
        self.store = RocksStore.open(self.path, COORDINATOR_FAMILIES)
        self.registry = CollectorRegistry()
        return Coordinator(
            self.config,
            self.store,
            self.transport,
            self.clock,
            self.random,
            self.fatal_errors.append,
            self.registry,
        )

    async def close(self) -> None:
        if self.store is not None:
            try:
                await self.coordinator.close()
            finally:
                await self.store.close()


async def fill_coordinator(path: Path, left: Path) -> dict[TxnID, int]:
    """Returns the status of every transaction."""
    statuses: dict[TxnID, int] = {}
    world = CoordinatorWorld(path)
    await world.start()
    for number in range(4 * TRANSACTIONS):
        if number == 2 * TRANSACTIONS:
            await world.close()
            await world.start()
        txn_id = await world.client.new()
        if number % 3:
            action = common.COMMIT if number % 3 == 1 else common.ABORT
            statuses[txn_id] = await world.client.end(txn_id, action, wait_finished=True)
        else:
            statuses[txn_id] = common.OPEN
    shutil.copytree(path, left, ignore=shutil.ignore_patterns("LOCK"))
    await world.close()
    return statuses


async def judge_coordinator(path: Path, statuses: dict[TxnID, int]) -> str:
    world = CoordinatorWorld(path)
    try:
        await world.start()
    except StoreDamaged as error:
        refusal = str(error)
    else:
        refusal = ""
    if refusal:
        assert "put back" in refusal
        if world.store is not None:
            await world.store.close()
        return REFUSED
    lost = False
    for txn_id, status in statuses.items():
        try:
            assert await world.client.status(txn_id) == status
        except DataLoss:
            lost = True
    assert await world.client.new() > max(statuses)
    assert not world.fatal_errors
    await world.close()
    return LOST if lost else WHOLE


class Image:
    """What kills left of both servers, and what they had acknowledged."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.messages, self.opened = asyncio.run(fill_broker(directory / "b", directory / "broker"))
        self.statuses = asyncio.run(fill_coordinator(directory / "c", directory / "coordinator"))

    def damage(self, seed: int) -> tuple[str, str, str]:
        """Flip a bit, and start. Returns the server, the kind of file, and what came of it."""
        random = Random(seed)
        server = ("broker", "coordinator")[seed % 2]
        source = self.directory / server
        kinds = [kind for kind in KINDS if any(source.glob(kind))]
        kind = kinds[seed // 2 % len(kinds)]
        # By their bytes: a place is as likely as another one.
        files = sorted(file for file in source.glob(kind) if file.stat().st_size)
        file = random.choices(files, weights=[one.stat().st_size for one in files])[0]
        path = self.directory / f"damaged-{seed}"
        shutil.copytree(source, path)
        content = bytearray(file.read_bytes())
        content[random.randrange(len(content))] ^= 1 << random.randrange(8)
        (path / file.name).write_bytes(content)
        if server == "broker":
            came = asyncio.run(judge_broker(path, self.messages, self.opened))
        else:
            came = asyncio.run(judge_coordinator(path, self.statuses))
        # RocksDB may still be removing files that it no longer needs.
        shutil.rmtree(path, ignore_errors=True)
        return server, kind, came


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    return Image(tmp_path_factory.mktemp("image"))


def test_what_a_kill_leaves_is_whole(image: Image) -> None:
    """Without damage, nothing is refused and nothing is lost."""
    for server in ("broker", "coordinator"):
        shutil.copytree(image.directory / server, image.directory / f"whole-{server}")
    messages, opened = image.messages, image.opened
    path = image.directory
    assert asyncio.run(judge_broker(path / "whole-broker", messages, opened)) == WHOLE
    assert asyncio.run(judge_coordinator(path / "whole-coordinator", image.statuses)) == WHOLE


@pytest.mark.parametrize("seed", range(SAMPLE))
def test_a_flipped_bit_is_refused_or_data_loss(image: Image, seed: int) -> None:
    image.damage(seed)


@pytest.mark.soak
def test_flipped_bits_in_all_places(image: Image) -> None:
    results = Counter(image.damage(seed) for seed in range(ALL))
    for (server, kind, came), count in sorted(results.items()):
        print(f"{server:12} {kind:10} {came:10} {count}")
    assert sum(results.values()) == ALL
    # Every kind of end was met, so that each of the assertions above was.
    assert {came for _, _, came in results} == {REFUSED, LOST, WHOLE}
