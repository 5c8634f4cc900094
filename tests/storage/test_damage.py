"""Damaged files: what was synced is given, or refused, or said to be unreadable; never silence.

A store is filled by groups that are each synced, and its directory copied while it is open: that is
what a kill leaves. Then the copy is damaged in one place, and opened.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random

import pytest

from magnetar_core.config import InvalidConfig
from magnetar_core.wire.record_pb2 import StoreIdentity
from magnetar_storage.data_dir import value_files
from magnetar_storage.data_dir.log_format import walk
from magnetar_storage.data_dir.store_files import LOG, numbered
from magnetar_storage.offline.accepted_loss import accept_loss, lost_from
from magnetar_storage.rocksdb import options as rocks_options
from magnetar_storage.rocksdb.engine import RocksStore
from magnetar_storage.store import KEY_END, RowsUnreadable, StoreDamaged, StoreFailed, WriteBatch
from magnetar_storage.store_identity import KEY, accepted_losses
from magnetar_storage.store_stamp import STAMP

FAMILIES = ("small", "payloads", "idle", "meta")
GROUPS = 300
Rows = dict[tuple[str, bytes], bytes]


def opened(path: Path) -> RocksStore:
    return RocksStore.open(path, FAMILIES, payload_families=("payloads",))


def group(random: Random, number: int) -> WriteBatch:
    batch = WriteBatch()
    for place in range(random.randint(1, 20)):
        key = b"%06d/%02d" % (number, place)
        batch.put("small", key, random.randbytes(random.randint(1, 200)))
    batch.put("payloads", b"%06d" % number, random.randbytes(random.choice((100, 5_000, 40_000))))
    if number == 3:
        # Never flushed by itself: it keeps the oldest log in use.
        batch.put("idle", b"row", b"value")
    return batch


async def fill(path: Path, left: Path, *, unsynced: WriteBatch | None = None) -> Rows:
    """Fill a store, and leave in `left` what a kill would; returns what was acknowledged."""
    random = Random(7)
    store = opened(path)
    rows: Rows = {}
    for number in range(GROUPS):
        batch = group(random, number)
        await store.write(batch)
        await store.sync()
        rows |= {(family, key): value for _, family, key, value in batch.operations}
    if unsynced is not None:
        await store.write(unsynced)
    shutil.copytree(path, left, ignore=shutil.ignore_patterns("LOCK"))
    await store.close()
    return rows


async def read(path: Path) -> tuple[Rows, set[tuple[str, bytes]]]:
    """What a store gives, and the keys from which it refuses to."""
    store = opened(path)
    rows: Rows = {}
    unreadable: set[tuple[str, bytes]] = set()
    for family in FAMILIES:
        start = b""
        while start < KEY_END:
            try:
                found = await store.scan(family, start, KEY_END, rows_max=100)
                start = found[-1][0] + b"\x00" if found else KEY_END
            except RowsUnreadable as error:
                found = list(error.rows)
                start = found[-1][0] + b"\x00" if found else start
                unreadable.add((family, start))
                start += b"\x01"
                if len(unreadable) > 1_000:
                    start = KEY_END
            rows |= {(family, key): value for key, value in found}
    # It goes on.
    await store.write(group(Random(1), GROUPS))
    await store.sync()
    await store.close()
    return rows, unreadable


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Rows]]:
    """What a kill leaves of a store with several logs, tables and files of values."""
    directory = tmp_path_factory.mktemp("killed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rocks_options, "ROW_MEMTABLE_BYTES", 64 << 10)
        patch.setattr(value_files, "FILE_BYTES", 1 << 20)
        rows = asyncio.run(fill(directory / "data", directory / "left"))
        assert len(numbered(str(directory / "left"), LOG)) > 2
        yield directory / "left", rows


def damaged(killed: Path, tmp_path: Path, damage: Callable[[Path], None]) -> Path:
    path = tmp_path / "damaged"
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(killed, path)
    damage(path)
    return path


def flip(file: Path, at: int, bit: int = 0) -> None:
    content = bytearray(file.read_bytes())
    content[at] ^= 1 << bit
    file.write_bytes(content)


def flip_in(name: str, at: int, path: Path, *, bit: int = 0) -> None:
    flip(path / name, at, bit)


def cut_in(name: str, kept: int, path: Path) -> None:
    os.truncate(path / name, kept)


def remove_in(name: str, path: Path) -> None:
    (path / name).unlink()


def _files(path: Path) -> dict[str, tuple[int, int, int]]:
    """Whatever is written gets another time, or another file gets its name."""
    found = {file.name: file.stat() for file in path.iterdir()}
    return {name: (one.st_ino, one.st_size, one.st_mtime_ns) for name, one in found.items()}


def is_whole(path: Path, rows: Rows) -> bool:
    """Whether a damaged store gives everything; it may also refuse, or say what it cannot read."""
    for file in path.iterdir():
        os.utime(file, (0, 0))
    before = _files(path)
    try:
        found, unreadable = asyncio.run(read(path))
    except StoreDamaged as error:
        refusal, may_be_accepted = str(error), error.may_be_accepted
    else:
        refusal, may_be_accepted = "", False
    if refusal:
        assert "put back the file" in refusal
        # Where only the newest changes are missing, what came before them is whole.
        assert ("magnetar storage accept-loss" in refusal) is may_be_accepted
        assert "cannot open" in refusal or _files(path) == before, "a refusal changes nothing"
        return False
    assert found.items() <= rows.items(), "nothing is made up"
    if found == rows:
        return True
    assert unreadable, f"{len(rows) - len(found)} rows are missing without a word"
    return False


def test_what_a_kill_leaves_opens_whole(killed: tuple[Path, Rows], tmp_path: Path) -> None:
    left, rows = killed
    assert is_whole(damaged(left, tmp_path, lambda _: None), rows)


@pytest.mark.parametrize("seed", range(60))
def test_one_flipped_bit_is_never_silent(
    killed: tuple[Path, Rows], tmp_path: Path, seed: int
) -> None:
    left, rows = killed
    random = Random(seed)
    kind = ("*.log", "MANIFEST-*", "*.sst", "*.values", "[!M]*[!ts]")[seed % 5]
    files = sorted(file for file in left.glob(kind) if file.stat().st_size)
    file = random.choice(files)
    at, bit = random.randrange(file.stat().st_size), random.randrange(8)
    is_whole(damaged(left, tmp_path, partial(flip_in, file.name, at, bit=bit)), rows)


def test_a_log_that_is_flipped_anywhere_is_refused(
    killed: tuple[Path, Rows], tmp_path: Path
) -> None:
    """Up to its last byte: that was synced too, so it is no torn tail."""
    left, rows = killed
    for _, log in numbered(str(left), LOG):
        size = log.stat().st_size
        for at in [*range(0, size, max(1, size // 10)), *range(max(0, size - 3), size)]:
            path = damaged(left, tmp_path, partial(flip_in, log.name, at))
            assert not is_whole(path, rows), f"{log.name} flipped at {at}"


def test_a_file_that_is_missing_is_noticed(killed: tuple[Path, Rows], tmp_path: Path) -> None:
    left, rows = killed
    for file in sorted(left.iterdir()):
        needed = file.suffix in {".log", ".sst", ".values"} or file.name.startswith(
            ("MANIFEST", "CURRENT", "SYNCED")
        )
        path = damaged(left, tmp_path, partial(remove_in, file.name))
        if file.name == STAMP:
            with pytest.raises(InvalidConfig, match="the file was lost and has to be put back"):
                opened(path)
        else:
            assert is_whole(path, rows) is not needed, file.name


def test_a_log_that_is_cut_short_is_refused(killed: tuple[Path, Rows], tmp_path: Path) -> None:
    left, rows = killed
    for _, log in numbered(str(left), LOG):
        size = log.stat().st_size
        for kept in (0, 1, size // 2, size - 1):
            path = damaged(left, tmp_path, partial(cut_in, log.name, kept))
            assert not is_whole(path, rows), f"{log.name} cut at {kept}"


def test_a_manifest_that_lost_its_end_is_refused(killed: tuple[Path, Rows], tmp_path: Path) -> None:
    """Tables that it added last would be taken for leftovers, and removed."""
    left, rows = killed
    # As an orderly end leaves it too: no log is left that could make up for it.
    closed = damaged(left, tmp_path, lambda path: asyncio.run(close(path)))
    closed = closed.rename(tmp_path / "closed")
    for source in (left, closed):
        manifest = next(source.glob("MANIFEST-*"))
        size = manifest.stat().st_size
        for at in range(size - 200, size, 5):
            path = damaged(source, tmp_path, partial(flip_in, manifest.name, at, bit=3))
            assert not is_whole(path, rows), f"flipped at {at}"
            path = damaged(source, tmp_path, partial(cut_in, manifest.name, at))
            assert not is_whole(path, rows), f"cut at {at}"


async def close(path: Path) -> None:
    store = opened(path)
    await store.sync()
    await store.close()


def test_without_a_mark_damage_of_a_log_is_found_all_the_same(
    killed: tuple[Path, Rows], tmp_path: Path
) -> None:
    """The logs are held against themselves: what is accepted as lost is cut off there.

    A damaged length leads nowhere; within the last block it was taken for a torn tail. Of the last
    record that cannot be told.
    """
    left, _ = killed

    def forget(path: Path) -> None:
        (path / "SYNCED").unlink()

    missing = lost_from(str(damaged(left, tmp_path, forget)))
    assert missing == "the file SYNCED is missing, which says what was synced"
    for _, log in numbered(str(left), LOG):
        starts = walk(log.read_bytes()).starts
        places = range(100, starts[-1], max(1, starts[-1] // 10))
        lengths = [start + 5 for start in starts[:-1:8]]
        for at in (*places, *lengths):

            def damage(path: Path, log: Path = log, at: int = at) -> None:
                forget(path)
                flip(path / log.name, at)

            found = lost_from(str(damaged(left, tmp_path, damage)))
            assert found is not None
            assert log.name in found, f"{log.name} at {at}: {found}"


@pytest.mark.parametrize("zeros", [False, True])
def test_a_torn_tail_is_what_a_loss_of_power_leaves(tmp_path: Path, zeros: bool) -> None:
    """The last group was written and not synced: any part of it may be there, or none."""
    batch = WriteBatch()
    for number in range(40):
        batch.put("small", b"torn/%02d" % number, bytes([number]) * 3_000)
    rows = asyncio.run(fill(tmp_path / "data", tmp_path / "left", unsynced=batch))
    log = numbered(str(tmp_path / "left"), LOG)[-1][1]
    content = log.read_bytes()
    synced = content.index(b"torn/00") - 40
    size = len(content)
    for kept in [synced + 60, size - 1, *range(synced + 1_000, size, (size - synced) // 12)]:
        path = tmp_path / "torn"
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(tmp_path / "left", path)
        tail = bytes(size - kept) if zeros else b""
        (path / log.name).write_bytes(content[:kept] + tail)
        assert is_whole(path, rows), f"cut at {kept}"
        # And once more: what was recovered is whole.
        asyncio.run(read(path))


def test_pages_of_the_last_group_may_reach_the_disk_in_any_order(tmp_path: Path) -> None:
    """Only its beginning is missing: what follows there is of the same group."""
    batch = WriteBatch()
    for number in range(40):
        batch.put("small", b"torn/%02d" % number, bytes([number]) * 3_000)
    rows = asyncio.run(fill(tmp_path / "data", tmp_path / "left", unsynced=batch))
    log = numbered(str(tmp_path / "left"), LOG)[-1][1]
    content = bytearray(log.read_bytes())
    begin = content.index(b"torn/00")
    content[begin : begin + 4_096] = bytes(4_096)
    log.write_bytes(content)
    assert is_whole(tmp_path / "left", rows)


def test_a_damaged_block_stops_neither_writes_nor_the_process(tmp_path: Path) -> None:
    """RocksDB by itself refuses every write once a compaction has met such a block."""

    async def scenario() -> None:
        path = tmp_path / "data"
        random = Random(3)
        store = opened(path)
        batch = WriteBatch()
        for number in range(9_000):
            batch.put("small", b"%06d" % number, random.randbytes(100))
        await store.write(batch)
        await store.close()
        table = max(path.glob("*.sst"), key=lambda file: file.stat().st_size)
        flip(table, table.stat().st_size // 2)
        store = opened(path)
        rows = store._families["small"]
        for _ in range(6):
            await store.write(batch)
            await store.sync()
            rows.flush()
            rows.compact_range(None, None)
        store._background._next_look = 0.0
        await store.sync()
        assert store._background.error_count > 0
        assert store._background._resting_until is not None
        await store.write(batch)
        await store.sync()
        await store.close()

    asyncio.run(scenario())


def test_the_last_group_counts_even_after_a_second_failure(tmp_path: Path) -> None:
    """What was refused once is refused again: a refusal is no repair."""

    async def scenario() -> None:
        await fill(tmp_path / "data", tmp_path / "left")

    asyncio.run(scenario())
    log = numbered(str(tmp_path / "left"), LOG)[-1][1]
    flip(log, log.stat().st_size // 2)
    for _ in range(2):
        with pytest.raises(StoreFailed, match="is damaged at byte"):
            opened(tmp_path / "left")


def accepted(path: Path) -> Path:
    """Go on without what is missing."""
    with pytest.raises(StoreDamaged, match="magnetar storage accept-loss"):
        opened(path)
    assert lost_from(str(path)) is not None
    kept = accept_loss(str(path))
    assert lost_from(str(path)) is None
    assert kept is not None
    return kept


@pytest.mark.parametrize("seed", range(12))
def test_what_is_accepted_is_a_loss_from_one_moment_on(
    killed: tuple[Path, Rows], tmp_path: Path, seed: int
) -> None:
    """Every group before it is there, in all families, and none behind it."""
    left, rows = killed
    random = Random(seed)
    log = random.choice([path for _, path in numbered(str(left), LOG) if path.stat().st_size])
    size = log.stat().st_size

    def damage(path: Path) -> None:
        if seed % 3 == 0:
            (path / log.name).unlink()
        elif seed % 3 == 1:
            flip(path / log.name, random.randrange(size))
        else:
            os.truncate(path / log.name, random.randrange(size))

    path = damaged(left, tmp_path, damage)
    before = {file.name: file.read_bytes() for file in path.glob("*.log")}
    kept = accepted(path)
    assert {file.name: file.read_bytes() for file in kept.glob("*.log")} == before
    found, unreadable = asyncio.run(read(path))
    assert not unreadable
    groups = [
        {place: rows[place] for place in rows if number_of(place) == number}
        for number in range(GROUPS)
    ]
    present = [group.items() <= found.items() for group in groups]
    count = present.index(False) if False in present else GROUPS
    assert count < GROUPS, "something was lost"
    # RocksDB had flushed some tables ahead of others: what those hold cannot be taken back.
    for group in groups[:count]:
        assert group.items() <= found.items()
    # And it is not refused again.
    asyncio.run(read(path))


def number_of(place: tuple[str, bytes]) -> int:
    """Of the group that wrote a row."""
    return 3 if place[0] == "idle" else int(place[1][:6])


def test_a_loss_is_counted_in_the_identity(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = RocksStore.open(tmp_path / "data", ("meta",))
        batch = WriteBatch()
        identity = StoreIdentity(format=1, kind="broker", member="broker-0")
        batch.put("meta", KEY, identity.SerializeToString())
        await store.write(batch)
        await store.sync()
        batch = WriteBatch()
        batch.put("meta", b"lost", b"")
        await store.write(batch)
        await store.sync()
        shutil.copytree(tmp_path / "data", tmp_path / "left")
        await store.close()
        log = numbered(str(tmp_path / "left"), LOG)[-1][1]
        os.truncate(log, log.stat().st_size - 1)
        with pytest.raises(StoreDamaged):
            RocksStore.open(tmp_path / "left", ("meta",))
        accept_loss(str(tmp_path / "left"))
        store = RocksStore.open(tmp_path / "left", ("meta",))
        assert await accepted_losses(store, "meta") == 1
        assert await store.get("meta", b"lost") is None
        await store.close()

    asyncio.run(scenario())


def test_what_is_no_loss_of_the_newest_changes_is_not_accepted(
    killed: tuple[Path, Rows], tmp_path: Path
) -> None:
    left, _ = killed
    with pytest.raises(InvalidConfig, match=str(tmp_path)):
        lost_from(str(tmp_path))
    assert lost_from(str(damaged(left, tmp_path, lambda _: None))) is None
    manifest = next(left.glob("MANIFEST-*")).name
    path = damaged(left, tmp_path, lambda path: flip(path / manifest, 300))
    with pytest.raises(StoreDamaged, match="is damaged at byte"):
        lost_from(str(path))
