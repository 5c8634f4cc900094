"""Lazy transactions: a plain batch while everything fits, a transaction as soon as needed."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest
from tests.client.fakes import FAST, FakeCluster, run
from tests.playbook import BREAK, DROP, HOLD, LOSE
from tests.virtual_time import time_passes
from tests.waiting import turns, until

from magnetar import (
    Client,
    ClientClosed,
    ClientConfig,
    CommitRefused,
    InvalidTxnState,
    OutcomeUnknown,
    Transaction,
)
from magnetar.enums import TransactionStatus
from magnetar_core.errors import DiskFull, InternalError, QuotaExceeded, UnsupportedVersion

IMPATIENT = ClientConfig(commit_timeout_ms=30, request_timeout_ms=20, backoff_ms_max=20)
# A commit gives up long before its link does.
LASTING_LINK = dataclasses.replace(FAST, request_timeout_ms=60_000)


def test_what_fits_a_batch_of_one_partition_ends_as_one_without_a_coordinator() -> None:
    """PIP-31, Future Work, Single Partition Transaction."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("flights")
        producer = await client.create_producer("flights", linger_ms=0)
        async with client.transaction(lazy=True) as txn:
            for value in (b"a", b"b", b"c"):
                await producer.enqueue(value, txn=txn)
            await time_passes(0.005)
            assert not cluster.play.commands("send")
            with pytest.raises(InvalidTxnState, match="TxnID"):
                _ = txn.txn_id
        assert txn.status is TransactionStatus.COMMITTED
        (only,) = cluster.play.commands("send")
        assert not only.HasField("txn_id")
        assert not cluster.play.commands("new_txn")
        assert partition.messages == [b"a", b"b", b"c"]
        assert len(partition.batches) == 1
        await txn.commit()  # Asking again is harmless.
        with pytest.raises(InvalidTxnState):
            await producer.enqueue(b"d", txn=txn)

    run(test)


def test_its_batch_keeps_its_place_among_the_plain_sends() -> None:
    """Invariant 5."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("flights")
        producer = await client.create_producer("flights", linger_ms=60_000)
        await producer.enqueue(b"before")
        async with client.transaction(lazy=True) as txn:
            await producer.enqueue(b"inside", txn=txn)
            await producer.enqueue(b"meanwhile", txn=None)
        await producer.enqueue(b"after")
        await producer.flush()
        assert partition.messages == [b"before", b"meanwhile", b"inside", b"after"]

    run(test)


def test_a_send_is_confirmed_when_its_partition_is_durable_at_the_coordinator() -> None:
    """NewTxn named it, and may be answered before that."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        cluster.play.when("add_partition_to_txn").always(HOLD)
        producer = await client.create_producer("flights", linger_ms=0)
        async with client.transaction(lazy=True) as txn:
            send = asyncio.ensure_future(producer.send(b"x", txn=txn))
            # Both are under way together.
            await cluster.play.came("add_partition_to_txn", 1)
            await cluster.play.came("send", 1)
            await time_passes(0.005)
            assert not send.done()
            cluster.play.release()
            await send

    run(test)


