"""What every storage engine promises: `magnetar_storage.store`, sentence by sentence."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from magnetar_storage.memory.engine import MemoryDisk, MemoryStore
from magnetar_storage.rocksdb.engine import RocksStore
from magnetar_storage.store import (
    KEY_END,
    Store,
    StoreFailed,
    StoreInUse,
    WriteBatch,
    end_of_prefix,
)

FAMILIES = ("small", "payloads")
Open = Callable[[], Awaitable[Store]]


@pytest.fixture(params=["rocks", "memory", "slate-directory", "slate-s3"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Opens the same data each time."""
    if request.param == "memory":
        disk = MemoryDisk()
        return _at_once(lambda: MemoryStore(disk, FAMILIES))
    if request.param == "rocks":
        return _at_once(
            lambda: RocksStore.open(tmp_path / "data", FAMILIES, payload_families=("payloads",))
        )
    from tests.storage.slate_stores import directory_of, place_in_bucket

    from magnetar_storage.slatedb.engine import SlateStore

    if request.param == "slate-s3":
        url = place_in_bucket(request)
    else:
        url = directory_of(tmp_path)
    return lambda: SlateStore.open(url, FAMILIES, payload_families=("payloads",))


def _at_once(open_store: Callable[[], Store]) -> Open:
    async def opened() -> Store:
        return open_store()

    return opened


def run(open_store: Open, scenario: Callable[[Store], Awaitable[None]]) -> None:
    async def opened() -> None:
        store = await open_store()
        try:
            await scenario(store)
        finally:
            await store.close()

    asyncio.run(opened())


async def put(store: Store, rows: dict[bytes, bytes], family: str = "small") -> None:
    batch = WriteBatch()
    for key, value in rows.items():
        batch.put(family, key, value)
    await store.write(batch)


async def put_and_sync(store: Store, rows: dict[bytes, bytes]) -> None:
    await put(store, rows)
    await store.sync()


async def everything(store: Store, family: str = "small") -> dict[bytes, bytes]:
    return dict(await store.scan(family, b"", KEY_END, rows_max=10_000))


def test_what_is_written_is_seen_when_write_returns(open_store: Open) -> None:
    async def scenario(store: Store) -> None:
        await put(store, {b"a": b"1", b"empty": b""})
        assert await store.get("small", b"a") == b"1"
        assert await store.get("small", b"empty") == b""
        assert await store.get("small", b"b") is None
        assert await store.get("payloads", b"a") is None

    run(open_store, scenario)


def test_operations_take_effect_in_the_order_in_which_they_were_added(open_store: Open) -> None:
    async def scenario(store: Store) -> None:
        await put(store, {b"kept": b"old"})
        batch = WriteBatch()
        batch.put("small", b"a", b"1")
        batch.delete("small", b"a")
        batch.put("small", b"b", b"1")
        batch.put("small", b"bb", b"1")
        batch.delete_range("small", b"a", b"c")
        batch.put("small", b"b", b"2")
        batch.delete("small", b"never there")
        batch.put("payloads", b"p", b"3")
        await store.write(batch)
        assert await everything(store) == {b"b": b"2", b"kept": b"old"}
        assert await everything(store, "payloads") == {b"p": b"3"}

    run(open_store, scenario)


def test_a_batch_that_names_an_unknown_family_changes_nothing(open_store: Open) -> None:
    async def scenario(store: Store) -> None:
        batch = WriteBatch()
        batch.put("small", b"a", b"1")
        batch.put("nowhere", b"a", b"1")
        with pytest.raises(KeyError):
            await store.write(batch)
        assert await everything(store) == {}
        with pytest.raises(KeyError):
            await store.get("nowhere", b"a")
        with pytest.raises(KeyError):
            await store.scan("nowhere", b"", KEY_END, rows_max=1)
        with pytest.raises(KeyError):
            await store.prefixes("nowhere", b"", KEY_END, length=1, count_max=1)

    run(open_store, scenario)


def test_an_empty_batch_may_be_written_and_synced(open_store: Open) -> None:
    async def scenario(store: Store) -> None:
        await store.write(WriteBatch())
        await store.sync()
        assert await everything(store) == {}

    run(open_store, scenario)


