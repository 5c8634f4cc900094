"""`magnetar check` on directories of servers that were killed under load, and on damaged ones."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests import fork_server
from tests.json_output import read_json
from tests.object_server import BUCKET, ObjectServer
from tests.system.conftest import Figure
from tests.system.processes import BROKER, COORDINATOR, MAGNETAR, Servers
from tests.system.programs import run
from tests.system.transfers import TransfersProcess, create_topics

import magnetar
from magnetar import Client
from magnetar_broker import keys
from magnetar_broker.log.entries import MarkerEntry, parse_entry
from magnetar_broker.transactions import index_rows
from magnetar_broker.transactions.transaction_index import (
    EndedTransaction,
    OpenTransaction,
    Outcome,
    Writer,
)
from magnetar_coordinator.metadata import records
from magnetar_coordinator.metadata.transaction import TxnStatus
from magnetar_coordinator.metadata.transaction_rows import decode_outcome, encode_outcome
from magnetar_core.wire import record_pb2 as pb
from magnetar_storage import store_identity
from magnetar_storage.rocksdb.engine import RocksStore
from magnetar_storage.store import KEY_END, WriteBatch

# The directories are filled once.
pytestmark = pytest.mark.xdist_group("check")

COUNTS = {BROKER: 2, COORDINATOR: 2}
ROUNDS = 2
ROUNDS_LONG = 60
DAMAGED = 16
DIRECTORIES = ("broker", "broker-1", "coordinator", "coordinator-1")


def checked(*places: Path | str, status: int = 0, environ: dict[str, str] | None = None) -> Any:
    done = fork_server.run("check", *map(str, places), "--json", environ=environ, timeout_s=120)
    assert done.returncode == status, done.stdout + done.stderr
    return read_json("check", done.stdout) if done.stdout else done.stderr.decode()


async def leave_a_transaction_open(client: Client) -> None:
    """One with a message and an ack."""
    await client.admin.topics.create("pending")
    producer = await client.create_producer("pending")
    consumer = await client.subscribe("pending", "nobody", initial_position="earliest")
    await producer.send(b"order")
    txn = await client.begin_transaction(timeout_s=600)
    await producer.send(b"invoice", txn=txn)
    await consumer.ack(await consumer.receive(30), txn=txn)


def kill_under_load(servers: Servers, name: str, count: int, *, new: bool) -> None:
    """Transfers until so many are committed; then everybody is killed."""

    async def wait_and_kill() -> None:
        async with await magnetar.connect(servers.address) as client:
            if new:
                await leave_a_transaction_open(client)
            await asyncio.to_thread(transfers.more, count)
            servers.kill()

    if new:
        run(create_topics(servers.address))
    transfers = TransfersProcess(servers.address, name)
    try:
        run(wait_and_kill())
    finally:
        transfers.kill()


def rounds(tmp_path: Path, figure: Figure, count: int) -> None:
    servers = Servers(tmp_path / "servers", counts=COUNTS)
    rows = 0
    try:
        for number in range(count):
            servers.start()
            kill_under_load(servers, f"round{number}", 50 + 37 * (number % 5), new=not number)
            report = checked(tmp_path / "servers")
            assert report["whole"]
            assert [one["server"] for one in report["stores"]] == [
                *("broker-0", "broker-1", "coordinator-0", "coordinator-1")
            ]
            assert report["missing"] == []
            rows = sum(one["row_count"] for one in report["stores"])
    finally:
        servers.end()
    figure("rows checked in the last round", f"{rows:,}")


def test_servers_killed_under_load_are_whole(tmp_path: Path, figure: Figure) -> None:
    rounds(tmp_path, figure, ROUNDS)


@pytest.mark.soak
def test_servers_killed_under_load_are_whole_for_long(tmp_path: Path, figure: Figure) -> None:
    rounds(tmp_path, figure, ROUNDS_LONG)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directories of servers with finished and open transactions, killed under load."""
    directory = tmp_path_factory.mktemp("killed") / "servers"
    servers = Servers(directory, counts=COUNTS)
    with servers.running():
        kill_under_load(servers, "transfer", 120, new=True)
    return directory


