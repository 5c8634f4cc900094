"""Values that are missing at a start: removed as garbage, lost with the machine, or not readable.

Source: docs/design/0019-values.md.
"""

from __future__ import annotations

import asyncio
import errno
import mmap
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.storage.killing import kill
from tests.storage.value_stores import (
    LARGE,
    add,
    delete,
    files,
    key_of,
    numbers_after,
    numbers_of,
    opened,
    put,
    rest,
    run,
    value_of,
)

from magnetar_core.config import InvalidConfig
from magnetar_core.process import durable_files
from magnetar_core.wire.record_pb2 import StoreIdentity
from magnetar_storage.data_dir import synced_mark, unsynced_note
from magnetar_storage.data_dir.store_files import LOG, log_path, numbered, values_path
from magnetar_storage.offline.accepted_loss import accept_loss, lost_from
from magnetar_storage.offline.read_only import open_read_only
from magnetar_storage.rocksdb import lost_changes
from magnetar_storage.rocksdb import options as rocks_options
from magnetar_storage.rocksdb.engine import RocksStore
from magnetar_storage.store import (
    KEY_END,
    RowsUnreadable,
    StoreDamaged,
    StoreFailed,
    WriteBatch,
)
from magnetar_storage.store_identity import KEY, accepted_losses


def boot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the machine have gone down since."""
    monkeypatch.setattr(unsynced_note, "_boot_id", lambda: "another")


async def write_row(store: RocksStore, value: bytes) -> None:
    batch = WriteBatch()
    batch.put("small", b"row", value)
    await store.write(batch)


async def delete_whole_file(store: RocksStore) -> None:
    """The first file gets full, the next one begins, and no row points to the first one."""
    await store.write(add(WriteBatch(), range(16)))
    batch = WriteBatch()
    for number in range(16):
        batch.delete("payloads", key_of(number))
    await store.write(add(batch, [16]))


@pytest.mark.parametrize("late_syncs", [False, True])
def test_a_loss_of_power_finds_no_mark_that_asks_for_values_which_were_removed(
    directory: Path, monkeypatch: pytest.MonkeyPatch, late_syncs: bool
) -> None:
    """The store was refused, or with durability `os` changes were cut off that were synced."""
    left = directory.with_name("left")
    on_disk = left_on_disk = b""

    class Slots(mmap.mmap):
        def flush(self, *_: int) -> None:
            nonlocal on_disk
            super().flush()
            on_disk = self[:]

    monkeypatch.setattr(mmap, "mmap", Slots)
    monkeypatch.setattr(synced_mark, "SYNC_INTERVAL_SECONDS", 1e9)

    async def life() -> None:
        nonlocal left_on_disk
        store = opened(directory, late_syncs=late_syncs)
        await write_row(store, b"early")
        await store.sync()
        await delete_whole_file(store)
        await store.sync()
        await rest(store, writes=20)
        assert files(directory) == [2]
        await write_row(store, b"late")
        await store.sync()
        kill(directory, left)
        left_on_disk = on_disk
        await store.close()

    asyncio.run(life())
    (left / synced_mark.FILE).write_bytes(left_on_disk)
    boot(monkeypatch)

    async def check() -> None:
        store = opened(left, late_syncs=late_syncs)
        assert await store.get("small", b"row") == b"late"
        assert await numbers_of(store) == [16]
        await store.close()

    asyncio.run(check())


def test_a_kill_finds_no_mark_of_an_older_log_that_asks_for_values_which_were_removed(
    directory: Path,
) -> None:
    """Both logs had grown since the last sync, and the mark named the older one."""
    left = directory.with_name("left")

    async def life() -> None:
        store = opened(directory, late_syncs=True)
        await store.sync()
        await write_row(store, b"early")
        # As when memtables are full: another log begins.
        await store._flush([store._families["small"]])
        await delete_whole_file(store)
        for number in range(20):
            await write_row(store, b"%d" % number)
        await store.sync()
        assert files(directory) == [2]
        await write_row(store, b"late")
        kill(directory, left)
        await store.close()

    asyncio.run(life())

    async def check() -> None:
        store = opened(left, late_syncs=True)
        assert await store.get("small", b"row") == b"late"
        assert await numbers_of(store) == [16]
        await store.close()

    asyncio.run(check())


def written_and_killed(directory: Path, *, late_syncs: bool) -> Path:
    """Return what a kill leaves of a store: value 0 is synced, value 1 is not."""
    left = directory.with_name("left")

    async def life() -> None:
        store = opened(directory, late_syncs=late_syncs)
        await put(store, [0])
        await store.write(add(WriteBatch(), [1]))
        kill(directory, left)
        await store.close()

    asyncio.run(life())
    return left


async def numbers_at(path: Path, *, late_syncs: bool = False) -> list[int]:
    store = opened(path, late_syncs=late_syncs)
    try:
        return await numbers_of(store)
    finally:
        await store.close()


@pytest.mark.parametrize("late_syncs", [False, True])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOMEM, errno.EACCES])
@pytest.mark.parametrize("reboots", [False, True])
def test_a_value_that_the_disk_does_not_return_is_not_taken_for_lost(
    directory: Path, monkeypatch: pytest.MonkeyPatch, late_syncs: bool, error: int, reboots: bool
) -> None:
    """Its change was cut off, which a client may have been told is stored."""
    left = written_and_killed(directory, late_syncs=late_syncs)
    if reboots:
        boot(monkeypatch)
    before = {file.name: file.read_bytes() for file in left.iterdir()}

    def fail(*_: int) -> bytes:
        raise OSError(error, os.strerror(error))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", fail)
        with pytest.raises(StoreFailed, match="start again, and if that fails as well, check the"):
            opened(left, late_syncs=late_syncs)
        with pytest.raises(StoreFailed, match="check the disk"):
            asyncio.run(open_read_only(str(left)))
    assert {file.name: file.read_bytes() for file in left.iterdir()} == before
    assert asyncio.run(numbers_at(left, late_syncs=late_syncs)) == [0, 1]


@pytest.mark.parametrize("late_syncs", [False, True])
def test_while_the_machine_is_up_no_value_is_taken_for_one_that_was_not_synced(
    directory: Path, monkeypatch: pytest.MonkeyPatch, late_syncs: bool
) -> None:
    """A killed process loses nothing that it had written: whatever is missing is damage."""
    left = written_and_killed(directory, late_syncs=True)
    file = values_path(str(left), 1)
    os.truncate(file, file.stat().st_size - 100)
    before = {file.name: file.read_bytes() for file in left.iterdir()}
    for _ in range(2):
        with pytest.raises(StoreDamaged, match=r"whose values are missing.*accept-loss"):
            opened(left, late_syncs=late_syncs)
        with pytest.raises(StoreDamaged, match="whose values are missing"):
            asyncio.run(open_read_only(str(left)))
    assert {file.name: file.read_bytes() for file in left.iterdir()} == before
    boot(monkeypatch)
    assert asyncio.run(numbers_at(left, late_syncs=late_syncs)) == [0]


async def name_store(store: RocksStore) -> None:
    """Its identity: a loss is counted there."""
    batch = WriteBatch()
    batch.put("meta", KEY, StoreIdentity(kind="broker", member="b").SerializeToString())
    await store.write(batch)
    await store.sync()


def test_a_loss_that_a_person_accepts_takes_no_file_that_rows_in_tables_point_to(
    directory: Path,
) -> None:
    """The row that lists the file was lost, and the next start removed it with all its values."""
    left = directory.with_name("left")
    kept_bytes = 0

    async def scenario(store: RocksStore) -> None:
        nonlocal kept_bytes
        await name_store(store)
        kept_bytes = numbered(str(directory), LOG)[-1][1].stat().st_size
        await put(store, range(4))
        store._families["payloads"].flush(True)
        await write_row(store, b"late")
        await store.sync()
        kill(directory, left)

    run(directory, scenario)
    file = numbered(str(left), LOG)[0][1]
    content = bytearray(file.read_bytes())
    content[kept_bytes + 20] ^= 1
    file.write_bytes(content)
    with pytest.raises(StoreDamaged, match="accept-loss"):
        opened(left)
    accept_loss(str(left))

    async def check(store: RocksStore) -> None:
        assert files(left) == [1]
        assert await numbers_of(store) == list(range(4))
        await put(store, [4])
        assert files(left) == [1, 2]
        await delete(store, range(4))
        await rest(store)
        assert files(left) == [2], "it goes as any other file"

    run(left, check)
    run(left, numbers_after([4]))


def without(path: Path, file: int) -> None:
    values_path(str(path), file).unlink()


def cut_short(path: Path, file: int) -> None:
    """The last value of the file is gone."""
    name = values_path(str(path), file)
    os.truncate(name, name.stat().st_size - LARGE)


@pytest.mark.parametrize(
    ("damage", "file", "reason"),
    [
        (without, 1, r"000001\.values is missing, which has values of rows"),
        (without, 2, r"000002\.values is missing, which has values of rows"),
        (cut_short, 1, r"000001\.values has \d+ bytes, and had \d+"),
        (cut_short, 2, r"000002\.values has \d+ bytes, and had \d+"),
    ],
)
def test_a_person_may_accept_that_a_file_of_values_is_lost(
    directory: Path, damage: Callable[[Path, int], None], file: int, reason: str
) -> None:
    """`accept-loss` said that nothing is missing, and the store did not open."""
    left = directory.with_name("left")
    numbers = range(20)

    async def scenario(store: RocksStore) -> None:
        await name_store(store)
        await put(store, range(16))
        await put(store, range(16, 20))
        assert files(directory) == [1, 2]
        kill(directory, left)

    run(directory, scenario)
    damage(left, file)
    for _ in range(2):
        with pytest.raises(StoreDamaged, match=f"{reason}.*put back.*accept-loss {left}"):
            opened(left)
    found = lost_from(str(left))
    assert found is not None
    assert re.fullmatch(reason, found)
    assert accept_loss(str(left)) is None
    assert lost_from(str(left)) is None
    of_file = range(16) if file == 1 else range(16, 20)
    lost = [*of_file] if damage is without else [of_file[-1]]

    async def check(store: RocksStore) -> None:
        assert await accepted_losses(store, "meta") == 1
        await put(store, range(20, 24))
        for number in (*numbers, *range(20, 24)):
            if number in lost:
                with pytest.raises(RowsUnreadable):
                    await store.get("payloads", key_of(number))
            else:
                assert await store.get("payloads", key_of(number)) == value_of(number)

    run(left, check)
    run(left, check)


def test_after_a_loss_that_a_person_accepts_no_whole_file_grows(directory: Path) -> None:
    """The list kept its size, and behind the next restart its new values were written over."""
    torn, left = directory.with_name("torn"), directory.with_name("left")

    async def first_life(store: RocksStore) -> None:
        await name_store(store)
        await put(store, range(3))
        kill(directory, torn)

    run(directory, first_life)
    with values_path(str(torn), 1).open("ab") as file:
        file.write(b"a part of a head")

    async def second_life(store: RocksStore) -> None:
        await put(store, [3])
        await write_row(store, b"late")
        await store.sync()
        kill(torn, left)

    run(torn, second_life)
    assert files(left) == [1, 2]
    values_path(str(left), 2).unlink()
    log_file = numbered(str(left), LOG)[-1][1]
    os.truncate(log_file, log_file.stat().st_size - 5)
    accept_loss(str(left))

    async def put_more(store: RocksStore) -> None:
        await put(store, [10])

    async def check(store: RocksStore) -> None:
        await put(store, [11])
        for number in (0, 1, 2, 10, 11):
            assert await store.get("payloads", key_of(number)) == value_of(number)

    run(left, put_more)
    run(left, check)


def test_values_are_synced_before_lost_changes_are_counted(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The count replays the logs into tables: a second loss of power left rows without values."""
    left = written_and_killed(directory, late_syncs=True)
    boot(monkeypatch)
    steps: list[str] = []
    sync, options = durable_files.sync, rocks_options.database_options

    def synced(path: Path) -> None:
        steps.append(path.name)
        sync(path)

    def replaying(**named: Any) -> Any:
        steps.append("replay")
        return options(**named)

    with monkeypatch.context() as patch:
        patch.setattr(durable_files, "sync", synced)
        patch.setattr("magnetar_storage.rocksdb.lost_changes.database_options", replaying)
        lost_changes.give_up_tail(str(left))
    assert "000001.values" in steps[: steps.index("replay")]
    assert asyncio.run(numbers_at(left)) == [0, 1]


