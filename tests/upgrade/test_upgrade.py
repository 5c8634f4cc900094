"""This version reads what earlier releases wrote, and serves what their clients say.

docs/upgrades.md says what is promised, and how a release adds its fixture.
"""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.cli.running import MAGNETAR, Standalone, running_standalone
from tests.upgrade.conversations import say_again
from tests.upgrade.make_fixture import FIXTURES, conversation_of, unpacked

import magnetar
from magnetar import Client, TransactionAction, TxnID

pytestmark = pytest.mark.chaos

VERSIONS = sorted(one.name.removesuffix(".stores.tar.xz") for one in FIXTURES.glob("*.tar.xz"))
FIXTURE_BYTES_MAX = 300_000


def test_there_are_fixtures_and_they_are_small() -> None:
    assert VERSIONS
    for version in VERSIONS:
        assert conversation_of(version)["sent"]
    for file in FIXTURES.iterdir():
        assert file.stat().st_size < FIXTURE_BYTES_MAX, file.name


async def visible(client: Client, **how: Any) -> list[list[str]]:
    return [
        [message.value.decode() async for message in client.read("orders", partition, **how)]
        for partition in range(2)
    ]


async def status(client: Client, text: str) -> str:
    return (await client.admin.transactions.describe(TxnID.parse(text))).status.name


@pytest.mark.parametrize("version", VERSIONS)
def test_stores_of_a_release_are_opened_and_used(version: str, tmp_path: Path) -> None:
    unpacked(version, tmp_path / "data")
    done = subprocess.run(
        [*MAGNETAR, "check", str(tmp_path / "data")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    expected = conversation_of(version)["expected"]

    async def use(address: str) -> None:
        async with await magnetar.connect(address) as client:
            assert await visible(client) == expected["values"]
            # What earlier versions committed without stamps belongs to every cut.
            before = await client.cut("orders")
            assert await visible(client, at=before) == expected["values"]
            if "cut" in expected:
                assert await visible(client, at=expected["cut"]) == expected["values"]
            assert await status(client, expected["committed"]) == "COMMITTED"
            assert await status(client, expected["aborted"]) == "ABORTED"
            opened = TxnID.parse(expected["open"])
            assert await status(client, expected["open"]) == "OPEN"
            name = await client.admin.named_sequences.describe("job")
            assert name.committed_sequence == expected["named_sequence"]
            # Of four inputs one was acknowledged in a commit, one plainly, one is pending.
            consumer = await client.subscribe("inputs", "worker", type="shared")
            (again,) = await consumer.receive_batch(timeout_s=2)
            assert again.value == b"input 1"
            await consumer.ack(again)
            await client.admin.transactions.end(opened, TransactionAction.COMMIT)
            producer = await client.create_producer("orders")
            txn = await client.begin_transaction()
            assert txn.txn_id > opened
            await producer.send(b"new", partition=0, txn=txn)
            await txn.commit(wait_finished=True)
            found = await visible(client)
            assert found[0] == [*expected["values"][0], "new"]
            assert found[1] == [*expected["values"][1], "open"]
            after = await client.cut("orders")
            assert await visible(client, at=after) == found
            assert await visible(client, at=after, since=before) == [["new"], ["open"]]
            assert await visible(client, at=before) == expected["values"]

    def settle(standalone: Standalone) -> None:
        asyncio.run(asyncio.wait_for(use(standalone.ready()["broker"]["address"]), 60))

    with running_standalone(tmp_path) as standalone:
        settle(standalone)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_client_of_a_release_is_served(version: str, tmp_path: Path) -> None:
    """Its commands, byte by byte, get the answers that they got then."""
    conversation = conversation_of(version)

    async def talk(ready: dict[str, Any]) -> None:
        addresses = {
            "Broker": ready["broker"]["address"],
            "TransactionCoordinator": ready["coordinator"]["address"],
        }
        differences = await say_again(conversation["sent"], conversation["answers"], addresses)
        assert differences == []
        async with await magnetar.connect(addresses["Broker"]) as client:
            assert await visible(client) == conversation["expected"]["values"]

    with running_standalone(tmp_path) as standalone:
        asyncio.run(asyncio.wait_for(talk(standalone.ready()), 120))
