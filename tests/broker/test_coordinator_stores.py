"""protocol.md, Who speaks for a coordinator: nobody without the token of its store."""

from __future__ import annotations

from typing import Any

import pytest
from tests.broker.cluster import Cluster
from tests.broker.cluster import run as run_cluster
from tests.broker.harness import (
    COUNTER_BOUND,
    Client,
    World,
    end,
    run,
    send,
    store_token,
    take_incarnations,
    txn,
    watermark,
)
from tests.broker.test_accepted_losses import accept_loss

from magnetar_broker import keys
from magnetar_broker.coordinators.incarnations import INCARNATION_BITS
from magnetar_broker.coordinators.store_tokens import TOKEN_CHARACTERS_MAX
from magnetar_core.errors import InvalidArgument, InvalidTxnState, LogUnavailable, TxnNotFound
from magnetar_core.ids import COUNTER_MAX, INCARNATION_MAX
from magnetar_core.wire import topic_pb2 as topic_wire
from magnetar_core.wire import transaction_pb2 as txn_wire
from magnetar_storage.store import WriteBatch

# Of the coordinator that each of these worlds has.
PRESENT = 1


def stranger(**fields: Any) -> txn_wire.CommandLowWatermark:
    """A watermark that anybody can make."""
    return txn_wire.CommandLowWatermark(
        **{"tcid": 0, "incarnation": PRESENT, "store_token": "stranger", **fields}
    )


@pytest.mark.parametrize(
    "forged",
    [
        pytest.param(stranger(incarnation=INCARNATION_MAX), id="the last incarnation"),
        pytest.param(stranger(incarnation=PRESENT + 1), id="the next incarnation"),
        pytest.param(stranger(low_watermark=COUNTER_MAX), id="everything has ended"),
        pytest.param(
            stranger(next_counter=COUNTER_MAX, counter_bound=COUNTER_MAX), id="everything is issued"
        ),
        pytest.param(
            stranger(low_watermark=COUNTER_MAX, store_token=store_token(PRESENT + 1)),
            id="a store that takes its incarnation later",
        ),
        pytest.param(stranger(low_watermark=COUNTER_MAX, store_token=""), id="no token"),
        pytest.param(stranger(tcid=7, incarnation=1), id="a coordinator that there is not"),
    ],
)
def test_a_stranger_does_not_speak_for_a_coordinator(forged: txn_wire.CommandLowWatermark) -> None:
    """A single one of these ended all transactions for good, restarts included."""

    async def scenario(world: World) -> None:
        before = dict(await world.rows(keys.META))
        for _ in range(2):
            other = Client(world)
            with pytest.raises(InvalidTxnState, match="token"):
                await other.ask(forged)
            # Nor does it become the coordinator's conversation by that.
            other.tell(
                txn_wire.CommandTxnsIssued(
                    tcid=0, incarnation=PRESENT, next_counter=COUNTER_BOUND + 9
                )
            )
            with pytest.raises((LogUnavailable, TxnNotFound)):
                await other.ask(send(b"invented", in_txn=txn(COUNTER_BOUND + 1)))
            assert dict(await world.rows(keys.META)) == before
            await world.restart()
        await world.client.ask(watermark(0))
        await world.client.ask(send(b"x", in_txn=txn(1)))
        await world.client.ask(end(txn(1)))
        assert await world.read() == [b"x"]

    run(scenario)


def test_a_new_store_waits_until_the_present_one_has_gone() -> None:
    """So nobody takes the place of a coordinator that works."""

    async def scenario(world: World) -> None:
        taken = topic_wire.CommandTakeIncarnation(tcid=0, store_token=store_token(2))
        for _ in range(2):
            other = Client(world)
            with pytest.raises(LogUnavailable, match="works with another store"):
                await other.ask(taken)
            # The same store again is a repeat.
            await take_incarnations(other, 0)
            await world.restart()
            await world.client.ask(watermark(0))
        await world.client.close()
        other = Client(world)
        assert (await other.ask(taken)).incarnation == 2
        await other.ask(watermark(0, incarnation=2))
        with pytest.raises(InvalidTxnState, match="newer incarnation"):
            await Client(world).ask(watermark(0))

    run(scenario)


def test_tokens_have_a_limit() -> None:
    async def scenario(world: World) -> None:
        for token in ("", "x" * (TOKEN_CHARACTERS_MAX + 1)):
            with pytest.raises(InvalidArgument, match="token"):
                await world.client.ask(topic_wire.CommandTakeIncarnation(tcid=5, store_token=token))
        longest = topic_wire.CommandTakeIncarnation(tcid=5, store_token="x" * TOKEN_CHARACTERS_MAX)
        assert (await world.client.ask(longest)).incarnation == 1
        with pytest.raises(InvalidArgument, match="16 bits"):
            await world.client.ask(topic_wire.CommandTakeIncarnation(tcid=1 << 16, store_token="x"))

    run(scenario)