Change = Callable[[Path], None]
FAMILIES = {
    "broker": (keys.FAMILIES, keys.PAYLOAD_FAMILIES),
    "coordinator": (records.FAMILIES, ()),
}


def changed(
    path: Path, change: Callable[[dict[str, dict[bytes, bytes]], WriteBatch], None]
) -> None:
    """Change rows behind the server's back; change() gets all rows and fills a batch."""

    async def work() -> None:
        families, payloads = FAMILIES[path.name.partition("-")[0]]
        store = RocksStore.open(path, families, payload_families=payloads)
        try:
            rows = {
                family: dict(await store.scan(family, b"", KEY_END, rows_max=1_000_000))
                for family in families
            }
            batch = WriteBatch()
            change(rows, batch)
            assert batch.operations, "there is nothing to damage"
            await store.write(batch)
            await store.sync()
        finally:
            await store.close()

    asyncio.run(work())


def a_marker(rows: dict[str, dict[bytes, bytes]]) -> tuple[bytes, MarkerEntry]:
    for key, value in rows[keys.LOG].items():
        entry = parse_entry(keys.last_u64(key), value)
        if isinstance(entry, MarkerEntry):
            return key, entry
    raise AssertionError("no transaction was committed")


def remove_marker(directory: Path) -> None:
    changed(directory / "broker", lambda rows, batch: batch.delete(keys.LOG, a_marker(rows)[0]))


def remove_sidecar_row(directory: Path) -> None:
    def change(rows: dict[str, dict[bytes, bytes]], batch: WriteBatch) -> None:
        key, marker = a_marker(rows)
        txn_id = marker.txn_id.to_bytes()
        (row,) = [one for one in rows[keys.TXNLOG] if one.startswith(key[:12] + txn_id)]
        batch.delete(keys.TXNLOG, row)

    changed(directory / "broker", change)


def open_ones(rows: dict[str, dict[bytes, bytes]]) -> list[bytes]:
    """Keys of partitions' index rows whose transactions are open."""
    return [
        key
        for key, value in rows[keys.TXNINDEX].items()
        if len(key) == 36
        and not int.from_bytes(key[28:36], "big")
        and isinstance(index_rows.parse(value), index_rows.OpenRow)
    ]


def remove_index_entry(directory: Path) -> None:
    def change(rows: dict[str, dict[bytes, bytes]], batch: WriteBatch) -> None:
        key = open_ones(rows)[0]
        for one in rows[keys.TXNINDEX]:
            if one.startswith(key):
                batch.delete(keys.TXNINDEX, one)

    for name in ("broker", "broker-1"):
        try:
            changed(directory / name, change)
        except IndexError:
            continue
        return
    raise AssertionError("no transaction was open")


def add_index_entry(directory: Path) -> None:
    def change(rows: dict[str, dict[bytes, bytes]], batch: WriteBatch) -> None:
        key, marker = a_marker(rows)
        extra = marker.txn_id[0].to_bytes(8, "big") + (1 << 40).to_bytes(8, "big")
        ended = EndedTransaction(Outcome.COMMITTED)
        index_rows.put_ended(batch, extra + key[:12] + bytes(8), ended, None, marker_entry_id=1)

    changed(directory / "broker", change)


def move_cursor_beyond_the_end(directory: Path) -> None:
    def change(rows: dict[str, dict[bytes, bytes]], batch: WriteBatch) -> None:
        key = next(iter(rows[keys.CURSORS]))
        batch.put(keys.CURSORS, key[:-8] + (99).to_bytes(8, "big"), b"\xff" * 512)

    changed(directory / "broker", change)