def test_a_commit_does_not_have_confirmed_what_new_txn_named() -> None:
    """Its own answer comes behind their records."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights", 2)
        cluster.play.when("add_partition_to_txn").always(HOLD)
        producer = await client.create_producer("flights", linger_ms=0)
        async with client.transaction(lazy=True) as txn:
            for partition in range(2):
                producer.send_nowait(b"x", partition=partition, txn=txn)
        assert not cluster.play.commands("add_partition_to_txn")

    run(test)


@pytest.mark.parametrize("reason", ["partition", "batch", "ack", "awaited send", "flush"])
def test_it_begins_when_it_has_to(reason: str) -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        first, second = cluster.topic("flights", 2)
        cluster.topic("in")
        cluster.publish("in", [b"1"])
        consumer = await client.subscribe("in", "s", initial_position="earliest")
        producer = await client.create_producer("flights", linger_ms=0, batch_messages_max=2)
        async with client.transaction(lazy=True) as txn:
            producer.send_nowait(b"a", partition=0, txn=txn)
            if reason == "partition":
                producer.send_nowait(b"b", partition=1, txn=txn)
            elif reason == "batch":
                producer.send_nowait(b"b", partition=0, txn=txn)
            elif reason == "ack":
                consumer.ack_nowait(await consumer.receive(), txn=txn)
            elif reason == "awaited send":
                sent = await producer.send(b"b", partition=0, txn=txn)
                assert sent.index == 1
            else:
                await producer.flush()
            await until(lambda: txn.has_begun)
            assert not first.messages
        (begun,) = cluster.play.commands("new_txn")
        (end,) = cluster.play.commands("end_txn")
        assert end.txn_id == txn.txn_id.to_wire()
        # All that took part at once is named at once.
        assert [one.partition for one in begun.partitions] == (
            [0, 1] if reason == "partition" else [0]
        )
        assert len(begun.subscriptions) == (reason == "ack")
        assert begun.answer_before_durable
        # Who waits has the participants confirmed, in a second command.
        confirmed = cluster.play.commands("add_partition_to_txn")
        assert len(confirmed) == (reason == "awaited send")
        assert all(one.partitions == begun.partitions for one in confirmed)
        assert not cluster.play.commands("add_subscription_to_txn")
        values = [b"a"] if reason in ("ack", "flush", "partition") else [b"a", b"b"]
        assert first.messages == values
        assert second.messages == ([b"b"] if reason == "partition" else [])
        assert cluster.cursors["in", "s", 0].acked == ({0} if reason == "ack" else set())

    run(test)


def test_nothing_in_it_asks_nobody() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        producer = await client.create_producer("flights")
        async with client.transaction(lazy=True):
            pass
        aborted = await client.begin_transaction(lazy=True)
        await producer.enqueue(b"x", txn=aborted)
        await aborted.abort()
        assert aborted.status is TransactionStatus.ABORTED
        abandoned = await client.begin_transaction(lazy=True)
        await producer.enqueue(b"x", txn=abandoned)
        await client.close()
        assert not cluster.play.commands("new_txn")
        assert not cluster.play.commands("send")
        assert not cluster.topics["flights"][1][0].messages

    run(test)


async def commit_while_it_begins(
    cluster: FakeCluster, client: Client
) -> tuple[Transaction, asyncio.Future[None]]:
    """Commit a transaction that has to begin, and whose coordinator does not answer yet."""
    cluster.topic("flights", 2)
    cluster.play.when("new_txn").always(HOLD)
    producer = await client.create_producer("flights")
    txn = await client.begin_transaction(lazy=True)
    for partition in range(2):
        await producer.enqueue(b"x", partition=partition, txn=txn)
    commit = asyncio.ensure_future(txn.commit())
    await cluster.play.holds()
    return txn, commit


def test_a_commit_while_it_begins_hears_that_the_client_closed() -> None:
    """It got a CancelledError, although nobody had cancelled it."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        txn, commit = await commit_while_it_begins(cluster, client)
        await client.close()
        with pytest.raises(ClientClosed):
            await commit
        with pytest.raises(ClientClosed):
            await txn.commit()

    run(test)


def test_a_commit_that_is_cancelled_while_it_begins_is_cancelled() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        txn, commit = await commit_while_it_begins(cluster, client)
        commit.cancel()
        with pytest.raises(asyncio.CancelledError):
            await commit
        cluster.play.forget()
        cluster.play.release()
        await txn.commit()

    run(test)


def test_an_abort_while_it_begins_ends_it_at_its_coordinator() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        first, _ = cluster.topic("flights", 2)
        cluster.play.when("new_txn").always(HOLD)
        producer = await client.create_producer("flights", linger_ms=0)
        txn = await client.begin_transaction(lazy=True)
        for partition in range(2):
            producer.send_nowait(b"x", partition=partition, txn=txn)
        await cluster.play.holds()
        abort = asyncio.ensure_future(txn.abort())
        await time_passes(0.005)
        cluster.play.forget()
        cluster.play.release()
        await abort
        (end,) = cluster.play.commands("end_txn")
        assert end.txn_id == txn.txn_id.to_wire()
        assert not first.messages

    run(test)


