"""What is SlateDB's own: one owner, a bounded replay, ranges without values, damage, metrics."""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import obstore
import pytest
from obstore.store import LocalStore
from prometheus_client import CollectorRegistry
from tests.object_server import ObjectServer
from tests.storage.slate_stores import directory_of, place_in_bucket
from tests.waiting import turns, until

from magnetar_storage.object_store.metrics import ObjectStoreMetrics
from magnetar_storage.object_store.url import ObjectStoreUrl
from magnetar_storage.slatedb import binding as slate_binding
from magnetar_storage.slatedb import families as slate_families
from magnetar_storage.slatedb import options as slate_options
from magnetar_storage.slatedb import reads as slate_reads
from magnetar_storage.slatedb.engine import SlateStore
from magnetar_storage.slatedb.options import StoreCache, new_cache, settings_of
from magnetar_storage.store import (
    KEY_END,
    RowsUnreadable,
    StoreDamaged,
    StoreFailed,
    StoreFenced,
    WriteBatch,
)
from magnetar_storage.store_config import StoreConfig

FAMILIES = ("numbers", "payloads")
# Its bytes are as many in the store as here.
INCOMPRESSIBLE = Random(7).randbytes(1_000)


async def opened(url: ObjectStoreUrl, **options: Any) -> SlateStore:
    return await SlateStore.open(url, FAMILIES, payload_families=("payloads",), **options)


async def commit(store: SlateStore, first: int, end: int, value: bytes = b"v") -> None:
    batch = WriteBatch()
    for number in range(first, end):
        key = number.to_bytes(8, "big")
        batch.put("numbers", key, b"n")
        batch.put("payloads", key, value)
    await store.write(batch)
    await store.sync()


async def numbers(store: SlateStore, family: str = "numbers") -> list[int]:
    rows = await store.scan(family, b"", KEY_END, rows_max=1_000_000)
    return [int.from_bytes(key, "big") for key, _ in rows]


