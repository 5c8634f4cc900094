"""Rows that cannot be read: DataLoss for what is in them, and everything else goes on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.broker.harness import (
    World,
    ack,
    end,
    flow,
    messages_of,
    partition,
    run,
    send,
    subscribe,
    subscription,
    txn,
    watermark,
)

from magnetar_broker import keys
from magnetar_broker.topics.retention import trim_partition
from magnetar_core.errors import DataLoss, MagnetarError, from_wire
from magnetar_core.wire import broker_pb2 as wire
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import topic_pb2 as topic_wire
from magnetar_storage.store import Store, StoreDamaged, WriteBatch

T1 = txn(1)


async def damage(world: World, family: str, place: int) -> bytes:
    """Damage a family's row, counted from the front."""
    key = (await world.rows(family))[place][0]
    world.disk.unreadable.add((family, key))
    return key


async def read_from(world: World, start: int) -> tuple[list[bytes], int]:
    """Values of one answer, and where the next begins."""
    answer = await world.client.ask(wire.CommandRead(partition=partition(), start_offset=start))
    return [
        value for batch in answer.batches for _, value in messages_of(batch)
    ], answer.next_offset


async def skip(world: World, *, dry_run: bool = False) -> list[tuple[int, int]]:
    answer = await world.client.ask(wire.CommandSkipDamaged(partition=partition(), dry_run=dry_run))
    assert answer.next_offset == answer.end_offset
    return [(one.first, one.last) for one in answer.damaged]


async def loss_at(world: World, start: int) -> int:
    with pytest.raises(DataLoss, match="magnetar topics skip-damaged") as raised:
        await read_from(world, start)
    return int(raised.value.details["offset"])


def unreadable_reads(world: World, family: str) -> float:
    found = world.broker.metrics.registry.get_sample_value(
        "magnetar_broker_unreadable_reads_total", {"family": family}
    )
    return found or 0.0


async def three_entries(world: World) -> None:
    """Offsets 0, 1 and 2 in the first, 3 and 4 in the second, 5 in the third."""
    await world.client.ask(send(b"0", b"1", b"2"))
    await world.client.ask(send(b"3", b"4", sequence=3))
    await world.client.ask(send(b"5", sequence=5))


def test_a_damaged_entry_is_data_loss_for_its_offsets_alone() -> None:
    async def scenario(world: World) -> None:
        await three_entries(world)
        await world.client.ask(send(b"other", number=1))
        await damage(world, keys.LOG, 1)
        assert await read_from(world, 0) == ([b"0", b"1", b"2"], 3)
        assert await loss_at(world, 3) == 3
        assert await loss_at(world, 4) == 4
        assert await read_from(world, 5) == ([b"5"], 6)
        assert await world.read(number=1) == [b"other"]
        assert unreadable_reads(world, keys.LOG) > 0
        # It goes on writing too.
        await world.client.ask(send(b"6", sequence=6))
        assert await read_from(world, 6) == ([b"6"], 7)

    run(scenario, tail_bytes_max=1)


def test_a_damaged_batch_of_a_transaction_is_data_loss_for_its_messages_alone() -> None:
    async def scenario(world: World) -> None:
        await world.client.ask(send(b"0", b"1", in_txn=T1))
        await world.client.ask(send(b"2", b"3", in_txn=T1, sequence=2))
        await world.client.ask(send(b"4", in_txn=T1, sequence=4))
        await world.client.ask(send(b"5", in_txn=T1, producer=2))
        await world.client.ask(end(T1))
        await damage(world, keys.TXNLOG, 1)
        assert await read_from(world, 0) == ([b"0", b"1"], 2)
        assert await loss_at(world, 2) == 2
        assert await loss_at(world, 3) == 3
        assert await read_from(world, 4) == ([b"4", b"5"], 6)
        assert await skip(world) == [(2, 3)]
        assert await world.read() == [b"0", b"1", b"4", b"5"]

    run(scenario, tail_bytes_max=1)


def test_a_batch_of_a_transaction_that_is_missing_is_data_loss_and_not_passed_over() -> None:
    """The row is not there at all, so that no read of it fails."""

    async def scenario(world: World) -> None:
        for number in range(3):
            await world.client.ask(send(b"%d" % number, in_txn=T1, sequence=number))
        await world.client.ask(end(T1))
        batch = WriteBatch()
        batch.delete(keys.TXNLOG, (await world.rows(keys.TXNLOG))[1][0])
        await world.broker.environment.store.write(batch)
        assert await read_from(world, 0) == ([b"0"], 1)
        with pytest.raises(DataLoss):
            await read_from(world, 1)
        assert await read_from(world, 2) == ([b"2"], 3)

    run(scenario, tail_bytes_max=1)


