"""Tails of all brokers of a process give way to what else it needs."""

from __future__ import annotations

import asyncio
import logging
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.harness import Alone, ManualClock

from magnetar_broker.broker import Broker
from magnetar_broker.budgets.memory_budget import (
    FULL_LEFT_BYTES,
    GROWTH_BYTES_MIN,
    LOOK_GROWTH_BYTES,
    LOOK_INTERVAL_S,
    SHRINK_LEFT_BYTES,
    TAILS_BYTES_MIN,
    MemoryBudget,
    store_shares,
    tails_limit,
)
from magnetar_broker.budgets.tails import Tails
from magnetar_broker.config import BrokerConfig
from magnetar_broker.keys import FAMILIES
from magnetar_broker.log.entries import DATA_BYTES, DataEntry
from magnetar_broker.log.partition_log import PartitionLog
from magnetar_broker.transactions.recent_messages import SHARE, RecentMessages
from magnetar_broker.transactions.transaction_index import Writer
from magnetar_core.config import InvalidConfig
from magnetar_core.wire import topic_pb2 as topic_wire
from magnetar_storage.memory.engine import MemoryDisk, MemoryStore
from magnetar_storage.store import StoreFailed

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
        # What the allocator cannot give back of what was dropped, and the process takes first.
        self.stuck_bytes = 0
        self.returns = 0
        self.is_resting = False
        self.now_s = 0.0
        self.memory = MemoryBudget(
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

    def give_back(self) -> bool:
        if self.is_resting:
            return False
        self.returns += 1
        self.resident_bytes()
        self.freed_bytes = min(self.freed_bytes, self.stuck_bytes)
        return True

    def look(self) -> None:
        """Look, when it is time for that."""
        self.now_s += self.memory.look(self.now_s)

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
        accepted_bytes=memory_bytes - SHRINK_LEFT_BYTES,
        held_bytes=held_bytes,
        most_bytes=most_bytes,
    )
    assert min(TAILS_BYTES_MIN, most_bytes) <= limit <= most_bytes
    if limit > TAILS_BYTES_MIN:
        # With that much in the tails, and all else as it is, the process is within its memory.
        assert resident_bytes - held_bytes + limit <= memory_bytes - SHRINK_LEFT_BYTES
    if memory_bytes - resident_bytes < FULL_LEFT_BYTES:
        assert limit <= max(held_bytes, TAILS_BYTES_MIN)


@pytest.mark.parametrize(("memory_bytes", "memtables_bytes"), [(256 * MIB, 32), (BUDGET, 96)])
def test_the_store_gets_shares(memory_bytes: int, memtables_bytes: int) -> None:
    shares = store_shares(memory_bytes)
    assert shares.memtables_bytes == memtables_bytes * MIB
    assert shares.block_cache_bytes == memory_bytes // 16
    assert shares.object_cache_bytes == memory_bytes // 8


def test_memtables_are_no_larger_than_their_log_allows() -> None:
    shares = store_shares(4096 * MIB)
    assert shares.memtables_bytes == store_shares(BUDGET).memtables_bytes == 96 * MIB
    assert shares.block_cache_bytes == 256 * MIB


def test_nobody_waits_for_a_look_while_much_is_appended() -> None:
    process = Process(besides_bytes=SHRINK - 100 * MIB)
    log = process.log()
    for _ in range(200):
        fill(log, 1)
        assert process.resident_bytes() <= SHRINK + LOOK_GROWTH_BYTES
    assert process.memory.tails.byte_count > 50 * MIB


def test_tails_shrink_for_what_else_needs_memory_and_come_back() -> None:
    process = Process(besides_bytes=100 * MIB)
    busy, idle = process.log(), process.log()
    fill(idle, 50)
    fill(busy, 150)
    process.look()
    assert process.memory.tails.byte_count == 200 * MIB
    assert process.returns == 0

    process.besides_bytes = 400 * MIB
    process.look()
    assert process.memory.tails.byte_count == SHRINK - 400 * MIB
    # Of entries of the same age, those of the partition that was written last stay.
    assert idle.tail_from(49, entries_max=1) == []
    assert busy.tail_from(149, entries_max=1) != []
    assert process.returns == 1
    # What was freed is no reason to drop more.
    for _ in range(5):
        process.look()
    assert process.memory.tails.byte_count == SHRINK - 400 * MIB
    assert process.returns == 1

    fill(busy, 100)
    assert process.memory.tails.byte_count == SHRINK - 400 * MIB
    process.besides_bytes = 100 * MIB
    process.look()
    fill(busy, 300)
    assert process.memory.tails.byte_count == MOST