def test_keys_are_ordered_as_bytes_compare(open_store: Open) -> None:
    keys = [b"", b"\x00", b"\x00\x00", b"\x01", b"a", b"a\x00", b"b", b"\xff", b"\xff" * 31]

    async def scenario(store: Store) -> None:
        await put(store, {key: b"v" for key in reversed(keys)})
        rows = await store.scan("small", b"", KEY_END, rows_max=100)
        assert [key for key, _ in rows] == sorted(keys)
        rows = await store.scan("small", b"", KEY_END, rows_max=100, reverse=True)
        assert [key for key, _ in rows] == sorted(keys, reverse=True)

    run(open_store, scenario)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (b"b", b"d", [b"b", b"c"]),
        (b"b", b"d\x00", [b"b", b"c", b"d"]),
        (b"b\x00", b"d", [b"c"]),
        (b"", b"b", [b"a"]),
        (b"d", KEY_END, [b"d", b"e"]),
        (b"c", b"c", []),
        (b"d", b"b", []),
        (b"x", KEY_END, []),
    ],
)
def test_a_range_holds_its_start_and_not_its_end(
    open_store: Open, start: bytes, end: bytes, expected: list[bytes], reverse: bool
) -> None:
    async def scenario(store: Store) -> None:
        await put(store, {key: b"v" for key in (b"a", b"b", b"c", b"d", b"e")})
        rows = await store.scan("small", start, end, rows_max=100, reverse=reverse)
        assert [key for key, _ in rows] == (expected[::-1] if reverse else expected)

    run(open_store, scenario)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("limits", [(1, None), (3, None), (100, None), (100, 25), (2, 1)])
def test_pages_meet_every_row_once(
    open_store: Open, reverse: bool, limits: tuple[int, int | None]
) -> None:
    rows_max, bytes_max = limits
    rows = {b"key-%02d" % number: b"v" * (number % 7) for number in range(20)}

    async def scenario(store: Store) -> None:
        await put(store, rows)
        start, end, seen = b"", KEY_END, []
        while page := await store.scan(
            "small", start, end, rows_max=rows_max, bytes_max=bytes_max, reverse=reverse
        ):
            assert len(page) <= rows_max
            seen += page
            if reverse:
                end = page[-1][0]
            else:
                start = page[-1][0] + b"\x00"
        assert seen == sorted(rows.items(), reverse=reverse)

    run(open_store, scenario)


@pytest.mark.parametrize("reverse", [False, True])
def test_bytes_max_stops_with_the_row_that_reaches_it(open_store: Open, reverse: bool) -> None:
    async def scenario(store: Store) -> None:
        await put(store, {bytes((number,)): b"v" * 9 for number in range(6)})

        async def count(bytes_max: int) -> int:
            rows = await store.scan(
                "small", b"", KEY_END, rows_max=100, bytes_max=bytes_max, reverse=reverse
            )
            return len(rows)

        assert await count(1) == 1, "a first row is returned whatever its size"
        assert await count(10) == 1
        assert await count(11) == 2
        assert await count(30) == 3
        assert await count(1000) == 6

    run(open_store, scenario)


async def prefixes(
    store: Store, start: bytes, end: bytes, length: int, count_max: int
) -> tuple[list[bytes], int]:
    """All of them, and how many calls that took."""
    found: list[bytes] = []
    at: bytes | None = start
    calls = 0
    while at is not None:
        some, at = await store.prefixes("small", at, end, length=length, count_max=count_max)
        assert len(some) <= count_max
        assert at is None or at < end
        found += some
        calls += 1
    return found, calls


