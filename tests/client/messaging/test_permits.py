"""What partitions of a client may have ahead of the application, one by one and all together."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.config import ConsumerConfig
from magnetar.message import ReceivedBatch
from magnetar.messaging.receiving.permits import WINDOW_BYTES_FIRST, Permits, PrefetchBudget
from magnetar_core.wire import broker_pb2

MANY = ConsumerConfig(receiver_queue_messages=1 << 30)
TOTAL = 64 << 20


def batch_of(size: int) -> ReceivedBatch:
    wire = broker_pb2.DeliveredBatch(num_messages=1, batch=bytes(size))
    return ReceivedBatch("t", 0, 1, wire)


@dataclass(eq=False)
class Partition:
    """A partition's broker, which sends batches of one size, and its queue in the client."""

    budget: PrefetchBudget
    batch_bytes: int = 256 << 10
    config: ConsumerConfig = MANY
    has_messages: bool = True
    queue: deque[ReceivedBatch] = field(default_factory=deque)
    taken_bytes: int = 0

    def __post_init__(self) -> None:
        self._may_send = 0
        self._batch = batch_of(self.batch_bytes)
        self.permits = Permits(self.config, self.budget, self._flow)

    def attach(self) -> None:
        self._may_send = 0
        self.queue.clear()
        self.permits.begin()

    def _flow(self, count: int, byte_count: int) -> None:
        self._may_send += byte_count

    def deliver(self) -> None:
        """The broker sends as long as it may: docs/design/0001-protocol.md, Subscriptions."""
        while self.has_messages and self._may_send > 0:
            self._may_send -= self.batch_bytes
            self.queue.append(self._batch)

    def take(self) -> bool:
        """The application takes a batch; return whether there was one."""
        if not self.queue:
            return False
        batch = self.queue.popleft()
        self.taken_bytes += len(batch.data)
        self.permits.use_bytes(batch)
        self.deliver()
        return True

    @property
    def queued_bytes(self) -> int:
        return sum(len(one.data) for one in self.queue)


def attached(count: int, budget: PrefetchBudget, **each: object) -> list[Partition]:
    partitions = [Partition(budget, **each) for _ in range(count)]  # type: ignore[arg-type]
    for partition in partitions:
        partition.attach()
        partition.deliver()
    return partitions


def queued(partitions: list[Partition]) -> int:
    return sum(partition.queued_bytes for partition in partitions)


def test_partitions_that_are_not_read_hold_little() -> None:
    """24 partitions held 706 MiB after one receive()."""
    partitions = attached(24, PrefetchBudget(TOTAL))
    partitions[0].take()
    assert queued(partitions) <= 24 * (WINDOW_BYTES_FIRST + (256 << 10))


def test_a_partition_that_is_read_gets_all_there_is() -> None:
    (one,) = attached(1, PrefetchBudget(TOTAL))
    for _ in range(2_000):
        one.take()
    assert one.queued_bytes > TOTAL // 2


@pytest.mark.parametrize("count", [2, 7, 100, 1_000])
def test_partitions_that_are_read_share_it(count: int) -> None:
    budget = PrefetchBudget(TOTAL)
    partitions = attached(count, budget, batch_bytes=16 << 10)
    for _ in range(60_000 // count):
        for one in partitions:
            one.take()
    share = TOTAL // count
    for partition in partitions:
        assert share // 4 <= partition.queued_bytes <= share + (16 << 10)


def test_one_that_comes_later_gets_its_share_from_those_that_have_more() -> None:
    budget = PrefetchBudget(TOTAL)
    partitions = attached(1, budget, batch_bytes=16 << 10)
    for _ in range(20_000):
        partitions[0].take()
    partitions += attached(1, budget, batch_bytes=16 << 10)
    for _ in range(20_000):
        for one in partitions:
            one.take()
    for partition in partitions:
        assert TOTAL // 8 <= partition.queued_bytes <= TOTAL // 2 + (16 << 10)


def test_idle_partitions_do_not_starve_a_busy_one() -> None:
    budget = PrefetchBudget(TOTAL)
    attached(30, budget, has_messages=False)
    (busy,) = attached(1, budget)
    for _ in range(2_000):
        assert busy.take()
    assert busy.queued_bytes > TOTAL // 31 // 2


def test_one_that_holds_all_and_is_idle_does_not_starve_others() -> None:
    """A broker does not give permits back."""
    budget = PrefetchBudget(TOTAL)
    (idle,) = attached(1, budget)
    for _ in range(2_000):
        idle.take()
    others = attached(10, budget)
    for _ in range(100):
        for one in others:
            one.take()
    assert all(one.queued_bytes >= WINDOW_BYTES_FIRST // 2 for one in others)
    assert queued([idle, *others]) <= TOTAL + 11 * (WINDOW_BYTES_FIRST + (256 << 10))


@pytest.mark.parametrize("batch_bytes", [1 << 20, 65 << 20])
def test_a_message_larger_than_everything_passes(batch_bytes: int) -> None:
    """Each partition may have one batch, whatever its size, or nothing would come any more."""
    budget = PrefetchBudget(1)
    partitions = attached(3, budget, batch_bytes=batch_bytes)
    for _ in range(5):
        for partition in partitions:
            assert len(partition.queue) == 1
            assert partition.take()


@given(st.data())
def test_whatever_happens_the_total_holds_and_nothing_stands_still(data: st.DataObject) -> None:
    bytes_max = data.draw(st.integers(1, 5_000))
    budget = PrefetchBudget(bytes_max)
    partitions: list[Partition] = []
    for _ in range(data.draw(st.integers(1, 60))):
        step = data.draw(st.sampled_from(["open", "attach", "take", "take", "take", "close"]))
        if step == "open" or not partitions:
            config = ConsumerConfig(
                receiver_queue_messages=1 << 30,
                receiver_queue_bytes=data.draw(st.integers(1, 3_000)),
            )
            has_messages = data.draw(st.booleans())
            size = data.draw(st.integers(1, 900))
            partitions.append(Partition(budget, size, config, has_messages))
            partitions[-1].attach()
            partitions[-1].deliver()
            continue
        one = data.draw(st.sampled_from(partitions))
        if step == "take":
            one.take()
        elif step == "attach":
            one.attach()
            one.deliver()
        else:
            one.permits.close()
            one.permits.close()
            one.take()
            partitions.remove(one)
        # Beyond twice the total, each partition may have what the last batch exceeded its permits
        # by, and a byte for the next one.
        largest = max((each.batch_bytes for each in partitions), default=0)
        assert queued(partitions) <= 2 * bytes_max + len(partitions) * largest
        assert budget.held_bytes <= 2 * bytes_max + len(partitions)
        for each in partitions:
            assert each.queue or not each.has_messages
            assert each.queued_bytes < each.config.receiver_queue_bytes + each.batch_bytes
    for one in partitions:
        one.permits.close()
    assert budget.held_bytes == 0


def test_messages_count_too() -> None:
    flows: list[tuple[int, int]] = []
    config = ConsumerConfig(receiver_queue_messages=10)
    permits = Permits(config, PrefetchBudget(TOTAL), lambda *one: flows.append(one))
    permits.begin()
    permits.use(4)
    assert flows == [(10, WINDOW_BYTES_FIRST)]
    permits.use(1)
    assert flows[1:] == [(5, 0)]
    permits.close()
    permits.use(10)
    assert len(flows) == 2