def remove_pending_ack(directory: Path) -> None:
    def change(rows: dict[str, dict[bytes, bytes]], batch: WriteBatch) -> None:
        for key in rows[keys.PENDINGACKS]:
            batch.delete(keys.PENDINGACKS, key)

    for name in ("broker", "broker-1"):
        try:
            changed(directory / name, change)
        except AssertionError:
            continue
        return
    raise AssertionError("no ack was pending")


def lose_outcome(directory: Path) -> None:
    def change(rows: dict[str, dict[bytes, bytes]], batch: WriteBatch) -> None:
        batch.delete(records.OUTCOMES, next(reversed(rows[records.OUTCOMES])))

    changed(directory / "coordinator", change)


def turn_outcome_around(directory: Path) -> None:
    """A decision is another one than brokers heard: only a comparison of servers finds it."""

    def change(rows: dict[str, dict[bytes, bytes]], batch: WriteBatch) -> None:
        for key, value in rows[records.OUTCOMES].items():
            outcome = decode_outcome(records.txn_id_of_key(key), value)
            if outcome.status is TxnStatus.COMMITTED:
                aborted = outcome._replace(status=TxnStatus.ABORTED)
                batch.put(records.OUTCOMES, key, encode_outcome(aborted))

    changed(directory / "coordinator", change)


def reopen_transaction(directory: Path) -> None:
    """A partition forgets that it has committed, marker and all, at the end of its log."""

    def change(rows: dict[str, dict[bytes, bytes]], batch: WriteBatch) -> None:
        last: dict[bytes, bytes] = {}
        for key in rows[keys.LOG]:
            last[key[:12]] = key
        for place, key in last.items():
            value = rows[keys.LOG][key]
            marker = parse_entry(keys.last_u64(key), value)
            if not isinstance(marker, MarkerEntry):
                continue
            index = marker.txn_id.to_bytes() + place + bytes(8)
            partition = pb.PartitionRow.FromString(rows[keys.PARTITIONS][place])
            partition.end_offset = keys.last_u64(key)
            batch.delete(keys.LOG, key)
            batch.put(keys.PARTITIONS, place, partition.SerializeToString())
            opened = OpenTransaction(marker.txn_id, 0)
            for one in marker.writers:
                writer = Writer(one.ordinal, one.producer_id, one.count)
                index_rows.put_written(batch, index, opened, writer)

    for name in ("broker", "broker-1"):
        changed(directory / name, change)


def garble(family: str) -> Change:
    """A row of a family is stored, and means nothing."""

    def change(rows: dict[str, dict[bytes, bytes]], batch: WriteBatch) -> None:
        key = store_identity.KEY if family == keys.META else next(iter(rows[family]))
        batch.put(family, key, b"\xff")

    return lambda directory: changed(directory / "broker", change)


def flip_byte_of(pattern: str, *, step: int | None = None) -> Change:
    """Flip a byte of the largest file, or one in so many: a single one may lie in garbage."""

    def flip(directory: Path) -> None:
        path = directory / "broker"

        async def settle() -> None:
            """An orderly end moves rows from the log to tables."""
            await RocksStore.open(
                path, keys.FAMILIES, payload_families=(keys.LOG, keys.TXNLOG)
            ).close()

        asyncio.run(settle())
        file = max(path.glob(pattern), key=lambda one: one.stat().st_size)
        content = bytearray(file.read_bytes())
        for at in range(len(content) // 3, len(content), step or len(content)):
            content[at] ^= 0x40
        file.write_bytes(content)

    return flip


def cut_log(directory: Path) -> None:
    path = directory / "broker-1"
    file = max(path.glob("*.log"), key=lambda one: one.name)
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (flip_byte_of("*.sst"), "unreadable"),
        (flip_byte_of("*.values", step=1_000), "unreadable"),
        (cut_log, "files"),
        (remove_marker, "log-dense"),
        (remove_sidecar_row, "sidecar"),
        (remove_index_entry, "index"),
        (add_index_entry, "marker"),
        (move_cursor_beyond_the_end, "cursor"),
        (remove_pending_ack, "pending-ack"),
        (garble(keys.PRODUCERS), "unparsed"),
        (garble(keys.META), "identity"),
        (lose_outcome, "outcome"),
        (turn_outcome_around, "decision"),
        (reopen_transaction, "decision"),
    ],
    ids=[
        *(
            "table",
            "values",
            "log-file",
            "marker",
            "sidecar-row",
            "index-entry",
            "extra-index-entry",
        ),
        *("cursor", "pending-ack", "producer", "identity", "outcome", "decision", "reopened"),
    ],
)
def test_damage_is_found(killed: Path, tmp_path: Path, damage: Change, found: str) -> None:
    directory = tmp_path / "servers"
    shutil.copytree(killed, directory, ignore=shutil.ignore_patterns("LOCK"))
    damage(directory)
    report = checked(directory, status=DAMAGED)
    every = [
        finding
        for findings in (report["between"], *(one["findings"] for one in report["stores"]))
        for finding in findings
    ]
    assert found in {one["check"] for one in every if one["is_damage"]}, every
    assert not report["whole"]