def test_stores_that_share_a_cache_read_their_own_rows_and_outlive_each_other(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        memory = new_cache(StoreConfig())
        opening = itertools.count(1)

        async def shared(name: str) -> SlateStore:
            url = directory_of(tmp_path / name)
            # From tables, not from the log: one group is enough to be moved there.
            cache = StoreCache(memory, next(opening))
            return await opened(url, unflushed_groups_max=1, cache=cache)

        stores = [await shared(name) for name in ("a", "b")]
        for store, value in zip(stores, (b"a", b"b"), strict=True):
            await commit(store, 0, 100, value * 1_000)
            await until(lambda store=store: store._background.flush_count)  # type: ignore[misc]
        # Opened anew, under numbers of their own.
        for store in stores:
            await store.close()
        first, second = [await shared(name) for name in ("a", "b")]
        for _ in range(2):
            assert await first.get("payloads", bytes(8)) == b"a" * 1_000
            assert await second.get("payloads", bytes(8)) == b"b" * 1_000
        await first.close()
        assert await second.get("payloads", (99).to_bytes(8, "big")) == b"b" * 1_000
        third = await shared("a")
        assert await numbers(third) == list(range(100))
        await second.abandon()
        assert await third.get("payloads", bytes(8)) == b"a" * 1_000
        await third.close()

    asyncio.run(scenario())


def test_an_idle_owner_hears_of_another_one_by_itself(tmp_path: Path) -> None:
    """It reads and writes nothing, and still must end: its memory is of the past."""

    async def scenario() -> None:
        ended: list[StoreFailed] = []
        first = await opened(directory_of(tmp_path), on_end=ended.append)
        await commit(first, 0, 3)
        second = await opened(directory_of(tmp_path))
        await until(lambda: ended)
        assert isinstance(ended[0], StoreFenced)
        assert "another process opened this store" in str(ended[0])
        with pytest.raises(StoreFailed, match="another process opened this store"):
            await first.get("numbers", b"")
        assert await numbers(second) == [0, 1, 2]
        await first.close()
        await second.close()
        assert len(ended) == 1

    asyncio.run(scenario())


def test_who_opens_a_store_waits_only_for_an_owner_who_did_not_close_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    waiting = "did not close it: waiting"

    async def scenario() -> None:
        first = await opened(directory_of(tmp_path))
        await commit(first, 0, 3)
        await first.close()
        second = await opened(directory_of(tmp_path))
        assert waiting not in caplog.text
        await commit(second, 3, 4)
        third = await opened(directory_of(tmp_path))
        assert waiting in caplog.text
        with pytest.raises(StoreFenced):
            await second.get("numbers", b"")
        # A close by one who is not the owner does not count.
        await second.close()
        caplog.clear()
        fourth = await opened(directory_of(tmp_path))
        assert waiting in caplog.text
        assert await numbers(fourth) == [0, 1, 2, 3]
        await third.close()
        await fourth.close()

    asyncio.run(scenario())


def test_a_snapshot_ends_when_another_process_opens_the_store(tmp_path: Path) -> None:
    async def scenario() -> None:
        first = await opened(directory_of(tmp_path))
        await commit(first, 0, 3)
        snapshot = await first.snapshot()
        second = await opened(directory_of(tmp_path))
        await commit(second, 3, 4)
        with pytest.raises(StoreFailed):
            await commit(first, 4, 5)
        with pytest.raises(StoreFailed, match="another process opened this store"):
            await snapshot.get("numbers", b"")
        assert await numbers(second) == [0, 1, 2, 3]
        await first.close()
        await second.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("place", ["directory", "s3"])
def test_what_an_open_replays_is_bounded(
    place: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Many groups are written, and an owner who is killed leaves a few of them to replay."""
    url = directory_of(tmp_path) if place == "directory" else place_in_bucket(request)

    async def scenario() -> None:
        store = await opened(url, unflushed_groups_max=10)
        background = store._background
        await commit(store, 0, 1)
        await until(lambda: background.flush_count == 1)  # At once: the replay is not repeated.
        for number in range(1, 35):
            before = background.flush_count
            await commit(store, number, number + 1)
            if number % 10 == 0:
                await until(lambda before=before: background.flush_count > before)  # type: ignore[misc]
        # No close: the process was killed.
        metrics = ObjectStoreMetrics("test", CollectorRegistry())
        again = await opened(url, metrics=metrics)
        assert await numbers(again) == list(range(35))
        recorder: Any = metrics._recorder
        (replayed,) = recorder.metrics_by_name("slatedb.db.memtable_write_bytes")
        row_bytes = 2 * (8 + 1) + 1 + 8 + 1
        assert replayed.value[0] <= 12 * row_bytes
        await again.close()
        await store.close()

    asyncio.run(scenario())


def test_a_group_is_one_object_of_the_log(tmp_path: Path) -> None:
    url = directory_of(tmp_path)

    def log_objects() -> int:
        return len(obstore.list(LocalStore(url.directory), prefix="wal").collect())

    async def scenario() -> None:
        store = await opened(url)
        before = log_objects()
        for number in range(5):
            await commit(store, 10 * number, 10 * number + 10, b"p" * 5_000)
        assert log_objects() - before == 5
        await store.sync()
        assert log_objects() - before == 5, "a sync of nothing writes nothing"
        await store.close()

    asyncio.run(scenario())


def test_nothing_is_written_between_groups(tmp_path: Path) -> None:
    """By default SlateDB puts an object of its log every 100 ms while there is something new."""
    chosen = json.loads(settings_of(directory_of(tmp_path), StoreConfig()).to_json_string())
    assert chosen["flush_interval"] is None


def test_a_range_of_payloads_is_deleted_without_reading_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    received: list[int] = []
    rows_from = slate_binding.rows_from

    def counted(buffer: Any) -> list[tuple[bytes, bytes]]:
        received.append(buffer.len)
        return rows_from(buffer)

    monkeypatch.setattr(slate_binding, "rows_from", counted)

    async def scenario() -> None:
        store = await opened(directory_of(tmp_path))
        await commit(store, 0, 3_000, b"p" * 1_000)
        batch = WriteBatch()
        batch.delete_range("payloads", (10).to_bytes(8, "big"), (2_990).to_bytes(8, "big"))
        await store.write(batch)
        assert sum(received) < 3_000 * 50, "as much as keys need, and no values"
        assert await numbers(store, "payloads") == [*range(10), *range(2_990, 3_000)]
        found, _ = await store.prefixes("payloads", b"", KEY_END, length=8, count_max=100)
        assert [int.from_bytes(one, "big") for one in found] == await numbers(store, "payloads")
        await store.close()

    asyncio.run(scenario())


def test_others_run_while_a_large_range_is_deleted(tmp_path: Path) -> None:
    """Such a batch takes a second for each 50,000 rows, and a broker must answer meanwhile."""

    async def scenario() -> None:
        store = await opened(directory_of(tmp_path))
        await commit(store, 0, 20_000)
        batch = WriteBatch()
        batch.delete_range("numbers", b"", KEY_END)
        changes = await store._changes(batch)
        assert len(changes) == 20_000
        turn_count = 0

        async def others() -> None:
            nonlocal turn_count
            while True:
                turn_count += 1
                await turns()

        beside = asyncio.ensure_future(others())
        await store._raw(changes)
        beside.cancel()
        assert turn_count >= 20_000 // 500 - 1
        await store.write(batch)
        assert await numbers(store) == []
        await store.close()

    asyncio.run(scenario())


def test_families_keep_their_places_and_new_ones_are_added(tmp_path: Path) -> None:
    url = directory_of(tmp_path)

    async def scenario() -> None:
        store = await SlateStore.open(url, ("b", "c"), payload_families=("c",))
        batch = WriteBatch()
        batch.put("b", b"key", b"of b")
        batch.put("c", b"key", b"of c")
        await store.write(batch)
        await store.sync()
        await store.close()
        # Another version: a new family, one that is gone, one that is a payload family now.
        store = await SlateStore.open(url, ("a", "b"), payload_families=("b",))
        assert await store.get("b", b"key") == b"of b"
        assert await store.get("a", b"key") is None
        batch = WriteBatch()
        batch.delete_range("b", b"", KEY_END)
        await store.write(batch)
        assert await store.get("b", b"key") is None
        with pytest.raises(KeyError):
            await store.get("c", b"key")
        await store.sync()
        await store.close()
        store = await SlateStore.open(url, ("a", "b", "c"))
        assert await store.get("c", b"key") == b"of c"
        assert await store.get("b", b"key") is None
        await store.close()

    asyncio.run(scenario())


def test_more_families_than_a_byte_can_tell_are_refused() -> None:
    names = [f"family-{number}" for number in range(255)]
    assert len(set(slate_families.with_families({}, names, ()).values())) == 255
    with pytest.raises(ValueError, match="at most 255"):
        slate_families.with_families({}, [*names, "one more"], ())


def test_a_damaged_block_is_told_and_the_rows_before_it_are_read(tmp_path: Path) -> None:
    url = directory_of(tmp_path)

    async def fill() -> None:
        store = await opened(url)
        await commit(store, 0, 500, b"p" * 1_000)
        await until(lambda: store._background.flush_count == 1)
        await store.close()

    async def read() -> None:
        store = await opened(url)
        with pytest.raises(RowsUnreadable) as raised:
            await store.scan("payloads", b"", KEY_END, rows_max=1_000)
        assert raised.value.family == "payloads"
        read = [int.from_bytes(key, "big") for key, _ in raised.value.rows]
        assert read == list(range(len(read)))
        assert 50 < len(read) < 450
        assert await store.get("payloads", (0).to_bytes(8, "big")) == b"p" * 1_000
        # The store goes on.
        await commit(store, 500, 501)
        assert await store.get("numbers", (500).to_bytes(8, "big")) == b"n"
        await store.close()

    asyncio.run(fill())
    (table,) = Path(url.directory, "compacted").glob("*.sst")
    content = bytearray(table.read_bytes())
    content[len(content) // 2] ^= 0xFF
    table.write_bytes(content)
    asyncio.run(read())


def test_an_object_that_is_missing_is_told_at_the_opening(tmp_path: Path) -> None:
    url = directory_of(tmp_path)

    async def fill() -> None:
        store = await opened(url)
        await commit(store, 0, 10)
        await until(lambda: store._background.flush_count == 1)
        await commit(store, 10, 20)
        await commit(store, 20, 30)
        await store.close()

    asyncio.run(fill())
    log = sorted(Path(url.directory, "wal").iterdir())
    content = bytearray(log[-1].read_bytes())
    content[len(content) // 2] ^= 0xFF
    log[-1].write_bytes(content)
    with pytest.raises(StoreDamaged, match="put back the objects"):
        asyncio.run(opened(url))


CHILD = """
import asyncio, sys
from magnetar_storage.object_store.metrics import ObjectStoreMetrics
from magnetar_storage.object_store.url import ObjectStoreUrl
from magnetar_storage.slatedb.engine import SlateStore
from magnetar_storage.slatedb.options import StoreCache, new_cache, settings_of
from magnetar_storage.store import WriteBatch

async def main(url):
    store = await SlateStore.open(
        ObjectStoreUrl.parse(url), ("numbers", "payloads"), payload_families=("payloads",)
    )
    for number in range(1_000_000):
        batch = WriteBatch()
        key = number.to_bytes(8, "big")
        batch.put("numbers", key, b"n" * 100)
        batch.put("payloads", key, b"p" * 5000)
        await store.write(batch)
        print("written", number, flush=True)
        # Some batches are killed between their write and their flush.
        if number % 3 == 2:
            await store.sync()
            print("durable", number, flush=True)

asyncio.run(main(sys.argv[1]))
"""


@pytest.mark.chaos
def test_what_was_synced_survives_sigkill_and_the_rest_is_whole_or_gone(
    request: pytest.FixtureRequest, object_server: ObjectServer
) -> None:
    url = place_in_bucket(request)
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(url)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    lines = [child.stdout.readline() for _ in range(200)]
    child.send_signal(signal.SIGKILL)
    lines += child.stdout.read().split("\n")[:-1]
    child.wait()
    child.stdout.close()
    durable = max(int(line.split()[1]) for line in lines if line.startswith("durable"))

    async def reopened() -> None:
        store = await opened(url)
        found = await numbers(store)
        assert found == await numbers(store, "payloads") == list(range(len(found)))
        assert len(found) > durable
        await store.close()

    asyncio.run(reopened())


def test_reads_of_long_ranges_come_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However large the rows: what crosses the binding at once stays near a megabyte."""
    sizes: list[int] = []
    rows_from = slate_binding.rows_from

    def counted(buffer: Any) -> list[tuple[bytes, bytes]]:
        sizes.append(buffer.len)
        return rows_from(buffer)

    monkeypatch.setattr(slate_binding, "rows_from", counted)

    async def scenario() -> None:
        store = await opened(directory_of(tmp_path))
        await commit(store, 0, 100, b"p" * 200_000)
        assert await numbers(store, "payloads") == list(range(100))
        assert max(sizes) <= slate_reads._ROWS_FIRST * 201_000
        assert max(sizes[1:]) <= slate_reads._BYTES_MAX
        await store.close()

    asyncio.run(scenario())


def test_requests_bytes_and_the_time_of_a_put_are_counted(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    metrics = ObjectStoreMetrics("test", registry)

    def value(name: str, **labels: str) -> float:
        return registry.get_sample_value(f"test_object_store_{name}", labels) or 0.0

    async def scenario() -> None:
        store = await opened(directory_of(tmp_path), metrics=metrics)
        before = value("requests_total", operation="put", component="db")
        assert before > 0
        for number in range(5):
            await commit(store, number, number + 1, INCOMPRESSIBLE)
        assert value("requests_total", operation="put", component="db") >= before + 5
        assert value("written_bytes_total", part="log") > 5_000
        assert value("log_put_seconds_count") == 5
        assert value("requests_total", operation="get", component="db") > 0
        await until(lambda: store._background.flush_count == 1)
        assert value("written_bytes_total", part="tables") > 0
        await store.get("payloads", (0).to_bytes(8, "big"))
        found = [value("cache_reads_total", result=one) for one in ("hit", "miss")]
        assert sum(found) > 0
        await store.close()

    asyncio.run(scenario())
    # Reading them twice counts nothing twice.
    assert value("log_put_seconds_count") == 5
    first = value("requests_total", operation="put", component="db")
    assert value("requests_total", operation="put", component="db") == first


def test_a_cache_on_disk_is_used_and_may_be_lost(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    config = StoreConfig(store_disk_cache_directory=str(cache), store_disk_cache_bytes=64 << 20)

    def cached_bytes() -> int:
        return sum(one.stat().st_size for one in cache.rglob("*") if one.is_file())

    async def read() -> None:
        store = await opened(directory_of(tmp_path), config=config)
        assert await numbers(store, "payloads") == list(range(500))
        await store.close()

    async def scenario() -> None:
        store = await opened(directory_of(tmp_path), config=config)
        batch = WriteBatch()
        random = Random(7)
        for number in range(500):
            batch.put("payloads", number.to_bytes(8, "big"), random.randbytes(1_000))
        await store.write(batch)
        await store.sync()
        await until(lambda: store._background.flush_count == 1)
        await store.close()
        await read()
        await until(lambda: cached_bytes() > 400_000)
        shutil.rmtree(cache)
        await read()

    asyncio.run(scenario())


def log_bytes(tmp_path: Path) -> int:
    return sum(one.stat().st_size for one in (tmp_path / "store").rglob("wal/*.sst"))


def test_a_store_from_before_compression_is_read_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plain(url: ObjectStoreUrl, config: StoreConfig) -> Any:
        settings = settings_of(url, config)
        settings.set("compression_codec", "null")
        return settings

    value = b"alike " * 1_000

    async def scenario() -> None:
        url = directory_of(tmp_path)
        with monkeypatch.context() as patched:
            patched.setattr(slate_options, "settings_of", plain)
            store = await opened(url)
            await commit(store, 0, 20, value)
            await store.close()
        before = log_bytes(tmp_path)
        assert before > 20 * len(value)
        store = await opened(url)
        await commit(store, 20, 40, value)
        assert log_bytes(tmp_path) - before < 20 * len(value) // 4
        # What is in tables, too.
        await until(lambda: store._background.flush_count > 0)
        assert await numbers(store) == list(range(40))
        rows = await store.scan("payloads", b"", KEY_END, rows_max=100)
        assert {row for _, row in rows} == {value}
        await store.close()

    asyncio.run(scenario())


def test_a_deleted_range_takes_few_bytes_of_the_log(tmp_path: Path) -> None:
    count = 5_000

    async def scenario() -> None:
        store = await opened(directory_of(tmp_path))
        await commit(store, 0, count)
        before = log_bytes(tmp_path)
        batch = WriteBatch()
        batch.delete_range("payloads", b"", KEY_END)
        await store.write(batch)
        await store.sync()
        assert log_bytes(tmp_path) - before < 10 * count
        await store.close()

    asyncio.run(scenario())
