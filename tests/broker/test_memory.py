"""Tails of all brokers of a process give way to what else it needs."""

from __future__ import annotations

import asyncio
import logging
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.harness import Alone, ManualClock

from magnetar_broker.broker import MEMORY_LOOK_INTERVAL_MS, Broker
from magnetar_broker.config import BrokerConfig
from magnetar_broker.entries import DataEntry
from magnetar_broker.keys import FAMILIES
from magnetar_broker.memory import (
    FULL_LEFT_BYTES,
    GROWTH_BYTES_MIN,
    SHRINK_LEFT_BYTES,
    TAILS_BYTES_MIN,
    Memory,
    store_shares,
    tails_limit,
)
from magnetar_broker.partition_log import DATA_BYTES, PartitionLog
from magnetar_core.config import InvalidConfig
from magnetar_core.wire import topic_pb2 as topic_wire
from magnetar_storage.memory import MemoryDisk, MemoryStore

MIB = 1 << 20
BUDGET = 512 * MIB
MOST = 256 * MIB
# With it, an entry of a tail takes a MiB.
VALUE = bytes(MIB - DATA_BYTES)
FULL = BUDGET - FULL_LEFT_BYTES
SHRINK = BUDGET - SHRINK_LEFT_BYTES


class Process:
    """A process whose memory is what its tails hold, and what a test says besides."""

    def __init__(self, besides_bytes: int) -> None:
        self.besides_bytes = besides_bytes
        self.freed_bytes = 0
        self.returns = 0
        self.memory = Memory(
            memory_bytes=BUDGET,
            tails_bytes_max=MOST,
            resident_bytes=self.resident_bytes,
            give_back=self.give_back,
        )
        self._held_bytes = 0

    def resident_bytes(self) -> int:
        """What was dropped stays, until it is given back."""
        held_bytes = self.memory.tails.byte_count
        self.freed_bytes = max(0, self.freed_bytes + self._held_bytes - held_bytes)
        self._held_bytes = held_bytes
        return self.besides_bytes + held_bytes + self.freed_bytes

    def give_back(self) -> None:
        self.returns += 1
        self._held_bytes = self.memory.tails.byte_count
        self.freed_bytes = 0

    def log(self) -> PartitionLog:
        return PartitionLog(tail_bytes_max=BUDGET, tails=self.memory.tails)


def fill(log: PartitionLog, mib: int) -> None:
    for _ in range(mib):
        log.append(DataEntry(log.end_offset, 1, 0, VALUE))
    log.advance(log.end_offset)


@given(
    st.integers(256 * MIB, 4096 * MIB),
    st.integers(0, 5000 * MIB),
    st.integers(0, 600 * MIB),
    st.integers(0, 600 * MIB),
)
def test_tails_get_what_is_left(
    memory_bytes: int, resident_bytes: int, held_bytes: int, most_bytes: int
) -> None:
    limit = tails_limit(
        memory_bytes=memory_bytes,
        resident_bytes=resident_bytes,
        held_bytes=held_bytes,
        most_bytes=most_bytes,
    )
    assert min(TAILS_BYTES_MIN, most_bytes) <= limit <= most_bytes
    if limit > TAILS_BYTES_MIN:
        # With that much in the tails, and all else as it is, the process is within its memory.
        assert resident_bytes - held_bytes + limit <= memory_bytes - SHRINK_LEFT_BYTES
    if memory_bytes - resident_bytes < FULL_LEFT_BYTES:
        assert limit <= max(held_bytes, TAILS_BYTES_MIN)


def test_the_store_gets_a_quarter() -> None:
    assert sum(store_shares(BUDGET)) == BUDGET // 4
    assert store_shares(BUDGET).memtables_bytes == 96 * MIB


def test_tails_shrink_for_what_else_needs_memory_and_come_back() -> None:
    process = Process(besides_bytes=100 * MIB)
    busy, idle = process.log(), process.log()
    fill(idle, 50)
    fill(busy, 150)
    assert process.memory.look() == 300 * MIB
    assert process.memory.tails.byte_count == 200 * MIB
    assert not process.returns

    process.besides_bytes = 400 * MIB
    process.memory.look()
    assert process.memory.tails.byte_count == SHRINK - 400 * MIB
    # The one that was written last keeps its entries.
    assert idle.tail_from(49, entries_max=1) == []
    assert busy.tail_from(149, entries_max=1) != []
    assert process.returns == 1
    # What was freed is no reason to drop more.
    for _ in range(5):
        process.memory.look()
    assert process.memory.tails.byte_count == SHRINK - 400 * MIB
    assert process.returns == 1

    fill(busy, 100)
    assert process.memory.tails.byte_count == SHRINK - 400 * MIB
    process.besides_bytes = 100 * MIB
    process.memory.look()
    fill(busy, 300)
    assert process.memory.tails.byte_count == MOST