def test_a_check_of_a_store_that_lost_a_file_with_its_machine_says_to_start_it(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was called damaged, although a start makes it whole."""
    left = directory.with_name("left")

    async def life() -> None:
        store = opened(directory, late_syncs=True)
        await put(store, range(16))
        await store.write(add(WriteBatch(), [16]))
        kill(directory, left)
        await store.close()

    asyncio.run(life())
    values_path(str(left), 2).unlink()
    boot(monkeypatch)
    before = {file.name: file.read_bytes() for file in left.iterdir()}
    with pytest.raises(InvalidConfig, match="start its server once, which gives up what was not"):
        asyncio.run(open_read_only(str(left)))
    assert {file.name: file.read_bytes() for file in left.iterdir()} == before
    assert asyncio.run(numbers_at(left, late_syncs=True)) == list(range(16))
    assert asyncio.run(seen_at_rest(left)) == list(range(16))


async def seen_at_rest(path: Path) -> list[int]:
    store = await open_read_only(str(path))
    try:
        return [int(key) for key, _ in await store.scan("payloads", b"", KEY_END, rows_max=100)]
    finally:
        await store.close()


def test_a_check_says_that_synced_values_are_damaged_also_after_the_machine_went_down(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No start would mend that."""
    left = written_and_killed(directory, late_syncs=True)
    os.truncate(values_path(str(left), 1), LARGE // 2)
    mark = synced_mark.read_mark(str(left))
    os.truncate(log_path(str(left), mark.log), mark.log_bytes)
    boot(monkeypatch)
    for opening in (opened, lambda path: asyncio.run(open_read_only(str(path)))):
        with pytest.raises(StoreDamaged, match=r"000001\.values has \d+ bytes, and had"):
            opening(left)
