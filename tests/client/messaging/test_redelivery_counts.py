"""How often an application is given a message before it is a dead letter, against real servers.

A copy that the application never saw is no delivery, whoever brought it about. Everything happens
in virtual time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import cast

import pytest
from tests.client.cuts.cluster import BROKERS, COORDINATORS, Cluster, run
from tests.virtual_time import time_passes
from tests.waiting import turns

from magnetar import (
    Client,
    Consumer,
    DeadLetterPolicy,
    GroupConsumer,
    Message,
)
from magnetar.enums import SubscriptionTypeName
from magnetar_core.wire import service_pb2

REDELIVERIES_MAX = 2
# Longer than any redelivery takes.
QUIET_S = 3.0
# Shorter than an abort waits for its answer.
LATE_S = 0.2
VALUES = [b"%d" % number for number in range(12)]
TYPES = ("exclusive", "failover", "shared", "key_shared", "group")
DEAD = DeadLetterPolicy(redeliveries_max=REDELIVERIES_MAX, topic="dead")


class Scene:
    """A consumer with a queue that holds more than the application takes at once.

    Attributes:
        seen: the redelivery counts with which the application was given each message.
    """

    consumer: Consumer | GroupConsumer

    def __init__(self, cluster: Cluster, client: Client, kind: str) -> None:
        self.cluster = cluster
        self.client = client
        self.kind = kind
        self.seen: dict[bytes, list[int]] = {value: [] for value in VALUES}

    async def open(self) -> None:
        for topic in ("t", "dead"):
            await self.client.admin.topics.create(topic)
        await self.subscribe()
        producer = await self.client.create_producer("t")
        for value in VALUES:
            await producer.send(value, key=value)

    async def subscribe(self) -> None:
        if self.kind == "group":
            self.consumer = await self.client.consumer_group(
                "s", "t", initial_position="earliest", dead_letter=DEAD, nack_delay_ms=0
            )
        else:
            self.consumer = await self.client.subscribe(
                "t",
                "s",
                type=cast("SubscriptionTypeName", self.kind),
                initial_position="earliest",
                dead_letter=DEAD,
                nack_delay_ms=0,
            )

    def delay_answer_of_next(self, name: str) -> None:
        """The broker delivers again before the client hears the answer of a coordinator."""

        def watch(frame: service_pb2.Frame) -> None:
            if any(command.WhichOneof("body") == name for command in frame.commands):
                self.cluster.network.watch = None
                for coordinator in COORDINATORS:
                    self.cluster.network.hold_up(self.client_name, coordinator, LATE_S)

        self.cluster.network.watch = watch

    @property
    def client_name(self) -> str:
        return f"sdk-{self.cluster._client_count}"

    def break_links(self) -> None:
        for link in self.cluster.network.links(self.client_name):
            if link.server_node in BROKERS:
                link.break_off()

    async def take(self, count: int = 2) -> list[Message]:
        """What the application is given within a while."""
        taken = await self.consumer.receive_batch(count, timeout_s=QUIET_S)
        for message in taken:
            self.seen[message.value].append(message.redelivery_count)
        return taken

    async def dead(self) -> list[bytes]:
        return [message.value async for message in self.client.read("dead")]


# What an application does with messages that it cannot process.


async def abort(scene: Scene, messages: Sequence[Message]) -> None:
    txn = await scene.client.begin_transaction()
    await scene.consumer.ack_many(messages, txn=txn)
    await txn.abort()


async def abort_with_a_late_answer(scene: Scene, messages: Sequence[Message]) -> None:
    scene.delay_answer_of_next("end_txn")
    await abort(scene, messages)


async def abort_unconfirmed(scene: Scene, messages: Sequence[Message]) -> None:
    """The acks are on their way when the transaction is aborted."""
    txn = await scene.client.begin_transaction()
    acking = asyncio.ensure_future(scene.consumer.ack_many(messages, txn=txn))
    await turns()
    await txn.abort()
    await asyncio.gather(acking, return_exceptions=True)


async def nack(scene: Scene, messages: Sequence[Message]) -> None:
    scene.consumer.nack_many(messages)


async def nack_by_id(scene: Scene, messages: Sequence[Message]) -> None:
    if isinstance(scene.consumer, GroupConsumer):
        scene.consumer.nack_many(messages)  # Ids do not name the partition.
        return
    for message in messages:
        scene.consumer.nack(message.message_id)


async def nack_after_a_broken_link(scene: Scene, messages: Sequence[Message]) -> None:
    """All that the consumer has comes a second time meanwhile, and is dropped."""
    scene.break_links()
    await time_passes(QUIET_S)
    scene.consumer.nack_many(messages)
    await time_passes(QUIET_S)


async def nack_on_a_broken_link(scene: Scene, messages: Sequence[Message]) -> None:
    scene.break_links()
    scene.consumer.nack_many(messages)


async def close(scene: Scene, messages: Sequence[Message]) -> None:
    """As in a rolling restart."""
    await scene.consumer.close()
    await scene.subscribe()


async def redeliver(scene: Scene, messages: Sequence[Message]) -> None:
    if isinstance(scene.consumer, GroupConsumer):
        scene.consumer.redeliver()
    else:
        await close(scene, messages)


FAILURES = [
    abort,
    abort_with_a_late_answer,
    abort_unconfirmed,
    nack,
    nack_by_id,
    nack_after_a_broken_link,
    nack_on_a_broken_link,
    close,
    redeliver,
]


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("fail", FAILURES, ids=lambda one: one.__name__)
def test_every_message_is_given_as_often_as_promised_before_it_is_a_dead_letter(
    fail: Callable[[Scene, Sequence[Message]], Awaitable[None]], kind: str
) -> None:
    async def scenario(cluster: Cluster, client: Client) -> None:
        scene = Scene(cluster, client, kind)
        await scene.open()
        while messages := await scene.take():
            await fail(scene, messages)
        promised = list(range(REDELIVERIES_MAX + 1))
        if fail is nack_on_a_broken_link:
            # A copy that was on its way may reach the application with the count of before.
            assert all(sorted(set(counts)) == promised for counts in scene.seen.values())
        else:
            assert scene.seen == {value: promised for value in VALUES}
        assert sorted(await scene.dead()) == sorted(VALUES)
        await scene.consumer.close()

    run(scenario)


@pytest.mark.parametrize("kind", TYPES[:-1])
def test_what_a_consumer_held_that_vanished_counts_when_it_goes_to_another(kind: str) -> None:
    """It may have died of one of these messages. Of which one, nobody knows."""

    async def scenario(cluster: Cluster, client: Client) -> None:
        watcher = Scene(cluster, client, kind)
        async with await cluster.connect() as vanishing:
            scene = Scene(cluster, vanishing, kind)
            await scene.open()
            given = await scene.take()
            for broker in BROKERS:
                cluster.network.hold_up(scene.client_name, broker, 100 * QUIET_S)
            scene.break_links()
            await watcher.subscribe()
            while messages := await watcher.take():
                await watcher.consumer.ack_many(messages)
            assert watcher.seen == {value: [1] for value in VALUES}
            # It comes back, and has nothing to give back any more.
            await time_passes(100 * QUIET_S)
            scene.consumer.nack_many(given)
            assert not await scene.take()

    run(scenario)