def test_the_table_says_what_is_wrong(killed: Path, tmp_path: Path) -> None:
    directory = tmp_path / "servers"
    shutil.copytree(killed, directory, ignore=shutil.ignore_patterns("LOCK"))
    whole = subprocess.run(
        [*MAGNETAR, "check", str(directory)], capture_output=True, text=True, check=False
    )
    assert whole.returncode == 0, whole.stdout
    assert whole.stdout.splitlines()[-1] == "everything is whole"
    one = subprocess.run(
        [*MAGNETAR, "check", str(directory / "broker")], capture_output=True, text=True, check=False
    )
    assert "not compared with broker-1" in one.stdout
    remove_marker(directory)
    damaged = subprocess.run(
        [*MAGNETAR, "check", str(directory)], capture_output=True, text=True, check=False
    )
    assert damaged.returncode == DAMAGED
    assert "entries are missing from the log" in damaged.stdout
    assert "docs/check.md" in damaged.stdout.splitlines()[-1]


def test_a_check_changes_nothing(killed: Path, tmp_path: Path) -> None:
    directory = tmp_path / "servers"
    shutil.copytree(killed, directory, ignore=shutil.ignore_patterns("LOCK"))
    before = {one: one.read_bytes() for one in directory.rglob("*") if one.is_file()}
    checked(directory)
    after = {one: one.read_bytes() for one in directory.rglob("*") if one.is_file()}
    assert after == before


def test_a_running_server_is_refused(servers: Servers, tmp_path: Path) -> None:
    if not (tmp_path / "broker").exists():
        pytest.skip("its rows are in an object store")
    refusal = checked(tmp_path / "broker", status=1)
    assert "another process uses this data directory" in refusal


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    assert "has no store" in checked(tmp_path, status=1)
    assert "is not a directory" in checked(tmp_path / "nothing", status=1)
    assert "has no store" in checked(f"file://{tmp_path}", status=1)


def test_stores_in_an_object_store_are_checked(tmp_path: Path, object_server: ObjectServer) -> None:
    url = f"s3://{BUCKET}/checked"
    environ = object_server.environment()
    servers = Servers(tmp_path / "servers", {"MAGNETAR_STORE": url, **environ}, counts=COUNTS)
    with servers.running():
        kill_under_load(servers, "transfer", 40, new=True)
    report = checked(url, environ=servers.environ)
    assert report["whole"]
    assert [one["kind"] for one in report["stores"]] == [BROKER, BROKER, COORDINATOR, COORDINATOR]
    assert all(one["row_count"] and one["may_have_owner"] for one in report["stores"])
    # Nobody was fenced: the servers go on as the owners that they were.
    again = checked(f"{url}/brokers/broker-0", environ=servers.environ)
    assert again["whole"]
    assert again["missing"] == ["broker-1"]
