"""Going on without what was lost: nothing is given out a second time.

Source: docs/protocol/rules.md, rule n.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
from tests.broker.harness import World, ack, end, flow, run, send, subscribe, txn

from magnetar_broker import keys
from magnetar_core.errors import InvalidArgument
from magnetar_core.membership.placement import serial_of
from magnetar_core.wire import record_pb2 as records
from magnetar_core.wire import topic_pb2 as topic_wire
from magnetar_storage import store_identity
from magnetar_storage.store import StoreDamaged, WriteBatch
from magnetar_storage.store_identity import LOSSES_OF_EVERYTHING


async def accept_loss(world: World, batch: WriteBatch, losses: int = 1) -> None:
    """The process dies, these rows are as they were, and somebody accepts that."""
    store = world.broker.environment.store
    row = await store.get(keys.META, store_identity.KEY)
    stored = records.StoreIdentity.FromString(row or b"")
    stored.losses += losses
    batch.put(keys.META, store_identity.KEY, stored.SerializeToString(deterministic=True))
    await store.write(batch)
    await store.sync()
    await world.restart()


async def incarnation(world: World, tcid: int, token: str) -> int:
    answer = await world.client.ask(topic_wire.CommandTakeIncarnation(tcid=tcid, store_token=token))
    return int(answer.incarnation)


def test_offsets_that_were_given_out_are_not_given_out_again() -> None:
    """The log lost its last two entries, of which a cursor and a table know more than the rest."""

    async def scenario(world: World) -> None:
        await world.client.ask(subscribe(consumer=1))
        world.client.tell(flow())
        await world.client.ask(send(b"0", b"1", b"2"))
        before = dict(await world.rows(keys.PARTITIONS))
        await world.client.ask(send(b"3", b"4", sequence=3))
        await world.client.ask(send(b"5", sequence=5))
        await world.client.ask(ack((0, 5)))
        lost = WriteBatch()
        for key, value in before.items():
            lost.put(keys.PARTITIONS, key, value)
        lost.delete(keys.LOG, (await world.rows(keys.LOG))[2][0])
        await accept_loss(world, lost)

        assert world.partition().ledger_id == 2
        assert world.partition().log.end_offset == 6
        assert await world.read() == [b"0", b"1", b"2"], "what lies behind the loss is not shown"
        await world.client.ask(send(b"6", b"7", producer=2))
        await world.client.ask(subscribe(consumer=1, epoch=2))
        world.client.tell(flow())
        await world.settle()
        assert world.client.messages() == [(6, b"6"), (7, b"7")]
        assert {one.ledger_id for one in world.client.delivered} == {2}
        stale = ack((6, 6))
        stale.ledger_id = 1
        with pytest.raises(InvalidArgument, match="ledger"):
            await world.client.ask(stale)
        await world.restart()
        assert world.partition().log.end_offset == 8, "once for each loss"
        assert world.partition().ledger_id == 2
        assert await world.read() == [b"0", b"1", b"2", b"6", b"7"]

    run(scenario, tail_bytes_max=1)


def test_a_loss_may_be_accepted_where_the_newest_entry_of_a_partition_cannot_be_read() -> None:
    """Its value was in a file that is gone, and the broker did not start."""

    async def scenario(world: World) -> None:
        await world.client.ask(send(b"0", b"1", b"2"))
        await world.client.ask(send(b"3", b"4", sequence=3))
        newest = (await world.rows(keys.LOG))[-1][0]
        world.disk.unreadable.add((keys.LOG, newest))
        await accept_loss(world, WriteBatch())
        assert world.partition().ledger_id == 2
        assert world.partition().log.end_offset == 5
        await world.client.ask(send(b"5", producer=2))
        assert world.partition().log.end_offset == 6
        await world.restart()
        assert world.partition().log.end_offset == 6

    run(scenario, tail_bytes_max=1)


def test_an_entry_that_cannot_be_read_and_that_only_the_log_knows_stops_the_start() -> None:
    """Nothing says how many offsets it had."""

    async def scenario(world: World) -> None:
        await world.client.ask(send(b"0", b"1", b"2"))
        before = dict(await world.rows(keys.PARTITIONS))
        await world.client.ask(send(b"3", b"4", sequence=3))
        newest = (await world.rows(keys.LOG))[-1][0]
        world.disk.unreadable.add((keys.LOG, newest))
        lost = WriteBatch()
        for key, value in before.items():
            lost.put(keys.PARTITIONS, key, value)
        with pytest.raises(StoreDamaged, match="without them nothing can be served"):
            await accept_loss(world, lost)

    run(scenario, tail_bytes_max=1)


def test_ids_and_incarnations_begin_anew_above_all_that_could_have_been_given_out() -> None:
    async def scenario(world: World) -> None:
        create = topic_wire.CommandCreateTopic
        assert await incarnation(world, 5, "a") == 1
        known = await world.client.ask(create(topic="known"))
        await accept_loss(world, WriteBatch())
        first = await world.client.ask(create(topic="first"))
        assert first.topic_id > known.topic_id + 1_000_000
        await world.client.ask(subscribe())
        assert world.subscription().subscription_id > 1_000_000
        # A coordinator keeps the one that it has; a new store gets one that nobody can have.
        assert await incarnation(world, 5, "a") == 1
        assert await incarnation(world, 5, "b") > 1_000
        unheard = await incarnation(world, 7, "c")
        assert unheard > 1_000
        await world.restart()
        assert await incarnation(world, 7, "d") == unheard + 1
        second = await world.client.ask(create(topic="second"))
        assert second.topic_id == first.topic_id + 1
        assert world.broker.topics.get("second").record.ledger_id == 2

    run(scenario)


def test_topics_are_created_after_many_losses() -> None:
    """Their serial numbers lay above what fits an id, and no topic could be created any more."""

    async def scenario(world: World) -> None:
        create = topic_wire.CommandCreateTopic
        serials = []
        for number in range(10):
            await accept_loss(world, WriteBatch(), losses=LOSSES_OF_EVERYTHING)
            created = await world.client.ask(create(topic=f"after-{number}"))
            serials.append(serial_of(created.topic_id))
        apart = [later - earlier for earlier, later in pairwise(serials)]
        assert min(apart) > 1_000_000

    run(scenario)


def test_messages_of_a_transaction_that_its_index_lost_are_left_alone() -> None:
    async def scenario(world: World) -> None:
        await world.client.ask(send(b"0", in_txn=txn(1)))
        writers = dict(await world.rows(keys.TXNINDEX))
        await world.client.ask(send(b"1", in_txn=txn(1), sequence=1))
        await world.client.ask(send(b"2", in_txn=txn(1), producer=2))
        lost = WriteBatch()
        for key, _ in await world.rows(keys.TXNINDEX):
            if key in writers:
                lost.put(keys.TXNINDEX, key, writers[key])
            else:
                lost.delete(keys.TXNINDEX, key)
        await accept_loss(world, lost)
        await world.client.ask(end(txn(1), counts={1: 1}))
        assert await world.read() == [b"0"]

    run(scenario)
