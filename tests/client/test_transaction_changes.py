"""Changes of transactions, from real coordinators: a program knows what a list would tell it."""

from __future__ import annotations

from random import Random

import pytest
from tests.client.cuts.cluster import HASTY, Cluster, run

from magnetar import Client, TransactionChanges, TransactionDescription
from magnetar.admin import transaction_changes
from magnetar_core.errors import LogUnavailable
from magnetar_core.ids import TxnID

Live = dict[TxnID, TransactionDescription]


async def refresh(
    client: Client, live: Live, seen: TransactionChanges | None
) -> TransactionChanges:
    seen = await client.admin.transactions.changes(seen)
    seen.apply_to(live)
    return seen


async def listed(client: Client) -> set[TxnID]:
    return {one.txn_id for one in await client.admin.transactions.list(limit=10_000)}


@pytest.mark.parametrize("rows_at_once", [1, 10_000])
def test_changes_make_up_the_list(monkeypatch: pytest.MonkeyPatch, rows_at_once: int) -> None:
    monkeypatch.setattr(transaction_changes, "ROWS_AT_ONCE", rows_at_once)

    async def scenario(cluster: Cluster, client: Client) -> None:
        random = Random(7)
        txns = [await client.begin_transaction() for _ in range(7)]
        live: Live = {}
        seen = await refresh(client, live, None)
        assert seen.anew == {0, 1}
        for _ in range(5):
            ended = [txns.pop(random.randrange(len(txns))) for _ in range(3)]
            for txn in ended:
                await txn.commit(wait_finished=True)
            txns += [await client.begin_transaction() for _ in range(3)]
            seen = await refresh(client, live, seen)
            assert not seen.anew
            assert {one.txn_id for one in seen.ended} == {one.txn_id for one in ended}
            assert live.keys() == await listed(client) == {one.txn_id for one in txns}
        assert (await refresh(client, live, seen)).transactions == ()

    run(scenario)


def test_commits_that_are_told_are_in_the_next_cut() -> None:
    """As those of a list are: their stamps are seen."""

    async def scenario(cluster: Cluster, client: Client) -> None:
        other = await cluster.connect()
        seen = await other.admin.transactions.changes()
        txn = await client.begin_transaction()
        await txn.commit(wait_finished=True)
        stamp = (await client.admin.transactions.describe(txn.txn_id)).stamp
        assert other._runtime.seen_stamp < stamp
        await other.admin.transactions.changes(seen)
        assert other._runtime.seen_stamp >= stamp
        await other.close()

    run(scenario)


def test_a_coordinator_that_is_away_goes_on_where_it_was() -> None:
    async def scenario(cluster: Cluster, client: Client) -> None:
        hasty = await cluster.connect(HASTY)
        txns = [await client.begin_transaction() for _ in range(8)]
        live: Live = {}
        seen = await refresh(hasty, live, None)
        node = cluster.coordinators[1]
        node.crash(power_loss=False)
        away: list[int] = []
        seen = await hasty.admin.transactions.changes(
            seen, on_unanswered=lambda tcid, error: away.append(tcid)
        )
        assert away == [1]
        seen.apply_to(live)
        assert live.keys() == {one.txn_id for one in txns}
        with pytest.raises(LogUnavailable):
            await hasty.admin.transactions.changes(seen)
        await cluster.start(node)
        seen = await refresh(hasty, live, seen)
        assert seen.anew == {1}
        assert live.keys() == await listed(client)
        await hasty.close()

    run(scenario)
