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
    CommitRefused,
    InvalidTxnState,
    Message,
    OutcomeUnknown,
    QuotaExceeded,
    TransactionAction,
    TransactionConflict,
    TransactionStatus,
    TxnID,
)
from magnetar.transactions.open_transactions import CLOSING_ABORTS_MAX
from magnetar_core.errors import LogUnavailable, MagnetarError, TxnForgotten, TxnNotFound
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
        assert [type(one) for one in failures] == [QuotaExceeded] * 3
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


def test_after_its_end_plain_sends_follow_a_transaction_until_one_is_acknowledged() -> None:
    """docs/design/0001-protocol.md, Order (k)."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights", 2)
        producer = await client.create_producer("flights", batch_messages_max=1)
        async with client.transaction() as txn:
            await producer.send(b"x", partition=0, txn=txn)
        cluster.play.received.clear()
        await asyncio.gather(*(producer.send(b"y", partition=0) for _ in range(2)))
        await producer.send(b"y", partition=0)
        await producer.send(b"y", partition=1)
        follows = [
            TxnID.from_wire(one.follows_txn_id) if one.HasField("follows_txn_id") else None
            for one in cluster.play.commands("send")
        ]
        assert follows == [txn.txn_id, txn.txn_id, None, None]

    run(test)


def test_the_next_transaction_follows_the_one_before_in_all_its_batches() -> None:
    """docs/design/0001-protocol.md, Order (k)."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        producer = await client.create_producer("flights", batch_messages_max=1)
        async with client.transaction() as first:
            await producer.send(b"x", txn=first)
        cluster.play.received.clear()
        async with client.transaction() as second:
            await producer.send(b"y", txn=second)
            await producer.send(b"y", txn=second)
        assert [TxnID.from_wire(one.follows_txn_id) for one in cluster.play.commands("send")] == [
            first.txn_id
        ] * 2
        # One that aborts leaves nothing to follow: what it followed itself still leads.
        third = await client.begin_transaction()
        await producer.send(b"z", txn=third)
        await third.abort()
        await producer.send(b"plain")
        assert TxnID.from_wire(cluster.play.commands("send")[-1].follows_txn_id) == second.txn_id

    run(test)


def followed(cluster: FakeCluster) -> list[TxnID | None]:
    """What each send named that it comes after."""
    return [
        TxnID.from_wire(one.follows_txn_id) if one.HasField("follows_txn_id") else None
        for one in cluster.play.commands("send")
    ]


@pytest.mark.parametrize("commit", [True, False])
def test_one_whose_outcome_is_learned_late_does_not_lead_again(commit: bool) -> None:
    """Order (k): what came after it leads by then. Plain sends named it, and overtook the rest."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        producer = await client.create_producer("flights")
        unknown = await client.begin_transaction()
        await producer.send(b"x", txn=unknown)
        cluster.play.when("end_txn").always(HOLD)
        with pytest.raises(OutcomeUnknown):
            await unknown.commit()
        cluster.play.forget()
        async with client.transaction() as later:
            await producer.send(b"y", txn=later)
        if not commit:
            cluster.end(unknown.txn_id, commit=False)
        cluster.play.received.clear()
        if commit:
            await unknown.commit()
        else:
            with pytest.raises(InvalidTxnState):
                await unknown.commit()
        await producer.send(b"plain")
        async with client.transaction() as last:
            await producer.send(b"z", txn=last)
        assert followed(cluster) == [later.txn_id, None]

    run(test, dataclasses.replace(FAST, commit_timeout_ms=50))


@pytest.mark.parametrize("earlier", [False, True])
def test_a_plain_send_that_named_another_one_ends_nothing(earlier: bool) -> None:
    """Order (k): sent while the commit was asked for, it says nothing of that transaction's end."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        producer = await client.create_producer("flights", batch_messages_max=1)
        first = None
        if earlier:
            async with client.transaction() as txn:
                await producer.send(b"x", txn=txn)
            first = txn.txn_id
        txn = await client.begin_transaction()
        await producer.send(b"y", txn=txn)
        cluster.play.received.clear()
        cluster.play.when("end_txn", "send").always(HOLD)
        commit = asyncio.ensure_future(txn.commit())
        await cluster.play.holds(1)
        plain = asyncio.ensure_future(producer.send(b"plain"))
        await cluster.play.holds(2)
        cluster.play.forget()
        later = [cluster.play.held.pop()]
        cluster.play.release()
        await commit
        cluster.play.held = later
        cluster.play.release()
        await plain
        await producer.send(b"plain")
        await producer.send(b"plain")
        assert followed(cluster) == [first, txn.txn_id, None]

    run(test)


