"""An unsecured cluster, and somebody who sends it what only its servers send: nothing stays of it.

Source: docs/design/0011-security.md, What others tell, and a server keeps.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests import fork_server
from tests.raw_talk import RawTalk
from tests.system.processes import BROKER, COORDINATOR, Servers

import magnetar
from magnetar_core.errors import InvalidTxnState, LogUnavailable
from magnetar_core.ids import COUNTER_MAX, INCARNATION_MAX
from magnetar_core.link.grpc_transport import GrpcTransport
from magnetar_core.wire import topic_pb2, transaction_pb2

TOKEN = "stranger"


def watermark(incarnation: int) -> transaction_pb2.CommandLowWatermark:
    return transaction_pb2.CommandLowWatermark(
        tcid=0, incarnation=incarnation, low_watermark=COUNTER_MAX, store_token=TOKEN
    )


async def say(address: str, *bodies: Any) -> None:
    """Converse with a broker without knowing anything."""
    transport = GrpcTransport()
    try:
        for body in bodies:
            talk = await RawTalk().connect(transport, address, "Broker")
            await talk.ask(body)
    finally:
        await transport.close()


async def commits(address: str, count: int = 3) -> None:
    async with await magnetar.connect(address) as client:
        if "t" not in [one.topic for one in await client.admin.topics.list()]:
            await client.admin.topics.create("t")
        producer = await client.create_producer("t")
        for _ in range(count):
            async with client.transaction() as txn:
                await producer.send(b"x", txn=txn)


def test_no_word_of_a_stranger_ends_transactions(tmp_path: Path) -> None:
    servers = Servers(tmp_path)
    with servers.running():
        asyncio.run(commits(servers.address))
        for incarnation in (1, 2, INCARNATION_MAX):
            with pytest.raises(InvalidTxnState, match="token"):
                asyncio.run(say(servers.address, watermark(incarnation)))
        with pytest.raises(LogUnavailable, match="works with another store"):
            asyncio.run(
                say(
                    servers.address,
                    topic_pb2.CommandTakeIncarnation(tcid=0, store_token=TOKEN),
                )
            )
        asyncio.run(commits(servers.address))
        servers.kill()
        servers.start()
        asyncio.run(commits(servers.address))
        servers.stop()


def test_a_coordinator_whose_place_was_taken_while_it_was_away_comes_back(tmp_path: Path) -> None:
    servers = Servers(tmp_path)
    with servers.running():
        asyncio.run(commits(servers.address))
        servers.kill(COORDINATOR)
        taken = topic_pb2.CommandTakeIncarnation(tcid=0, store_token=TOKEN)
        asyncio.run(say(servers.address, taken, watermark(2)))
        servers.start(COORDINATOR)
        with pytest.raises(magnetar.MagnetarError):
            asyncio.run(commits(servers.address))
        assert "accept-loss --everything" in servers.log(COORDINATOR)
        servers.kill(COORDINATOR)
        done = fork_server.run(
            "storage",
            "accept-loss",
            "--everything",
            "--yes",
            str(tmp_path / COORDINATOR),
            timeout_s=30,
        )
        assert done.returncode == 0, done.stderr
        servers.kill(BROKER)
        servers.start()
        asyncio.run(commits(servers.address))
        servers.stop()