@pytest.mark.parametrize("count_max", [1, 2, 100])
@pytest.mark.parametrize(
    ("start", "end", "length", "expected"),
    [
        (b"", KEY_END, 1, [b"a", b"b", b"\xff"]),
        (b"", KEY_END, 2, [b"a", b"a1", b"a2", b"b1", b"\xff", b"\xff\xff"]),
        (b"a1", b"b1", 2, [b"a1", b"a2"]),
        (b"a1y", b"b1\x00", 2, [b"a1", b"a2", b"b1"]),
        (b"a2\x00", b"b1", 2, []),
        (b"b", b"a", 1, []),
        (b"\xff\x00", KEY_END, 2, [b"\xff\xff"]),
    ],
)
def test_prefixes_are_told_once(
    open_store: Open, start: bytes, end: bytes, length: int, expected: list[bytes], count_max: int
) -> None:
    rows = (b"a", b"a1x", b"a1y", b"a1z", b"a2", b"b1", b"\xff", b"\xff\xff\xff")

    async def scenario(store: Store) -> None:
        await put(store, {key: b"v" for key in rows})
        found, _ = await prefixes(store, start, end, length, count_max)
        assert found == expected

    run(open_store, scenario)


@pytest.mark.parametrize("by_range", [False, True])
def test_prefixes_lie_behind_many_deleted_rows(open_store: Open, by_range: bool) -> None:
    """In RocksDB such rows stay for a while; a single seek over all of them takes too long."""
    numbers = [*range(10), *range(1 << 40, (1 << 40) + 30_000), *range(1 << 90, (1 << 90) + 10)]
    kept = {numbers[4], numbers[15_000], numbers[-1]}
    keys = [number.to_bytes(16, "big") + b"tail" for number in numbers]

    async def scenario(store: Store) -> None:
        await put(store, dict.fromkeys(keys, b"v"))
        batch = WriteBatch()
        if by_range:
            batch.delete_range("small", keys[0], keys[-1] + b"\x00")
        for key in keys:
            if not by_range:
                batch.delete("small", key)
        for number in kept:
            batch.put("small", number.to_bytes(16, "big"), b"v")
        await store.write(batch)
        found, calls = await prefixes(store, b"", KEY_END, 16, 8)
        assert found == [number.to_bytes(16, "big") for number in sorted(kept)]
        if isinstance(store, RocksStore) and not by_range:
            assert calls > 5

    run(open_store, scenario)


def test_a_deleted_range_holds_its_start_and_not_its_end(open_store: Open) -> None:
    async def scenario(store: Store) -> None:
        await put(store, {key: b"v" for key in (b"a", b"b", b"c", b"d")})
        batch = WriteBatch()
        batch.delete_range("small", b"b", b"d")
        await store.write(batch)
        assert list(await everything(store)) == [b"a", b"d"]
        assert await store.get("small", b"b") is None

    run(open_store, scenario)


def test_a_snapshot_shows_one_moment_of_all_families(open_store: Open) -> None:
    async def scenario(store: Store) -> None:
        await put(store, {b"a": b"1", b"b": b"1"})
        await put(store, {b"p": b"1"}, "payloads")
        snapshot = await store.snapshot()
        batch = WriteBatch()
        batch.put("small", b"a", b"2")
        batch.delete("small", b"b")
        batch.put("small", b"c", b"2")
        batch.delete_range("payloads", b"", KEY_END)
        await store.write(batch)
        later = await store.snapshot()
        await put(store, {b"a": b"3"})

        assert await snapshot.scan("small", b"", KEY_END, rows_max=9) == [
            (b"a", b"1"),
            (b"b", b"1"),
        ]
        assert await snapshot.scan("small", b"", KEY_END, rows_max=1, reverse=True) == [
            (b"b", b"1")
        ]
        assert await snapshot.get("payloads", b"p") == b"1"
        assert await snapshot.get("small", b"c") is None
        assert await later.get("small", b"a") == b"2"
        assert await later.get("payloads", b"p") is None
        assert await everything(store) == {b"a": b"3", b"c": b"2"}
        await snapshot.close()
        await snapshot.close()
        with pytest.raises(StoreFailed):
            await snapshot.get("small", b"a")
        assert await later.get("small", b"c") == b"2"

    run(open_store, scenario)


def test_a_snapshot_ends_with_its_store(open_store: Open) -> None:
    async def scenario(store: Store) -> None:
        snapshot = await store.snapshot()
        await store.close()
        with pytest.raises(StoreFailed):
            await snapshot.get("small", b"a")

    run(open_store, scenario)


