"""A backup under load, restored elsewhere: nothing is torn, and no id is given out again."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests import fork_server
from tests.object_server import BUCKET, ObjectServer
from tests.system.conftest import Figure
from tests.system.processes import BROKER, COORDINATOR, Servers
from tests.system.programs import run
from tests.system.transfers import ACCOUNTS, Transfers, check_accounts, create_topics, settled
from tests.waiting import until

import magnetar
from magnetar import Client, TxnID

pytestmark = pytest.mark.xdist_group("backup")

COUNTS = {BROKER: 3, COORDINATOR: 2}
BACKUPS = 2
DAMAGED = 16


def magnetar_command(
    *arguments: str | Path, status: int = 0, environ: dict[str, str] | None = None
) -> str:
    done = fork_server.run(*map(str, arguments), environ=environ, timeout_s=120)
    said = (done.stdout + done.stderr).decode()
    assert done.returncode == status, said
    assert "Traceback" not in said
    return said


async def back_up(servers: Servers, directory: Path) -> dict[str, Any]:
    await asyncio.to_thread(magnetar_command, "--broker", servers.address, "backup", directory)
    contents: dict[str, Any] = json.loads((directory / "backup.json").read_text())
    return contents


async def newest_txn_id(client: Client) -> TxnID:
    txn = await client.begin_transaction()
    txn_id = txn.txn_id
    await txn.abort()
    return txn_id


async def ledger_of(client: Client) -> int:
    return (await client.admin.topics.describe(ACCOUNTS)).partitions[0].ledger_id


def restored_servers(directory: Path, backup: Path, **options: Any) -> Servers:
    """Servers on other ports, on what the backup holds."""
    magnetar_command("restore", "--verify", backup)
    said = magnetar_command("restore", backup, "--data-dir", directory)
    assert "broker-2" in said
    # Named as other tests name them.
    (directory / "coordinator-0").rename(directory / "coordinator")
    assert json.loads(magnetar_command("check", directory, "--json"))["whole"]
    return Servers(directory, counts=COUNTS, **options)


def test_a_backup_under_load_is_a_moment_of_all_servers(tmp_path: Path, figure: Figure) -> None:
    first = Servers(tmp_path / "first", counts=COUNTS)
    held_ms = []
    known: list[set[str]] = []
    topic_ids: set[int] = set()
    txn_ids: list[TxnID] = []
    left_open: list[TxnID] = []

    async def load() -> None:
        await create_topics(first.address)
        transfers = Transfers(first.address, "first")
        await transfers.start()
        async with await magnetar.connect(first.address) as client:
            # Prepared in the backup, and open for as long as the servers live.
            producer = await client.create_producer(ACCOUNTS)
            txn = await client.begin_transaction(timeout_s=600)
            await producer.send(b"open 1 .", partition=0, txn=txn)
            left_open.append(txn.txn_id)
            for number in range(BACKUPS):
                await transfers.more(40)
                before = set(transfers.committed)
                contents = await back_up(first, tmp_path / f"backup{number}")
                held_ms.append(contents["held_ms"])
                known.append(before)
                await transfers.more(10)
            # What comes after the last backup is lost, and its ids are never used again.
            await client.admin.topics.create("later")
            topic_ids.add((await client.admin.topics.describe("later")).topic_id)
            txn_ids.append(await newest_txn_id(client))
            await transfers.stop()

    with first.running():
        run(load(), 240)
        first.stop()
    figure("all servers held for", f"{', '.join(map(str, held_ms))} ms")

    async def judge(servers: Servers, before: set[str]) -> None:
        async with await magnetar.connect(servers.address) as client:
            await until(lambda: settled(client), 60)
            names = await check_accounts(client)
            assert before <= set(names), "what was committed before the backup"
            assert "open" not in names
            assert (await client.admin.transactions.describe(left_open[0])).status.name == "ABORTED"
            assert await ledger_of(client) > 1_000_000
            txn_id = await newest_txn_id(client)
            assert txn_id.incarnation > max(one.incarnation for one in txn_ids)
            await client.admin.topics.create("later")
            topic_id = (await client.admin.topics.describe("later")).topic_id
            assert topic_id not in topic_ids
            topic_ids.add(topic_id)
            txn_ids.append(txn_id)
        transfers = Transfers(servers.address, f"second{len(txn_ids)}")
        await transfers.start()
        await transfers.more(20)
        await transfers.stop()
        async with await magnetar.connect(servers.address) as client:
            await until(lambda: settled(client), 60)
            await check_accounts(client)

    # The last backup twice: two lives of the same moment never give out the same.
    for life, number in enumerate((*range(BACKUPS), BACKUPS - 1)):
        servers = restored_servers(tmp_path / f"life{life}", tmp_path / f"backup{number}")
        with servers.running():
            run(judge(servers, known[number]), 120)
            servers.stop()


def test_a_backup_goes_to_an_object_store_and_back(
    tmp_path: Path, object_server: ObjectServer
) -> None:
    counts = {BROKER: 2, COORDINATOR: 1}
    first = Servers(tmp_path / "first", counts=counts)

    async def load(servers: Servers, name: str, backup: Path) -> None:
        if name == "first":
            await create_topics(servers.address)
        transfers = Transfers(servers.address, name)
        await transfers.start()
        await transfers.more(20)
        await back_up(servers, backup)
        await transfers.stop()

    with first.running():
        run(load(first, "first", tmp_path / "backup0"), 120)
        first.stop()
    url = f"s3://{BUCKET}/restored"
    environ = object_server.environment()
    second = Servers(tmp_path / "second", {"MAGNETAR_STORE": url, **environ}, counts=counts)
    magnetar_command("restore", tmp_path / "backup0", "--store", url, environ=second.environ)
    refusal = magnetar_command(
        "restore", tmp_path / "backup0", "--store", url, status=1, environ=second.environ
    )
    assert "holds a store" in refusal
    with second.running():
        run(load(second, "second", tmp_path / "backup1"), 120)
        second.stop()
    directory = tmp_path / "third"
    magnetar_command("restore", tmp_path / "backup1", "--data-dir", directory)
    (directory / "coordinator-0").rename(directory / "coordinator")
    third = Servers(directory, counts=counts)

    async def judge() -> None:
        async with await magnetar.connect(third.address) as client:
            await until(lambda: settled(client), 60)
            names = await check_accounts(client)
            assert {name.partition("-")[0] for name in names} == {"first", "second"}

    with third.running():
        run(judge(), 60)
        third.stop()


def test_what_cannot_be_done_says_so(servers: Servers, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    run(create_topics(servers.address))
    magnetar_command("--broker", servers.address, "backup", backup)
    again = magnetar_command("--broker", servers.address, "backup", backup, status=1)
    assert "exists: a backup is made in a new directory" in again
    assert "is not a backup" in magnetar_command("restore", "--verify", tmp_path, status=1)
    assert "name --data-dir or --store" in magnetar_command("restore", backup, status=1)
    target = tmp_path / "target"
    (target / "broker").mkdir(parents=True)
    (target / "broker" / "precious").touch()
    refusal = magnetar_command("restore", backup, "--data-dir", target, status=1)
    assert "is not empty" in refusal
    damaged = tmp_path / "damaged"
    shutil.copytree(backup, damaged)
    file = damaged / "broker-0.rows"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    for arguments in (["--verify"], ["--data-dir", str(tmp_path / "new")]):
        assert "is damaged" in magnetar_command("restore", damaged, *arguments, status=DAMAGED)
    assert not any((tmp_path / "new").iterdir()), "whole or not at all"
    file.write_bytes(content[:40])
    assert "is damaged" in magnetar_command("restore", damaged, "--verify", status=DAMAGED)
    contents = json.loads((damaged / "backup.json").read_text())
    for layout in ({"layout": "2026-11-01"}, {}):
        del contents["layout"]
        contents.update(layout)
        (damaged / "backup.json").write_text(json.dumps(contents))
        refusal = magnetar_command("restore", damaged, "--verify", status=1)
        assert "use the version that wrote it" in refusal
    (damaged / "backup.json").unlink()
    assert "never completed" in magnetar_command("restore", damaged, "--verify", status=1)


def test_a_backup_without_all_servers_fails_and_leaves_nothing(tmp_path: Path) -> None:
    servers = Servers(tmp_path / "servers", counts={BROKER: 1, COORDINATOR: 1})
    with servers.running():
        servers.kill(COORDINATOR)
        magnetar_command("--broker", servers.address, "backup", tmp_path / "backup", status=10)
        assert [one.name for one in tmp_path.iterdir()] == ["servers"]
        servers.start(COORDINATOR)
        magnetar_command("--broker", servers.address, "backup", tmp_path / "backup")