def test_the_oldest_entries_of_all_partitions_go_first() -> None:
    """They lie together in memory, and their pages can be given back."""
    tails = Tails(BUDGET)
    logs = [PartitionLog(tail_bytes_max=BUDGET, tails=tails) for _ in range(4)]
    for time_ms in range(12):
        # The fourth one was written before all others, and is done first.
        log = logs[3 if time_ms < 3 else time_ms % 3]
        log.append(DataEntry(log.end_offset, 1, time_ms, VALUE))
        log.advance(log.end_offset)
    tails.limit(12 * MIB)
    assert tails.byte_count == 12 * MIB
    tails.limit(10 * MIB)
    assert [log.oldest_ms for log in logs] == [3, 4, 5, 2]
    tails.limit(5 * MIB)
    tails.check()
    assert [log.oldest_ms for log in logs[:3]] == [9, 7, 8]
    assert logs[3].tail_from(0, entries_max=9) == []
    assert [len(log.tail_from(0, entries_max=9)) for log in logs] == [0, 0, 0, 0]
    assert [len(log.tail_from(2, entries_max=9)) for log in logs[:3]] == [1, 1, 1]
    tails.limit(0)
    assert tails.byte_count == 0


def test_tails_of_a_full_process_stay_as_they_are() -> None:
    process = Process(besides_bytes=FULL - 50 * MIB)
    log = process.log()
    fill(log, 60)
    process.look()
    # With so much in its tails, the process is full.
    assert process.memory.tails.byte_count == 50 * MIB
    fill(log, 60)
    assert process.memory.tails.byte_count == 50 * MIB


def test_memory_is_given_back_when_the_process_is_full_and_has_grown() -> None:
    """That takes milliseconds."""
    process = Process(besides_bytes=FULL)
    process.look()
    assert process.returns == 0
    process.besides_bytes += 1
    for _ in range(3):
        process.look()
    assert process.returns == 1
    process.besides_bytes += GROWTH_BYTES_MIN - 1
    process.look()
    assert process.returns == 1
    process.besides_bytes += 1
    process.look()
    assert process.returns == 2
    # It has shrunk meanwhile, and has grown again.
    process.besides_bytes -= GROWTH_BYTES_MIN
    process.look()
    assert process.returns == 2
    process.besides_bytes += GROWTH_BYTES_MIN
    process.look()
    assert process.returns == 3


def test_what_stays_in_the_process_is_no_reason_to_drop_more() -> None:
    """The allocator can give nothing back, since what was dropped lay between what was kept."""
    process = Process(besides_bytes=100 * MIB)
    process.stuck_bytes = BUDGET
    fill(process.log(), 200)
    process.look()
    process.besides_bytes = SHRINK - 200 * MIB + 10 * MIB
    for _ in range(20):
        process.look()
    assert process.memory.tails.byte_count == 190 * MIB
    assert process.returns == 1

    # They give what the process grows by.
    process.besides_bytes += 10 * MIB
    for _ in range(20):
        process.look()
    assert process.memory.tails.byte_count == 180 * MIB
    assert process.returns == 2

    # Having less than memory_bytes goes before keeping tails: 16 MiB are to be left.
    process.besides_bytes += 30 * MIB
    process.look()
    assert process.memory.tails.byte_count == 150 * MIB
    assert process.resident_bytes() == BUDGET + 60 * MIB - 50 * MIB
    process.look()
    assert process.memory.tails.byte_count == 150 * MIB - (26 * MIB)
    for _ in range(20):
        process.look()
    assert process.memory.tails.byte_count == TAILS_BYTES_MIN


def test_nothing_more_is_dropped_until_memory_was_given_back() -> None:
    process = Process(besides_bytes=100 * MIB)
    fill(process.log(), 200)
    process.look()
    process.is_resting = True
    process.besides_bytes = BUDGET - 100 * MIB
    for _ in range(5):
        process.look()
    assert process.memory.tails.byte_count == 60 * MIB
    assert process.returns == 0
    process.is_resting = False
    for _ in range(5):
        process.look()
    assert process.memory.tails.byte_count == 60 * MIB
    assert process.returns == 1
    assert process.resident_bytes() == SHRINK


def test_a_look_serves_all_brokers_of_the_process() -> None:
    """Else 64 of them would look, and give back, 256 times a second."""
    looks = 0

    def resident_bytes() -> int:
        nonlocal looks
        looks += 1
        return 0

    memory = MemoryBudget(memory_bytes=BUDGET, tails_bytes_max=MOST, resident_bytes=resident_bytes)
    assert memory.look(100.0) == LOOK_INTERVAL_S
    assert memory.look(100.1) == pytest.approx(LOOK_INTERVAL_S - 0.1)
    assert looks == 1
    assert memory.look(100.0 + LOOK_INTERVAL_S) == LOOK_INTERVAL_S
    assert looks == 2


