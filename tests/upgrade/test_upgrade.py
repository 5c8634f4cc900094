"""This version reads what other builds wrote, and serves what their clients say.

The others are those that left a fixture, and this version itself, so that each run also makes one.
docs/upgrades.md says what is promised, and when a fixture is made.
"""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.cli.running import MAGNETAR, Standalone, running_standalone
from tests.upgrade.conversations import say_again
from tests.upgrade.make_fixture import FIXTURES, conversation_of, make, unpacked

import magnetar
from magnetar import Client, TransactionAction, TxnID

pytestmark = [pytest.mark.chaos, pytest.mark.xdist_group("upgrade")]

VERSIONS = sorted(one.name.removesuffix(".stores.tar.xz") for one in FIXTURES.glob("*.tar.xz"))
THIS = "this version"
FIXTURE_BYTES_MAX = 300_000


@pytest.fixture(scope="module", params=[*VERSIONS, THIS])
def fixture(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stores and the conversation of another build."""
    version: str = request.param
    if version != THIS:
        return FIXTURES / version
    made = tmp_path_factory.mktemp("made") / "now"
    make(made)
    return made


def test_a_fixture_is_small(fixture: Path) -> None:
    assert conversation_of(fixture)["sent"]
    for file in fixture.parent.iterdir():
        assert file.stat().st_size < FIXTURE_BYTES_MAX, file.name


def test_there_is_a_fixture() -> None:
    assert VERSIONS


async def visible(client: Client, **how: Any) -> list[list[str]]:
    return [
        [message.value.decode() async for message in client.read("orders", partition, **how)]
        for partition in range(2)
    ]


async def status(client: Client, text: str) -> str:
    return (await client.admin.transactions.describe(TxnID.parse(text))).status.name


def test_stores_of_another_build_are_opened_and_used(fixture: Path, tmp_path: Path) -> None:
    unpacked(fixture, tmp_path / "data")
    done = subprocess.run(
        [*MAGNETAR, "check", str(tmp_path / "data")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    expected = conversation_of(fixture)["expected"]

    async def use(address: str) -> None:
        async with await magnetar.connect(address) as client:
            assert await visible(client) == expected["values"]
            before = await client.cut("orders")
            assert await visible(client, at=before) == expected["values"]
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


def test_the_client_of_another_build_is_served(fixture: Path, tmp_path: Path) -> None:
    """Its commands, byte by byte, get the answers that they got then."""
    conversation = conversation_of(fixture)

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
