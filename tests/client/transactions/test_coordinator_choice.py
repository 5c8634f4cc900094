"""Several coordinators, some of which do not answer: transactions begin all the same, at once."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter

import pytest
from tests.client.fakes import FAST, FakeCluster, run
from tests.playbook import HOLD
from tests.waiting import until

import magnetar
from magnetar import Client, ClientClosed
from magnetar_core.errors import LogUnavailable, MagnetarError, OutcomeUnknown, QuotaExceeded
from magnetar_core.ids import TxnID
from magnetar_core.wire import common_pb2

FIRST, SECOND, THIRD = "coordinator:1", "coordinator:2", "coordinator:3"
# One who waited for a timeout would wait for a minute; the test fails after ten seconds.
PATIENT = dataclasses.replace(
    FAST, operation_timeout_ms=60_000, request_timeout_ms=60_000, coordinator_patience_ms=200
)
# Nobody's patience ends: who goes on does so because the answer says that nobody is there.
STUBBORN = dataclasses.replace(PATIENT, coordinator_patience_ms=60_000)


async def three(cluster: FakeCluster, client: Client) -> None:
    cluster.coordinators = {FIRST: 1, SECOND: 2, THIRD: 3}
    await client.admin.cluster_info()


def beginnings(cluster: FakeCluster) -> Counter[str]:
    return Counter(address for address, name in cluster.play.asked if name == "new_txn")


async def begin_and_commit(client: Client, count: int) -> list[TxnID]:
    found = []
    for _ in range(count):
        async with client.transaction() as txn:
            found.append(txn.txn_id)
    return found


def hang(cluster: FakeCluster, *addresses: str) -> None:
    """Have these take whatever comes, and answer nothing."""

    def script(name: str, body: object) -> object:
        address, _ = cluster.play.asked[-1]
        return HOLD if address in addresses and name != "hello" else None

    cluster.play.improvise = script


def test_transactions_are_listed_although_a_coordinator_is_away() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        await three(cluster, client)
        for _ in range(3):
            await client.begin_transaction()
        hang(cluster, SECOND)
        unanswered: dict[int, MagnetarError] = {}
        found = await client.admin.transactions.list(on_unanswered=unanswered.__setitem__)
        assert sorted(one.txn_id.tcid for one in found) == [1, 3]
        assert list(unanswered) == [2]
        with pytest.raises(type(unanswered[2])):
            await client.admin.transactions.list()

    run(test)


def test_the_limit_counts_the_transactions_of_all_coordinators() -> None:
    """Each of three coordinators returned that many."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        await three(cluster, client)
        ended = await begin_and_commit(client, 2)
        begun = [(await client.begin_transaction()).txn_id for _ in range(4)]
        truncated: list[int] = []
        found = await client.admin.transactions.list(limit=2, on_truncated=truncated.append)
        assert [one.txn_id for one in found] == begun[:2], "the oldest"
        assert set(truncated) == {one.tcid for one in begun[2:]}
        truncated.clear()
        found = await client.admin.transactions.list(
            magnetar.TransactionStatus, on_truncated=truncated.append
        )
        assert [one.txn_id for one in found] == [*begun, *reversed(ended)]
        assert truncated == []

    run(test)


def test_coordinators_take_turns() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        await three(cluster, client)
        txn_ids = await begin_and_commit(client, 9)
        assert Counter(one.tcid for one in txn_ids) == {1: 3, 2: 3, 3: 3}
        assert beginnings(cluster) == {FIRST: 3, SECOND: 3, THIRD: 3}

    run(test, STUBBORN)


def test_where_nobody_listens_the_next_one_is_asked_at_once() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        await three(cluster, client)
        cluster.net.dead.add(SECOND)
        txn_ids = await begin_and_commit(client, 8)
        assert {one.tcid for one in txn_ids} == {1, 3}
        assert beginnings(cluster).keys() == {FIRST, THIRD}

    run(test, STUBBORN)


