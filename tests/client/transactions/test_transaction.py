"""Transactions, as PIP-31 describes the client's part."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest
from tests.client.fakes import FAST, FakeCluster, run
from tests.playbook import BREAK, DROP, HOLD, LOSE, Expect
from tests.virtual_time import time_passes
from tests.waiting import for_ever, turns, until

from magnetar import (
    Client,
    ClientClosed,
    CommitRefused,
    InvalidTxnState,
    OutcomeUnknown,
    QuotaExceeded,
    TransactionAction,
    TransactionConflict,
    TransactionStatus,
)
from magnetar.transactions.open_transactions import CLOSING_ABORTS_MAX
from magnetar_core.errors import LogUnavailable, MagnetarError
from magnetar_core.wire import common_pb2


def order_of(cluster: FakeCluster, *names: str) -> list[str]:
    return [name for name, _ in cluster.play.received if name in names]


def test_sends_do_not_wait_until_their_partition_is_added_but_the_commit_does() -> None:
    """docs/design/0001-protocol.md, One transaction, step 2."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights", 3)
        cluster.play.when("add_partition_to_txn").always(HOLD)
        producer = await client.create_producer("flights", linger_ms=0)
        txn = await client.begin_transaction()
        sends = [
            asyncio.ensure_future(producer.send(b"x", partition=one, txn=txn)) for one in range(3)
        ]
        await cluster.play.came("send", 3)
        (added,) = cluster.play.commands("add_partition_to_txn")
        assert [one.partition for one in added.partitions] == [0, 1, 2]
        commit = asyncio.ensure_future(txn.commit())
        await time_passes(0.005)
        assert not cluster.play.commands("end_txn")
        assert not any(one.done() for one in sends)
        cluster.play.release()
        await asyncio.gather(*sends)
        await commit
        assert len(cluster.play.commands("add_partition_to_txn")) == 1

    run(test)


def test_commit_flushes_messages_and_acks_before_end_txn_and_counts_them() -> None:
    """PIP-31, Transaction#commit, steps 1 and 2; docs/design/0001-protocol.md, rule (g)."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("in")
        (out,) = cluster.topic("out")
        cluster.publish("in", [b"1", b"2", b"3"])
        consumer = await client.subscribe("in", "s", initial_position="earliest")
        producer = await client.create_producer("out", linger_ms=60_000)
        async with client.transaction() as txn:
            for message in await consumer.receive_batch(3):
                await producer.enqueue(message.value, txn=txn)
                consumer.ack_nowait(message, txn=txn)
            assert not out.pending
        assert txn.status is TransactionStatus.COMMITTED
        assert out.messages == [b"1", b"2", b"3"]
        assert cluster.cursors["in", "s", 0].acked == {0, 1, 2}
        assert order_of(cluster, "send", "ack", "end_txn")[-1] == "end_txn"
        (end,) = cluster.play.commands("end_txn")
        assert end.counts_given
        (counts,) = end.partition_counts
        assert [(one.writer_id, one.count) for one in counts.producers] == [
            (producer.producer_id, 3)
        ]
        (acks,) = end.subscription_counts
        assert [(one.writer_id, one.count) for one in acks.consumers] == [(consumer.consumer_id, 1)]
        await txn.commit()  # Asking again is harmless.

    run(test)


def test_abort_drops_what_is_buffered_and_sends_nothing_of_it() -> None:
    """PIP-31, Transaction#abort, steps 1 and 2."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("flights")
        producer = await client.create_producer("flights", linger_ms=60_000)
        txn = await client.begin_transaction()
        await producer.enqueue(b"x", txn=txn)
        waiting = asyncio.ensure_future(producer.send(b"y", txn=txn))
        await turns()
        await txn.abort()
        with pytest.raises(InvalidTxnState):
            await waiting
        assert not cluster.play.commands("send")
        assert not partition.messages
        assert txn.status is TransactionStatus.ABORTED
        await txn.abort()
        await producer.flush()
        with pytest.raises(InvalidTxnState):
            await txn.commit()
        with pytest.raises(InvalidTxnState):
            await producer.send(b"z", txn=txn)

    run(test)