def test_a_commit_is_asked_for_when_plain_sends_before_it_are_stored() -> None:
    """Their answers are under way: its marker could come before them."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("flights")
        producer = await client.create_producer("flights")
        txn = await client.begin_transaction()
        await producer.send(b"transactional", txn=txn)
        cluster.play.when("send").always(HOLD)
        plain = asyncio.ensure_future(producer.send(b"plain"))
        await cluster.play.holds()
        commit = asyncio.ensure_future(txn.commit())
        await time_passes(0.005)
        assert not cluster.play.commands("end_txn")
        cluster.play.release()
        await plain
        await commit
        assert partition.messages == [b"plain", b"transactional"]

    run(test)


def test_plain_sends_before_a_commit_come_before_its_marker() -> None:
    """docs/protocol/rules.md, order of a producer's plain sends and transactions."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("flights")
        producer = await client.create_producer("flights", linger_ms=60_000)
        async with client.transaction() as txn:
            producer.send_nowait(b"plain")
            producer.send_nowait(b"transactional", txn=txn)
        assert partition.messages == [b"plain", b"transactional"]

    run(test)


def test_two_transactions_of_one_producer_do_not_wait_for_each_other() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("flights")
        producer = await client.create_producer("flights")
        open_one = await client.begin_transaction()
        await producer.send(b"a", txn=open_one)
        async with client.transaction() as other:
            await producer.send(b"b", txn=other)
        assert partition.messages == [b"b"]
        assert not any(one.HasField("follows_txn_id") for one in cluster.play.commands("send"))
        await open_one.commit()
        assert partition.messages == [b"b", b"a"]

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
    statuses = [one["status"] for one in clusters[0].transactions.values()]
    assert statuses == [common_pb2.ABORTED] * (CLOSING_ABORTS_MAX + 1)


@pytest.mark.parametrize("kind", ["exclusive", "failover", "key_shared"])
def test_what_an_abort_brings_back_keeps_its_order(kind: Any) -> None:
    """Some of it comes before the client knows of the abort, and is taken for copies at first."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        for first in range(0, 10, 5):
            cluster.publish("flights", [b"%d" % (first + place) for place in range(5)])
        consumer = await client.subscribe("flights", "s", type=kind, initial_position="earliest")
        messages: list[Message] = []
        while len(messages) < 10:
            messages += await consumer.receive_batch(10)
        txn = await client.begin_transaction()
        for message in messages:
            await consumer.ack(message, txn=txn)
        cluster.play.when("end_txn", "nack").always(HOLD)
        abort = asyncio.ensure_future(txn.abort())
        await cluster.play.holds()
        # The broker hears of it first; the second half comes when the client knows as well.
        cluster.end(txn.txn_id, commit=False)
        (attachment,) = cluster.cursors["flights", "s", 0].attached.values()
        attachment.permits = 5
        cluster.dispatch()
        assert len(attachment.sent) == 5
        await turns()
        cluster.play.forget()
        cluster.play.when("nack").always(HOLD)
        cluster.play.release()
        await abort
        attachment.permits = 1_000
        cluster.dispatch()
        await time_passes(0.005)
        cluster.play.forget()
        cluster.play.release()
        again: list[bytes] = []
        while len(again) < 10:
            again += [one.value for one in await consumer.receive_batch(10)]
        assert again == [b"%d" % number for number in range(10)]

    run(test)


@pytest.mark.parametrize("kind", ["exclusive", "shared", "failover", "key_shared"])
def test_what_somebody_else_aborted_comes_again_at_once(kind: Any) -> None:
    """An administrator, while this client is idle: no matter how long the transaction may last."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        cluster.publish("flights", [b"%d" % number for number in range(10)])
        consumer = await client.subscribe("flights", "s", type=kind, initial_position="earliest")
        messages = await consumer.receive_batch(10)
        txn = await client.begin_transaction(900_000)
        for message in messages:
            await consumer.ack(message, txn=txn)
        cluster.end(txn.txn_id, commit=False)
        cluster.dispatch()
        again: list[bytes] = []
        async with asyncio.timeout(1.0):
            while len(again) < 10:
                again += [one.value for one in await consumer.receive_batch(10)]
        assert again == [b"%d" % number for number in range(10)]
        assert txn.status is TransactionStatus.ABORTED
        assert txn.has_been_aborted
        with pytest.raises(InvalidTxnState):
            await txn.commit()

    run(test)


