"""Virtual time: an hour passes for servers and clients at once, with all that falls due in it."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.waiting import for_ever, turns

import magnetar
from magnetar.errors import CommitRefused, InvalidArgument, InvalidTxnState, WrongEventLoop
from magnetar.testing import Server

HOUR_S = 3_600.0


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(virtual_time=True) as server:
        yield server


def test_a_transaction_expires_when_its_time_has_come(server: Server) -> None:
    client = server.connect_blocking()
    client.admin.topics.create("t")
    txn = client.begin_transaction(timeout_s=60.0)
    txn.send("t", b"v")
    server.advance(50.0)
    assert len(client.admin.transactions.list()) == 1
    server.advance(11.0)
    assert client.admin.transactions.list() == []
    with pytest.raises((InvalidTxnState, CommitRefused)):
        txn.commit()


def test_a_message_that_was_given_back_comes_when_its_delay_is_over(server: Server) -> None:
    client = server.connect_blocking()
    client.admin.topics.create("t")
    client.create_producer("t").send(b"v")
    consumer = client.subscribe("t", "s", type="shared", initial_position="earliest")
    consumer.nack(consumer.receive(10.0), delay_s=600.0)
    server.advance(590.0)
    assert consumer.receive_batch(timeout_s=0.0) == []
    server.advance(11.0)
    assert consumer.receive(10.0).redelivery_count == 1


def test_retention(server: Server) -> None:
    client = server.connect_blocking()
    client.admin.topics.create("t", retention_ms=3_600_000)
    with client.create_producer("t") as producer:
        producer.send(b"old")
        server.advance(0.9 * HOUR_S)
        producer.send(b"new")
        server.advance(0.5 * HOUR_S)
    assert [one.value for one in client.read("t", start=1)] == [b"new"]
    assert client.admin.topics.list_offsets("t").partitions[0].first_offset == 1


def test_members_that_live_stay_and_those_that_do_not_are_replaced(server: Server) -> None:
    first, second = server.connect_blocking(), server.connect_blocking()
    first.admin.topics.create("t", partitions=2)
    first.consumer_group("g", "t", session_timeout_s=10.0)
    other = second.consumer_group("g", "t", session_timeout_s=10.0)
    server.advance(60.0)
    assert first.admin.groups.describe("g").summary.members == 2
    # Its process hangs: nothing of it is heard.
    blocked, go = threading.Event(), threading.Event()

    def hang() -> None:
        blocked.set()
        go.wait()

    other.loop.post(hang)
    blocked.wait()
    server.advance(30.0)
    found = first.admin.groups.describe("g")
    assert found.summary.members == 1
    assert {one.member_id for one in found.partitions} == {found.members[0].member_id}
    go.set()


def test_programs_on_the_event_loop_sleep_as_long(server: Server) -> None:
    async def program() -> None:
        client = await server.connect()
        await client.admin.topics.create("t")
        woken: list[float] = []

        async def nap() -> None:
            async with asyncio.timeout(HOUR_S / 2):
                try:
                    await for_ever()
                finally:
                    woken.append(asyncio.get_running_loop().time() - began_s)

        began_s = asyncio.get_running_loop().time()
        napping = asyncio.create_task(nap())
        await server.advance_async(HOUR_S / 4)
        assert not woken
        await server.advance_async(HOUR_S / 4)
        with pytest.raises(TimeoutError):
            await napping
        assert woken[0] == pytest.approx(HOUR_S / 2, abs=60.0)
        await client.close()

    asyncio.run(program())


def test_a_client_that_waits_gives_up_when_its_time_is_over(server: Server) -> None:
    async def program() -> None:
        client = await server.connect(config=magnetar.ClientConfig(send_timeout_ms=30_000))
        await client.admin.topics.create("t")
        producer = await client.create_producer("t")
        server.stop()
        sending = asyncio.ensure_future(producer.send(b"v"))
        await turns()
        await server.advance_async(60.0)
        with pytest.raises(magnetar.errors.MagnetarError):
            await sending
        server.start()

    asyncio.run(program())


def test_time_does_not_pass_in_a_coroutine_that_waits_for_it(server: Server) -> None:
    async def program() -> None:
        with pytest.raises(WrongEventLoop, match="advance_async"):
            server.advance(1.0)

    asyncio.run(program())


@pytest.mark.parametrize("seconds", [-1, math.nan, math.inf, 1e300, "1", None, True, [1]])
def test_bad_times_are_refused(server: Server, seconds: Any) -> None:
    with pytest.raises(InvalidArgument, match="from 0 to 604800"):
        server.advance(seconds)


def test_a_server_of_real_time_does_not_jump() -> None:
    with Server() as server, pytest.raises(InvalidArgument, match="magnetar_virtual_server"):
        server.advance(1.0)


def test_two_servers_have_times_of_their_own(server: Server) -> None:
    with Server(virtual_time=True) as other:
        clients = [one.connect_blocking() for one in (server, other)]
        txns = []
        for client in clients:
            client.admin.topics.create("t")
            txns.append(client.begin_transaction(timeout_s=60.0))
        server.advance(120.0)
        assert [len(one.admin.transactions.list()) for one in clients] == [0, 1]
        txns[1].commit()
