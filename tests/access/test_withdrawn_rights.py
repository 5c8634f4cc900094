"""Work that needs a lasting right ends when that is withdrawn; begun work may be finished."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.access.roles import READER, WRITER
from tests.access.world import BROKER, World, token_of, world, write_access
from tests.waiting import until

import magnetar
from magnetar import AuthorizationFailed, Client
from magnetar.enums import SubscriptionTypeName
from magnetar_core.security.watched_file import LOOK_INTERVAL_MS

SERVERS = {"anonymous": ["coordinator", "broker"], "boss": ["admin"]}
SECONDS_MAX = 20


class Scene:
    """Alice reads, and loses the right to."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.give(["reader"])

    def give(self, roles: list[str]) -> None:
        path = self.directory / "access.toml"
        principals = {**SERVERS, "alice": roles, "bob": ["reader"]}
        self.access = write_access(path, principals, READER + WRITER)

    def withdraw(self, servers: World) -> None:
        self.give(["writer"])
        servers.now_ms += LOOK_INTERVAL_MS


async def connect(servers: World, name: str) -> Client:
    return await magnetar.connect(servers.address(BROKER), token=token_of(name))


def play(scene: Scene, scenario: Any) -> None:
    async def run() -> None:
        async with (
            asyncio.timeout(SECONDS_MAX),
            world(scene.access, scene.directory) as servers,
            await connect(servers, "boss") as boss,
            await connect(servers, "alice") as alice,
        ):
            await boss.admin.topics.create("orders")
            producer = await boss.create_producer("orders")
            await producer.send(b"before")
            await scenario(servers, boss, alice)

    asyncio.run(run())


async def refused(consumer: Any) -> str:
    with pytest.raises(AuthorizationFailed) as caught:
        await receive_for_ever(consumer)
    return str(caught.value)


async def receive_for_ever(consumer: Any) -> None:
    while True:
        await consumer.receive()


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
def test_a_consumer_is_detached(kind: SubscriptionTypeName, tmp_path: Path) -> None:
    scene = Scene(tmp_path)

    async def scenario(servers: World, boss: Client, alice: Client) -> None:
        consumer = await alice.subscribe("orders", "work", type=kind, initial_position="earliest")
        message = await consumer.receive()
        waiting = asyncio.create_task(refused(consumer))
        scene.withdraw(servers)
        assert "alice lacks READ on topic 'orders'" in await waiting
        # It is not the client that stops: the broker has dropped the consumer.
        other = await boss.subscribe("orders", "work", type=kind)
        assert (await other.receive()).value == message.value

    play(scene, scenario)


def test_what_a_detached_consumer_has_is_acknowledged(tmp_path: Path) -> None:
    scene = Scene(tmp_path)

    async def scenario(servers: World, boss: Client, alice: Client) -> None:
        consumer = await alice.subscribe("orders", "work", initial_position="earliest")
        message = await consumer.receive()
        waiting = asyncio.create_task(refused(consumer))
        scene.withdraw(servers)
        await waiting
        await consumer.ack(message)
        producer = await boss.create_producer("orders")
        await producer.send(b"after")
        next_one = await boss.subscribe("orders", "work")
        assert (await next_one.receive()).value == b"after"

    play(scene, scenario)


def test_who_keeps_the_right_goes_on(tmp_path: Path) -> None:
    scene = Scene(tmp_path)

    async def scenario(servers: World, boss: Client, alice: Client) -> None:
        async with await connect(servers, "bob") as bob:
            mine = await bob.subscribe("orders", "of bob", initial_position="earliest")
            hers = await alice.subscribe("orders", "of alice")
            assert (await mine.receive()).value == b"before"
            scene.withdraw(servers)
            await refused(hers)
            producer = await boss.create_producer("orders")
            await producer.send(b"after")
            assert (await mine.receive()).value == b"after"

    play(scene, scenario)


def test_a_member_is_expelled_and_others_take_its_place(tmp_path: Path) -> None:
    scene = Scene(tmp_path)

    async def scenario(servers: World, boss: Client, alice: Client) -> None:
        member = await alice.consumer_group("group", "orders", initial_position="earliest")
        assert (await member.receive()).value == b"before"
        waiting = asyncio.create_task(refused(member))
        scene.withdraw(servers)
        assert "alice lacks READ" in await waiting

        async def is_empty() -> bool:
            return not (await boss.admin.groups.describe("group")).members

        await until(is_empty)
        async with await connect(servers, "bob") as bob:
            other = await bob.consumer_group("group", "orders")
            assert (await other.receive()).value == b"before"

    play(scene, scenario)
