"""What a shard has not answered is sent again in order, whichever transaction it belongs to."""

from __future__ import annotations

import asyncio

import pytest
from tests.client.fakes import FakeCluster, run
from tests.playbook import HOLD
from tests.waiting import turns

from magnetar import Client, CommitRefused
from magnetar.enums import TransactionStatus
from magnetar_core.errors import DiskFull, LogUnavailable
from magnetar_core.ids import TxnID

# What a command is, for its order.
Sent = tuple[str, int, int]


def in_order(cluster: FakeCluster) -> list[Sent]:
    """The sends and acks that came: the transaction's counter, 0 without one, and the sequence."""
    found: list[Sent] = []
    for name, body in cluster.play.received:
        if name in ("send", "ack"):
            counter = TxnID.from_wire(body.txn_id).counter if body.HasField("txn_id") else 0
            sequence = body.sequence_id if name == "send" else body.ack_sequence
            found.append((name, counter, sequence))
    return found


def test_interleaved_transactions_are_sent_again_in_order_after_a_broken_link() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("t")
        producer = await client.create_producer("t", batch_messages_max=1)
        txns = [await client.begin_transaction() for _ in range(3)]
        cluster.play.when("send").always(HOLD)
        for number in range(4):
            for txn in txns:
                producer.send_nowait(b"%d" % number, txn=txn)
            producer.send_nowait(b"plain %d" % number)
        await cluster.play.holds(16)
        first = in_order(cluster)
        assert len(first) == 16
        cluster.play.forget()
        cluster.play.held.clear()
        cluster.net.break_links()
        await asyncio.gather(*(txn.commit() for txn in txns))
        await producer.flush()
        assert in_order(cluster) == first * 2
        assert sorted(partition.messages) == sorted(
            [b"%d" % number for number in range(4)] * 3
            + [b"plain %d" % number for number in range(4)]
        )

    run(test)


def test_acks_and_sends_of_a_transaction_keep_their_own_orders() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("t")
        cluster.topic("in")
        cluster.publish("in", [b"%d" % number for number in range(3)])
        producer = await client.create_producer("t", batch_messages_max=1)
        consumer = await client.subscribe("in", "s", initial_position="earliest")
        messages = [await consumer.receive() for _ in range(3)]
        txn = await client.begin_transaction()
        cluster.play.when("send", "ack").always(HOLD)
        for message in messages:
            producer.send_nowait(message.value, txn=txn)
            consumer.ack_nowait(message, txn=txn)
            await turns(3)
        await cluster.play.holds(6)
        cluster.play.forget()
        cluster.play.held.clear()
        cluster.net.break_links()
        await txn.commit()
        for name in ("send", "ack"):
            numbers = [sequence for one, _, sequence in in_order(cluster) if one == name]
            assert numbers == [0, 1, 2, 0, 1, 2]
        assert cluster.cursors["in", "s", 0].acked == {0, 1, 2}

    run(test)


def test_what_is_refused_for_now_goes_again_with_all_behind_it_and_others_go_on() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("t")
        producer = await client.create_producer("t", batch_messages_max=1)
        one, other = [await client.begin_transaction() for _ in range(2)]
        wire = one.txn_id.to_wire()
        # The fake broker answers what follows with SequenceGap.
        cluster.play.when("send", txn_id=wire, sequence_id=1).once(LogUnavailable())
        for number in range(4):
            producer.send_nowait(b"one %d" % number, txn=one)
            producer.send_nowait(b"other %d" % number, txn=other)
        await other.commit()
        assert partition.messages == [b"other %d" % number for number in range(4)]
        await one.commit()
        assert partition.messages[4:] == [b"one %d" % number for number in range(4)]
        of_one = [sent for _, counter, sent in in_order(cluster) if counter == one.txn_id.counter]
        assert of_one == [0, 1, 2, 3, 1, 2, 3] or of_one == [0, 1, 2, 3, 0, 1, 2, 3]
        of_other = [at for _, txn, at in in_order(cluster) if txn == other.txn_id.counter]
        assert of_other == [0, 1, 2, 3]

    run(test)


def test_a_gap_that_is_heard_of_before_its_cause_is_no_failure() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("t")
        producer = await client.create_producer("t", batch_messages_max=1)
        txn = await client.begin_transaction()
        cluster.play.when("send", sequence_id=1).once(HOLD)
        for number in range(4):
            producer.send_nowait(b"%d" % number, txn=txn)
        await txn.commit()
        cluster.play.release()  # The late original is recognised as a repeat, or comes too late.
        await turns(5)
        assert partition.messages == [b"0", b"1", b"2", b"3"]

    run(test)


def test_a_lasting_refusal_of_a_transaction_leaves_others_alone() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("t")
        producer = await client.create_producer("t", batch_messages_max=1)
        one, other = [await client.begin_transaction() for _ in range(2)]
        cluster.play.when("send", txn_id=one.txn_id.to_wire(), sequence_id=1).once(DiskFull())
        for number in range(3):
            producer.send_nowait(b"one %d" % number, txn=one)
            producer.send_nowait(b"other %d" % number, txn=other)
        await other.commit()
        with pytest.raises(CommitRefused):
            await one.commit()
        assert partition.messages == [b"other %d" % number for number in range(3)]

    run(test)


def test_a_send_whose_caller_has_gone_is_sent_again_and_its_transaction_is_refused() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("t")
        producer = await client.create_producer("t", batch_messages_max=1)
        txn = await client.begin_transaction()
        cluster.play.when("send").always(HOLD)
        sending = asyncio.ensure_future(producer.send(b"v", txn=txn))
        plain = asyncio.ensure_future(producer.send(b"plain"))
        await cluster.play.holds(2)
        sending.cancel()
        plain.cancel()
        await asyncio.wait((sending, plain))
        cluster.play.forget()
        cluster.play.held.clear()
        cluster.net.break_links()
        with pytest.raises(CommitRefused):
            await txn.commit()
        assert txn.status is TransactionStatus.ABORTED
        # Cancelling the call does not take a message back.
        await producer.flush()
        assert cluster.topics["t"][1][0].messages == [b"plain"]

    run(test)


def test_a_request_whose_caller_has_gone_is_not_sent_again() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("t")
        cluster.play.when("describe_topic").always(HOLD)
        asking = asyncio.ensure_future(client.admin.topics.describe("t"))
        await cluster.play.holds(1)
        asking.cancel()
        await asyncio.wait((asking,))
        cluster.play.forget()
        cluster.play.held.clear()
        cluster.net.break_links()
        await client.admin.topics.list()
        assert len(cluster.play.commands("describe_topic")) == 1

    run(test)


def test_a_pause_ends_when_the_client_closes() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("t")
        cluster.play.when("describe_topic").always(LogUnavailable())
        asking = asyncio.ensure_future(client.admin.topics.describe("t"))
        await cluster.play.came("describe_topic")
        await turns(3)
        await client.close()
        (raised,) = await asyncio.gather(asking, return_exceptions=True)
        assert isinstance(raised, Exception)
        assert "closed" in str(raised)

    run(test)
