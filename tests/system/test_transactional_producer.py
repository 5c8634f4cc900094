"""Transactions that outlive their producer, their servers and the clock (KIP-939)."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.freezing import freeze, thaw
from tests.system.processes import BOTH, COORDINATOR, CommandLine, Servers
from tests.system.programs import run, values
from tests.waiting import until

import magnetar
from magnetar import Client, PreparedTxnState, TransactionalProducer


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    running = Servers(tmp_path, {"MAGNETAR_TWO_PHASE_COMMIT_ENABLED": "1"})
    running.start()
    yield running
    running.stop()


async def prepared_by(servers: Servers, value: bytes) -> PreparedTxnState:
    """A client that prepares a transaction and is gone."""
    async with await magnetar.connect(servers.address) as client:
        producer = client.transactional_producer("app", two_phase_commit=True)
        await producer.init()
        await producer.begin()
        await producer.send("t", value)
        state = await producer.prepare()
        assert len(str(state)) <= 80
        assert PreparedTxnState.parse(str(state)) == state
        return state


@pytest.mark.parametrize(
    ("killed", "commits"),
    [
        *((BOTH, commits) for commits in (True, False)),
        *(((kind,), kind == COORDINATOR) for kind in BOTH),
        ((), False),
    ],
)
def test_a_prepared_transaction_survives_everybody(
    servers: Servers, killed: tuple[str, ...], commits: bool
) -> None:
    async def program() -> None:
        async with await magnetar.connect(servers.address) as client:
            await client.admin.topics.create("t")
        state = await prepared_by(servers, b"prepared")
        if killed:
            await asyncio.to_thread(servers.kill, *killed)
            await asyncio.to_thread(servers.start, *killed)
        async with await magnetar.connect(servers.address) as client:
            producer = client.transactional_producer("app", two_phase_commit=True)
            assert await producer.init(keep_prepared=True) == state
            for forbidden in (producer.begin(), producer.prepare(), producer.send("t", b"x")):
                with pytest.raises(magnetar.InvalidTxnState, match="commit, abort, complete"):
                    await forbidden
            held = state if commits else PreparedTxnState()
            assert await producer.complete(held) is commits
            await producer.begin()
            await producer.send("t", b"next")
            await producer.commit()
            await until_read(client, [b"prepared", b"next"] if commits else [b"next"])

    run(program())


async def until_read(client: Client, expected: list[bytes]) -> None:
    async def are_read() -> bool:
        return await values(client, "t") == expected

    await until(are_read, 5)


def test_every_call_that_the_state_forbids_says_what_is_allowed(servers: Servers) -> None:
    async def refused(producer: TransactionalProducer, allowed: str, *calls: str) -> None:
        for call in calls:
            arguments: dict[str, tuple[object, ...]] = {
                "send": ("t", b"x"),
                "complete": (PreparedTxnState(),),
            }
            with pytest.raises(magnetar.InvalidTxnState, match=allowed):
                await getattr(producer, call)(*arguments.get(call, ()))

    async def program() -> None:
        async with await magnetar.connect(servers.address) as client:
            await client.admin.topics.create("t")
            with pytest.raises(magnetar.InvalidArgument, match="timeout"):
                client.transactional_producer("app", two_phase_commit=True, timeout_s=1)
            producer = client.transactional_producer("app", two_phase_commit=True)
            ends = ("commit", "abort", "complete")
            await refused(producer, "allowed: init", "begin", "send", "prepare", *ends)
            await producer.init()
            await refused(producer, "allowed: begin", "send", "prepare", *ends)
            await producer.begin()
            await refused(producer, "allowed: send", "begin", "init", "complete")
            await producer.prepare()
            await refused(producer, "allowed: commit", "begin", "init", "send", "prepare")
            await producer.abort()
            await producer.init(keep_prepared=True)
            await refused(producer, "allowed: commit", "begin", "init", "send", "prepare")
            assert await producer.complete(PreparedTxnState()) is False
            await producer.close()
            await refused(producer, "closed", "begin", "init", "send", "prepare", *ends)
            without = client.transactional_producer("other", timeout_s=10)
            await without.init()
            await without.begin()
            await refused(without, "two-phase commit", "prepare")
            await without.commit()

    run(program())


def test_an_instance_that_takes_over_fences_the_one_before(servers: Servers) -> None:
    """KIP-939, Skip Epoch Bump: its eight steps through the SDK."""

    async def program() -> None:
        async with await magnetar.connect(servers.address) as client:
            await client.admin.topics.create("t")
            state = await prepared_by(servers, b"once")
            first = client.transactional_producer("app", two_phase_commit=True)
            second = client.transactional_producer("app", two_phase_commit=True)
            assert await first.init(keep_prepared=True) == state
            assert await second.init(keep_prepared=True) == state
            with pytest.raises(magnetar.ProducerFenced):
                await first.commit()
            await second.commit()
            await second.begin()
            with pytest.raises(magnetar.InvalidTxnState, match="taken over"):
                await first.begin()
            await second.send("t", b"C")
            await second.commit()
            await until_read(client, [b"once", b"C"])

    run(program())


IMPATIENT = dataclasses.replace(
    magnetar.ClientConfig(), commit_timeout_ms=500, abort_timeout_ms=500, abort_drain_ms=50
)
BY_HAND = "an administrator"


@pytest.mark.parametrize("again", ["commit", "abort"])
@pytest.mark.parametrize("asked", ["commit", "abort", "cancelled commit", "a timeout", BY_HAND])
def test_after_an_end_that_it_did_not_hear_the_producer_begins_again(
    servers: Servers, asked: str, again: str
) -> None:
    """It said that another instance had taken over, and could never be used again. KIP-588."""

    async def unanswered(producer: TransactionalProducer) -> None:
        """The coordinator stands still when the command leaves, and answers too late."""
        await asyncio.to_thread(freeze, servers.pid(COORDINATOR))
        try:
            if asked == "cancelled commit":
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(producer.commit(), 0.1)
            else:
                with pytest.raises(magnetar.OutcomeUnknown):
                    await getattr(producer, asked)()
        finally:
            thaw(servers.pid(COORDINATOR))

    async def program() -> None:
        async with await magnetar.connect(servers.address, config=IMPATIENT) as client:
            await client.admin.topics.create("t")
            producer = client.transactional_producer(
                "app", timeout_s=0.5 if asked == "a timeout" else 60
            )
            await producer.init()
            await producer.begin()
            await producer.send("t", b"first")
            transaction = producer.transaction
            assert transaction is not None
            if asked == BY_HAND:
                action = magnetar.TransactionAction.ABORT
                await client.admin.transactions.end(transaction.txn_id, action)
            elif asked != "a timeout":
                await unanswered(producer)
            if asked != BY_HAND:
                # The SDK finds out by itself.
                await until(lambda: transaction.work.has_ended)
            committed = transaction.status in (
                magnetar.TransactionStatus.COMMITTING,
                magnetar.TransactionStatus.COMMITTED,
            )
            if committed == (again == "commit"):
                await getattr(producer, again)()
            else:
                with pytest.raises(magnetar.InvalidTxnState):
                    await getattr(producer, again)()
            await producer.begin()
            await producer.send("t", b"second")
            await producer.commit()
            await until_read(client, [b"first", b"second"] if committed else [b"second"])

    run(program())


def test_consume_and_produce_under_one_identity(servers: Servers) -> None:
    async def program() -> None:
        async with await magnetar.connect(servers.address) as client:
            for topic in ("in", "t"):
                await client.admin.topics.create(topic)
            source = await client.create_producer("in")
            await source.send_many([b"%d" % number for number in range(6)])
            await source.flush()
            consumer = await client.subscribe("in", "s", initial_position="earliest")
            producer = client.transactional_producer("app", timeout_s=30)
            await producer.init()
            for commits in (False, True, False, True):
                await producer.begin()
                messages = [await consumer.receive(2.0) for _ in range(3)]
                for message in messages:
                    await producer.enqueue("t", message.value)
                await producer.acknowledge(consumer, messages)
                await (producer.commit() if commits else producer.abort())

            async def are_consumed() -> bool:
                described = await client.admin.topics.describe("in")
                return described.partitions[0].subscriptions[0].backlog == 0

            await until(are_consumed, 5)
            assert sorted(await values(client, "t")) == [b"%d" % number for number in range(6)]

    run(program())


def test_a_named_sequence_counts_the_parts_that_won(servers: Servers) -> None:
    """As a Spark sink does it: tasks join, some come twice, the driver names the winners."""

    async def task(number: int, attempt: int) -> magnetar.TransactionPart:
        async with await magnetar.connect(servers.address) as client:
            producer = await client.create_producer("t")
            txn = await client.begin_named_transaction("query", 7, "run-2")
            await producer.send_many([b"%d/%d" % (number, attempt)] * 3, txn=txn)
            part = await txn.leave()
            with pytest.raises(magnetar.InvalidTxnState):
                await producer.send(b"late", txn=txn)
            for ending in (txn.commit(), txn.abort()):
                with pytest.raises(magnetar.InvalidTxnState, match="left"):
                    await ending
            return part

    async def program() -> None:
        async with await magnetar.connect(servers.address) as client:
            await client.admin.topics.create("t")
            zombie = await client.begin_named_transaction("query", 7, "run-1")
            producer = await client.create_producer("t")
            await producer.send(b"of an earlier run", txn=zombie)
            lost, first, second = await asyncio.gather(task(1, 1), task(1, 2), task(2, 1))
            assert lost.txn_id == first.txn_id == second.txn_id != zombie.txn_id
            with pytest.raises(magnetar.InvalidArgument):
                await client.commit_parts([])
            await client.commit_parts([first, second], fingerprint="six")
            await client.commit_parts([second, first])  # Asking again is harmless.
            with pytest.raises(magnetar.InvalidTxnState):
                await client.commit_parts([lost, second])
            for sequence, error in (
                (7, magnetar.SequenceCommitted),
                (6, magnetar.SequenceTooOld),
            ):
                with pytest.raises(error):
                    await client.begin_named_transaction("query", sequence, "run-3")
            for content, mismatch in (
                ("six", magnetar.SequenceCommitted),
                ("seven", magnetar.SequenceDiffers),
            ):
                with pytest.raises(mismatch) as refusal:
                    await client.begin_named_transaction("query", 7, "run-3", fingerprint=content)
                assert refusal.value.details["fingerprint"] == "six"
            with pytest.raises(magnetar.InvalidTxnState):
                await zombie.commit()

            async def are_there() -> bool:
                return len(await values(client, "t")) == 6

            await until(are_there, 5)
            assert sorted(await values(client, "t")) == [b"1/2"] * 3 + [b"2/1"] * 3
            described = await client.admin.named_sequences.describe("query")
            assert (described.committed_sequence, described.open_sequence) == (7, None)
            assert described.committed_fingerprint == "six"
            eighth = await client.begin_named_transaction("query", 8, "run-3")
            await producer.send(b"alone", txn=eighth)
            await eighth.abort()
            alone = await client.begin_named_transaction("alone", 0, "run", fingerprint="one")
            await alone.commit()
            later = await client.begin_named_transaction("later", 0, "run")
            await later.commit(fingerprint="two")
            for name, content in (("query", "six"), ("alone", "one"), ("later", "two")):
                assert (
                    await client.admin.named_sequences.describe(name)
                ).committed_fingerprint == content
            await asyncio.to_thread(by_hand)

    def by_hand() -> None:
        command = CommandLine(servers)
        described = command.json("transactions", "describe-name", "query")
        assert (described["committed_sequence"], described["open_txn_id"]) == (7, None)
        assert "committed sequence  7" in command.run("transactions", "describe-name", "query")
        command.run("transactions", "remove-name", "query", "--yes")
        command.run("transactions", "remove-name", "query", "--yes", status=1)

    run(program())
