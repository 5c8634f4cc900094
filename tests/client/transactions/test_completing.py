"""A prepared transaction whose program never comes back is completed by hand, or by its successor.

The SDK's commands against the product's coordinator: KIP-939 leaves the comparison to the client,
docs/design/0002-two-phase-commit.md says what it has to hold.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from tests.client.coordinated import CoordinatedCluster, run
from tests.client.fakes import connect
from tests.playbook import BREAK, HOLD

from magnetar import Client, PreparedTxnState, TransactionalProducer, TransactionStatus
from magnetar_core.errors import (
    ConcurrentTransactions,
    DataLoss,
    InvalidArgument,
    InvalidTxnState,
    MagnetarError,
    ProducerFenced,
    TransactionalIdNotFound,
    TxnForgotten,
    TxnNotFound,
)
from magnetar_core.ids import TxnID
from magnetar_core.wire import common_pb2, transaction_pb2


async def prepared_by(
    client: Client, name: str = "shop"
) -> tuple[TransactionalProducer, PreparedTxnState]:
    """A program that has prepared a transaction."""
    producer = client.transactional_producer(name, two_phase_commit=True)
    await producer.init(keep_prepared=True)
    await producer.complete(PreparedTxnState())
    return producer, await next_unit(producer)


async def next_unit(producer: TransactionalProducer) -> PreparedTxnState:
    await producer.begin()
    return await producer.prepare()


async def status_of(client: Client, state: PreparedTxnState) -> TransactionStatus:
    assert state.txn_id is not None
    return (await client.admin.transactions.describe(state.txn_id)).status


def test_what_the_state_names_is_committed_and_its_program_fenced() -> None:
    async def test(cluster: CoordinatedCluster, client: Client) -> None:
        producer, state = await prepared_by(client)
        (listed,) = await client.admin.transactions.list()
        assert listed.may_be_prepared
        assert listed.prepared_state == state
        assert await client.admin.transactional_ids.complete("shop", state) is True
        assert await status_of(client, state) is TransactionStatus.COMMITTED
        with pytest.raises(ProducerFenced):
            await producer.commit()
        # Again, after a crash of the command or by somebody else: nothing happens to anybody.
        successor, newer = await prepared_by(client)
        assert await client.admin.transactional_ids.complete("shop", state) is False
        await successor.commit()
        assert await status_of(client, newer) is TransactionStatus.COMMITTED

    run(test)


async def malformed(client: Client, open_state: PreparedTxnState) -> PreparedTxnState:
    return replace(open_state, producer_epoch=open_state.producer_epoch + 1)


async def empty(client: Client, open_state: PreparedTxnState) -> PreparedTxnState:
    return PreparedTxnState()


async def of_another_id(client: Client, open_state: PreparedTxnState) -> PreparedTxnState:
    _, state = await prepared_by(client, "office")
    return state


async def without_an_id(client: Client, open_state: PreparedTxnState) -> PreparedTxnState:
    transaction = await client.begin_transaction()
    await transaction.commit()
    return replace(open_state, txn_id=transaction.txn_id)


async def never_opened(client: Client, open_state: PreparedTxnState) -> PreparedTxnState:
    return replace(open_state, txn_id=TxnID.of(0, 1, 500_000))


async def of_another_cluster(client: Client, open_state: PreparedTxnState) -> PreparedTxnState:
    return replace(open_state, txn_id=TxnID.of(3, 1, 1))


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (malformed, InvalidArgument),
        (empty, InvalidArgument),
        (of_another_id, InvalidArgument),
        (without_an_id, InvalidArgument),
        (never_opened, TxnNotFound),
        (of_another_cluster, TxnNotFound),
    ],
)
def test_any_other_state_is_refused_and_ends_and_fences_nothing(
    wrong: Callable[[Client, PreparedTxnState], Awaitable[PreparedTxnState]],
    error: type[MagnetarError],
) -> None:
    async def test(cluster: CoordinatedCluster, client: Client) -> None:
        producer, state = await prepared_by(client)
        other = await wrong(client, state)
        with pytest.raises(error):
            await client.admin.transactional_ids.complete("shop", other)
        assert await status_of(client, state) is TransactionStatus.OPEN
        await producer.commit()
        assert await status_of(client, state) is TransactionStatus.COMMITTED

    run(test)


def test_of_an_aborted_one_it_says_that_database_and_topics_disagree() -> None:
    async def test(cluster: CoordinatedCluster, client: Client) -> None:
        producer, state = await prepared_by(client)
        await producer.abort()
        newer = await next_unit(producer)
        with pytest.raises(DataLoss, match=f"{state.txn_id} of 'shop' was aborted.* {state}"):
            await client.admin.transactional_ids.complete("shop", state)
        assert await status_of(client, newer) is TransactionStatus.OPEN
        await producer.commit()

    run(test)


def test_a_coordinator_that_has_lost_a_record_describes_the_transaction_as_aborted() -> None:
    """It then knows no transactional id of it."""

    async def test(cluster: CoordinatedCluster, client: Client) -> None:
        _, state = await prepared_by(client)
        assert state.txn_id is not None
        described = transaction_pb2.TransactionDescription(
            txn_id=state.txn_id.to_wire(), status=common_pb2.ABORTED
        )
        answer = transaction_pb2.CommandDescribeTxnResponse(transaction=described)
        cluster.play.when("describe_txn").once(answer)
        with pytest.raises(DataLoss):
            await client.admin.transactional_ids.complete("shop", state)

    run(test)


def test_of_a_forgotten_one_it_says_that_the_outcome_is_unknown() -> None:
    async def test(cluster: CoordinatedCluster, client: Client) -> None:
        producer, state = await prepared_by(client)
        await producer.commit()
        await cluster.world.settle(700)
        with pytest.raises(TxnForgotten, match="unknown whether it was committed"):
            await client.admin.transactional_ids.complete("shop", state)

    run(test, outcome_retention_ms=300_000, txn_timeout_ms_max=300_000, recent_outcomes_max=0)


def test_without_two_phase_commit_nothing_is_prepared_and_nothing_committed() -> None:
    """It could be committed with half of its messages: its producer still sends."""

    async def test(cluster: CoordinatedCluster, client: Client) -> None:
        producer = client.transactional_producer("shop")
        await producer.init()
        await producer.begin()
        (found,) = await client.admin.transactions.list()
        with pytest.raises(InvalidTxnState, match="not in two-phase commit"):
            await client.admin.transactional_ids.complete("shop", found.prepared_state)
        await producer.commit()

    run(test)


@pytest.mark.parametrize("late", ["describe_transactional_id", "init_producer"])
@pytest.mark.parametrize("commits", [True, False])
def test_a_program_that_lives_and_goes_on_meanwhile_keeps_its_next_transaction(
    commits: bool, late: str
) -> None:
    """A command of the administrator comes when the next transaction is open."""

    async def test(cluster: CoordinatedCluster, client: Client) -> None:
        producer, state = await prepared_by(client)
        cluster.play.when(late).once(HOLD)
        completing = asyncio.create_task(client.admin.transactional_ids.complete("shop", state))
        await cluster.play.holds()
        await (producer.commit() if commits else producer.abort())
        newer = await next_unit(producer)
        cluster.play.release()
        if commits:
            assert await completing is False
        else:
            with pytest.raises(DataLoss):
                await completing
        assert await status_of(client, newer) is TransactionStatus.OPEN
        await producer.commit()

    run(test)


def test_a_program_that_ends_it_meanwhile_loses_nothing() -> None:
    """The takeover comes between two of its transactions: it is fenced, and nothing is open."""

    async def test(cluster: CoordinatedCluster, client: Client) -> None:
        producer, state = await prepared_by(client)
        cluster.play.when("init_producer").once(HOLD)
        completing = asyncio.create_task(client.admin.transactional_ids.complete("shop", state))
        await cluster.play.holds()
        await producer.commit()
        cluster.play.release()
        assert await completing is False
        with pytest.raises(ProducerFenced):
            await producer.begin()

    run(test)


def test_a_successor_that_takes_over_meanwhile_does_not_lose_it_either() -> None:
    async def test(cluster: CoordinatedCluster, client: Client) -> None:
        _, state = await prepared_by(client)
        cluster.play.when("end_txn").once(HOLD)
        completing = asyncio.create_task(client.admin.transactional_ids.complete("shop", state))
        await cluster.play.holds()
        successor = client.transactional_producer("shop", two_phase_commit=True)
        assert await successor.init(keep_prepared=True) == state
        cluster.play.release()
        assert await completing is True
        with pytest.raises(ProducerFenced):
            await successor.complete(PreparedTxnState())
        assert await status_of(client, state) is TransactionStatus.COMMITTED

    run(test)


def test_successors_without_end_are_told() -> None:
    async def test(cluster: CoordinatedCluster, client: Client) -> None:
        _, state = await prepared_by(client)
        cluster.play.when("end_txn").always(ProducerFenced())
        with pytest.raises(ConcurrentTransactions, match="still open"):
            await client.admin.transactional_ids.complete("shop", state)
        cluster.play.forget()
        assert await client.admin.transactional_ids.complete("shop", state) is True

    run(test)


@pytest.mark.parametrize("lost", ["init_producer", "end_txn"])
def test_a_command_that_dies_in_the_middle_is_repeated(lost: str) -> None:
    async def test(cluster: CoordinatedCluster, client: Client) -> None:
        _, state = await prepared_by(client)
        cluster.play.when(lost).in_turn(BREAK, HOLD)
        completing = asyncio.create_task(client.admin.transactional_ids.complete("shop", state))
        await cluster.play.holds()
        completing.cancel()
        cluster.play.held.clear()
        async with await connect(cluster, seed=8) as other:
            did = await other.admin.transactional_ids.complete("shop", state)
        assert did is (lost == "init_producer")
        assert await status_of(client, state) is TransactionStatus.COMMITTED

    run(test)


def test_an_answer_that_is_lost_is_asked_for_again() -> None:
    async def test(cluster: CoordinatedCluster, client: Client) -> None:
        _, state = await prepared_by(client)
        for name in ("describe_txn", "describe_transactional_id", "init_producer", "end_txn"):
            cluster.play.when(name).once(BREAK)
        assert await client.admin.transactional_ids.complete("shop", state) is True

    run(test)


def test_only_abort_prepared_aborts_what_may_be_prepared() -> None:
    async def test(cluster: CoordinatedCluster, client: Client) -> None:
        producer, state = await prepared_by(client)
        terminate = client.admin.transactional_ids.force_terminate
        assert state.txn_id is not None
        with pytest.raises(InvalidTxnState, match=r"complete.*--abort-prepared"):
            await terminate("shop", state.txn_id)
        with pytest.raises(InvalidTxnState, match="complete"):
            await client.transactional_producer("shop").init()
        assert await status_of(client, state) is TransactionStatus.OPEN
        await terminate("shop", state.txn_id, abort_prepared=True)
        assert await status_of(client, state) is TransactionStatus.ABORTED
        with pytest.raises(ProducerFenced):
            await producer.commit()

    run(test)


@pytest.mark.parametrize("abort_prepared", [False, True])
def test_other_producers_are_terminated_as_ever(abort_prepared: bool) -> None:
    async def test(cluster: CoordinatedCluster, client: Client) -> None:
        terminate = client.admin.transactional_ids.force_terminate
        producer = client.transactional_producer("shop")
        await producer.init()
        await producer.begin()
        (found,) = await client.admin.transactions.list()
        with pytest.raises(TransactionalIdNotFound):
            await terminate("bakery", found.txn_id, abort_prepared=abort_prepared)
        await terminate("shop", found.txn_id, abort_prepared=abort_prepared)
        assert await status_of(client, found.prepared_state) is TransactionStatus.ABORTED
        with pytest.raises(ProducerFenced):
            await producer.commit()

    run(test)


@pytest.mark.parametrize("abort_prepared", [False, True])
def test_a_termination_ends_no_later_transaction(abort_prepared: bool) -> None:
    """The program lives, and has gone on since the administrator has looked."""

    async def test(cluster: CoordinatedCluster, client: Client) -> None:
        producer, seen = await prepared_by(client)
        assert seen.txn_id is not None
        await producer.commit()
        terminate = client.admin.transactional_ids.force_terminate
        with pytest.raises(InvalidTxnState, match="COMPLETE_COMMIT"):
            await terminate("shop", seen.txn_id, abort_prepared=abort_prepared)
        later = await next_unit(producer)
        with pytest.raises(InvalidTxnState, match=f"{later.txn_id} by now"):
            await terminate("shop", seen.txn_id, abort_prepared=abort_prepared)
        assert await status_of(client, later) is TransactionStatus.OPEN
        await producer.commit()

    run(test)


def test_a_recovery_compares_the_outcome_with_its_database() -> None:
    async def test(cluster: CoordinatedCluster, client: Client) -> None:
        producer, committed = await prepared_by(client)
        await producer.commit()
        aborted = await next_unit(producer)
        await producer.abort()
        kept = await next_unit(producer)
        _, of_another = await prepared_by(client, "office")

        successor = client.transactional_producer("shop", two_phase_commit=True)
        assert await successor.init(keep_prepared=True) == kept
        for agreeing in (PreparedTxnState(), committed, kept):
            await successor.check_outcome(agreeing)
        with pytest.raises(DataLoss, match=str(aborted)):
            await successor.check_outcome(aborted)
        with pytest.raises(InvalidArgument, match="office"):
            await successor.check_outcome(of_another)
        with pytest.raises(TxnNotFound, match="of another cluster"):
            await successor.check_outcome(await never_opened(client, kept))
        assert await successor.complete(kept) is True

        newest, open_one = await prepared_by(client)
        with pytest.raises(InvalidTxnState, match="list of coordinators"):
            await successor.check_outcome(open_one)
        await newest.abort()
        with pytest.raises(InvalidTxnState, match="transactional id"):
            await client.transactional_producer().check_outcome(committed)

    run(test)
