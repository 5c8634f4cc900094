"""A hanging transaction made on purpose, found and ended with the command line alone (KIP-664)."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.system.processes import COORDINATOR, CommandLine, Servers
from tests.system.programs import run
from tests.waiting import pace

import magnetar
from magnetar_core.wire import broker_pb2


def test_found_described_and_ended_by_hand(tmp_path: Path) -> None:
    servers = Servers(tmp_path)
    servers.start()
    command = CommandLine(servers)

    async def hang() -> magnetar.TxnID:
        """Leave a transaction open on a partition and a subscription, and lose its coordinator."""
        client = await magnetar.connect(servers.address)
        await client.admin.topics.create("in")
        await client.admin.topics.create("out")
        source = await client.create_producer("in")
        await source.send_many([b"0", b"1"])
        await source.flush()
        consumer = await client.subscribe("in", "s", initial_position="earliest")
        producer = await client.create_producer("out")
        await producer.send(b"plain")
        txn = await client.begin_transaction()
        await producer.send(b"hangs", txn=txn)
        await consumer.ack(await consumer.receive(), txn=txn)
        servers.kill(COORDINATOR)
        shutil.rmtree(tmp_path / COORDINATOR)
        servers.start(COORDINATOR)
        return txn.txn_id

    async def follow(stop: asyncio.Event, seen: list[bytes]) -> None:
        """Subscribers never stop meanwhile."""
        async with await magnetar.connect(servers.address) as client:
            producer = await client.create_producer("out")
            reader = await client.subscribe("out", "reader")
            number = 0
            while not stop.is_set():
                await producer.send(b"%d" % number)
                seen.append((await reader.receive(2.0)).value)
                number += 1
                await pace(0.02)

    async def find_and_end(old: magnetar.TxnID) -> None:
        stop, seen = asyncio.Event(), list[bytes]()
        following = asyncio.create_task(follow(stop, seen))
        await asyncio.to_thread(by_hand, old)
        stop.set()
        await following
        assert seen == [b"%d" % number for number in range(len(seen))]
        assert len(seen) > 20
        async with await magnetar.connect(servers.address) as client:
            consumer = await client.subscribe("in", "s")
            assert (await consumer.receive(2.0)).value == b"0", "the ack was undone"
            values = [one.value async for one in client.read("out")]
            assert b"hangs" not in values
            for _ in range(3):
                txn = await client.begin_transaction()
                assert txn.txn_id.incarnation > old.incarnation
                await txn.abort()

    def by_hand(old: magnetar.TxnID) -> None:
        text = str(old)
        described = command.json("transactions", "describe-producers", "out", "0")
        (opened,) = [one for one in described if one["txn_id"] == text]
        assert opened["start_offset"] == 1
        assert command.run("transactions", "describe", text, status=12).startswith("Error")
        patient = ("transactions", "find-hanging", "--max-transaction-timeout", "15m")
        assert command.json(*patient) == []
        found = command.json("transactions", "find-hanging", status=3)
        places = {
            (one["producer"]["partition"]["topic"], one["producer"]["subscription"])
            for one in found
        }
        assert places == {("in", "s"), ("out", "")}
        assert all(one["producer"]["txn_id"] == text for one in found)
        table = command.run("transactions", "find-hanging", status=3)
        assert "STARTOFFSET" in table
        assert text in table
        abort = ("transactions", "abort", text, "--yes", "--topic", "out", "--partition", "0")
        assert "began here" in command.run(*abort, "--start-offset", "7", status=12)
        right = (*abort, "--start-offset", "1")
        assert "began here" in command.run(*right, "--producer-epoch", "3", status=12)
        assert "belong together" in command.run(*abort, status=2)
        assert len(command.json("transactions", "find-hanging", status=3)) == 2
        command.run(*right)
        assert "not open here" in command.run(*right, status=12)
        for one in command.json("transactions", "find-hanging", "--topic", "in", status=3):
            producer = one["producer"]
            command.run(
                *("transactions", "abort", text, "--yes", "--topic", "in", "--partition", "0"),
                *("--subscription", producer["subscription"]),
                *("--start-offset", str(producer["start_offset"])),
            )
        assert command.json("transactions", "find-hanging") == []

    old = run_value(hang())
    run(find_and_end(old), 60)
    servers.stop()


def run_value(work: Any) -> Any:
    """Without closing the client: it dies with its transaction open."""
    return asyncio.run(work)


def test_what_is_open_at_its_coordinator_does_not_hang(tmp_path: Path) -> None:
    servers = Servers(tmp_path, {"MAGNETAR_TWO_PHASE_COMMIT_ENABLED": "1"})
    servers.start()
    command = CommandLine(servers)

    async def program() -> None:
        async with await magnetar.connect(servers.address) as client:
            await client.admin.topics.create("t")
            producer = client.transactional_producer("app", two_phase_commit=True)
            await producer.init()
            await producer.begin()
            await producer.send("t", b"x")
            prepared = await producer.prepare()
            assert prepared.txn_id is not None
            await asyncio.to_thread(by_hand, str(prepared.txn_id))
            with pytest.raises(magnetar.ProducerFenced):
                await producer.commit()
            with pytest.raises(magnetar.InvalidTxnState, match="taken over"):
                await producer.begin()
            assert [one async for one in client.read("t")] == []

    def by_hand(txn_id: str) -> None:
        assert command.json("transactions", "find-hanging") == []
        (listed,) = command.json("transactions", "list", "--id", "a*", "--coordinator", "0")
        assert listed["identity"]["transactional_id"] == "app"
        assert listed["two_phase_commit"] is True
        assert "may be prepared" in command.run("transactions", "list")
        for shown in ("describe", "history"):
            text = command.run("transactions", shown, txn_id)
            assert "OPEN (two-phase, may be prepared)" in text
        assert command.json("transactions", "list", "--id", "b*") == []
        described = command.json("transactions", "describe", "--transactional-id", "app")
        assert (described["state"], described["timeout_ms"]) == ("ONGOING", -1)
        text = command.run("transactions", "describe", "--transactional-id", "app")
        assert "never" in text
        (open_there,) = command.json("transactions", "describe-producers", "t", "0")
        assert open_there["producer_epoch"] == described["producer_epoch"]
        abort = ("transactions", "abort", txn_id, "--yes")
        there = ("--topic", "t", "--partition", "0", "--start-offset", "0", "--producer-epoch", "0")
        assert "not hanging" in command.run(*abort, *there, status=12)
        for end in (abort, ("transactions", "commit", txn_id)):
            assert "transactions complete" in command.run(*end, status=12)
        assert "transactions complete" in command.run(
            "topics", "delete", "t", "--force", "--yes", status=12
        )
        command.run("transactions", "force-terminate", "nobody", "--yes", status=1)
        assert "--abort-prepared" in command.run(
            "transactions", "force-terminate", "app", "--yes", status=12
        )
        assert len(command.json("transactions", "list", "--status", "open")) == 1
        command.run("transactions", "force-terminate", "app", "--abort-prepared", "--yes")
        assert command.json("transactions", "list", "--status", "open") == []

    run(program(), 60)
    servers.stop()


def test_what_was_written_by_hand_does_not_hang(tmp_path: Path) -> None:
    """Who publishes with grpcurl names no epoch: the transaction is its producer's all the same."""
    servers = Servers(tmp_path)
    servers.start()
    command = CommandLine(servers)

    async def program() -> None:
        async with await magnetar.connect(servers.address) as client:
            await client.admin.topics.create("t")
            producer = client.transactional_producer("app")
            await producer.init()
            await producer.begin()
            (open_one,) = await client.admin.transactions.list()
            route = await client._cluster.route("t")
            published = broker_pb2.CommandPublish(
                partition=route.partition_name(0).to_wire(),
                messages=[broker_pb2.Message(value=b"by hand")],
                txn_id=open_one.txn_id.to_wire(),
            )
            await route.connection(0).request(published)
            await producer.send("t", b"by the producer")
            described = await client.admin.transactions.describe_producers("t", 0)
            assert [one.producer_epoch for one in described if one.txn_id] == [-1, -1]
            assert await asyncio.to_thread(command.json, "transactions", "find-hanging") == []
            await producer.abort()

    run(program(), 60)
    servers.stop()
