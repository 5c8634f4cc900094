"""Members under faults: one owner speaks at most, and once faults stop every shard has one."""

from __future__ import annotations

from random import Random

import pytest
from tests.cluster.hosting import Cluster, run
from tests.configs import host_settings
from tests.virtual_time import time_passes

from magnetar_cluster.directory.view import BROKER, MemberName

NAMES = ("a", "b", "c")
# Once faults stop: a lease ends, late requests arrive, the longest pauses pass, shards move.
BOUND_S = 60


async def trouble(cluster: Cluster, random: Random) -> None:
    """Do something to somebody."""
    name = random.choice(NAMES)
    node = cluster.nodes.get(name)
    if node is None:
        await cluster.start(name, settings=SETTINGS)
        return
    troubles = node.troubles
    match random.randrange(12):
        case 0:
            cluster.kill(name)
        case 1 | 2:
            troubles.cut = not troubles.cut
        case 3:
            troubles.request_lost = random.choice([0, 0.3])
            troubles.answer_lost = random.choice([0, 0.3])
            troubles.late = random.choice([0, 0.3])
        case 4:
            troubles.delay_s = random.choice([0, 0.1, 0.9])
            troubles.answer_delay_s = random.choice([0, 0.1, 1.9])
        case 5:
            troubles.watch_breaks = random.choice([0, 0.5])
        case 6:
            troubles.opening_s = random.choice([0.05, 1, 8])
            troubles.opening_fails = random.choice([0, 0.5])
        case 7:
            troubles.closing_s = random.choice([0.05, 1, 40])
            troubles.closing_fails = random.choice([0, 0.5])
            troubles.abandoning_s = random.choice([0.01, 5])
        case 8 | 9:
            shards = node.open_shards()
            if shards:
                random.choice(shards).end()
        case 10:
            await cluster.admin.drain(MemberName(BROKER, name), draining=random.random() < 0.5)
        case 11:
            await cluster.admin.pin(random.choice(cluster.shards), random.choice([*NAMES, ""]))


SETTINGS = host_settings(opening_pause_ms_max=4_000)


@pytest.mark.parametrize("seed", range(20))
def test_faults(seed: int) -> None:
    async def scenario() -> None:
        cluster = Cluster(shards=5, seed=seed)
        random = Random(seed)
        await cluster.start(*NAMES, settings=SETTINGS)
        for _ in range(40):
            await time_passes(random.choice([0.1, 1, 5]) * random.random())
            await trouble(cluster, random)
        for name in NAMES:
            await cluster.admin.drain(MemberName(BROKER, name), draining=False)
            if name not in cluster.nodes:
                await cluster.start(name, settings=SETTINGS)
            cluster.nodes[name].calm()
        for shard in cluster.shards:
            await cluster.admin.pin(shard, "")
        await cluster.until(BOUND_S)
        await time_passes(BOUND_S)
        assert cluster.loads() == [1, 2, 2]
        assert all(node.closing_most <= 1 for node in cluster.nodes.values())
        await cluster.end()

    run(scenario())
