"""Whatever a part of the client dies of, those that wait hear of it (invariant 11)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from tests.client.fakes import FakeCluster, run
from tests.playbook import HOLD
from tests.virtual_time import time_passes
from tests.waiting import turns

import magnetar.messaging.sending.batching
from magnetar import (
    Client,
    ClientClosed,
    ClientConfig,
    ClientFailed,
    CommitRefused,
    DeadLetterPolicy,
    InvalidTxnState,
    Producer,
    TransactionStatus,
)
from magnetar.enums import BatchingName
from magnetar.groups.assigned_receivers import AssignedReceivers
from magnetar.groups.membership import GroupMembership
from magnetar.link.connection import Connection
from magnetar.link.owner_watch import OwnerWatch
from magnetar.link.session import LinkSession
from magnetar.link.unanswered import Unanswered
from magnetar.messaging.acknowledging.acks import PlainAcks, TransactionAcks
from magnetar.messaging.acknowledging.delayed_nacks import DelayedNacks
from magnetar.messaging.receiving.partition_receiver import PartitionReceiver
from magnetar.messaging.receiving.reader import RangeReader
from magnetar.messaging.sending.backpressure import PendingBudget
from magnetar.messaging.sending.batch_delivery import BatchDelivery
from magnetar.messaging.sending.partition_sender import PartitionSender
from magnetar.transactions.enrollment import Enrollment
from magnetar.transactions.open_transactions import OpenTransactions
from magnetar.transactions.outcome_inquiry import OutcomeInquiry
from magnetar.transactions.transaction_work import TransactionWork
from magnetar_core.errors import MagnetarError
from magnetar_core.transport.frames import FrameWriter

DEATHS = (OverflowError, RuntimeError, RecursionError, MemoryError, KeyError)
each_death = pytest.mark.parametrize("death", DEATHS)

Scenario = Callable[[FakeCluster, Client], Awaitable[None]]


class Killer:
    """Makes functions of the client raise.

    Attributes:
        reported: what the event loop was told, so that it is in the log.
    """

    def __init__(self, patch: pytest.MonkeyPatch, death: type[BaseException]) -> None:
        self.reported: list[BaseException] = []
        self._patch = patch
        self._death = death

    def kills(self, owner: object, name: str, *, times: int = 1_000_000) -> None:
        """Let the next calls of a function die."""
        original, left = getattr(owner, name), times

        def dying(*args: Any, **kwargs: Any) -> Any:
            nonlocal left
            if not left:
                return original(*args, **kwargs)
            left -= 1
            raise self._death("the test says so")

        self._patch.setattr(owner, name, dying)

    def run(self, scenario: Scenario, config: ClientConfig | None = None) -> None:
        async def test(cluster: FakeCluster, client: Client) -> None:
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(
                lambda loop, context: self.reported.append(context["exception"])
            )
            try:
                await scenario(cluster, client)
            finally:
                self._patch.undo()

        run(test, *([config] if config is not None else []))
        assert {type(one) for one in self.reported} <= {self._death}

    def is_cause_of(self, error: BaseException) -> bool:
        """Whether this is why an error was raised."""
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, self._death):
            cause = cause.__cause__
        return cause is not None


@pytest.fixture
def killer(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Killer]:
    with monkeypatch.context() as patch:
        yield Killer(patch, getattr(request, "param", RuntimeError))


each_killer = pytest.mark.parametrize("killer", DEATHS, indirect=True)


async def hears(killer: Killer, call: Awaitable[object], error: type[Exception]) -> Exception:
    """The call raises such an error, and says why."""
    with pytest.raises(error) as raised:
        await call
    assert killer.is_cause_of(raised.value), repr(raised.value)
    return raised.value


# Sends


async def all_hear_of_a_batch(killer: Killer, producer: Producer) -> None:
    producer.send_nowait(b"nobody waits")
    sends = [asyncio.ensure_future(producer.send(b"%d" % number)) for number in range(3)]
    await asyncio.wait(sends)
    for one in sends:
        await hears(killer, one, MagnetarError)
    await hears(killer, producer.flush(), MagnetarError)


async def its_commit_hears_of_a_batch(
    killer: Killer, client: Client, producer: Producer, *, lazy: bool
) -> None:
    txn = await client.begin_transaction(lazy=lazy)
    producer.send_nowait(b"good", txn=txn)
    await time_passes(0.1)
    await producer.enqueue(b"more", txn=txn) if txn.failure is None else None
    await hears(killer, txn.commit(), CommitRefused)
    assert txn.status in (TransactionStatus.ABORTED, TransactionStatus.ABORTING)


@each_killer
@pytest.mark.parametrize("batching", ["mixed", "by_key"])
def test_a_batch_that_cannot_be_encoded_is_heard_of(killer: Killer, batching: BatchingName) -> None:
    """The linger timer died, commit() and flush() succeeded, and send() did not return."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("t")
        producer = await client.create_producer("t", batching=batching)
        killer.kills(magnetar.messaging.sending.batching, "encode")
        await all_hear_of_a_batch(killer, producer)
        for lazy in (False, True):
            await its_commit_hears_of_a_batch(killer, client, producer, lazy=lazy)
        assert partition.messages == []

    killer.run(test)