def test_without_a_coordinator_it_cannot_commit_and_loses_nothing() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        first, _ = cluster.topic("flights", 2)
        producer = await client.create_producer("flights", linger_ms=0)
        cluster.play.when("new_txn").always(DiskFull())
        txn = await client.begin_transaction(lazy=True)
        for partition in range(2):
            producer.send_nowait(b"x", partition=partition, txn=txn)
        with pytest.raises(CommitRefused) as raised:
            await txn.commit()
        assert isinstance(raised.value.__cause__, DiskFull)
        assert txn.status is TransactionStatus.ABORTED
        assert not first.messages

    run(test)


@pytest.mark.parametrize("fault", [DROP, LOSE, BREAK])
def test_a_lost_answer_to_its_batch_leaves_one_copy(fault: str) -> None:
    """Rule l: its outcome is told by repeating the same sequence."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("flights")
        producer = await client.create_producer("flights", linger_ms=0)
        cluster.play.when("send").once(fault)
        async with client.transaction(lazy=True) as txn:
            await producer.enqueue(b"x", txn=txn)
        assert partition.messages == [b"x"]

    run(test, ClientConfig(request_timeout_ms=30, backoff_ms_max=20))


@pytest.mark.parametrize("stored", [True, False])
def test_an_unknown_outcome_is_told_by_asking_again(stored: bool) -> None:
    """Rule l, after the SDK itself had given up, and with plain sends in the meantime."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("flights")
        producer = await client.create_producer("flights", linger_ms=0)
        await producer.send(b"before")
        cluster.play.when("send").always(DROP if stored else HOLD)
        txn = await client.begin_transaction(lazy=True)
        await producer.enqueue(b"x", txn=txn)
        with pytest.raises(OutcomeUnknown):
            await txn.commit()
        with pytest.raises(OutcomeUnknown, match="again"):
            await txn.abort()
        cluster.play.forget()
        await producer.send(b"after")
        await txn.commit()
        assert txn.status is TransactionStatus.COMMITTED
        assert sorted(partition.messages) == [b"after", b"before", b"x"]

    run(test, IMPATIENT)


def test_a_refusal_does_not_speak_for_a_copy_that_the_deadline_left_under_way() -> None:
    """It was reported as aborted, and then the first copy of its batch was stored."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("flights")
        producer = await client.create_producer("flights", linger_ms=0)
        txn = await client.begin_transaction(lazy=True)
        await producer.enqueue(b"x", txn=txn)
        cluster.play.when("send").in_turn(HOLD, QuotaExceeded())
        with pytest.raises(OutcomeUnknown):
            await txn.commit()
        cluster.net.break_links()
        await turns(1)  # The client has heard of it.
        with pytest.raises(OutcomeUnknown, match="by an earlier copy"):
            await txn.commit()
        cluster.play.release()
        await txn.commit()
        assert txn.status is TransactionStatus.COMMITTED
        assert partition.messages == [b"x"]

    run(test, LASTING_LINK)


@pytest.mark.parametrize("stored", [True, False])
def test_an_answer_that_does_not_say_whether_it_is_stored_leaves_the_outcome_unknown(
    stored: bool,
) -> None:
    """A bug in the broker counted as an abort, though the messages may be stored."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("flights")
        producer = await client.create_producer("flights", linger_ms=0)
        txn = await client.begin_transaction(lazy=True)
        await producer.enqueue(b"x", txn=txn)

        def breaks_down(body: Any) -> InternalError:
            if stored:
                cluster.on_send(cluster.net.links[0], body)
            return InternalError("a bug")

        cluster.play.when("send").in_turn(breaks_down, QuotaExceeded())
        # What the second copy is refused for says nothing of the first one.
        for reason in ("may be committed: a bug", "by an earlier copy"):
            with pytest.raises(OutcomeUnknown, match=reason):
                await txn.commit()
            with pytest.raises(OutcomeUnknown, match="may be committed"):
                await txn.abort()
        await txn.commit()
        assert txn.status is TransactionStatus.COMMITTED
        assert partition.messages == [b"x"]

    run(test, LASTING_LINK)


