"""What a client does when somebody else has ended its transaction, or nobody remembers it."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest
from tests.client.fakes import FAST, FakeCluster, run
from tests.playbook import HOLD
from tests.virtual_time import time_passes
from tests.waiting import turns, until

from magnetar import (
    Client,
    InvalidTxnState,
    Message,
    TopicNotFound,
    TransactionStatus,
)
from magnetar.transactions.transaction_state import OVER
from magnetar_core.errors import MagnetarError, TxnForgotten, TxnNotFound


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
            txn.work.doubt()
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
        txn.work.doubt()
        await cluster.play.came("describe_txn")
        await until(lambda: txn.work._phase in OVER)
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
            txn.work.require_open()
        assert txn.status is TransactionStatus.OPEN

    run(test)


def test_leaving_the_block_of_one_that_nobody_remembers_raises() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        async def program() -> None:
            async with client.transaction() as txn:
                cluster.play.when("describe_txn").always(TxnForgotten("long ago"))
                txn.work.doubt()
                await until(lambda: txn.work._phase in OVER)

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
        txn.work.doubt()
        await until(lambda: txn.work._phase in OVER)
        cluster.play.release()
        await committing
        assert txn.status in (TransactionStatus.COMMITTING, TransactionStatus.COMMITTED)

    run(test)


def test_nobody_is_asked_for_an_outcome_once_the_client_is_closed() -> None:
    """The answer was that the client is closed, and it was asked again, each second for ever."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        txn = await client.begin_transaction()
        inquiry = txn.work._inquiry
        assert inquiry is not None
        inquiry.resolve_soon()
        txn.work.doubt()
        assert inquiry._resolving
        assert inquiry._finding_out
        # Before the background tasks are cancelled.
        client._cluster.close()
        await until(lambda: not inquiry._resolving and not inquiry._finding_out)

    run(test)


@pytest.mark.parametrize("by", ["a commit", "an abort"])
def test_what_has_no_answer_when_the_client_closes_leaves_no_task_behind(by: str) -> None:
    """It asked for the outcome for ever, from a client that was closed."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        txn = await client.begin_transaction()
        cluster.play.when("end_txn").once(HOLD)
        ending = asyncio.ensure_future(txn.commit() if by == "a commit" else txn.abort())
        await cluster.play.holds()
        await client.close()
        with pytest.raises(MagnetarError):
            await ending

    run(test)  # It looks for tasks.


@pytest.mark.parametrize("by", ["somebody else", "the client's close"])
def test_the_block_of_one_that_was_aborted_meanwhile_raises(by: str) -> None:
    """It left in silence, as if it had committed, and what it had sent was nowhere."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("flights")
        producer = await client.create_producer("flights")

        async def block() -> None:
            async with client.transaction() as txn:
                await producer.send(b"0", txn=txn)
                if by == "somebody else":
                    cluster.end(txn.txn_id, commit=False)
                    txn.work.doubt()
                    await until(lambda: txn.status is TransactionStatus.ABORTED)
                else:
                    await client.close()

        with pytest.raises(InvalidTxnState, match="was aborted"):
            await block()

    run(test)


def test_the_block_of_one_that_the_application_aborted_ends_in_silence() -> None:
    """Also when it asked for the abort after somebody else had."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        async with client.transaction() as txn:
            cluster.end(txn.txn_id, commit=False)
            txn.work.doubt()
            await until(lambda: txn.status is TransactionStatus.ABORTED)
            await txn.abort()
        async with client.transaction() as txn:
            await txn.abort()

    run(test)


def test_a_commit_that_waits_for_participants_ends_with_its_transaction() -> None:
    """It waited for an answer to which nobody listened any more, and abort() waited behind it."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("t", 1)
        cluster.play.when("add_partition_to_txn").always(HOLD)
        cluster.play.when("send").always(HOLD)
        producer = await client.create_producer("t", linger_ms=0)
        txn = await client.begin_transaction(timeout_s=0.2)
        send = asyncio.ensure_future(producer.send(b"x", partition=0, txn=txn))
        await cluster.play.came("send", 1)
        await cluster.play.came("add_partition_to_txn", 1)
        commit = asyncio.ensure_future(txn.commit())
        await turns(5)
        # Its time is up, and then this client asks how it has ended.
        cluster.end(txn.txn_id, commit=False)
        with pytest.raises(InvalidTxnState):
            await commit
        with pytest.raises(InvalidTxnState):
            await send
        await txn.abort()
        assert txn.status is TransactionStatus.ABORTED
        cluster.play.release()

    run(
        test,
        dataclasses.replace(
            FAST,
            request_timeout_ms=30_000,
            operation_timeout_ms=30_000,
            send_timeout_ms=30_000,
            commit_timeout_ms=30_000,
        ),
    )


def test_a_block_that_ends_while_the_client_closes_says_that_it_is_not_committed() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("t")
        producer = await client.create_producer("t")
        cluster.play.when("end_txn").once(HOLD)
        closing: list[asyncio.Future[None]] = []

        async def block() -> None:
            async with client.transaction() as txn:
                await producer.send(b"v", txn=txn)
                closing.append(asyncio.ensure_future(client.close()))
                await cluster.play.holds()
                asyncio.get_running_loop().call_soon(cluster.play.release)

        with pytest.raises(InvalidTxnState, match="was aborted"):
            await block()
        await closing[0]
        assert not cluster.topics["t"][1][0].messages

    run(test)


def test_a_commit_says_if_an_administrator_has_committed_what_has_failed_here() -> None:
    """It raised CommitRefused, "was aborted", so that its caller did the same work twice."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("flights")
        txn = await client.begin_transaction()
        await txn.send("flights", b"1")
        with pytest.raises(TopicNotFound):
            await txn.send("nowhere", b"2")
        cluster.end(txn.txn_id, commit=True)
        with pytest.raises(
            InvalidTxnState, match="by another client or an administrator, although"
        ):
            await txn.commit()
        assert txn.status is TransactionStatus.COMMITTED
        assert partition.messages == [b"1"]

    run(test)
