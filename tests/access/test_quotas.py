"""Quotas of principals: over all connections, and never in the way of what finishes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from tests.access.world import (
    BROKER,
    COORDINATOR,
    RawClient,
    World,
    credentials,
    world,
    write_access,
)

from magnetar_coordinator.metadata.records import StatusChanged
from magnetar_coordinator.metadata.transaction import Transaction, TxnStatus
from magnetar_coordinator.transactions.principal_quota import PrincipalQuota
from magnetar_core import batch
from magnetar_core.access.quotas import RATES_MAX, Counts, Rates
from magnetar_core.ids import TxnID
from magnetar_core.protocol_version import PROTOCOL_VERSION
from magnetar_core.wire import broker_pb2 as wire
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import topic_pb2
from magnetar_core.wire import transaction_pb2 as txn

PRINCIPALS = {"anonymous": ["coordinator"], "alice": ["admin"], "bob": ["admin"]}
PARTITION = common.Partition(topic="topic")


def is_limited(answer: Any) -> bool:
    return isinstance(answer, common.ServerError) and answer.code == common.QUOTA_EXCEEDED


def scenario(
    quotas: str,
    tmp_path: Path,
    steps: Callable[[World, Callable[[str, str], Any]], Awaitable[None]],
) -> None:
    """Run steps, with clients by service and principal; each call makes a new connection."""
    text = f"[quotas]\nalice = {quotas}\n"
    access = write_access(tmp_path / "access.toml", PRINCIPALS, text)

    async def run() -> None:
        async with world(access, tmp_path) as servers, AsyncExitStack() as closing:

            async def client(service: str, name: str) -> RawClient:
                return await closing.enter_async_context(RawClient(servers, service, name))

            await steps(servers, client)

    asyncio.run(run())


def test_open_transactions_count_over_all_connections_and_after_them(tmp_path: Path) -> None:
    async def steps(servers: World, client: Callable[[str, str], Any]) -> None:
        opened = []
        for form in ("stream", "unary", "stream"):
            alice = await client(COORDINATOR, "alice")
            opened.append(await alice.ask(txn.CommandNewTxn(), form))
            assert not is_limited(opened[-1])
            await alice.__aexit__()
        alice, bob = await client(COORDINATOR, "alice"), await client(COORDINATOR, "bob")
        for form in ("stream", "unary"):
            assert is_limited(await alice.ask(txn.CommandNewTxn(), form))
            assert not is_limited(await bob.ask(txn.CommandNewTxn(), form))
        end = txn.CommandEndTxn(txn_id=opened[0].txn_id, txn_action=common.ABORT)
        assert isinstance(await alice.unary(end), txn.CommandEndTxnResponse)
        assert not is_limited(await alice.unary(txn.CommandNewTxn()))
        assert is_limited(await alice.unary(txn.CommandNewTxn()))

    scenario("{ open_txns_max = 3 }", tmp_path, steps)


def test_bytes_of_open_transactions_count_over_all_connections(tmp_path: Path) -> None:
    messages = batch.encode([bytes(1_000)])

    def send(txn_id: common.TxnId, sequence_id: int) -> wire.CommandSend:
        return wire.CommandSend(
            partition=PARTITION,
            producer_id=1,
            sequence_id=sequence_id,
            num_messages=1,
            txn_id=txn_id,
            batch=messages,
        )

    async def steps(servers: World, client: Callable[[str, str], Any]) -> None:
        alice, bob = await client(COORDINATOR, "alice"), await client(COORDINATOR, "bob")
        broker = await client(BROKER, "alice")
        await broker.unary(topic_pb2.CommandCreateTopic(topic="topic"))
        opened = await alice.unary(txn.CommandNewTxn(partitions=[PARTITION]))
        for sequence_id, form in enumerate(("stream", "unary")):
            connection = await client(BROKER, "alice")
            sent = await connection.ask(send(opened.txn_id, sequence_id), form)
            assert isinstance(sent, wire.CommandSendResponse), sent
            await connection.__aexit__()
        assert is_limited(await broker.unary(send(opened.txn_id, 2)))
        # A repeat stores nothing.
        assert (await broker.unary(send(opened.txn_id, 1))).duplicate
        others = await bob.unary(txn.CommandNewTxn(partitions=[PARTITION]))
        bobs = await client(BROKER, "bob")
        assert not is_limited(await bobs.unary(send(others.txn_id, 0)))
        end = txn.CommandEndTxn(txn_id=opened.txn_id, txn_action=common.COMMIT, wait_finished=True)
        ended = await alice.unary(end)
        assert ended.status == common.COMMITTED
        opened = await alice.unary(txn.CommandNewTxn(partitions=[PARTITION]))
        assert not is_limited(await broker.unary(send(opened.txn_id, 0)))

    limit = 2 * len(messages)
    scenario(f"{{ open_txn_bytes_max = {limit} }}", tmp_path, steps)


@pytest.mark.parametrize("form", ["unary", "stream"])
def test_many_commands_are_refused_but_what_finishes_is_not(form: str, tmp_path: Path) -> None:
    async def steps(servers: World, client: Callable[[str, str], Any]) -> None:
        alice, bob = await client(COORDINATOR, "alice"), await client(COORDINATOR, "bob")
        opened = await alice.ask(txn.CommandNewTxn(), form)
        for _ in range(4):
            assert not is_limited(await alice.ask(txn.CommandListTxns(), form))
        assert is_limited(await alice.ask(txn.CommandListTxns(), form))
        assert is_limited(await alice.ask(txn.CommandNewTxn(), form))
        assert not is_limited(await bob.ask(txn.CommandListTxns(), form))
        end = txn.CommandEndTxn(txn_id=opened.txn_id, txn_action=common.COMMIT)
        for _ in range(20):
            assert isinstance(await alice.ask(end, form), txn.CommandEndTxnResponse)
        servers.now_ms += 200
        assert not is_limited(await alice.ask(txn.CommandListTxns(), form))
        assert is_limited(await alice.ask(txn.CommandListTxns(), form))

    scenario("{ requests_per_second = 5 }", tmp_path, steps)


def test_conversations_are_limited(tmp_path: Path) -> None:
    async def steps(servers: World, client: Callable[[str, str], Any]) -> None:
        def exchange(name: str) -> Any:
            channel = grpc.aio.insecure_channel(servers.address(BROKER))
            method: Any = channel.stream_stream("/magnetar.v1.Broker/Exchange")
            return channel, method(metadata=credentials(name))

        held = [exchange("alice") for _ in range(2)]
        for _, call in held:
            await call.initial_metadata()
        alice, bob = await client(BROKER, "alice"), await client(BROKER, "bob")
        hello = common.CommandHello(protocol_version=PROTOCOL_VERSION)
        with pytest.raises((grpc.aio.AioRpcError, asyncio.InvalidStateError)) as refusal:
            await alice.stream(hello)
        if isinstance(refusal.value, grpc.aio.AioRpcError):
            assert refusal.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert not is_limited(await bob.stream(hello))
        channel, call = held.pop()
        call.cancel()
        await channel.close()
        # The server learns of the end a little later.
        while True:
            try:
                await alice.stream(hello)
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                continue
            break
        for channel, _ in held:
            await channel.close()

    scenario("{ connections_max = 2 }", tmp_path, steps)


def test_a_bucket_holds_a_second_and_fills_at_its_rate() -> None:
    rates = Rates()
    taken = [rates.take("a", 3, 0.0) for _ in range(5)]
    assert taken == [True, True, True, False, False]
    assert not rates.take("a", 3, 333.0)
    assert rates.take("a", 3, 334.0)
    assert not rates.take("a", 3, 334.0)
    # A clock that goes back gives nothing, and rest no more than a second's worth.
    assert not rates.take("a", 3, 0.0)
    assert [rates.take("a", 3, 1e9) for _ in range(4)] == [True, True, True, False]
    for number in range(2 * RATES_MAX):
        rates.take(number, 1, 0.0)
    assert len(rates) <= RATES_MAX


def test_what_is_counted_ends_once() -> None:
    counts = Counts()
    first, second = counts.begin("a"), counts.begin("a")
    first()
    first()
    assert counts.of("a") == 1
    second()
    assert counts.of("a") == 0


def test_transactions_of_before_a_restart_count() -> None:
    quota = PrincipalQuota()

    def transaction(counter: int, principal: str, status: TxnStatus) -> Transaction:
        return Transaction(
            txn_id=TxnID.of(0, 1, counter),
            status=status,
            timeout_ms=1,
            start_run_time_ms=0,
            start_time_ms=0,
            principal=principal,
        )

    quota.recover(
        [
            transaction(1, "alice", TxnStatus.OPEN),
            transaction(2, "alice", TxnStatus.COMMITTING),
            transaction(3, "", TxnStatus.OPEN),
        ]
    )
    assert (quota._counts.of("alice"), len(quota._counts)) == (1, 1)
    ended = StatusChanged(TxnID.of(0, 1, 1), TxnStatus.OPEN, TxnStatus.ABORTING, 0)
    assert list(quota.followed) == [ended.txn_id]
    quota.fixed(ended, run_time_ms=0)
    assert len(quota._counts) == 0
    assert quota.followed == {}