def test_the_batches_of_other_keys_are_stored(killer: Killer) -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("t")
        producer = await client.create_producer("t", batching="by_key")
        killer.kills(magnetar.messaging.sending.batching, "encode", times=1)
        sends = [asyncio.ensure_future(producer.send(b"v", key)) for key in (b"a", b"b")]
        await hears(killer, sends[0], ClientFailed)
        await sends[1]
        assert partition.messages == [b"v"]

    killer.run(test)


@each_killer
@pytest.mark.parametrize(
    "place", [(BatchDelivery, "build"), (LinkSession, "request"), (BatchDelivery, "_number")]
)
def test_a_batch_that_cannot_be_written_is_heard_of(
    killer: Killer, place: tuple[object, str]
) -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("t")
        producer = await client.create_producer("t")
        begun = await client.begin_transaction()
        killer.kills(*place)
        await all_hear_of_a_batch(killer, producer)
        producer.send_nowait(b"good", txn=begun)
        with pytest.raises(MagnetarError):
            await begun.commit()
        assert begun.failure is not None
        assert killer.is_cause_of(begun.failure)

    killer.run(test)


def test_a_linger_timer_that_dies_fails_its_sender(killer: Killer) -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("t")
        producer = await client.create_producer("t")
        txn = await client.begin_transaction()
        killer.kills(PartitionSender, "send_collected", times=1)
        await all_hear_of_a_batch(killer, producer)
        with pytest.raises(ClientFailed):
            await producer.send(b"later")
        killer.kills(PartitionSender, "send_collected", times=0)
        producer = await client.create_producer("t")
        killer.kills(PartitionSender, "send_collected", times=1)
        producer.send_nowait(b"good", txn=txn)
        await time_passes(0.1)
        await hears(killer, txn.commit(), CommitRefused)

    killer.run(test)


def test_an_answer_reaches_its_caller_whatever_happens_behind_it(killer: Killer) -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("t")
        producer = await client.create_producer("t")
        killer.kills(PendingBudget, "give_back", times=1)
        await producer.send(b"stored")
        await producer.flush()
        assert [type(one) for one in killer.reported] == [RuntimeError]

    killer.run(test)


def test_a_frame_that_cannot_be_written_closes_its_link_and_is_sent_again(killer: Killer) -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("t")
        producer = await client.create_producer("t")
        killer.kills(FrameWriter, "flush", times=1)
        await producer.send(b"stored")
        assert partition.messages == [b"stored"]

    killer.run(test)


@pytest.mark.parametrize("name", ["_replied", "_pushed"])
def test_a_frame_that_cannot_be_handled_closes_its_link(killer: Killer, name: str) -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("t")
        producer = await client.create_producer("t")
        consumer = await client.subscribe("t", "s", initial_position="earliest")
        killer.kills(LinkSession, name, times=1)
        await producer.send(b"stored")
        assert (await consumer.receive(timeout_s=5)).value == b"stored"

    killer.run(test)


