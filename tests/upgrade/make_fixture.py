"""Makes the fixture of a version for later ones: `python -m tests.upgrade.make_fixture VERSION`.

Run it with the code of the version. It writes two files to tests/upgrade/fixtures, a few kilobytes
each: stores that a standalone had when it was killed, and the commands of a client. The files of a
release never change again: users have such stores.
"""

from __future__ import annotations

import asyncio
import io
import json
import lzma
import sys
import tarfile
import tempfile
from pathlib import Path
from random import Random
from typing import Any

from tests.archives import unpack
from tests.cli.running import running_standalone
from tests.upgrade.conversations import Recorder
from tests.waiting import until

import magnetar
from magnetar import Client, ClientConfig

FIXTURES = Path(__file__).parent / "fixtures"
# Seconds that an open transaction outlives the making, in run time of the coordinator.
TIMEOUT_S = 800.0
# Files without content of a store.
LEFT_OUT = ("LOCK", "LOG", "LOG.old")


async def converse(address: str, data: Path) -> tuple[bytes, dict[str, Any]]:
    """Use everything that leaves rows.

    Returns:
        The stores as a kill would leave them; what was said, and what must be there afterwards.
    """
    recorder = Recorder()
    config = ClientConfig(client_name="fixture")
    async with await magnetar.connect(
        address, transport=recorder, random=Random(7), config=config
    ) as client:
        await client.admin.topics.create("orders", partitions=2)
        await client.admin.topics.create("inputs")
        producer = await client.create_producer("orders")
        inputs = await client.create_producer("inputs")
        for number in range(4):
            await inputs.send(b"input %d" % number)
        await producer.send(b"plain", partition=0, key=b"k", properties={"a": "1"})
        await producer.send(b"large " + b"." * 20_000, partition=1)
        consumer = await client.subscribe(
            "inputs", "worker", type="shared", initial_position="earliest"
        )
        messages = [await consumer.receive(10) for _ in range(4)]
        assert None not in messages
        committed = await client.begin_transaction()
        await producer.send(b"committed", partition=0, txn=committed)
        await producer.send(b"committed", partition=1, txn=committed)
        await consumer.ack(messages[0], txn=committed)
        await committed.commit()
        aborted = await client.begin_transaction()
        await producer.send(b"aborted", partition=0, txn=aborted)
        await consumer.ack(messages[1], txn=aborted)
        await aborted.abort()
        await consumer.ack(messages[2])
        named = await client.begin_named_transaction("job", 5, "run", timeout_s=TIMEOUT_S)
        await producer.send(b"named", partition=0, txn=named)
        await named.commit()
        opened = await client.begin_transaction(timeout_s=TIMEOUT_S)
        await producer.send(b"open", partition=1, txn=opened)
        await consumer.ack(messages[3], txn=opened)
        values = [
            [message.value.decode() async for message in client.read("orders", partition)]
            for partition in range(2)
        ]
        cut = await client.cut("orders")
        await until(lambda: settled(client), 10)
        expected = {
            "values": values,
            "committed": str(committed.txn_id),
            "aborted": str(aborted.txn_id),
            "open": str(opened.txn_id),
            "named_sequence": 5,
            "cut": str(cut),
        }
        # Before the client says goodbye, which aborts what it has open.
        return stored(data), {
            "expected": expected,
            "sent": list(recorder.sent),
            "answers": dict(recorder.answers),
        }


async def settled(client: Client) -> bool:
    """Whether nothing is live but the transaction that stays open."""
    return len(await client.admin.transactions.list()) == 1


def stored(directory: Path) -> bytes:
    """Return a compressed archive of a directory, the same for the same files."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for file in sorted(directory.rglob("*")):
            if file.is_file() and file.name not in LEFT_OUT:
                info = tarfile.TarInfo(str(file.relative_to(directory)))
                info.size = file.stat().st_size
                info.mode = 0o600
                archive.addfile(info, io.BytesIO(file.read_bytes()))
    return lzma.compress(content.getvalue(), preset=9 | lzma.PRESET_EXTREME)


def unpacked(fixture: Path, directory: Path) -> None:
    """Put the stores of a fixture into a directory."""
    content = lzma.decompress(_stores_of(fixture).read_bytes())
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        unpack(archive, directory)


def _stores_of(fixture: Path) -> Path:
    return fixture.with_name(f"{fixture.name}.stores.tar.xz")


def _conversation_of(fixture: Path) -> Path:
    return fixture.with_name(f"{fixture.name}.conversation.json.xz")


def make(fixture: Path) -> None:
    """Write the two files of a fixture, with this code.

    Args:
        fixture: the path that their names begin with.
    """
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with running_standalone(directory) as standalone:
            address = standalone.ready()["broker"]["address"]
            stores, conversation = asyncio.run(converse(address, directory / "data"))
        _stores_of(fixture).write_bytes(stores)
        _conversation_of(fixture).write_bytes(
            lzma.compress(json.dumps(conversation, indent=1).encode())
        )


def conversation_of(fixture: Path) -> dict[str, Any]:
    """Return the commands to the version, and the content that must be there afterwards."""
    content = lzma.decompress(_conversation_of(fixture).read_bytes())
    found: dict[str, Any] = json.loads(content)
    return found


if __name__ == "__main__":
    make(FIXTURES / sys.argv[1])
