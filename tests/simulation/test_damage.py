"""What readers may pass over is what an administrator has given up, whenever that took effect."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import pytest
from tests.simulation.damaged_reads import UNREADABLE
from tests.simulation.history import Violation
from tests.simulation.planting import replaced
from tests.simulation.short.catalogue import VERBS
from tests.simulation.short.damage import TOPIC
from tests.simulation.short.script import Script, Step
from tests.simulation.world import World

from magnetar_broker import keys
from magnetar_broker.commands import read_commands
from magnetar_broker.commands.skip_damaged import skip_damaged
from magnetar_broker.topics.partition import Partition
from magnetar_core.wire import broker_pb2 as wire

pytestmark = pytest.mark.sim

PLACE = {"topic": TOPIC, "partition": 0}
WRITER = {"topic": TOPIC, "linger_ms": 0.0, "batch_messages_max": 1}
WRITE = {"writer": "w", "settings": WRITER, "partitions": [0] * 4, "wait": True}
SCRIPT = Script(
    seed="damage",
    profile="by hand",
    scenarios=(),
    topics={TOPIC: 1},
    coordinator_count=1,
    # What lies in memory is not read from the disk.
    settings={
        "topic": {},
        "broker": {"tail_bytes_max": 0},
        "coordinator": {},
        "client": {},
        "constants": {},
    },
    steps=(
        Step(1, "producer", "plain", WRITE),
        Step(2, "keeper", "skip", PLACE, after=(1,)),
        # While the administrator waits for the answer.
        Step(3, "reader", "read around", PLACE, pause_s=0.5, after=(1,)),
        Step(4, "reader", "read around", PLACE, closing=True),
    ),
    faults=(),
)

Answer = wire.CommandSkipDamagedResponse
Skip = Callable[[Partition, wire.CommandSkipDamaged], Awaitable[Answer]]


class Struck(World):
    """The disk loses a row when the administrator has looked, and before anything is given up."""

    def __init__(self) -> None:
        super().__init__(SCRIPT, VERBS)
        self.is_struck = False

    def strike(self, partition: Partition) -> int:
        """Returns the offset whose row is lost."""
        damage, prefix = self.broker.damage, keys.partition(partition.name.topic_id, 0)
        [row] = damage.strike(Random(1), (keys.LOG,), count=1, way=UNREADABLE, prefix=prefix)
        self.is_struck = True
        return keys.last_u64(row[1])

    def run_with(self, skip: Skip) -> None:
        """Run the history with a broker that carries the administrator's command out like this."""
        with replaced(read_commands, "skip_damaged", skip):
            self.run()


async def durable(partition: Partition) -> None:
    synced = asyncio.Event()
    partition._environment.when_durable(synced.set)
    await synced.wait()


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_skip_may_take_effect_long_before_it_is_answered(is_lost: bool) -> None:
    """Short seed 17798: the answer is lost with the broker, and the repeated call finds nothing."""
    world = Struck()
    answers: list[Answer] = []

    async def skip(partition: Partition, command: wire.CommandSkipDamaged) -> Answer:
        is_first = not command.dry_run and not world.is_struck
        if is_first:
            world.strike(partition)
        answer = await skip_damaged(partition, command)
        if is_first:
            await durable(partition)
            # Readers come meanwhile.
            await asyncio.sleep(1.0)
            if is_lost:
                world.broker.crash(power_loss=True)
        answers.append(answer)
        return answer

    world.run_with(skip)
    assert world.is_struck
    assert bool(answers[-1].damaged) is not is_lost
    [given_up] = world.history.given_up.values()
    assert len(given_up) == 1


def test_what_nobody_has_asked_to_give_up_is_not_passed_over() -> None:
    """Not even in a partition of which an administrator has asked before, and was answered."""
    world = Struck()

    async def skip(partition: Partition, command: wire.CommandSkipDamaged) -> Answer:
        if not command.dry_run:
            asyncio.get_running_loop().call_later(0.2, give_up, partition)
        return await skip_damaged(partition, command)

    def give_up(partition: Partition) -> None:
        offset = world.strike(partition)
        partition.skip_damaged([(offset, offset)])

    with pytest.raises(Violation, match="in silence"):
        world.run_with(skip)
    assert world.is_struck