def test_nothing_is_left_to_give_up(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    process = Process(besides_bytes=600 * MIB)
    fill(process.log(), 100)
    for _ in range(3):
        process.look()
    assert process.memory.tails.byte_count == TAILS_BYTES_MIN
    # It is told once, although it is now above, now below.
    for besides_mib in (500, 480, 500, 100, 100):
        process.besides_bytes = besides_mib * MIB
        process.look()
    warning, end = (one.getMessage() for one in caplog.records)
    assert "has 608 MiB of memory, more than memory_bytes allows (512 MiB)" in warning
    assert "raise it, or lower" in warning
    assert "below memory_bytes again" in end


def test_tails_that_can_shrink_are_nothing_to_tell(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    process = Process(besides_bytes=400 * MIB)
    fill(process.log(), 200)
    for _ in range(3):
        process.look()
    assert process.memory.tails.byte_count < 200 * MIB
    assert not caplog.records


def test_messages_of_open_transactions_are_kept_as_tails_are() -> None:
    process = Process(besides_bytes=100 * MIB)
    recent = RecentMessages(process.memory.tails)

    def kept(mib: int) -> int:
        """How many of these bytes stay in memory, in transactions of 64 KiB."""
        writers = [Writer(number, 0) for number in range(mib * 16)]
        for writer in writers:
            writer.batch_starts.append(0)
            recent.keep(writer, bytes(64 << 10))
        count = recent.byte_count
        for writer in writers:
            recent.drop(writer)
        return count

    process.look()
    assert kept(100) == MOST // SHARE
    process.besides_bytes = 600 * MIB
    process.look()
    assert kept(100) == TAILS_BYTES_MIN // SHARE


def test_the_smallest_budget_is_told() -> None:
    BrokerConfig(memory_bytes=256 << 20)
    with pytest.raises(InvalidConfig, match="memory_bytes must be at least 268435456"):
        BrokerConfig(memory_bytes=(256 << 20) - 1)


@pytest.mark.parametrize("end", ["in order", "killed", "store failed"])
def test_brokers_of_a_process_share_and_one_that_ends_leaves_its_part(end: str) -> None:
    async def scenario() -> None:
        process = Process(besides_bytes=0)
        disks = [MemoryDisk(), MemoryDisk()]
        brokers = [
            Broker(
                BrokerConfig(name=f"b-{number}", free_space_floor_bytes=1),
                MemoryStore(disks[number], FAMILIES),
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
        if end == "in order":
            await first.close()
        elif end == "killed":
            first.abandon()
        else:
            # As when somebody else has the shard: nothing is called after that.
            disks[0].fail_next_write()
            with pytest.raises(StoreFailed):
                await first.close()
        assert process.memory.tails.byte_count == 3 * MIB
        assert logs[0].tail_from(0, entries_max=1) == []
        assert logs[1].tail_from(0, entries_max=1) != []
        # What it still does takes nothing.
        fill(logs[0], 3)
        assert process.memory.tails.byte_count == 3 * MIB
        second.abandon()

    asyncio.run(scenario())


def test_a_broker_looks_while_it_runs_and_no_longer() -> None:
    async def scenario() -> None:
        looks = 0

        def resident_bytes() -> int:
            nonlocal looks
            looks += 1
            return looks * MIB

        memory = MemoryBudget(
            memory_bytes=BUDGET, tails_bytes_max=MOST, resident_bytes=resident_bytes
        )
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
        now_s = loop.time()
        loop.time = lambda: now_s  # type: ignore[method-assign]
        timers: list[asyncio.TimerHandle] = []
        call_later = loop.call_later

        def noted(delay_s: float, *arguments: object, **options: object) -> asyncio.TimerHandle:
            timer = call_later(delay_s, *arguments, **options)  # type: ignore[arg-type]
            if arguments[0] == broker._watch_memory:
                timers.append(timer)
            return timer

        loop.call_later = noted  # type: ignore[method-assign, assignment]
        await broker.start()
        assert looks == 1
        now_s += LOOK_INTERVAL_S
        assert [one.when() for one in timers] == [now_s]
        broker._watch_memory()
        assert looks == 2
        assert broker.metrics.resident_bytes._value.get() == 2 * MIB
        assert timers[1].when() == now_s + LOOK_INTERVAL_S
        await broker.close()
        assert timers[1].cancelled()
        now_s += LOOK_INTERVAL_S
        broker._watch_memory()
        assert (looks, len(timers)) == (2, 2)

    asyncio.run(scenario())
