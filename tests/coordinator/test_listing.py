"""KIP-664, ListTransactions: what is live, what has ended, and filters."""

from __future__ import annotations

from typing import Any

import pytest
from tests.coordinator.fakes import P0, SILENCE, FakeClient, World
from tests.coordinator.producers import Hand
from tests.virtual_time import run

from magnetar_coordinator.commands import listing
from magnetar_core.ids import TxnID
from magnetar_core.protocol_version import PROTOCOL_VERSION
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import transaction_pb2 as pb

ENDED = (common.COMMITTED, common.ABORTED)


async def ask(world: World, **fields: Any) -> pb.CommandListTxnsResponse:
    response: pb.CommandListTxnsResponse = await world.client.ask(pb.CommandListTxns(**fields))
    return response


async def listed(world: World, **fields: Any) -> list[TxnID]:
    return [TxnID.from_wire(one.txn_id) for one in (await ask(world, **fields)).transactions]


@pytest.mark.parametrize("recent_outcomes_max", [0, 100])
def test_what_has_ended_is_listed_the_newest_first(recent_outcomes_max: int) -> None:
    """Its example shows a CompleteAbort. From memory and from the store alike."""

    async def scenario() -> None:
        world = await World(recent_outcomes_max=recent_outcomes_max).start()
        txn_ids = [await world.client.new(P0) for _ in range(6)]
        for txn_id in txn_ids[:3]:
            await world.client.end(txn_id, wait_finished=True)
        for txn_id in txn_ids[3:5]:
            await world.client.end(txn_id, common.ABORT, wait_finished=True)
        for _ in range(2):
            assert await listed(world) == txn_ids[5:]
            assert await listed(world, statuses=[common.COMMITTED]) == txn_ids[2::-1]
            assert await listed(world, statuses=[common.ABORTED]) == [txn_ids[4], txn_ids[3]]
            assert await listed(world, statuses=ENDED) == txn_ids[4::-1]
            everything = await ask(world, statuses=[common.OPEN, *ENDED])
            assert [one.status for one in everything.transactions] == (
                [common.OPEN] + [common.ABORTED] * 2 + [common.COMMITTED] * 3
            )
            some = await ask(world, statuses=[common.OPEN, *ENDED], limit=3)
            assert some.truncated
            assert some.transactions == everything.transactions[:3]
            assert not (await ask(world, statuses=ENDED, limit=5)).truncated
            await world.restart()
        await world.close()

    run(scenario())


def test_an_end_is_listed_at_once() -> None:
    async def scenario() -> None:
        world = await World().start()
        txn_id = await world.client.new()
        # Both in one turn: the outcome is not written when it is looked for.
        ended = world.client.ask(pb.CommandEndTxn(txn_id=txn_id.to_wire(), txn_action=common.ABORT))
        found = world.client.ask(pb.CommandListTxns(statuses=[common.ABORTED]))
        await ended
        (only,) = (await found).transactions
        assert TxnID.from_wire(only.txn_id) == txn_id
        await world.close()

    run(scenario())


def test_what_is_being_ended_has_not_ended() -> None:
    async def scenario() -> None:
        world = await World().start()
        world.broker.answer = lambda name, body: SILENCE if name.startswith("end_txn") else None
        txn_id = await world.client.new(P0)
        await world.client.end(txn_id)
        assert await listed(world, statuses=[common.COMMITTED]) == []
        assert await listed(world, statuses=[common.COMMITTING]) == [txn_id]
        await world.close()

    run(scenario())


def test_many_pages_and_filters_that_let_few_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "_PAGE_ROWS", 4)

    async def scenario() -> None:
        world = await World(recent_outcomes_max=3).start()
        txn_ids = [await world.client.new() for _ in range(30)]
        # The oldest ones end last: memory holds those, the store's last page others.
        for number in reversed(range(30)):
            action = common.ABORT if number % 10 == 0 else common.COMMIT
            await world.client.end(txn_ids[number], action, wait_finished=True)
        assert await listed(world, statuses=[common.ABORTED]) == txn_ids[20::-10]
        assert await listed(world, statuses=ENDED, limit=7) == txn_ids[:-8:-1]
        assert await listed(world, statuses=ENDED) == txn_ids[::-1]
        monkeypatch.setattr(listing, "_ROWS_MAX", 8)
        short = await ask(world, statuses=[common.ABORTED])
        assert short.truncated
        await world.close()

    run(scenario())


