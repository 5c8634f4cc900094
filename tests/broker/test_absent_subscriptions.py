"""docs/protocol/rules.md, rule d: an end at a subscription that does not exist is remembered.

Seed 2277 of the simulation found it missing: a subscription made after the end accepted a late ack.
"""

from __future__ import annotations

import pytest
from tests.broker.harness import Client, World, ack, end, run, send, subscribe, txn, watermark

from magnetar_broker import keys
from magnetar_core.errors import Gone, InvalidTxnState, SubscriptionNotFound
from magnetar_core.wire import broker_pb2 as wire
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import topic_pb2 as topic_wire

T1, T2 = txn(1), txn(2)
FAMILIES = (keys.SUBSCRIPTIONS, keys.CURSORS, keys.PENDINGACKS, keys.TXNINDEX)


async def gone(client: Client, body: object) -> None:
    with pytest.raises(Gone):
        await client.ask(body)


async def late_ack_is_refused(world: World) -> None:
    await world.client.ask(subscribe("late"))
    with pytest.raises(InvalidTxnState):
        await world.client.ask(ack((0, 0), in_txn=T1, name="late"))
    await world.client.ask(ack((0, 0), in_txn=T2, name="late"))


@pytest.mark.parametrize("action", [common.COMMIT, common.ABORT])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_subscription_made_after_the_end(action: common.TxnAction, restarted: bool) -> None:
    async def scenario(world: World) -> None:
        await world.client.ask(send(b"0"))
        await gone(world.client, end(T1, action, on="late"))
        await gone(world.client, end(T1, action, on="late"))
        if restarted:
            await world.restart()
        await late_ack_is_refused(world)
        if restarted:
            await world.restart()
        with pytest.raises(InvalidTxnState):
            await world.client.ask(ack((0, 0), in_txn=T1, name="late"))

    run(scenario)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_subscription_deleted_and_made_again(restarted: bool) -> None:
    async def scenario(world: World) -> None:
        await world.client.ask(send(b"0"))
        await world.client.ask(subscribe("late"))
        await world.client.ask(end(T1, on="late"))
        await world.client.ask(wire.CommandUnsubscribe(subscription=late()))
        if restarted:
            await world.restart()
        with pytest.raises(SubscriptionNotFound):
            await world.client.ask(ack((0, 0), in_txn=T1, name="late"))
        await late_ack_is_refused(world)

    run(scenario)


@pytest.mark.parametrize("restarted", [False, True])
def test_the_watermark_leaves_nothing_behind(restarted: bool) -> None:
    async def scenario(world: World) -> None:
        await gone(world.client, end(T1, on="late"))
        assert len(await world.rows(keys.SUBSCRIPTIONS)) == 1
        if restarted:
            await world.restart()
        await world.client.ask(watermark(3))
        for family in FAMILIES:
            assert await world.rows(family) == [], family
        await gone(world.client, end(T1, on="late"))
        assert await world.rows(keys.TXNINDEX) == [], "what is covered needs no row"

    run(scenario)


def test_deleting_the_topic_leaves_nothing_behind() -> None:
    async def scenario(world: World) -> None:
        await gone(world.client, end(T1, on="late"))
        await world.client.ask(subscribe("s"))
        await world.client.ask(end(T1, on="s"))
        await world.client.ask(topic_wire.CommandDeleteTopic(topic="t"))
        for family in FAMILIES:
            assert await world.rows(family) == [], family

    run(scenario)


def late() -> common.Subscription:
    return common.Subscription(topic="t", subscription="late")
