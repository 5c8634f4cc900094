"""What a server that answers before it syncs leaves: stopped, killed, or with its machine.

A store has groups in a row, and was synced in their middle. A copy of the directory while it is
open is what a kill leaves. Of that, a machine that goes down keeps what was synced, and any part of
what was not, for the system writes pages back in any order.
Source: docs/design/0014-durability.md.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.storage.killing import kill

from magnetar_core.wire.record_pb2 import StoreIdentity
from magnetar_storage.data_dir import unsynced_note
from magnetar_storage.data_dir.directory_check import check_directory, check_manifest
from magnetar_storage.data_dir.store_files import (
    LOG,
    VALUES,
    current_manifest,
    log_path,
    numbered,
    values_path,
)
from magnetar_storage.data_dir.synced_mark import read_mark
from magnetar_storage.offline.accepted_loss import accept_loss
from magnetar_storage.offline.read_only import open_read_only
from magnetar_storage.rocksdb import options as rocks_options
from magnetar_storage.rocksdb.engine import RocksStore
from magnetar_storage.store import KEY_END, StoreDamaged, StoreFailed, WriteBatch
from magnetar_storage.store_identity import KEY, all_losses, ledger_of

FAMILIES = ("small", "payloads", "meta")
SYNCED_GROUPS = 60
GROUPS = 140


@pytest.fixture
def boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Gives the machine another boot id."""
    file = tmp_path / "boot_id"
    monkeypatch.setattr(unsynced_note, "BOOT_ID", file)

    def boot(boot_id: str) -> None:
        if boot_id:
            file.write_text(f"{boot_id}\n")
        else:
            file.unlink()

    boot("first")
    return boot


def opened(path: Path, *, late_syncs: bool = True) -> RocksStore:
    return RocksStore.open(path, FAMILIES, payload_families=("payloads",), late_syncs=late_syncs)


def group(number: int) -> WriteBatch:
    random = Random(number)
    batch = WriteBatch()
    batch.put("small", b"%06d" % number, random.randbytes(random.randint(1, 2_000)))
    batch.put("payloads", b"%06d" % number, random.randbytes(random.choice((100, 5_000, 40_000))))
    return batch


@dataclass(frozen=True)
class Left:
    """What a kill left.

    Attributes:
        synced: the log and the byte up to which it was synced last.
        synced_values: sizes of files of values when they were synced last, by name.
    """

    killed: Path
    stopped: Path
    synced: tuple[int, int]
    synced_values: dict[str, int]


