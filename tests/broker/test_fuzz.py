"""Whatever a client sends: the broker answers, stays whole, and serves the others."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from tests.broker.harness import World, run, send
from tests.core.fuzzing import fuzzed_frames

from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import service_pb2 as service
from magnetar_core.wire import topic_pb2 as topic_wire

COUNT = 100_000


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_fuzzed_frames(seed: int) -> None:
    async def scenario(world: World) -> None:
        await world.client.ask(send(b"before", number=1, producer=1 << 40))
        sent = await fuzz(world, Random(seed))
        assert sent["answered"] > COUNT // 10
        assert sent["refused"] > COUNT // 10
        assert sent["no frame"] > COUNT // 100
        await world.client.ask(topic_wire.CommandCreateTopic(topic="after"))
        body = send(b"after")
        body.partition.topic = "after"
        assert not (await world.client.ask(body)).duplicate
        before = described(world)
        await world.restart()
        assert described(world) == before

    run(scenario, topics_max=50)


async def fuzz(world: World, random: Random) -> dict[str, int]:
    told = {"answered": 0, "refused": 0, "no frame": 0}
    failed: list[service.Command] = []

    def on_frame(frame: service.Frame) -> None:
        for one in frame.commands:
            kind = "refused" if one.HasField("error") else "answered"
            told[kind] += 1
            if one.HasField("error") and one.error.code == common.INTERNAL:
                failed.append(one)

    session: Any = world.broker.server.accept(on_frame)
    names = frozenset(world.broker.server.handlers) - {"create_topic", "delete_topic"}
    for number, data in enumerate(fuzzed_frames(random, COUNT, names)):
        try:
            frame = service.Frame.FromString(data)
        except DecodeError:
            told["no frame"] += 1
            continue
        session.on_frame(frame)
        if number % 5 == 0:
            await asyncio.sleep(0)
        if number % 100 == 0:
            session.on_closed()
            session = world.broker.server.accept(on_frame)
            await world.settle()
    await world.settle()
    assert not failed
    return told


def described(world: World) -> list[tuple[Any, ...]]:
    return [
        (
            partition.name,
            partition.log.first_offset,
            partition.log.durable_end,
            sorted(partition.index.open),
            sorted(partition.index.ended),
            sorted(
                (one.name, one.cursor.floor, sorted(one.index.open), sorted(one.index.ended))
                for one in partition.subscriptions
            ),
        )
        for partition in world.broker.topics.partitions()
    ]