def test_one_that_dies_while_it_is_asked_costs_nothing_either() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        await three(cluster, client)
        await begin_and_commit(client, 3)
        hang(cluster, SECOND)
        beginning = asyncio.gather(*(begin_and_commit(client, 1) for _ in range(3)))
        await cluster.play.holds()
        cluster.net.dead.add(SECOND)
        for link in [one for one in cluster.net.links if one.address == SECOND]:
            link.break_now()
        txn_ids = [one for found in await beginning for one in found]
        assert {one.tcid for one in txn_ids} == {1, 3}

    run(test, STUBBORN)


def test_one_that_hangs_is_waited_for_once_and_passed_over_until_it_answers() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        await three(cluster, client)
        hang(cluster, SECOND)
        txn_ids = await begin_and_commit(client, 12)
        assert {one.tcid for one in txn_ids} == {1, 3}
        assert beginnings(cluster)[SECOND] == 1
        cluster.play.forget()
        cluster.play.release()
        # What it had begun meanwhile is nobody's: it is aborted, and so it holds nothing up.
        await until(lambda: len(cluster.transactions) == 13)
        (late,) = [one for one in cluster.transactions if one.tcid == 2]
        await until(lambda: cluster.transactions[late]["status"] == common_pb2.ABORTED)
        assert 2 in {one.tcid for one in await begin_and_commit(client, 6)}

    run(test, PATIENT)


def test_one_that_comes_back_has_its_turns_again() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        await three(cluster, client)
        cluster.net.dead.add(SECOND)
        await begin_and_commit(client, 4)
        cluster.net.dead.clear()
        await until(lambda: (SECOND, "list_txns") in cluster.play.asked)
        for _ in range(100):
            if 2 in {one.tcid for one in await begin_and_commit(client, 3)}:
                return
        raise AssertionError("it never has a turn")

    run(test, PATIENT)


def test_when_none_answers_the_caller_hears_it_in_time() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        await three(cluster, client)
        hang(cluster, FIRST)
        cluster.net.dead |= {SECOND, THIRD}
        with pytest.raises((LogUnavailable, OutcomeUnknown)):
            await client.begin_transaction()
        cluster.net.dead.clear()
        assert (await begin_and_commit(client, 1))[0].tcid in (2, 3)

    run(test, dataclasses.replace(PATIENT, operation_timeout_ms=50, request_timeout_ms=50))


def test_a_refusal_is_an_answer() -> None:
    """It is told, and nobody else is asked."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        await three(cluster, client)
        cluster.play.when("new_txn").always(QuotaExceeded())
        with pytest.raises(QuotaExceeded):
            await client.begin_transaction()
        assert beginnings(cluster).total() == 1

    run(test, PATIENT)


def test_a_single_coordinator_is_waited_for() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        hang(cluster, FIRST)
        beginning = asyncio.create_task(begin_and_commit(client, 1))
        await cluster.play.holds()
        cluster.play.forget()
        cluster.play.release()
        assert len(await beginning) == 1
        assert beginnings(cluster) == {FIRST: 1}

    run(test, PATIENT)


def test_a_cancelled_caller_leaves_nothing_open() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        await three(cluster, client)
        hang(cluster, FIRST, SECOND, THIRD)
        beginning = asyncio.create_task(client.begin_transaction())
        await cluster.play.holds(1)
        beginning.cancel()
        with pytest.raises(asyncio.CancelledError):
            await beginning
        cluster.play.forget()
        cluster.play.release()
        await until(lambda: cluster.transactions)
        (only,) = cluster.transactions.values()
        await until(lambda: only["status"] == common_pb2.ABORTED)

    run(test, STUBBORN)


def test_patience_is_a_setting() -> None:
    with pytest.raises(magnetar.InvalidArgument):
        magnetar.ClientConfig(coordinator_patience_ms=0)


def test_a_beginning_hears_that_the_client_closed() -> None:
    """It got a CancelledError, although nobody had cancelled it."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        await three(cluster, client)
        cluster.play.when("new_txn").always(HOLD)
        begin = asyncio.ensure_future(client.begin_transaction())
        await cluster.play.holds()
        await client.close()
        with pytest.raises(ClientClosed):
            await begin

    run(test, STUBBORN)