class SyncedSizes:
    """Notes the sizes of files of values as they are synced."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.by_name: dict[str, int] = {}
        self._sync = os.fdatasync
        monkeypatch.setattr(os, "fdatasync", self)

    def __call__(self, handle: int) -> None:
        size = os.fstat(handle).st_size
        self._sync(handle)
        self.by_name[Path(f"/proc/self/fd/{handle}").readlink().name] = size


async def fill(directory: Path, synced_sizes: SyncedSizes, *, several_logs: bool) -> Left:
    path = directory / "data"
    store = opened(path)
    identity = WriteBatch()
    identity.put("meta", KEY, StoreIdentity(kind="broker", member="b").SerializeToString())
    await store.write(identity)
    for number in range(GROUPS):
        await store.write(group(number))
        if number == SYNCED_GROUPS - 1:
            await store.sync()
            mark = read_mark(str(path))
            synced = mark.log, mark.log_bytes
    kill(path, directory / "killed")
    synced_values = dict(synced_sizes.by_name)
    await store.close()
    newest = numbered(str(directory / "killed"), LOG)[-1][0]
    assert (newest > synced[0]) is several_logs
    return Left(directory / "killed", path, synced, synced_values)


@pytest.fixture(params=["one log", "several logs"])
def left(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    boot: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> Left:
    several_logs = request.param == "several logs"
    if several_logs:
        monkeypatch.setattr(rocks_options, "ROW_MEMTABLE_BYTES", 64 << 10)
    synced_sizes = SyncedSizes(monkeypatch)
    return asyncio.run(fill(tmp_path, synced_sizes, several_logs=several_logs))


async def kept(path: Path, *, late_syncs: bool = True) -> tuple[int, int, int]:
    """How many groups a store has, all before them too; its losses and its ledger id."""
    store = opened(path, late_syncs=late_syncs)
    try:
        counts = set()
        for family in ("small", "payloads"):
            rows = await store.scan(family, b"", KEY_END, rows_max=10_000)
            assert [int(key) for key, _ in rows] == list(range(len(rows))), "a prefix"
            for number, (_, value) in enumerate(rows):
                written = {name: stored for _, name, _, stored in group(number).operations}
                assert value == written[family]
            counts.add(len(rows))
        assert len(counts) == 1, "whole groups"
        return counts.pop(), await all_losses(store, "meta"), await ledger_of(store, "meta")
    finally:
        await store.close()


async def seen_at_rest(path: Path) -> tuple[bool, int]:
    """As `magnetar check` reads it: whether a tail may be lost, and the losses until now."""
    store = await open_read_only(str(path))
    try:
        row = await store.get("meta", KEY)
        return store.lost_tail, StoreIdentity.FromString(row or b"").lost_tails
    finally:
        await store.close()


# What a machine that goes down does with the logs: the unsynced part is lost whole, or partly.


def lose_all(left: Left, random: Random) -> None:
    directory = str(left.killed)
    # RocksDB has synced these by itself, when it flushed what was in them.
    closed = check_manifest(*current_manifest(directory), read_mark(directory)).listed
    for number, path in numbered(directory, LOG):
        if number == left.synced[0] and number not in closed:
            os.truncate(path, left.synced[1])
        elif number > left.synced[0] and number not in closed:
            path.unlink()


def lose_nothing(left: Left, random: Random) -> None:
    return


def _unsynced(left: Left, random: Random) -> tuple[Path, int, int]:
    """A log that nobody has closed and synced, and its unsynced part."""
    number, path = numbered(str(left.killed), LOG)[-1]
    begin = left.synced[1] if number == left.synced[0] else 0
    return path, begin, path.stat().st_size


def cut_tail(left: Left, random: Random) -> None:
    path, begin, end = _unsynced(left, random)
    os.truncate(path, random.randrange(begin, end))


def zero_tail(left: Left, random: Random) -> None:
    path, begin, end = _unsynced(left, random)
    at = random.randrange(begin, end)
    os.truncate(path, at)
    os.truncate(path, end)


def lose_a_page(left: Left, random: Random) -> None:
    """A later page was written back, and an earlier one was not."""
    path, begin, end = _unsynced(left, random)
    content = bytearray(path.read_bytes())
    at = random.randrange(begin, (begin + end) // 2)
    stop = min(at + 4_096, end)
    content[at:stop] = bytes(stop - at)
    path.write_bytes(content)


LOSSES = [lose_all, lose_nothing, cut_tail, zero_tail, lose_a_page]

# And with the values that were not synced.


def keep_values(left: Left, random: Random) -> None:
    return


def lose_values(left: Left, random: Random) -> None:
    for number, path in numbered(str(left.killed), VALUES):
        if path.name in left.synced_values:
            os.truncate(path, left.synced_values[path.name])
        else:
            assert number > 1
            path.unlink()


def lose_some_values(left: Left, random: Random) -> None:
    """Pages that were not written back are zeros, wherever they lie."""
    for _, path in numbered(str(left.killed), VALUES):
        content = bytearray(path.read_bytes())
        synced_bytes = left.synced_values.get(path.name, 0)
        for page in range(synced_bytes, len(content), 4_096):
            if random.random() < 0.1:
                content[page : page + 4_096] = bytes(len(content[page : page + 4_096]))
        path.write_bytes(content)


LOSSES_OF_VALUES = [keep_values, lose_values, lose_some_values]


@pytest.mark.parametrize("late_syncs", [True, False])
def test_after_an_orderly_stop_everything_is_there(
    left: Left, boot: Callable[[str], None], late_syncs: bool
) -> None:
    assert not unsynced_note.is_there(str(left.stopped))
    boot("second")
    assert asyncio.run(kept(left.stopped, late_syncs=late_syncs)) == (GROUPS, 0, 1)


@pytest.mark.parametrize("late_syncs", [True, False])
def test_a_kill_loses_nothing_that_was_written(left: Left, late_syncs: bool) -> None:
    assert asyncio.run(kept(left.killed, late_syncs=late_syncs)) == (GROUPS, 0, 1)


@pytest.mark.parametrize("late_syncs", [True, False])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("loss_of_values", LOSSES_OF_VALUES)
def test_a_machine_that_goes_down_takes_only_what_was_not_synced_and_that_is_counted(
    left: Left,
    boot: Callable[[str], None],
    loss: Callable[[Left, Random], None],
    loss_of_values: Callable[[Left, Random], None],
    late_syncs: bool,
) -> None:
    loss(left, Random(7))
    loss_of_values(left, Random(7))
    boot("second")
    before = {file.name: file.read_bytes() for file in left.killed.iterdir()}
    assert asyncio.run(seen_at_rest(left.killed)) == (True, 0)
    assert {file.name: file.read_bytes() for file in left.killed.iterdir()} == before
    count, losses, ledger_id = asyncio.run(kept(left.killed, late_syncs=late_syncs))
    assert SYNCED_GROUPS <= count <= GROUPS
    assert (losses, ledger_id) == (1, 2), "also where nothing is seen to be missing"
    if loss is lose_nothing and loss_of_values is keep_values:
        assert count == GROUPS
    if loss_of_values is lose_values:
        assert count < GROUPS
    # Counted once: it was stopped in order now.
    boot("third")
    assert asyncio.run(kept(left.killed)) == (count, 1, 2)


@pytest.mark.parametrize("again", ["killed", "machine lost"])
def test_a_lost_tail_is_lost_again_or_counted_once(
    left: Left, boot: Callable[[str], None], tmp_path: Path, again: str
) -> None:
    lose_all(left, Random(1))
    boot("second")
    first = 0

    async def life() -> None:
        nonlocal first
        store = opened(left.killed)
        first = len(await store.scan("small", b"", KEY_END, rows_max=10_000))
        await store.write(group(first))
        kill(left.killed, tmp_path / "again")
        await store.close()

    asyncio.run(life())
    if again == "machine lost":
        boot("third")
    count, losses, _ = asyncio.run(kept(tmp_path / "again"))
    assert count == first + 1
    assert losses == (1 if again == "killed" else 2)


def test_where_the_system_does_not_name_its_boots_each_kill_counts(
    left: Left, boot: Callable[[str], None]
) -> None:
    boot("")
    assert asyncio.run(kept(left.killed)) == (GROUPS, 1, 2)


def test_a_damaged_note_counts(left: Left) -> None:
    (left.killed / unsynced_note.FILE).write_bytes(b"\xff\x00")
    assert asyncio.run(kept(left.killed)) == (GROUPS, 1, 2)


def test_a_store_that_always_synced_counts_nothing(
    tmp_path: Path, boot: Callable[[str], None]
) -> None:
    async def fill_synced() -> None:
        store = opened(tmp_path / "data", late_syncs=False)
        batch = WriteBatch()
        batch.put("meta", KEY, StoreIdentity(kind="broker", member="b").SerializeToString())
        await store.write(batch)
        for number in range(3):
            await store.write(group(number))
        await store.sync()
        kill(tmp_path / "data", tmp_path / "killed")
        await store.close()

    asyncio.run(fill_synced())
    assert not unsynced_note.is_there(str(tmp_path / "killed"))
    boot("second")
    assert asyncio.run(kept(tmp_path / "killed")) == (3, 0, 1)


def test_after_a_failed_sync_a_kill_counts_as_a_loss(
    tmp_path: Path, boot: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system may drop pages that it could not write, and tells that once only."""

    async def life() -> None:
        store = opened(tmp_path / "data")
        batch = WriteBatch()
        batch.put("meta", KEY, StoreIdentity(kind="broker", member="b").SerializeToString())
        await store.write(batch)
        await store.write(group(0))
        await store.sync()
        await store.write(group(1))

        def fail(*_: object) -> None:
            raise OSError("the disk has gone")

        monkeypatch.setattr(store, "_sync", fail)
        with pytest.raises(StoreFailed, match="the disk has gone"):
            await store.sync()
        await store.close()

    asyncio.run(life())
    assert unsynced_note.is_there(str(tmp_path / "data"))
    assert asyncio.run(kept(tmp_path / "data")) == (2, 1, 2)


