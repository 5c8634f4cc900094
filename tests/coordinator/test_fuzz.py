"""Whatever a client sends: the coordinator answers, stays whole, and serves the others."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from google.protobuf.message import DecodeError
from tests.coordinator.fakes import World, run
from tests.core.fuzzing import fuzzed_frames

from magnetar_core.ids import PartitionName
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import service_pb2

COUNT = 100_000


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_fuzzed_frames(seed: int) -> None:
    async def scenario() -> None:
        world = await World(live_txns_max=100).start()
        told = await fuzz(world, Random(seed))
        assert told["answered"] > COUNT // 10
        assert told["refused"] > COUNT // 10
        assert told["no frame"] > COUNT // 100
        await world.settle(900.0)
        assert world.metric("transactions", status="open") == 0, "what was begun has expired"
        txn_id = await world.client.new(PartitionName("t", 0, 1))
        await world.restart()
        assert await world.client.end(txn_id) in (common.COMMITTING, common.COMMITTED)
        assert not world.fatal_errors
        await world.close()

    run(scenario())


async def fuzz(world: World, random: Random) -> dict[str, int]:
    told = {"answered": 0, "refused": 0, "no frame": 0}
    failed: list[service_pb2.Command] = []

    def on_frame(frame: service_pb2.Frame) -> None:
        for one in frame.commands:
            told["refused" if one.HasField("error") else "answered"] += 1
            if one.HasField("error") and one.error.code == common.INTERNAL:
                failed.append(one)

    server = world.coordinator.server
    session = server.accept(on_frame)
    for number, data in enumerate(fuzzed_frames(random, COUNT, frozenset(server.handlers))):
        try:
            frame = service_pb2.Frame.FromString(data)
        except DecodeError:
            told["no frame"] += 1
            continue
        session.on_frame(frame)
        if number % 5 == 0:
            await asyncio.sleep(0)
        if number % 1_000 == 0:
            session.on_closed()
            session = server.accept(on_frame)
            await world.settle()
    await world.settle()
    assert not failed
    return told
