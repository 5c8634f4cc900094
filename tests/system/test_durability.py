"""A broker with durability "os", as processes: killed, and with its machine.

Source: docs/design/0014-durability.md.
"""

from __future__ import annotations

import os
from pathlib import Path

from tests.system.processes import BROKER, COORDINATOR, Servers
from tests.system.programs import run, values
from tests.system.test_check import checked

import magnetar
from magnetar import Client, Producer
from magnetar_storage.data_dir import unsynced_note
from magnetar_storage.data_dir.store_files import LOG, log_path, numbered
from magnetar_storage.data_dir.synced_mark import read_mark


def lose_the_machine(directory: Path) -> None:
    """What a killed process left, without what was not synced; another boot has begun since."""
    mark = read_mark(str(directory))
    unsynced = [path for number, path in numbered(str(directory), LOG) if number > mark.log]
    assert not unsynced, "nothing was flushed here"
    os.truncate(log_path(str(directory), mark.log), mark.log_bytes)
    note = directory / unsynced_note.FILE
    note.write_text(note.read_text().replace("boot_id", "boot_id_before"))


async def ledger_ids(client: Client) -> set[int]:
    return {one.ledger_id for one in (await client.admin.topics.describe("t")).partitions}


async def commit(client: Client, producer: Producer, value: bytes) -> None:
    async with await client.begin_transaction() as txn:
        await producer.send(value, txn=txn)


def test_a_killed_broker_keeps_everything_and_a_lost_machine_keeps_transactions(
    tmp_path: Path,
) -> None:
    settings = {"MAGNETAR_DURABILITY": "os", "MAGNETAR_SYNC_INTERVAL_MS": "3600000"}
    servers = Servers(tmp_path / "servers", settings=settings, counts={BROKER: 1, COORDINATOR: 1})
    directory = tmp_path / "servers" / BROKER

    async def scenario() -> None:
        async with await magnetar.connect(servers.address) as client:
            await client.admin.topics.create("t")
            producer = await client.create_producer("t")
            await producer.send(b"plain")
            servers.kill(BROKER)
            servers.start(BROKER)
            assert await values(client, "t") == [b"plain"]
            assert await ledger_ids(client) == {1}
            await commit(client, producer, b"committed")
            await producer.send(b"follows it")
            # Whatever it asks for has the broker sync.
            servers.kill(COORDINATOR)
            assert len(await values(client, "t")) == 3
            await producer.send(b"lost")
            servers.kill(BROKER)
            lose_the_machine(directory)
            report = checked(directory)
            assert report["whole"]
            assert [one["check"] for one in report["stores"][0]["findings"]] == ["unsynced"]
            servers.start()
            assert await values(client, "t") == [b"plain", b"committed", b"follows it"]
            assert await ledger_ids(client) == {2}
            # It goes on, though the broker does not know its last message.
            await producer.send(b"after")
            assert (await values(client, "t"))[-1] == b"after"

    with servers.running():
        run(scenario(), timeout_s=120.0)
        log = servers.log(BROKER)
        assert log.count("the machine went down") == 1
        assert "durability is os" in log
        servers.stop()
    assert not unsynced_note.is_there(str(directory))