def test_a_closed_store_refuses_everything_and_closes_twice(open_store: Open) -> None:
    async def scenario(store: Store) -> None:
        await store.close()
        await store.close()
        with pytest.raises(StoreFailed):
            await store.get("small", b"a")
        with pytest.raises(StoreFailed):
            await store.scan("small", b"", KEY_END, rows_max=1)
        with pytest.raises(StoreFailed):
            await store.prefixes("small", b"", KEY_END, length=1, count_max=1)
        with pytest.raises(StoreFailed):
            await store.write(WriteBatch())
        with pytest.raises(StoreFailed):
            await store.sync()
        with pytest.raises(StoreFailed):
            await store.snapshot()

    run(open_store, scenario)


def test_reopened_it_holds_what_it_held(open_store: Open) -> None:
    large = bytes(range(256)) * 300

    async def first(store: Store) -> None:
        await put(store, {b"a": b"1", b"b": b"1"})
        await put(store, {b"large": large, b"small": b"s"}, "payloads")
        batch = WriteBatch()
        batch.delete("small", b"a")
        await store.write(batch)
        await store.sync()

    async def second(store: Store) -> None:
        assert await everything(store) == {b"b": b"1"}
        assert await everything(store, "payloads") == {b"large": large, b"small": b"s"}

    run(open_store, first)
    run(open_store, second)
    run(open_store, second)


def test_of_two_who_open_it_one_goes_on_and_all_that_is_durable_is_there(open_store: Open) -> None:
    """On a local disk the first, in an object store the second."""

    async def scenario(store: Store) -> None:
        await put(store, {b"a": b"1"})
        await store.sync()
        if not isinstance(store, RocksStore | MemoryStore):
            second = await open_store()
            with pytest.raises(StoreFailed, match="another process opened this store"):
                await put_and_sync(store, {b"lost": b"1"})
            with pytest.raises(StoreFailed, match="another process opened this store"):
                await store.get("small", b"a")
            await put(second, {b"b": b"2"})
            assert await everything(second) == {b"a": b"1", b"b": b"2"}
            await second.close()
            return
        with pytest.raises(StoreInUse):
            await open_store()
        await put(store, {b"b": b"2"})
        assert await everything(store) == {b"a": b"1", b"b": b"2"}

    run(open_store, scenario)


def test_free_space_is_told(open_store: Open) -> None:
    async def scenario(store: Store) -> None:
        assert store.free_bytes() > 0

    run(open_store, scenario)


def test_conformance_of_the_batch() -> None:
    called: list[int] = []

    def note() -> bool:
        called.append(len(batch))
        return len(called) == 2

    batch = WriteBatch(note)
    batch.delete_range("small", b"a", b"a")
    assert (len(batch), called) == (0, []), "an empty range adds nothing"
    batch.put("small", b"key", b"value")
    batch.delete("small", b"key")
    batch.delete("small", b"key")
    assert (len(batch), batch.byte_count, called) == (3, 14, [0, 1]), "until it returns True"
    with pytest.raises(AssertionError):
        batch.delete_range("small", b"b", b"a")


def test_conformance_of_a_refused_first_operation() -> None:
    def refuse() -> bool:
        raise StoreFailed

    batch = WriteBatch(refuse)
    adds: list[Callable[[], None]] = [
        lambda: batch.put("small", b"k", b"v"),
        lambda: batch.delete("small", b"k"),
        lambda: batch.delete_range("small", b"k", b"l"),
    ]
    for add in adds:
        with pytest.raises(StoreFailed):
            add()
    assert (len(batch), batch.byte_count) == (0, 0)


@pytest.mark.parametrize(
    ("prefix", "end"),
    [(b"a", b"b"), (b"a\xff", b"b"), (b"\xff", KEY_END), (b"", KEY_END), (b"\x00", b"\x01")],
)
def test_conformance_of_the_end_of_a_prefix(prefix: bytes, end: bytes) -> None:
    assert end_of_prefix(prefix) == end
