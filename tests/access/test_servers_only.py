"""One command from a stranger, that only coordinators may send, would stop or tear transactions."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.access.world import BROKER, COORDINATOR, RawClient, is_refused, world, write_access

import magnetar
from magnetar_core.gates.access_file import AccessConfig
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import transaction_pb2 as txn


def access_with_a_file(tmp_path: Path) -> AccessConfig:
    principals = {"anonymous": ["coordinator", "admin"], "stranger": ["admin"]}
    return write_access(tmp_path / "access.toml", principals)


@pytest.mark.parametrize("form", ["unary", "stream"])
@pytest.mark.parametrize("by_file", [True, False], ids=["access file", "server principals"])
def test_a_stranger_neither_stops_nor_tears_transactions(
    form: str, by_file: bool, tmp_path: Path
) -> None:
    """The stranger may do whatever an administrator may."""
    access = AccessConfig(server_principals="anonymous")
    if by_file:
        access = access_with_a_file(tmp_path)

    async def run() -> None:
        async with (
            world(access, tmp_path) as servers,
            RawClient(servers, BROKER, "stranger") as stranger,
            await magnetar.connect(servers.address(BROKER)) as client,
        ):
            await client.admin.topics.create("topic-a")
            await client.admin.topics.create("topic-b")
            first, second = [await client.create_producer(one) for one in ("topic-a", "topic-b")]
            transaction = await client.begin_transaction()
            await first.send(b"1", txn=transaction)
            await second.send(b"2", txn=transaction)
            txn_id = transaction.txn_id.to_wire()
            torn = await stranger.ask(
                txn.CommandEndTxnOnPartition(
                    txn_id=txn_id,
                    partition=common.Partition(topic="topic-a"),
                    txn_action=common.ABORT,
                ),
                form,
            )
            assert is_refused(torn)
            for incarnation in (1, (1 << 48) - 1):
                stopped = await stranger.ask(
                    txn.CommandLowWatermark(
                        tcid=0, incarnation=incarnation, low_watermark=(1 << 64) - 1
                    ),
                    form,
                )
                assert is_refused(stopped)
            await transaction.commit(wait_finished=True)
            later = await client.begin_transaction()
            await first.send(b"3", txn=later)
            await later.commit(wait_finished=True)
            for name, values in (("topic-a", [b"1", b"3"]), ("topic-b", [b"2"])):
                read = [one.value async for one in client.read(name)]
                assert read == values

    asyncio.run(run())


def test_a_coordinator_is_not_among_those_who_may(tmp_path: Path) -> None:
    """An administrator ends transactions at coordinators, and nowhere else."""
    access = access_with_a_file(tmp_path)

    async def run() -> None:
        async with (
            world(access, tmp_path) as servers,
            RawClient(servers, COORDINATOR, "stranger") as stranger,
        ):
            opened = await stranger.unary(txn.CommandNewTxn())
            end = txn.CommandEndTxn(txn_id=opened.txn_id, txn_action=common.ABORT)
            ended = await stranger.unary(end)
            assert isinstance(ended, txn.CommandEndTxnResponse)

    asyncio.run(run())