def test_abort_waits_for_answers_that_are_under_way() -> None:
    """PIP-31, Transaction#abort, step 1."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        cluster.play.when("send").always(HOLD)
        producer = await client.create_producer("flights", linger_ms=0)
        txn = await client.begin_transaction()
        await producer.enqueue(b"x", txn=txn)
        await cluster.play.holds()
        aborting = asyncio.ensure_future(txn.abort())
        await time_passes(0.005)
        assert not cluster.play.commands("end_txn")
        cluster.play.release()
        await aborting
        assert len(cluster.play.commands("end_txn")) == 1

    run(test)


def test_commit_refuses_when_a_send_failed() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("flights")
        cluster.play.when("send").always(QuotaExceeded())
        producer = await client.create_producer("flights")
        txn = await client.begin_transaction()
        await producer.enqueue(b"x", txn=txn)
        with pytest.raises(CommitRefused) as raised:
            await txn.commit()
        assert isinstance(raised.value.__cause__, QuotaExceeded)
        (end,) = cluster.play.commands("end_txn")
        assert end.txn_action == common_pb2.ABORT
        assert not partition.messages
        await txn.abort()
        await producer.flush()

    run(test)


def test_what_was_gathered_behind_a_failure_fails_with_it_and_is_not_sent() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        cluster.play.when("send").always(QuotaExceeded())
        producer = await client.create_producer("flights", linger_ms=60_000, batch_messages_max=2)
        txn = await client.begin_transaction()
        sends = [
            asyncio.ensure_future(producer.send(value, txn=txn)) for value in (b"x", b"y", b"z")
        ]
        failures = await asyncio.gather(*sends, return_exceptions=True)
        assert [type(failure) for failure in failures] == [QuotaExceeded] * 3
        assert len(cluster.play.commands("send")) == 1, "the first two are a batch, which failed"
        await txn.abort()

    run(test)


def test_commit_refuses_when_an_ack_conflicted() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("in")
        (out,) = cluster.topic("out")
        cluster.publish("in", [b"1"])
        consumer = await client.subscribe("in", "s", initial_position="earliest")
        producer = await client.create_producer("out")
        message = await consumer.receive()
        first = await client.begin_transaction()
        await consumer.ack(message, txn=first)
        second = await client.begin_transaction()
        await producer.send(b"out", txn=second)
        with pytest.raises(TransactionConflict):
            await consumer.ack(message, txn=second)
        with pytest.raises(InvalidTxnState) as doomed:
            producer.send_nowait(b"more", txn=second)
        assert isinstance(doomed.value.__cause__, TransactionConflict)
        with pytest.raises(CommitRefused):
            await second.commit()
        await first.commit()
        assert not out.messages
        assert cluster.cursors["in", "s", 0].acked == {0}

    run(test)


def test_an_exception_in_the_body_aborts_and_is_raised_unmasked() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("flights")
        producer = await client.create_producer("flights")
        txn = await client.begin_transaction()

        async def work() -> None:
            async with txn:
                await producer.send(b"x", txn=txn)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await work()
        assert txn.status is TransactionStatus.ABORTED
        assert not partition.messages
        assert not partition.pending
        cluster.play.when("end_txn").always(DROP)
        with pytest.raises(ZeroDivisionError) as raised:
            async with client.transaction():
                raise ZeroDivisionError
        assert "aborting" in raised.value.__notes__[0]

    run(test, dataclasses.replace(FAST, abort_timeout_ms=20))


def test_cancellation_aborts() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("flights")
        producer = await client.create_producer("flights")
        txns: list[Any] = []

        async def work() -> None:
            async with client.transaction() as txn:
                txns.append(txn)
                await producer.send(b"x", txn=txn)
                await for_ever()

        task = asyncio.ensure_future(work())
        await until(lambda: partition.pending)
        cluster.play.when("end_txn").always(HOLD)
        task.cancel()
        await cluster.play.holds()
        task.cancel()  # Even now: the abort goes on in the background.
        with pytest.raises(asyncio.CancelledError):
            await task
        cluster.play.release()
        await until(lambda: txns[0].status is TransactionStatus.ABORTED)
        assert not partition.pending

    run(test)


def test_a_cancelled_commit_that_decided_nothing_aborts_on_leaving() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        producer = await client.create_producer("flights")
        cluster.play.when("send").always(HOLD)

        async def work() -> None:
            async with client.transaction() as txn:
                await producer.enqueue(b"x", txn=txn)

        task = asyncio.ensure_future(work())
        await cluster.play.holds()
        await time_passes(0.002)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        (end,) = cluster.play.commands("end_txn")
        assert end.txn_action == common_pb2.ABORT

    run(test)


@pytest.mark.parametrize("fault", [LOSE, BREAK])
@pytest.mark.parametrize(
    "name", ["new_txn", "add_partition_to_txn", "add_subscription_to_txn", "send", "ack", "end_txn"]
)
def test_a_break_at_any_command_changes_nothing(name: str, fault: str) -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("in")
        (out,) = cluster.topic("out")
        cluster.publish("in", [b"%d" % n for n in range(4)])
        cluster.play.when(name).once(fault)
        consumer = await client.subscribe("in", "s", initial_position="earliest")
        producer = await client.create_producer("out", batch_messages_max=1)
        async with client.transaction() as txn:
            for _ in range(4):
                message = await consumer.receive()
                await producer.enqueue(message.value, txn=txn)
                consumer.ack_nowait(message, txn=txn)
                await turns()
        cluster.play.check()
        assert out.messages == [b"0", b"1", b"2", b"3"]
        assert cluster.cursors["in", "s", 0].acked == {0, 1, 2, 3}
        assert not await consumer.receive_batch(10, timeout_s=0.005)

    run(test)


def test_an_unanswered_commit_is_unknown_and_asked_again() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("flights")
        cluster.play.scene(
            Expect("end_txn", reaction=DROP, txn_action=common_pb2.COMMIT),
            Expect("end_txn", txn_action=common_pb2.COMMIT),
        )
        producer = await client.create_producer("flights")
        txn = await client.begin_transaction()
        await producer.send(b"x", txn=txn)
        with pytest.raises(OutcomeUnknown):
            await txn.commit()
        await txn.commit()
        assert txn.status is TransactionStatus.COMMITTED
        first, second = cluster.play.commands("end_txn")
        assert first == second
        assert partition.messages == [b"x"]

    run(test, dataclasses.replace(FAST, commit_timeout_ms=20))


def test_an_expired_transaction_cannot_commit() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        txn = await client.begin_transaction()
        cluster.end(txn.txn_id, commit=False)
        with pytest.raises(InvalidTxnState):
            await txn.commit()
        assert txn.status is TransactionStatus.ABORTED

    run(test)


def test_administration_of_transactions() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        producer = await client.create_producer("flights")
        txn = await client.begin_transaction()
        await producer.send(b"x", txn=txn)
        assert [one.txn_id for one in await client.admin.transactions.list()] == [txn.txn_id]
        described = await client.admin.transactions.describe(txn.txn_id)
        assert described.status is TransactionStatus.OPEN
        await client.admin.topics.delete("flights", force=True)
        assert "flights" not in cluster.topics
        with pytest.raises(InvalidTxnState):
            await client.admin.transactions.end(txn.txn_id, TransactionAction.COMMIT)
        with pytest.raises(InvalidTxnState):
            await txn.commit()

    run(test)


def test_closing_the_client_aborts_what_is_open() -> None:
    clusters: list[FakeCluster] = []

    async def test(cluster: FakeCluster, client: Client) -> None:
        clusters.append(cluster)
        # More than are aborted at once.
        for _ in range(CLOSING_ABORTS_MAX + 1):
            await client.begin_transaction()

    run(test)
    statuses = [transaction["status"] for transaction in clusters[0].transactions.values()]
    assert statuses == [common_pb2.ABORTED] * (CLOSING_ABORTS_MAX + 1)


def test_a_commit_that_waits_for_its_participants_ends_when_the_client_closes() -> None:
    """It hung for ever: the task that was to ask again was cancelled before its first step."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        cluster.play.when("add_partition_to_txn").always(HOLD)
        producer = await client.create_producer("flights", linger_ms=0)
        txn = await client.begin_transaction()
        producer.send_nowait(b"a", txn=txn)
        commit = asyncio.ensure_future(txn.commit())
        await cluster.play.holds()
        await client.close()
        with pytest.raises(CommitRefused) as refused:
            await commit
        assert isinstance(refused.value.__cause__, ClientClosed)
        # Nobody can abort it here, and it takes nothing more.
        with pytest.raises(InvalidTxnState):
            await txn.commit()

    run(test)