@pytest.mark.parametrize("left", ["one log"], indirect=True)
@pytest.mark.parametrize("place", ["begin", "end"])
def test_damage_of_what_was_synced_is_refused_also_after_the_machine_went_down(
    left: Left, boot: Callable[[str], None], place: str
) -> None:
    """That is no lost tail: rule b. A person may accept it."""
    number, synced_bytes = left.synced
    path = log_path(str(left.killed), number)
    if place == "begin":
        content = bytearray(path.read_bytes())
        content[100] ^= 1
        path.write_bytes(content)
    else:
        lose_all(left, Random(1))
        os.truncate(path, synced_bytes - 1)
    boot("second")
    before = {file.name: file.read_bytes() for file in left.killed.iterdir()}
    with pytest.raises(StoreDamaged, match="accept-loss"):
        opened(left.killed)
    assert {file.name: file.read_bytes() for file in left.killed.iterdir()} == before
    accept_loss(str(left.killed))
    count, losses, ledger_id = asyncio.run(kept(left.killed))
    assert count < SYNCED_GROUPS
    assert (losses, ledger_id) == (2, 3), "what was accepted, and the tail"


@pytest.mark.parametrize("left", ["one log"], indirect=True)
def test_values_that_were_synced_are_missed_also_after_the_machine_went_down(
    left: Left, boot: Callable[[str], None]
) -> None:
    mark = read_mark(str(left.killed))
    assert mark.values == 1
    lose_all(left, Random(1))
    os.truncate(values_path(str(left.killed), 1), mark.values_bytes - 1)
    boot("second")
    for _ in range(2):
        with pytest.raises(StoreDamaged, match=r"000001\.values has \d+ bytes, and had"):
            opened(left.killed)


