"""Whatever a client sends: the broker answers, stays whole, and serves the others."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from tests.broker.harness import World, run, send
from tests.core.fuzzing import fuzz
from tests.virtual_time import time_passes

from magnetar_core.wire import topic_pb2 as topic_wire
from magnetar_storage.backup_source import HOLD_MS_MAX

COUNT, SOAK_COUNT = 10_000, 100_000


@pytest.mark.parametrize(
    ("seed", "count"), [(1, COUNT), pytest.param(2, SOAK_COUNT, marks=pytest.mark.soak)]
)
def test_fuzzed_frames(seed: int, count: int) -> None:
    async def scenario(world: World) -> None:
        await world.client.ask(send(b"before", number=1, producer=1 << 40))
        server = world.broker.server
        names = frozenset(server.handlers) - {"create_topic", "delete_topic"}
        sent = await fuzz(
            server, Random(seed), count, names, world.settle, frames_a_conversation=100
        )
        assert sent["answered"] > count // 10
        assert sent["refused"] > count // 10
        assert sent["no frame"] > count // 100
        # A backup that one of them began holds everything that is stored, until its time is up.
        await time_passes(HOLD_MS_MAX / 1_000)
        await world.client.ask(topic_wire.CommandCreateTopic(topic="after"))
        body = send(b"after")
        body.partition.topic = "after"
        assert not (await world.client.ask(body)).duplicate
        before = described(world)
        await world.restart()
        assert described(world) == before

    run(scenario, topics_max=50)


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
        # One that a topic was given later comes last, and in its place after a restart.
        for partition in sorted(world.broker.topics.partitions(), key=lambda one: one.name)
    ]
