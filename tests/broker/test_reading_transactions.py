"""Reads of transactions: from memory, together, or one by one; readers see no difference."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from tests.broker.harness import World, end, messages_of, partition, run, send, txn

from magnetar_broker import keys
from magnetar_broker.log import log_reader
from magnetar_broker.log.entries import MarkerEntry
from magnetar_broker.log.stored_batch import StoredBatch
from magnetar_broker.transactions.recent_messages import WRITER_BYTES_MAX
from magnetar_core.errors import DataLoss
from magnetar_core.ids import TxnID
from magnetar_core.wire import broker_pb2 as wire
from magnetar_core.wire import common_pb2 as common
from magnetar_storage.memory.engine import MemoryStore

Row = tuple[bytes, bytes]


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[list[Row]]:
    """Rows of each scan of the sidecar."""
    found: list[list[Row]] = []
    scan = MemoryStore.scan

    async def recorded(store: MemoryStore, family: str, *args: Any, **options: Any) -> list[Row]:
        rows = await scan(store, family, *args, **options)
        if family == keys.TXNLOG:
            found.append(rows)
        return rows

    monkeypatch.setattr(MemoryStore, "scan", recorded)
    return found


async def read_from(world: World, offset: int, bytes_max: int) -> list[StoredBatch]:
    batches: list[StoredBatch] = await world.partition().reader.read(offset, bytes_max=bytes_max)
    return batches


async def commit_many(world: World, count: int, *, size: int = 10, first: int = 0) -> None:
    for number in range(first, first + count):
        await world.client.ask(send(b"%d" % number + bytes(size), in_txn=txn(number)))
        await world.client.ask(end(txn(number), counts={1: 1}))


def test_messages_of_a_small_transaction_are_delivered_from_memory(scans: list[list[Row]]) -> None:
    async def scenario(world: World) -> None:
        await commit_many(world, 3)
        assert [value[:1] for value in await world.read()] == [b"0", b"1", b"2"]
        assert not scans
        assert world.broker.environment.recent_messages.byte_count == 0
        # After a restart they are in no memory.
        await world.restart()
        assert [value[:1] for value in await world.read()] == [b"0", b"1", b"2"]
        assert scans

    run(scenario)


@pytest.mark.parametrize("messages_max", [1, 7, 30])
def test_a_read_of_few_messages_reads_no_more_transactions_than_these(
    scans: list[list[Row]], messages_max: int
) -> None:
    """It read two megabytes of them, and threw away what was too much."""

    async def scenario(world: World) -> None:
        await commit_many(world, 100)
        await world.restart()
        scans.clear()
        answer = await world.client.ask(
            wire.CommandRead(partition=partition(), start_offset=20, messages_max=messages_max)
        )
        assert [batch.entry_id for batch in answer.batches] == list(range(20, 20 + messages_max))
        assert answer.next_offset == 20 + messages_max
        keys_read = {key for rows in scans for key, _ in rows}
        assert messages_max <= len(keys_read) <= messages_max + 2

    run(scenario)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_read_of_few_messages_of_a_long_transaction_reads_no_more_of_it(
    scans: list[list[Row]], restarted: bool
) -> None:
    async def scenario(world: World) -> None:
        ask = world.client.ask
        for number in range(60):
            await ask(send(b"%d" % number, in_txn=txn(1), sequence=number))
        await ask(end(txn(1), counts={1: 60}))
        await ask(send(b"plain"))
        if restarted:
            await world.restart()
        seen: list[int] = []
        while len(seen) < 61:
            scans.clear()
            answer = await world.client.ask(
                wire.CommandRead(partition=partition(), start_offset=len(seen), messages_max=7)
            )
            offsets = [offset for batch in answer.batches for offset, _ in messages_of(batch)]
            assert offsets == list(range(len(seen), min(len(seen) + 7, 61)))
            seen += offsets
            assert answer.next_offset == len(seen)
            keys_read = {key for rows in scans for key, _ in rows}
            assert len(keys_read) <= 9
            assert restarted is bool(keys_read) or len(seen) == 61

    run(scenario)


def test_a_read_of_messages_stops_within_a_transaction_and_goes_on_there() -> None:
    async def scenario(world: World) -> None:
        ask = world.client.ask
        for number in range(3):
            await ask(send(b"a", b"b", b"c", in_txn=txn(number)))
            await ask(end(txn(number), counts={1: 3}))
            await ask(send(b"plain", sequence=number))
        await world.restart()
        seen: list[tuple[int, bytes]] = []
        offset = 0
        while offset < 12:
            answer = await world.client.ask(
                wire.CommandRead(partition=partition(), start_offset=offset, messages_max=2)
            )
            assert answer.next_offset > offset
            seen += [message for batch in answer.batches for message in messages_of(batch)]
            offset = answer.next_offset
        assert seen == list(enumerate([b"a", b"b", b"c", b"plain"] * 3))

    run(scenario)


def test_a_larger_transaction_is_read(scans: list[list[Row]]) -> None:
    async def scenario(world: World) -> None:
        ask = world.client.ask
        recent = world.broker.environment.recent_messages
        half = bytes(WRITER_BYTES_MAX * 2 // 3)
        await ask(send(half, in_txn=txn(1)))
        assert recent.byte_count > 0
        await ask(send(half, in_txn=txn(1), sequence=1))
        assert recent.byte_count == 0
        await ask(send(b"small", in_txn=txn(1), sequence=2))
        assert recent.byte_count == 0
        await ask(end(txn(1), counts={1: 3}))
        assert await world.read() == [half, half, b"small"]
        assert scans

    run(scenario)


def test_the_memory_for_open_transactions_is_limited(scans: list[list[Row]]) -> None:
    async def scenario(world: World) -> None:
        ask = world.client.ask
        recent = world.broker.environment.recent_messages
        for number in range(8):
            await ask(send(bytes(200), in_txn=txn(number)))
        assert 0 < recent.byte_count <= 1_000
        for number in range(8):
            action = common.COMMIT if number % 2 else common.ABORT
            await ask(end(txn(number), action))
        assert recent.byte_count == 0
        assert len(await world.read()) == 4
        assert scans, "the last ones had no room"

    run(scenario, tails_bytes_max=4_000)


def test_a_transaction_from_before_a_restart_is_read(scans: list[list[Row]]) -> None:
    async def scenario(world: World) -> None:
        await world.client.ask(send(b"before", in_txn=txn(1)))
        await world.restart()
        await world.client.ask(send(b"after", in_txn=txn(1), sequence=1))
        await world.client.ask(end(txn(1), counts={1: 2}))
        assert world.broker.environment.recent_messages.byte_count == 0
        assert await world.read() == [b"before", b"after"]
        assert scans

    run(scenario)


def test_transactions_side_by_side_are_read_together(scans: list[list[Row]]) -> None:
    async def scenario(world: World) -> None:
        await commit_many(world, 50, size=100)
        await world.restart()
        del scans[:]
        batches = await read_from(world, 0, 1 << 20)
        assert len(batches) == 50
        assert len(scans) == 1
        # As much as a single read may return, and no more.
        del scans[:]
        few = await read_from(world, 0, 1_000)
        assert [one.batch for one in few] == [batch.batch for batch in batches[: len(few)]]
        assert len(scans) == 1
        assert len(scans[0]) < 20

    run(scenario)


def test_a_large_open_transaction_in_between_is_not_read_again_and_again(
    scans: list[list[Row]],
) -> None:
    async def scenario(world: World) -> None:
        ask = world.client.ask
        large = 10 * 5_000
        for number in range(0, 40, 2):
            await ask(send(b"small", in_txn=txn(number)))
            for sequence in range(10):
                await ask(send(bytes(5_000), in_txn=txn(number + 1), sequence=sequence))
        for number in range(0, 40, 2):
            await ask(end(txn(number), counts={1: 1}))
        await world.restart()
        del scans[:]
        assert len(await read_from(world, 0, 1 << 20)) == 20
        read = sum(len(key) + len(value) for rows in scans for key, value in rows)
        assert read < large, "less than one of the twenty"

    run(scenario)


@pytest.mark.parametrize("seed", range(15))
def test_however_they_are_read_readers_see_the_same(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From each offset, with much and with little room; several producers; selections, surplus."""

    async def all_reads(world: World) -> list[Any]:
        reads: list[Any] = []
        for offset in range(world.partition().log.durable_end):
            for bytes_max in (1, 300, 1 << 20):
                reads.append(await read_from(world, offset, bytes_max))
        return reads

    async def scenario(world: World) -> None:
        random = Random(seed)
        await _write(world, random)
        in_memory = await all_reads(world)
        await world.restart()
        together = await all_reads(world)
        monkeypatch.setattr(log_reader, "rows_of_all", _nothing)
        one_by_one = await all_reads(world)
        assert together == one_by_one
        assert in_memory == one_by_one
        assert any(in_memory)

    run(scenario)


