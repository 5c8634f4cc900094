"""Whatever a client sends: the coordinator answers, stays whole, and serves the others."""

from __future__ import annotations

from random import Random

import pytest
from tests.coordinator.fakes import World
from tests.core.fuzzing import fuzz
from tests.virtual_time import run

from magnetar_core.ids import PartitionName
from magnetar_core.wire import common_pb2 as common

COUNT, SOAK_COUNT = 10_000, 100_000


@pytest.mark.parametrize(
    ("seed", "count"), [(1, COUNT), pytest.param(2, SOAK_COUNT, marks=pytest.mark.soak)]
)
def test_fuzzed_frames(seed: int, count: int) -> None:
    async def scenario() -> None:
        world = await World(live_txns_max=100).start()
        server = world.coordinator.server
        told = await fuzz(
            server,
            Random(seed),
            count,
            frozenset(server.handlers),
            world.settle,
            frames_a_conversation=1_000,
        )
        assert told["answered"] > count // 10
        assert told["refused"] > count // 10
        assert told["no frame"] > count // 100
        await world.settle(900.0)
        assert world.metric("transactions", status="open") == 0, "what was begun has expired"
        txn_id = await world.client.new(PartitionName("t", 0, 1))
        await world.restart()
        assert await world.client.end(txn_id) in (common.COMMITTING, common.COMMITTED)
        assert not world.fatal_errors
        await world.close()

    run(scenario())