def test_a_commit_under_way_when_the_client_closes_is_in_doubt() -> None:
    """It was committed, and whoever waited for the answer heard that it had no effect."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("flights")
        producer = await client.create_producer("flights")
        txn = await client.begin_transaction()
        await producer.send(b"a", txn=txn)
        cluster.play.when("end_txn").once(DROP)
        commit = asyncio.ensure_future(txn.commit())
        await cluster.play.came("end_txn")
        await client.close()
        with pytest.raises(OutcomeUnknown, match="cannot be sent again to know"):
            await commit
        assert partition.messages == [b"a"]

    run(test)


@pytest.mark.parametrize("error", [LogUnavailable("for a moment"), QuotaExceeded("too much")])
def test_what_failed_for_a_moment_is_not_committed_either(error: MagnetarError) -> None:
    """The next try may succeed, and still something of this one is missing."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        producer = await client.create_producer("flights")
        txn = await client.begin_transaction()
        await producer.send(b"a", txn=txn)
        txn.work.doom(error)
        with pytest.raises(CommitRefused):
            await txn.commit()
        assert txn.status in (TransactionStatus.ABORTING, TransactionStatus.ABORTED)

    run(test)


@pytest.mark.parametrize(
    ("fate_of_commit", "fate_of_abort", "outcome"),
    [(DROP, DROP, "committed"), (HOLD, DROP, "aborted"), (HOLD, HOLD, "committed")],
    ids=["the commit arrived first", "only the abort arrived", "neither arrived"],
)
def test_after_a_commit_and_an_abort_without_answers_another_commit_tells_what_holds(
    fate_of_commit: Any, fate_of_abort: Any, outcome: str
) -> None:
    """It had said "was aborted" without asking, also of a transaction that was committed."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("t", 1)
        producer = await client.create_producer("t", linger_ms=0)
        txn = await client.begin_transaction()
        await producer.send(b"x", txn=txn)
        cluster.play.when("end_txn").in_turn(fate_of_commit, fate_of_abort)
        for call in (txn.commit, txn.abort):
            with pytest.raises(OutcomeUnknown):
                await call()
            # Nobody here knows more.
            assert txn.status is TransactionStatus.OPEN
        if outcome == "committed":
            await txn.commit()
            assert [one for one in partition.messages] == [b"x"]
        else:
            with pytest.raises(InvalidTxnState):
                await txn.commit()
            assert txn.status is TransactionStatus.ABORTED
            assert not partition.messages

    run(test, dataclasses.replace(FAST, request_timeout_ms=60_000))