def test_a_copy_alone_ends_nothing() -> None:
    """The cursor may have moved, or the coordinator be away: it is asked, once a second at most."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        cluster.publish("flights", [b"0"])
        consumer = await client.subscribe("flights", "s", initial_position="earliest")
        message = await consumer.receive()
        txn = await client.begin_transaction()
        await consumer.ack(message, txn=txn)
        for _ in range(5):
            txn.doubt()
            await cluster.play.came("describe_txn")
        assert len(cluster.play.commands("describe_txn")) == 1
        assert txn.status is TransactionStatus.OPEN
        await txn.commit()
        assert txn.status in (TransactionStatus.COMMITTING, TransactionStatus.COMMITTED)

    run(test)


def test_a_refused_send_tells_that_somebody_else_has_ended_it() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        cluster.publish("flights", [b"0"])
        consumer = await client.subscribe("flights", "s", initial_position="earliest")
        message = await consumer.receive()
        txn = await client.begin_transaction(900_000)
        cluster.play.when("ack").always(HOLD)
        acking = asyncio.ensure_future(consumer.ack(message, txn=txn))
        await cluster.play.holds()
        cluster.end(txn.txn_id, commit=False)
        cluster.play.forget()
        cluster.play.release()
        with pytest.raises(InvalidTxnState):
            await acking
        async with asyncio.timeout(1.0):
            assert (await consumer.receive()).value == b"0"

    run(test)


@pytest.mark.parametrize("error", [LogUnavailable("for a moment"), QuotaExceeded("too much")])
def test_what_failed_for_a_moment_is_not_committed_either(error: MagnetarError) -> None:
    """The next try may succeed, and still something of this one is missing."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        producer = await client.create_producer("flights")
        txn = await client.begin_transaction()
        await producer.send(b"a", txn=txn)
        txn.doom(error)
        with pytest.raises(CommitRefused):
            await txn.commit()
        assert txn.status in (TransactionStatus.ABORTING, TransactionStatus.ABORTED)

    run(test)


@pytest.mark.parametrize("error", [TxnForgotten("long ago"), TxnNotFound("lost")])
@pytest.mark.parametrize("while_flushing", [False, True])
def test_what_nobody_remembers_is_neither_committed_nor_aborted(
    error: MagnetarError, while_flushing: bool
) -> None:
    """Whoever asks again hears the same, and not that this client is at a loss."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        producer = await client.create_producer("flights", linger_ms=60_000)
        txn = await client.begin_transaction()
        await producer.enqueue(b"x", txn=txn)

        cluster.play.when("describe_txn", "end_txn").always(error)
        cluster.play.when("send").always(HOLD)
        committing = asyncio.ensure_future(txn.commit()) if while_flushing else None
        if committing is not None:
            await cluster.play.came("send")
        txn.doubt()
        await cluster.play.came("describe_txn")
        await until(lambda: txn._settled)
        if committing is not None:
            cluster.play.release()
            with pytest.raises(type(error)):
                await committing
        for _ in range(2):
            with pytest.raises(type(error)):
                await txn.commit()
            with pytest.raises(type(error)):
                await txn.abort()
        with pytest.raises(InvalidTxnState):
            txn.require_open()
        assert txn.status is TransactionStatus.OPEN

    run(test)


def test_leaving_the_block_of_one_that_nobody_remembers_raises() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        async def program() -> None:
            async with client.transaction() as txn:
                cluster.play.when("describe_txn").always(TxnForgotten("long ago"))
                txn.doubt()
                await until(lambda: txn._settled)

        with pytest.raises(TxnForgotten):
            await program()
        assert not cluster.play.commands("end_txn")

    run(test)


def test_the_answer_to_a_commit_says_more_than_an_inquiry_that_found_nothing() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        txn = await client.begin_transaction()
        cluster.play.when("end_txn").always(HOLD)
        cluster.play.when("describe_txn").always(TxnNotFound("asked of an older copy"))
        committing = asyncio.ensure_future(txn.commit())
        await cluster.play.holds()
        txn.doubt()
        await until(lambda: txn._settled)
        cluster.play.release()
        await committing
        assert txn.status in (TransactionStatus.COMMITTING, TransactionStatus.COMMITTED)

    run(test)
