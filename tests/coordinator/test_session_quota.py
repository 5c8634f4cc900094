"""A single connection may not take all transactions."""

from __future__ import annotations

from typing import Any

from tests.coordinator.fakes import FakeClient, World, refused
from tests.virtual_time import run

from magnetar_core.errors import QuotaExceeded
from magnetar_core.server.commands import Reply, run_handler
from magnetar_core.transport.columns.new_txns import NewTxn, Opened
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import transaction_pb2 as pb


def test_a_connection_has_a_quota_of_open_transactions() -> None:
    async def scenario() -> None:
        world = await World(session_open_txns_max=2).start()
        first, second = world.client, FakeClient(world.coordinator)
        opened = [await first.new() for _ in range(2)]
        await refused(first.ask(pb.CommandNewTxn()), QuotaExceeded)
        await second.new()
        await first.end(opened[0], common.ABORT)
        await first.new()
        await refused(first.ask(pb.CommandNewTxn()), QuotaExceeded)
        await second.end(opened[1])  # Whoever ends it, it was the first one's.
        await first.new()
        await world.close()

    run(scenario())


def test_what_expires_counts_no_more() -> None:
    async def scenario() -> None:
        world = await World(session_open_txns_max=1).start()
        await world.client.new(txn_timeout_ms=100)
        await refused(world.client.ask(pb.CommandNewTxn()), QuotaExceeded)
        await world.settle(1.0)
        await world.client.new()
        await world.close()

    run(scenario())


def test_what_a_connection_leaves_open_counts_for_who_comes_from_there() -> None:
    """Whoever connected again and again could take all the transactions that there are."""

    async def scenario() -> None:
        world = await World(session_open_txns_max=2).start()
        first = FakeClient(world.coordinator)
        left = [await first.new() for _ in range(2)]
        first._session.on_closed()
        second = FakeClient(world.coordinator)
        await refused(second.ask(pb.CommandNewTxn()), QuotaExceeded)
        await second.end(left[0], common.ABORT)
        await second.new()
        await refused(second.ask(pb.CommandNewTxn()), QuotaExceeded)
        elsewhere = FakeClient(world.coordinator, origin="another machine")
        await elsewhere.new()
        await second.end(left[1], common.ABORT)
        await second.new()
        await world.close()

    run(scenario())


def test_unary_calls_of_a_machine_share_a_quota() -> None:
    async def scenario() -> None:
        world = await World(session_open_txns_max=2).start()

        async def call(origin: str) -> Any:
            answers: list[Any] = []
            server = world.coordinator.server
            reply = Reply(answers.append, None, origin)
            items = [(NewTxn(), reply)]
            run_handler(server.handlers, "new_txn", items, server.refuse)
            await world.settle()
            (answer,) = answers
            return answer

        for _ in range(2):
            assert isinstance(await call("one"), Opened)
        for _ in range(2):
            assert (await call("one")).code == common.QUOTA_EXCEEDED
        opened = await call("another")
        assert isinstance(opened, Opened)
        await world.client.new()
        await world.close()

    run(scenario())


def test_an_end_after_its_connection_is_counted_once() -> None:
    async def scenario() -> None:
        world = await World(session_open_txns_max=3).start()
        for _ in range(5):
            gone = FakeClient(world.coordinator)
            opened = [await gone.new() for _ in range(3)]
            gone._session.on_closed()
            for txn_id in opened:
                await world.client.end(txn_id, common.ABORT)
        for _ in range(3):
            await world.client.new()
        await world.close()

    run(scenario())
