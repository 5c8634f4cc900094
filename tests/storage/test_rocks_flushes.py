"""A store that is written while earlier rows are not synced decides when memtables are flushed.

Otherwise a table could have a row whose value the disk does not have yet: test_machine_loss.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.waiting import until

from magnetar_storage.data_dir import value_files
from magnetar_storage.data_dir.store_files import logs_bytes
from magnetar_storage.data_dir.value_files import ValueFiles
from magnetar_storage.rocksdb import flushes as rocks_flushes
from magnetar_storage.rocksdb import options as rocks_options
from magnetar_storage.rocksdb.engine import RocksStore
from magnetar_storage.rocksdb.flushes import ROW_BYTES, Flushes
from magnetar_storage.rocksdb.value_log import ValueLog
from magnetar_storage.store import StoreFailed, WriteBatch

FAMILIES = ("small", "payloads", "others")
MEMTABLE_BYTES = 256 << 10


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(rocks_options, "ROW_MEMTABLE_BYTES", MEMTABLE_BYTES)
    monkeypatch.setattr(rocks_options, "PAYLOAD_MEMTABLE_BYTES_MAX", MEMTABLE_BYTES)
    return tmp_path / "data"


def opened(path: Path, *, memtables_bytes: int = 3 * MEMTABLE_BYTES) -> RocksStore:
    return RocksStore.open(
        path,
        FAMILIES,
        payload_families=("payloads",),
        memtables_bytes=memtables_bytes,
        late_syncs=True,
    )


ACTIVE = "rocksdb.cur-size-active-mem-table"


class Watched:
    """RocksDB, which must not take a memtable away within a write: it would be smaller then."""

    def __init__(self, store: RocksStore) -> None:
        self._database: Any = store._database
        self._families = [self._database, *store._families.values()]

    def write(self, raw: Any) -> None:
        before = self._sizes()
        self._database.write(raw)
        pairs = zip(before, self._sizes(), strict=True)
        assert all(was <= now for was, now in pairs), "RocksDB has flushed by itself"

    def _sizes(self) -> list[int]:
        return [rows.property_int_value(ACTIVE) or 0 for rows in self._families]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)


def flush_count(path: Path) -> int:
    """How many flushes RocksDB has begun, as its log says."""
    return (path / "LOG").read_text().count('"event": "flush_started"')


def tiny_rows(random: Random) -> WriteBatch:
    batch = WriteBatch()
    for _ in range(random.randint(1, 50)):
        batch.put(random.choice(FAMILIES), random.randbytes(6), b"")
    return batch


def rows_below_the_size_of_values(random: Random) -> WriteBatch:
    batch = WriteBatch()
    batch.put("payloads", random.randbytes(6), random.randbytes(4_000))
    return batch


def values(random: Random) -> WriteBatch:
    batch = WriteBatch()
    for _ in range(3):
        batch.put("payloads", random.randbytes(6), random.randbytes(random.randint(1, 9_000)))
    batch.put("small", b"row", random.randbytes(300))
    return batch


def batches_larger_than_a_memtable(random: Random) -> WriteBatch:
    batch = WriteBatch()
    for _ in range(random.choice((1, 1, 1, 300))):
        batch.put("small", random.randbytes(6), random.randbytes(2_000))
    batch.put("payloads", random.randbytes(6), random.randbytes(5_000))
    return batch


def deletions(random: Random) -> WriteBatch:
    batch = WriteBatch()
    for _ in range(20):
        key = random.randbytes(6)
        batch.put("others", key, random.randbytes(50))
        batch.delete("others", random.randbytes(6))
        batch.delete_range("small", key, key + b"\xff")
    return batch


@pytest.mark.parametrize(
    "shape",
    [
        tiny_rows,
        rows_below_the_size_of_values,
        values,
        batches_larger_than_a_memtable,
        deletions,
    ],
)
def test_rocksdb_flushes_nothing_by_itself(path: Path, shape: Any) -> None:
    async def scenario() -> None:
        random = Random(3)
        store = opened(path)
        database = store._database
        store._database = Watched(store)  # type: ignore[assignment]
        for _ in range(1_500):
            await store.write(shape(random))
        assert flush_count(path) > 2
        store._database = database
        await store.close()

    asyncio.run(scenario())


def test_values_are_synced_ahead_of_each_flush(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: dict[int, int] = {}
    flushed_with: list[bool] = []
    sync = ValueFiles.sync

    def noted_sync(files: ValueFiles, unsynced: Any) -> None:
        sync(files, unsynced)
        synced.update({number: size for number, (_, size) in unsynced.items()})

    monkeypatch.setattr(ValueFiles, "sync", noted_sync)

    async def scenario() -> None:
        store = opened(path)
        due = store._flushes.due  # type: ignore[union-attr]

        class Noted:
            """A family that notes which values are synced when it is flushed."""

            def __init__(self, rows: Any) -> None:
                self._rows = rows

            def flush(self, wait: bool) -> None:
                number, size = store._values.end
                flushed_with.append(synced.get(number) == size)
                self._rows.flush(wait)

        monkeypatch.setattr(store._flushes, "due", lambda: [Noted(rows) for rows in due()])
        random = Random(4)
        for _ in range(2_000):
            await store.write(values(random))
        await store.close()

    asyncio.run(scenario())
    assert len(flushed_with) > 2
    assert all(flushed_with)


def test_a_sync_and_a_flush_take_turns(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sync closes files of garbage, which a flush may be syncing."""
    events: list[str] = []
    before_sync = ValueLog.before_sync
    after_sync = ValueLog.after_sync

    def noted_before(values: ValueLog, *, takes_garbage: bool) -> Any:
        events.append("begin")
        return before_sync(values, takes_garbage=takes_garbage)

    def noted_after(values: ValueLog, unsynced: Any) -> None:
        events.append("end")
        after_sync(values, unsynced)

    monkeypatch.setattr(ValueLog, "before_sync", noted_before)
    monkeypatch.setattr(ValueLog, "after_sync", noted_after)

    async def scenario() -> None:
        store = opened(path)
        random = Random(8)
        syncs = []
        for _ in range(1_000):
            syncs.append(asyncio.ensure_future(store.sync()))
            await store.write(values(random))
        await asyncio.gather(*syncs)
        assert flush_count(path) > 2
        assert events == ["begin", "end"] * (len(events) // 2)
        await store.close()

    asyncio.run(scenario())


def test_a_flush_for_which_values_cannot_be_synced_does_not_begin(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("the disk has gone")

    async def scenario() -> None:
        store = opened(path)
        monkeypatch.setattr(ValueFiles, "sync", fail)
        random = Random(5)

        async def write_much() -> None:
            for _ in range(2_000):
                await store.write(values(random))

        with pytest.raises(StoreFailed, match=r"flush failed in .*: the disk has gone"):
            await write_much()
        assert flush_count(path) == 0
        with pytest.raises(StoreFailed):
            await store.write(values(random))
        await store.close()

    asyncio.run(scenario())


def test_logs_go_when_everything_before_is_in_tables(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of RocksDB's default family, such as the list of files of values, keep no log either."""
    monkeypatch.setattr(rocks_flushes, "LOGS_BYTES_HELD_MAX", 1 << 20)
    monkeypatch.setattr(value_files, "FILE_BYTES", 64 << 10)

    async def scenario() -> None:
        store = opened(path)
        random = Random(6)
        for _ in range(2_000):
            await store.write(rows_below_the_size_of_values(random))
            await store.write(values(random))
        assert store._values.end[0] > 10, "many files were listed"

        async def logs_are_short() -> bool:
            # Flushes end in threads of RocksDB; a log goes with the one after them.
            await store.write(values(random))
            return logs_bytes(str(path)) < 4 << 20

        await until(logs_are_short)
        await store.close()

    asyncio.run(scenario())


# The decision alone.


class Rows:
    """A family with a memtable of some size."""

    def __init__(self, size: int = 0) -> None:
        self.size = size

    def property_int_value(self, name: str) -> int:
        assert name == "rocksdb.cur-size-active-mem-table"
        return self.size


@pytest.fixture
def families() -> dict[str, Any]:
    return {"a": Rows(), "b": Rows(), "default": Rows()}


def flushes_of(families: dict[str, Any], memtables_bytes: int = 10_000) -> Flushes:
    return Flushes(families, {"a": 3_200, "b": 6_400, "default": 6_400}, memtables_bytes)


def test_families_are_due_at_half_of_their_limits(families: dict[str, Any]) -> None:
    flushes = flushes_of(families)
    families["a"].size, families["b"].size = 1_599, 3_199
    flushes.wrote(1_000, 1)
    assert flushes.due() == []
    families["a"].size = 1_600
    flushes.wrote(1_000, 1)
    assert flushes.due() == [families["a"]]


def test_nobody_looks_before_something_was_written(families: dict[str, Any]) -> None:
    flushes = flushes_of(families)
    families["a"].size = 1_600
    assert flushes.due() == []
    flushes.wrote(99 - ROW_BYTES, 1)
    assert flushes.due() == []
    flushes.wrote(1, 0)
    assert flushes.due() == [families["a"]]


def test_the_largest_is_due_when_all_together_are_large(families: dict[str, Any]) -> None:
    flushes = flushes_of(families, memtables_bytes=8_000)
    families["a"].size, families["b"].size, families["default"].size = 1_000, 1_600, 1_400
    flushes.wrote(1_000, 1)
    assert flushes.due() == [families["b"]]


def test_all_are_due_when_the_logs_are_long(
    families: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """RocksDB's default family too: its few rows would keep each log."""
    monkeypatch.setattr(rocks_flushes, "LOGS_BYTES_HELD_MAX", 5_000)
    flushes = flushes_of(families)
    flushes.wrote(4_899, 1)
    assert flushes.due() == []
    flushes.wrote(100, 1)
    assert flushes.due() == list(families.values())
    flushes.wrote(4_000, 1)
    assert flushes.due() == []