async def _nothing(*_: Any) -> dict[TxnID, list[Row]]:
    return {}


async def _write(world: World, random: Random) -> None:
    ask = world.client.ask
    plain = 0
    writes: dict[int, dict[int, int]] = {}
    for number in range(40):
        kind = random.random()
        if kind < 0.2:
            await ask(send(b"plain %d" % number, sequence=plain))
            plain += 1
        elif kind < 0.7 or not writes:
            counter = random.randrange(12)
            if world.partition().index.ended.get(txn(counter)) is not None:
                continue
            producer = random.randrange(2, 5)
            done = writes.setdefault(counter, {})
            values = [b"%d/%d/%d" % (counter, producer, number)] * random.randrange(1, 4)
            sequence = done.get(producer, 0)
            await ask(send(*values, in_txn=txn(counter), producer=producer, sequence=sequence))
            done[producer] = sequence + len(values)
        else:
            counter = random.choice(list(writes))
            done = writes.pop(counter)
            if random.random() < 0.2:
                await ask(end(txn(counter), common.ABORT))
                continue
            # Fewer than were sent: the rest is surplus.
            counts = {one: random.randrange(count + 1) for one, count in done.items()}
            selected = random.sample(list(done), random.randrange(1, len(done) + 1))
            await ask(end(txn(counter), counts=counts, selected=random.choice([None, selected])))


@pytest.mark.parametrize("together", [True, False])
def test_a_damaged_row_stops_readers_at_its_transaction(
    together: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(world: World) -> None:
        await commit_many(world, 5)
        await world.restart()
        key = (await world.rows(keys.TXNLOG))[2][0]
        world.disk.unreadable.add((keys.TXNLOG, key))
        if not together:
            monkeypatch.setattr(log_reader, "rows_of_all", _nothing)
        assert len(await read_from(world, 0, 1 << 20)) == 2
        with pytest.raises(DataLoss) as raised:
            await read_from(world, 2, 1 << 20)
        assert int(raised.value.details["offset"]) == 2
        assert len(await read_from(world, 3, 1 << 20)) == 2
        await world.client.ask(wire.CommandSkipDamaged(partition=partition()))
        assert len(await world.read()) == 4

    run(scenario)


def test_a_marker_is_stored_without_its_messages() -> None:
    async def scenario(world: World) -> None:
        await commit_many(world, 1, size=1_000)
        (entry,) = world.partition().log.tail_from(0, entries_max=1)
        assert isinstance(entry, MarkerEntry)
        assert entry.messages is not None
        assert len(entry.to_bytes()) < 100

    run(scenario)