def test_filters() -> None:
    async def scenario() -> None:
        world = await World().start()
        pairs, txn_ids = {}, {}
        for name in ("app-1", "app-2", "other"):
            hand = Hand(world, name)
            pairs[name] = await hand.init()
            txn_ids[name] = await hand.begin(pairs[name], P0)
        anonymous = await world.client.new()
        app_1 = pairs["app-1"].producer_id

        async def agree(statuses: tuple[int, ...]) -> None:
            assert await listed(world, statuses=statuses, producer_ids=[app_1]) == [
                txn_ids["app-1"]
            ]
            assert await listed(world, statuses=statuses, producer_ids=[999]) == []
            both = [app_1, pairs["other"].producer_id]
            found = await listed(world, statuses=statuses, producer_ids=both)
            assert set(found) == {txn_ids["app-1"], txn_ids["other"]}
            found = await listed(world, statuses=statuses, transactional_id_pattern="app-*")
            assert set(found) == {txn_ids["app-1"], txn_ids["app-2"]}
            found = await listed(
                world, statuses=statuses, transactional_id_pattern="app-*", producer_ids=both
            )
            assert found == [txn_ids["app-1"]]
            assert anonymous in await listed(world, statuses=statuses)

        await agree((common.OPEN,))
        for name, pair in pairs.items():
            await Hand(world, name).end(pair, common.ABORT, wait_finished=True)
        await world.client.end(anonymous, wait_finished=True)
        await agree(ENDED)
        await world.restart()
        await agree(ENDED)
        (found,) = (await ask(world, statuses=ENDED, producer_ids=[app_1])).transactions
        assert found.identity.transactional_id == "app-1"
        assert found.identity.producer_epoch == pairs["app-1"].epoch
        await world.close()

    run(scenario())


def test_the_age_of_what_has_ended_counts_from_its_end() -> None:
    async def scenario() -> None:
        world = await World().start()
        long_open, short = await world.client.new(), await world.client.new()
        await world.client.end(short, wait_finished=True)
        await world.settle(10)
        await world.client.end(long_open, wait_finished=True)
        assert await listed(world, statuses=ENDED, age_ms_min=5_000) == [short]
        described = await world.client.describe(long_open)
        assert described.age_ms < 1_000
        assert described.ended_at_ms - described.opened_at_ms >= 9_900
        await world.close()

    run(scenario())


def test_an_open_transaction_tells_whose_it_is() -> None:
    """Nobody could tell who kept a transaction open: a list had its TxnID, and no client."""

    async def scenario() -> None:
        world = await World().start()
        worker = FakeClient(world.coordinator, origin="ipv4:10.0.0.7")
        await worker.ask(common.CommandHello(protocol_version=PROTOCOL_VERSION, client_name="tea"))
        txn_id = await worker.new(P0)

        async def client() -> pb.TransactionClient | None:
            (listed,) = (await ask(world)).transactions
            asked = pb.CommandDescribeTxn(txn_id=txn_id.to_wire())
            described = (await world.client.ask(asked)).transaction
            assert listed == described
            return listed.client if listed.HasField("client") else None

        found = pb.TransactionClient(name="tea", host="10.0.0.7", connected=True)
        assert await client() == found
        worker._session.on_closed()
        found.connected = False
        assert await client() == found
        await world.restart()
        # Not stored: an empty name would say that somebody without a name began it.
        assert await client() is None
        await world.close()

    run(scenario())


def test_a_transaction_that_is_decided_tells_whose_it_was() -> None:
    """It counts for its client no more, and people still ask whose it is that hangs."""

    async def scenario() -> None:
        world = await World().start()
        world.brokers[0].answer = lambda name, body: SILENCE
        txn_id = await world.client.new(P0)
        await world.client.end(txn_id)
        (listed,) = (await ask(world)).transactions
        assert listed.status == common.COMMITTING
        assert listed.client.connected
        await world.close()

    run(scenario())
