"""One connection may not take all the transactions that there are."""

from __future__ import annotations

from tests.coordinator.fakes import FakeClient, World, refused, run

from magnetar_core.errors import QuotaExceeded
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