def test_a_mark_covers_nothing_that_was_written_during_its_sync(
    tmp_path: Path, boot: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would refuse a store for good that lost what was not synced yet."""

    async def life() -> None:
        store = opened(tmp_path / "data")
        batch = WriteBatch()
        batch.put("meta", KEY, StoreIdentity(kind="broker", member="b").SerializeToString())
        await store.write(batch)
        await store.write(group(0))
        began, goes_on = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()
        inner = store._sync

        def stalled(*arguments: Any) -> None:
            loop.call_soon_threadsafe(began.set)
            asyncio.run_coroutine_threadsafe(goes_on.wait(), loop).result(30)
            inner(*arguments)

        monkeypatch.setattr(store, "_sync", stalled)
        log_file = numbered(str(tmp_path / "data"), LOG)[-1][1]
        syncing = asyncio.ensure_future(store.sync())
        await began.wait()
        synced_bytes = log_file.stat().st_size
        await store.write(group(1))
        goes_on.set()
        await syncing
        kill(tmp_path / "data", tmp_path / "killed")
        os.truncate(tmp_path / "killed" / log_file.name, synced_bytes)
        await store.close()

    asyncio.run(life())
    assert check_directory(str(tmp_path / "killed")).mark is not None
    boot("second")
    assert asyncio.run(kept(tmp_path / "killed")) == (1, 1, 2)


def test_the_note_names_the_boot(tmp_path: Path, boot: Callable[[str], None]) -> None:
    unsynced_note.leave(str(tmp_path))
    content = json.loads((tmp_path / unsynced_note.FILE).read_text())
    assert content == {"boot_id": "first"}
    assert not unsynced_note.machine_went_down(str(tmp_path))
    boot("second")
    assert unsynced_note.machine_went_down(str(tmp_path))
    unsynced_note.remove(str(tmp_path))
    unsynced_note.remove(str(tmp_path))
    assert not unsynced_note.machine_went_down(str(tmp_path))