def lost(tcid: int) -> WriteBatch:
    """The rows of a coordinator are lost, here the only ones."""
    batch = WriteBatch()
    batch.delete(keys.META, keys.incarnation(tcid))
    batch.delete(keys.META, keys.watermark(tcid))
    return batch


def test_after_a_loss_the_store_that_comes_first_is_believed_once() -> None:
    async def scenario(world: World) -> None:
        await take_incarnations(world.client, 5, 2)
        await accept_loss(world, lost(5))
        with pytest.raises(InvalidTxnState):
            await world.client.ask(watermark(0, tcid=5, incarnation=INCARNATION_MAX, bound=1))
        await world.client.ask(watermark(0, tcid=5, incarnation=2, bound=1))
        forged = stranger(tcid=5, incarnation=(1 << INCARNATION_BITS) - 1)
        for _ in range(2):
            with pytest.raises(InvalidTxnState):
                await Client(world).ask(forged)
            await world.restart()
        await world.client.ask(watermark(0, tcid=5, incarnation=2, bound=2))
        await world.client.close()
        # What it takes next is new, whatever was lost.
        taken = topic_wire.CommandTakeIncarnation(tcid=5, store_token="next")
        assert (await Client(world).ask(taken)).incarnation > 1 << INCARNATION_BITS

    run(scenario)


def test_a_store_that_was_not_lost_is_known_after_a_loss() -> None:
    async def scenario(world: World) -> None:
        await accept_loss(world, WriteBatch())
        await world.client.ask(watermark(0))
        with pytest.raises(InvalidTxnState):
            await Client(world).ask(stranger(incarnation=PRESENT + 1))
        await world.client.ask(watermark(1))

    run(scenario)


def test_a_coordinator_that_was_replaced_by_mistake_takes_another_incarnation() -> None:
    """Somebody took its place while it was away: it is not lost for that."""

    async def scenario(world: World) -> None:
        await world.client.close()
        other = Client(world)
        await other.ask(topic_wire.CommandTakeIncarnation(tcid=0, store_token="stranger"))
        await other.ask(stranger(incarnation=2, low_watermark=COUNTER_MAX))
        await other.close()
        with pytest.raises(InvalidTxnState, match="newer incarnation"):
            await Client(world).ask(watermark(0))
        # As after `storage accept-loss` of the coordinator.
        again = Client(world)
        await again.ask(topic_wire.CommandTakeIncarnation(tcid=0, store_token=store_token(3)))
        await again.ask(watermark(0, incarnation=3))
        await again.ask(send(b"x", in_txn=txn(1, incarnation=3)))

    run(scenario)


def test_followers_ask_the_first_broker() -> None:
    async def scenario(cluster: Cluster) -> None:
        taken = topic_wire.CommandTakeIncarnation(tcid=0, store_token=store_token(1))
        assert (await cluster.ask(1, taken)).incarnation == 1
        genuine = watermark(0, bound=COUNTER_BOUND)
        for number in range(3):
            client = await cluster.client(number)
            with pytest.raises(InvalidTxnState, match="token"):
                await client.ask(stranger(low_watermark=COUNTER_MAX))
            with pytest.raises(InvalidTxnState, match="token"):
                await client.ask(stranger(incarnation=INCARNATION_MAX))
            await client.ask(genuine)
        # A follower that has heard the store knows it while the first broker is away.
        await cluster.restart(1)
        cluster.crash(0)
        client = await cluster.client(1)
        await client.ask(genuine)
        with pytest.raises(LogUnavailable):
            await client.ask(stranger(incarnation=2))
        with pytest.raises(LogUnavailable):
            await client.ask(stranger(low_watermark=COUNTER_MAX))
        await client.ask(genuine)

    run_cluster(scenario)


def test_nobody_takes_the_place_of_a_follower_that_works() -> None:
    """A single question with an invented store, and it served nobody any more."""

    async def scenario(cluster: Cluster) -> None:
        topic_id = await cluster.create(0, "t")
        name = cluster.partition_at(1, "t", topic_id)
        for losses in (1, COUNTER_MAX):
            with pytest.raises(LogUnavailable, match="works with another store"):
                await (await cluster.client(0)).ask(
                    topic_wire.CommandFollowDirectory(
                        broker_name="b-1", store_token="stranger", accepted_losses=losses
                    )
                )
        await cluster.restart(1)
        await cluster.until(lambda: cluster.has_met(1))
        assert name.partition is not None
        await cluster.create(1, "u")

    run_cluster(scenario)