def test_an_offset_within_an_entry_is_read_beside_a_damaged_neighbour() -> None:
    async def scenario(world: World) -> None:
        await three_entries(world)
        entries = [key for key, _ in await world.rows(keys.LOG)]
        world.disk.unreadable.add((keys.LOG, entries[1]))
        for start in (1, 2):
            values, following = await read_from(world, start)
            assert (values[-1], following) == (b"2", 3)
        world.disk.unreadable.add((keys.LOG, entries[0]))
        assert [await loss_at(world, start) for start in range(5)] == list(range(5))
        assert await read_from(world, 5) == ([b"5"], 6)

    run(scenario, tail_bytes_max=1)


def tear(world: World, row: tuple[bytes, bytes], family: str, way: str, at: int) -> None:
    """What a row gives from now on: cut short, or with a bit flipped; the engine says nothing."""
    key, value = row
    flipped = bytes((value[at] ^ 4,))
    world.disk.torn[family, key] = (
        value[:at] if way == "cut" else value[:at] + flipped + value[at + 1 :]
    )


# Of an entry: its kind, its count, its batch's header, its messages. Of a marker: what it counts.
@pytest.mark.parametrize(("way", "at"), [("cut", n) for n in (0, 5, 13, 20, 40)])
def test_an_entry_that_comes_back_cut_is_data_loss(way: str, at: int) -> None:
    _check_torn_entry(way, at)


@pytest.mark.parametrize("at", [0, 1, 14, 20, 40, 50])
def test_an_entry_that_comes_back_with_a_flipped_bit_is_data_loss(at: int) -> None:
    _check_torn_entry("flip", at)


def _check_torn_entry(way: str, at: int) -> None:
    async def scenario(world: World) -> None:
        await three_entries(world)
        await world.client.ask(subscribe("a", consumer=1))
        tear(world, (await world.rows(keys.LOG))[1], keys.LOG, way, at)
        assert await read_from(world, 0) == ([b"0", b"1", b"2"], 3)
        assert [await loss_at(world, start) for start in (3, 4)] == [3, 4]
        assert await read_from(world, 5) == ([b"5"], 6)
        assert await skip(world) == [(3, 4)]
        world.client.tell(flow(10, name="a"))
        await world.settle()
        assert world.client.values() == [b"0", b"1", b"2", b"5"]
        assert not world.fatal

    run(scenario, tail_bytes_max=1)


@pytest.mark.parametrize(("way", "at"), [("cut", 3), ("cut", 30), ("flip", 2), ("flip", 25)])
def test_a_batch_of_a_transaction_that_comes_back_torn_is_data_loss(way: str, at: int) -> None:
    async def scenario(world: World) -> None:
        for sequence in range(3):
            await world.client.ask(send(b"%d" % sequence, in_txn=T1, sequence=sequence))
        await world.client.ask(end(T1))
        tear(world, (await world.rows(keys.TXNLOG))[1], keys.TXNLOG, way, at)
        assert await read_from(world, 0) == ([b"0"], 1)
        assert await loss_at(world, 1) == 1
        assert await read_from(world, 2) == ([b"2"], 3)
        assert await skip(world) == [(1, 1)]

    run(scenario, tail_bytes_max=1)


def test_retention_waits_at_a_torn_entry_and_goes_on_behind_it() -> None:
    async def scenario(world: World) -> None:
        await world.client.ask(topic_wire.CommandDeleteTopic(topic="t"))
        await world.client.ask(topic_wire.CommandCreateTopic(topic="t", retention_ms=500))
        await three_entries(world)
        world.clock.advance(1_000)
        tear(world, (await world.rows(keys.LOG))[1], keys.LOG, "cut", 5)
        for _ in range(2):
            await world.broker._retain()
        assert world.partition().log.first_offset == 3, "it waits for somebody's decision"
        assert await skip(world) == [(3, 4)]
        for _ in range(3):
            await world.broker._retain()
        await world.settle()
        assert world.partition().log.first_offset == 6
        assert not world.fatal

    run(scenario, tail_bytes_max=1)