def test_a_late_refusal_of_the_first_copy_leaves_no_doubt() -> None:
    """The refusal of the second copy ends the transaction, since both had no effect."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("flights")
        producer = await client.create_producer("flights", linger_ms=0)
        await producer.send(b"before")
        txn = await client.begin_transaction(lazy=True)
        await producer.enqueue(b"x", txn=txn)
        cluster.play.when("send").in_turn(HOLD, QuotaExceeded())
        with pytest.raises(OutcomeUnknown):
            await txn.commit()
        # The broker forgets the producer, and refuses what it held.
        partition.sequences.clear()
        cluster.play.release()
        with pytest.raises(CommitRefused) as raised:
            await txn.commit()
        assert isinstance(raised.value.__cause__, QuotaExceeded)
        assert partition.messages == [b"before"]

    run(test, LASTING_LINK)


@pytest.mark.parametrize("is_asking", [False, True])
def test_its_outcome_stays_unknown_when_its_producer_is_closed(is_asking: bool) -> None:
    """Asking again once raised a bug's error and kept its budget, and twice never ended."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        producer = await client.create_producer("flights", linger_ms=0)
        txn = await client.begin_transaction(lazy=True)
        await producer.enqueue(b"x", txn=txn)
        cluster.play.when("send").once(HOLD)
        commit = asyncio.ensure_future(txn.commit())
        await cluster.play.holds(1)
        if is_asking:
            await producer.close()
        with pytest.raises(OutcomeUnknown):
            await commit
        await producer.close()
        for _ in range(2):
            with pytest.raises(OutcomeUnknown, match="the producer is closed"):
                await txn.commit()
        # All of the budget is there for others.
        other = await client.create_producer("flights", linger_ms=0)
        await other.send(b"y")

    run(test, dataclasses.replace(LASTING_LINK, pending_messages_max=1))


def test_it_is_committed_when_its_batch_is_stored_and_its_producer_is_closed() -> None:
    """It was said to be aborted: it was to be sent again, and could not be."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("flights")
        producer = await client.create_producer("flights", linger_ms=0)
        txn = await client.begin_transaction(lazy=True)
        await producer.enqueue(b"x", txn=txn)
        cluster.play.when("send").once(HOLD)
        commit = asyncio.ensure_future(txn.commit())
        await cluster.play.holds(1)
        commit.cancel()
        cluster.play.release()
        await producer.close()
        await txn.commit()
        assert txn.status is TransactionStatus.COMMITTED
        assert partition.messages == [b"x"]
        assert len(cluster.play.commands("send")) == 1

    run(test, LASTING_LINK)


def test_it_is_aborted_when_its_copies_were_refused_and_its_producer_is_closed() -> None:
    """No copy had an effect, and there will not be another one."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("flights")
        producer = await client.create_producer("flights", linger_ms=0)
        await producer.send(b"before")
        txn = await client.begin_transaction(lazy=True)
        await producer.enqueue(b"x", txn=txn)
        cluster.play.when("send").once(HOLD)
        with pytest.raises(OutcomeUnknown):
            await txn.commit()
        partition.sequences.clear()
        cluster.play.release()
        await turns(1)  # The client has heard of the refusal.
        await producer.close()
        with pytest.raises(CommitRefused) as raised:
            await txn.commit()
        assert isinstance(raised.value.__cause__, ClientClosed)
        assert txn.status is TransactionStatus.ABORTED

    run(test, LASTING_LINK)


def test_a_refused_batch_means_that_it_is_aborted() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("flights")
        producer = await client.create_producer("flights", linger_ms=0)
        cluster.play.when("send").always(DiskFull())
        with pytest.raises(CommitRefused):
            async with client.transaction(lazy=True) as txn:
                await producer.enqueue(b"x", txn=txn)
        assert txn.status is TransactionStatus.ABORTED
        cluster.play.forget()
        await producer.flush()
        assert not partition.messages
        with pytest.raises(InvalidTxnState):
            await txn.commit()

    run(test)


def test_its_batch_may_be_stored_when_the_server_takes_the_client_no_more() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("flights")
        producer = await client.create_producer("flights", linger_ms=0)
        cluster.play.when("send").once(BREAK)
        cluster.play.when("hello").always(UnsupportedVersion())
        txn = await client.begin_transaction(lazy=True)
        await producer.enqueue(b"x", txn=txn)
        with pytest.raises(OutcomeUnknown):
            await txn.commit()
        cluster.play.forget()
        await txn.commit()
        assert partition.messages == [b"x"]

    run(test)