def test_a_queue_whose_deadline_dies_is_refused(killer: Killer) -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("t")
        cluster.play.when("send").always(HOLD)
        producer = await client.create_producer("t")
        killer.kills(Unanswered, "_on_alarm", times=1)
        with pytest.raises(MagnetarError) as raised:
            await producer.send(b"v")
        assert killer.is_cause_of(raised.value)

    killer.run(test)


# Transactions


@pytest.mark.parametrize(
    ("owner", "name"),
    [(Enrollment, "_flush"), (OpenTransactions, "_new_txn"), (Enrollment, "_ask")],
)
def test_a_transaction_whose_participants_cannot_be_told_fails(
    killer: Killer, owner: object, name: str
) -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("t", 2)
        producer = await client.create_producer("t")
        killer.kills(owner, name)
        txn = await client.begin_transaction(lazy=True)
        sends = [
            asyncio.ensure_future(producer.send(b"v", partition=number, txn=txn))
            for number in range(2)
        ]
        await asyncio.wait(sends)
        for one in sends:
            with pytest.raises(MagnetarError) as raised:
                await one
            assert killer.is_cause_of(raised.value)
        with pytest.raises((CommitRefused, InvalidTxnState)):
            await txn.commit()
        assert txn.failure is not None

    killer.run(test)


def test_the_client_fails_if_an_owner_fails_too(killer: Killer) -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("t")
        producer = await client.create_producer("t")
        consumer = await client.subscribe("t", "s")
        other = await client.create_producer("t")
        cluster.play.when("send").always(HOLD)
        txn = await client.begin_transaction()
        sending = asyncio.ensure_future(other.send(b"other"))
        receiving = asyncio.ensure_future(consumer.receive())
        await turns(5)
        killer.kills(magnetar.messaging.sending.batching, "encode")
        killer.kills(TransactionWork, "doom", times=1)
        producer.send_nowait(b"v", txn=txn)
        with pytest.raises(MagnetarError) as raised:
            await sending
        assert killer.is_cause_of(raised.value)
        await hears(killer, receiving, ClientFailed)
        await hears(killer, consumer.receive(), ClientFailed)
        await hears(killer, client.begin_transaction(), ClientFailed)
        await hears(killer, other.send(b"later"), ClientFailed)
        with pytest.raises(MagnetarError):
            await txn.commit()
        assert txn.failure is not None

    killer.run(test)


def test_an_outcome_that_cannot_be_inquired_about_fails_the_client(killer: Killer) -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("t")
        txn = await client.begin_transaction(timeout_s=1)
        killer.kills(OutcomeInquiry, "_ask_status")
        await time_passes(5)
        await hears(killer, client.begin_transaction(), ClientFailed)
        assert txn.failure is not None

    killer.run(test)


# Consumers and groups


@pytest.mark.parametrize("name", ["_send_gathered", "_has_gathered"])
def test_acks_that_cannot_be_sent_are_heard_of(killer: Killer, name: str) -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("t")
        cluster.publish("t", [b"0", b"1"])
        consumer = await client.subscribe("t", "s", initial_position="earliest")
        messages = await consumer.receive_batch(2, timeout_s=5)
        killer.kills(PlainAcks, name, times=1)
        await hears(killer, consumer.ack(messages[0]), ClientFailed)
        killer.kills(PlainAcks, name, times=1)
        consumer.ack_nowait(messages[1])
        await time_passes(0.1)
        await hears(killer, consumer.flush_acks(), ClientFailed)

    killer.run(test)


@pytest.mark.parametrize("name", ["send_collected", "build"])
def test_acks_of_a_transaction_that_cannot_be_sent_fail_it(killer: Killer, name: str) -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("t")
        cluster.publish("t", [b"0", b"1"])
        consumer = await client.subscribe("t", "s", initial_position="earliest")
        messages = await consumer.receive_batch(2, timeout_s=5)
        txn = await client.begin_transaction()
        killer.kills(TransactionAcks, name, times=1)
        await hears(killer, consumer.ack(messages[0], txn=txn), ClientFailed)
        await hears(killer, txn.commit(), CommitRefused)
        txn = await client.begin_transaction()
        killer.kills(TransactionAcks, name, times=1)
        consumer.ack_nowait(messages[1], txn=txn)
        await time_passes(0.1)
        await hears(killer, txn.commit(), CommitRefused)

    killer.run(test)