class HeldReads:
    """A store whose scans take until they are let go."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.let_go = asyncio.Event()

    async def scan(self, *arguments: Any, **more: Any) -> list[tuple[bytes, bytes]]:
        await self.let_go.wait()
        return await self._store.scan(*arguments, **more)


def test_what_is_given_up_while_it_is_read_is_passed_over() -> None:
    async def scenario(world: World) -> None:
        await three_entries(world)
        await damage(world, keys.LOG, 1)
        reader = world.partition().reader
        held = HeldReads(reader._store)
        reader._store = held  # type: ignore[assignment]
        asked = world.client.begin(wire.CommandRead(partition=partition(), start_offset=3))
        await world.settle()
        assert not asked.done()
        world.partition().skip_damaged([(3, 4)])
        held.let_go.set()
        await world.settle()
        [found] = asked.result().batches
        assert messages_of(found) == [(5, b"5")], "offset 5 is whole: nobody says otherwise"

    run(scenario, tail_bytes_max=1)


def test_what_lies_between_two_damaged_places_is_not_given_up() -> None:
    async def scenario(world: World) -> None:
        for place in range(8):
            await world.client.ask(send(b"%d" % place, sequence=place))
        entries = [key for key, _ in await world.rows(keys.LOG)]
        world.disk.unreadable.update((keys.LOG, entries[place]) for place in (0, 1, 2, 4))
        assert await skip(world) == [(0, 2), (4, 4)]
        assert await world.read() == [b"3", b"5", b"6", b"7"]

    run(scenario, tail_bytes_max=1)


def test_more_is_given_up_than_is_looked_at_in_one_go() -> None:
    async def scenario(world: World) -> None:
        await world.client.ask(send(*[b"x"] * 700))
        await world.client.ask(send(b"y", sequence=700))
        await damage(world, keys.LOG, 0)
        assert await skip(world) == [(0, 699)]
        assert await world.read() == [b"y"]

    run(scenario, tail_bytes_max=1)


@pytest.mark.parametrize("kind", [wire.EXCLUSIVE, wire.SHARED, wire.KEY_SHARED])
def test_a_consumer_gets_what_comes_before_then_data_loss_then_what_comes_behind(
    kind: int,
) -> None:
    async def scenario(world: World) -> None:
        await three_entries(world)
        await damage(world, keys.LOG, 1)
        await world.client.ask(subscribe(consumer=1, kind=kind))
        world.client.tell(flow())
        await world.settle()
        assert world.client.values() == [b"0", b"1", b"2"]
        assert [change.closed for change in world.client.changes] == [True]
        assert isinstance(from_wire(world.client.changes[0].error), DataLoss)
        await world.client.ask(ack((0, 2)))
        assert await skip(world, dry_run=True) == [(3, 4)]
        assert await loss_at(world, 3) == 3, "a dry run changes nothing"
        assert await skip(world) == [(3, 4)]
        assert await skip(world) == [], "once is enough"
        world.client.delivered.clear()
        await world.client.ask(subscribe(consumer=1, kind=kind, epoch=2))
        world.client.tell(flow())
        await world.settle()
        assert world.client.values() == [b"5"]
        await world.client.ask(ack((5, 5)))
        assert world.subscription().backlog == 0, "what was given up counts as acknowledged"

    run(scenario, tail_bytes_max=1)


def test_what_was_given_up_stays_so_over_a_restart_and_for_who_starts_over() -> None:
    async def scenario(world: World) -> None:
        await three_entries(world)
        await damage(world, keys.LOG, 1)
        await skip(world)
        await world.restart()
        assert await world.read() == [b"0", b"1", b"2", b"5"]
        assert await read_from(world, 4) == ([b"5"], 6)
        await world.client.ask(subscribe(consumer=1))
        world.client.tell(flow())
        await world.settle()
        assert world.client.values() == [b"0", b"1", b"2", b"5"]
        await world.client.ask(wire.CommandSeek(subscription=subscription(), offset=3))
        world.client.delivered.clear()
        await world.client.ask(subscribe(consumer=1, epoch=2))
        world.client.tell(flow())
        await world.settle()
        assert world.client.values() == [b"5"]

    run(scenario, tail_bytes_max=1)


def test_the_last_entry_may_be_the_damaged_one() -> None:
    async def scenario(world: World) -> None:
        await three_entries(world)
        await world.restart()
        await damage(world, keys.LOG, 2)
        assert await skip(world) == [(5, 5)]
        assert await world.read() == [b"0", b"1", b"2", b"3", b"4"]
        assert await read_from(world, 5) == ([], 6)
        await world.client.ask(send(b"6", sequence=6))
        assert await read_from(world, 5) == ([b"6"], 7)

    run(scenario, tail_bytes_max=1)


def test_a_time_is_found_beside_what_is_damaged() -> None:
    async def scenario(world: World) -> None:
        times = []
        for number in range(9):
            times.append(world.clock.now_ms)
            await world.client.ask(send(b"%d" % number, sequence=number))
            world.clock.advance(1000)
        await damage(world, keys.LOG, 4)
        found = [await world.partition().reader.first_offset_at_time(time) for time in times]
        # Rather too early than too late: the damaged one may be as old as the one behind it.
        assert found == [0, 1, 2, 3, 4, 4, 6, 7, 8]

    run(scenario, tail_bytes_max=1)


def test_retention_goes_past_what_was_given_up_and_no_further_before() -> None:
    async def scenario(world: World) -> None:
        ask = world.client.ask
        await ask(topic_wire.CommandDeleteTopic(topic="t"))
        await ask(topic_wire.CommandCreateTopic(topic="t", retention_ms=500))
        await three_entries(world)
        world.clock.advance(1_000)
        await damage(world, keys.LOG, 1)
        topic = world.broker.topics.get("t")
        environment = world.broker.environment
        assert await trim_partition(environment, topic, topic.partitions[0]) == 1
        await world.broker._retain()
        assert world.partition().log.first_offset == 3, "it waits for somebody's decision"
        await skip(world)
        for _ in range(3):
            await world.broker._retain()
        await world.settle()
        assert world.partition().log.first_offset == 6
        assert world.partition().log.skipped == []
        await world.restart()
        assert world.partition().log.first_offset == 6
        await world.client.ask(send(b"6", sequence=6))
        assert await world.read(6) == [b"6"]

    run(scenario, tail_bytes_max=1)


@pytest.mark.parametrize("committed", [False, True])
def test_an_open_transaction_that_cannot_be_read_ends_all_the_same(committed: bool) -> None:
    async def scenario(world: World) -> None:
        for sequence in range(3):
            await world.client.ask(send(b"%d" % sequence, in_txn=T1, sequence=sequence))
        await damage(world, keys.TXNLOG, 1)
        await world.restart()
        with pytest.raises(DataLoss):
            await world.client.ask(wire.CommandPeek(partition=partition(), uncommitted=True))
        await world.client.ask(end(T1, common.COMMIT if committed else common.ABORT, counts={1: 3}))
        await world.client.ask(watermark(2))
        if committed:
            assert await read_from(world, 0) == ([b"0"], 1)
            assert await loss_at(world, 1) == 1
            assert await skip(world) == [(1, 1)]
            assert await world.read() == [b"0", b"2"]
        else:
            world.disk.unreadable.clear()
            assert await world.rows(keys.TXNLOG) == [], "what was not read goes with the rest"

    run(scenario, tail_bytes_max=1)


def test_other_commands_answer_with_data_loss_as_well() -> None:
    async def scenario(world: World) -> None:
        await world.client.ask(send(b"0", in_txn=T1))
        await damage(world, keys.TXNLOG, 0)
        for command in (
            wire.CommandListStoredTxns(partition=partition()),
            wire.CommandPeek(partition=partition(), uncommitted=True),
        ):
            with pytest.raises(DataLoss):
                await world.client.ask(command)
        await world.client.ask(send(b"1", number=1))

    run(scenario, tail_bytes_max=1)


@pytest.mark.parametrize("family", [keys.TOPICS, keys.META, keys.PARTITIONS])
def test_a_broker_that_cannot_read_what_all_depends_on_does_not_start(family: str) -> None:
    async def scenario(world: World) -> None:
        await three_entries(world)
        await damage(world, family, -1)
        with pytest.raises(StoreDamaged, match="put back a copy of its data directory"):
            await world.restart()
        world.disk.unreadable.clear()
        world.disk.crash()
        await world._open()

    run(scenario)


def test_a_damaged_row_is_no_reason_to_fail() -> None:
    """The broker's own errors, and no others: nothing ends its process."""

    async def scenario(world: World) -> None:
        await three_entries(world)
        world.disk.unreadable |= {(keys.LOG, key) for key, _ in await world.rows(keys.LOG)}
        for start in range(6):
            with pytest.raises(MagnetarError):
                await read_from(world, start)
        assert not world.fatal
        assert await skip(world) == [(0, 5)]
        await world.client.ask(send(b"6", sequence=6))
        assert await world.read() == [b"6"]

    run(scenario, tail_bytes_max=1)