def test_tails_of_a_full_process_stay_as_they_are() -> None:
    process = Process(besides_bytes=FULL - 50 * MIB)
    log = process.log()
    fill(log, 60)
    process.memory.look()
    fill(log, 60)
    assert process.memory.tails.byte_count == 60 * MIB


def test_memory_is_given_back_when_the_process_is_full_and_has_grown() -> None:
    """That takes milliseconds."""
    process = Process(besides_bytes=FULL)
    process.memory.look()
    assert not process.returns
    process.besides_bytes += 1
    for _ in range(3):
        process.memory.look()
    assert process.returns == 1
    process.besides_bytes += GROWTH_BYTES_MIN - 1
    process.memory.look()
    assert process.returns == 1
    process.besides_bytes += 1
    process.memory.look()
    assert process.returns == 2
    # It has shrunk meanwhile, and has grown again.
    process.besides_bytes -= GROWTH_BYTES_MIN
    process.memory.look()
    assert process.returns == 2
    process.besides_bytes += GROWTH_BYTES_MIN
    process.memory.look()
    assert process.returns == 3


def test_nothing_is_left_to_give_up(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    process = Process(besides_bytes=600 * MIB)
    fill(process.log(), 100)
    for _ in range(3):
        process.memory.look()
    assert process.memory.tails.byte_count == TAILS_BYTES_MIN
    process.besides_bytes = 100 * MIB
    for _ in range(3):
        process.memory.look()
    warning, end = (one.getMessage() for one in caplog.records)
    assert "has 700 MiB of memory, more than memory_bytes allows (512 MiB)" in warning
    assert "raise it, or lower" in warning
    assert "below memory_bytes again" in end


def test_the_smallest_budget_is_told() -> None:
    BrokerConfig(memory_bytes=256 << 20)
    with pytest.raises(InvalidConfig, match="memory_bytes must be at least 268435456"):
        BrokerConfig(memory_bytes=(256 << 20) - 1)


@pytest.mark.parametrize("in_order", [True, False])
def test_brokers_of_a_process_share_and_one_that_ends_leaves_its_part(in_order: bool) -> None:
    async def scenario() -> None:
        process = Process(besides_bytes=0)
        brokers = [
            Broker(
                BrokerConfig(name=f"b-{number}", free_space_floor_bytes=1),
                MemoryStore(MemoryDisk(), FAMILIES),
                Alone(),
                ManualClock(),
                Random(number),
                lambda _: None,
                memory=process.memory,
            )
            for number in range(2)
        ]
        logs = []
        for broker in brokers:
            await broker.start()
            topic = broker.topics.create(topic_wire.CommandCreateTopic(topic="t", partitions=1))
            log = topic.partitions[0].log
            fill(log, 3)
            logs.append(log)
        assert process.memory.tails.byte_count == 6 * MIB
        first, second = brokers
        if in_order:
            await first.close()
        else:
            first.abandon()
        assert process.memory.tails.byte_count == 3 * MIB
        assert logs[0].tail_from(0, entries_max=1) == []
        assert logs[1].tail_from(0, entries_max=1) != []
        second.abandon()

    asyncio.run(scenario())


def test_a_broker_looks_while_it_runs_and_no_longer() -> None:
    async def scenario() -> None:
        looks = 0

        def resident_bytes() -> int:
            nonlocal looks
            looks += 1
            return 0

        memory = Memory(memory_bytes=BUDGET, tails_bytes_max=MOST, resident_bytes=resident_bytes)
        broker = Broker(
            BrokerConfig(free_space_floor_bytes=1),
            MemoryStore(MemoryDisk(), FAMILIES),
            Alone(),
            ManualClock(),
            Random(0),
            lambda _: None,
            memory=memory,
        )
        loop = asyncio.get_running_loop()
        timers: list[object] = []
        call_later = loop.call_later

        def noted(delay_s: float, *arguments: object, **options: object) -> asyncio.TimerHandle:
            timer = call_later(delay_s, *arguments, **options)  # type: ignore[arg-type]
            if delay_s == MEMORY_LOOK_INTERVAL_MS / 1000:
                timers.append(timer)
            return timer

        loop.call_later = noted  # type: ignore[method-assign, assignment]
        await broker.start()
        assert looks == 1
        broker._watch_memory()
        assert (looks, len(timers)) == (2, 2)
        await broker.close()
        assert timers[-1].cancelled()  # type: ignore[attr-defined]
        broker._watch_memory()
        assert looks == 2

    asyncio.run(scenario())