@pytest.mark.parametrize("name", ["_attach", "_on_subscribed"])
def test_a_receiver_that_dies_is_heard_of(killer: Killer, name: str) -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("t")
        killer.kills(PartitionReceiver, name)
        await hears(killer, client.subscribe("t", "s"), ClientFailed)

    killer.run(test)


def test_a_delivery_that_cannot_be_handled_is_heard_of(killer: Killer) -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("t")
        consumer = await client.subscribe("t", "s")
        receiving = asyncio.ensure_future(consumer.receive())
        await turns(5)
        killer.kills(PartitionReceiver, "_on_deliver", times=1)
        cluster.publish("t", [b"v"])
        await hears(killer, receiving, ClientFailed)

    killer.run(test)


def test_a_nack_that_cannot_be_sent_is_heard_of(killer: Killer) -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("t")
        cluster.publish("t", [b"v"])
        consumer = await client.subscribe("t", "s", initial_position="earliest")
        killer.kills(DelayedNacks, "_due", times=1)
        consumer.nack(await consumer.receive(), delay_s=0.1)
        await hears(killer, consumer.receive(timeout_s=5), ClientFailed)

    killer.run(test)


def test_a_dead_letter_that_cannot_be_moved_is_given_back(killer: Killer) -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("t")
        cluster.publish("t", [b"v"])
        consumer = await client.subscribe(
            "t",
            "s",
            type="shared",
            initial_position="earliest",
            nack_delay_ms=0,
            nack_delay_ms_max=0,
            dead_letter=DeadLetterPolicy(redeliveries_max=0),
        )
        killer.kills(OpenTransactions, "_new_txn", times=1)
        consumer.nack(await consumer.receive())
        with pytest.raises(TimeoutError):
            await consumer.receive(timeout_s=5)
        assert cluster.topics["t-s-DLQ"][1][0].messages == [b"v"]

    killer.run(test)


@pytest.mark.parametrize(
    ("owner", "name"), [(GroupMembership, "_say"), (AssignedReceivers, "route")]
)
def test_a_member_of_a_group_that_dies_is_heard_of(
    killer: Killer, owner: object, name: str
) -> None:
    async def join_and_receive(client: Client) -> None:
        consumer = await client.consumer_group("g", "t")
        await consumer.receive(timeout_s=30)

    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("t")
        killer.kills(owner, name)
        await hears(killer, join_and_receive(client), ClientFailed)

    killer.run(test)


# Links and reading


def test_a_connection_that_dies_is_heard_of_at_once(killer: Killer) -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("t")
        killer.kills(Connection, "_attempt")
        cluster.net.break_links()
        await turns(5)
        began = asyncio.get_running_loop().time()
        with pytest.raises(MagnetarError) as raised:
            await client.admin.topics.describe("t")
        assert killer.is_cause_of(raised.value)
        assert asyncio.get_running_loop().time() - began < 1

    killer.run(test)


def test_a_watch_over_owners_that_dies_fails_the_client(killer: Killer) -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        killer.kills(OwnerWatch, "_question")
        client._cluster._servers._watch.heard()
        await time_passes(1)
        await hears(killer, client.begin_transaction(), ClientFailed)

    killer.run(test)


def test_reading_ahead_that_dies_is_heard_of(killer: Killer) -> None:
    async def read(client: Client) -> None:
        async for _ in client.read_ahead("t", 0, 0, 2):
            pass

    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("t")
        cluster.publish("t", [b"0", b"1"])
        killer.kills(RangeReader, "open")
        await hears(killer, read(client), ClientFailed)

    killer.run(test)


def test_a_closed_client_tells_what_begins_late(killer: Killer) -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("t")
        runtime = client._runtime
        await client.close()
        told: list[MagnetarError] = []
        with pytest.raises(ClientClosed):
            await runtime.spawn(turns, "late", told.append)
        assert [type(one) for one in told] == [ClientClosed]

    killer.run(test)
