"""Files of values: what is written comes back, garbage goes, a loss of power takes whole changes.

Source: docs/design/0019-values.md.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.storage import value_stores
from tests.storage.killing import kill
from tests.storage.value_stores import (
    FILE_BYTES,
    LARGE,
    delete,
    files,
    fill_two_files,
    full,
    key_of,
    killed,
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
from magnetar_storage.data_dir import value_files
from magnetar_storage.data_dir.store_files import LOG, VALUES, numbered, values_path
from magnetar_storage.offline.accepted_loss import accept_loss
from magnetar_storage.offline.read_only import open_read_only
from magnetar_storage.rocksdb.engine import RocksStore
from magnetar_storage.rocksdb.value_log import VALUE_BYTES_MIN
from magnetar_storage.store import KEY_END, RowsUnreadable, StoreDamaged, StoreFailed, WriteBatch
from magnetar_storage.store_identity import KEY

# Around the limit, and such that look like rows with pointers.
VALUES_OF_ALL_KINDS = [
    b"",
    b"\xff",
    b"\xff\x00",
    b"\xff\x01" + bytes(24),
    b"\xff" * (VALUE_BYTES_MIN - 1),
    bytes(VALUE_BYTES_MIN - 1),
    bytes(VALUE_BYTES_MIN),
    b"\xff\x01" * VALUE_BYTES_MIN,
    bytes(1 << 20),
]


def test_values_of_all_kinds_come_back(directory: Path) -> None:
    async def check(store: RocksStore) -> None:
        rows = [(key_of(place), value) for place, value in enumerate(VALUES_OF_ALL_KINDS)]
        for family in ("small", "payloads"):
            assert await store.scan(family, b"", KEY_END, rows_max=100) == rows
            backwards = await store.scan(family, b"", KEY_END, rows_max=100, reverse=True)
            assert backwards == rows[::-1]
            for key, value in rows:
                assert await store.get(family, key) == value
            view = await store.snapshot()
            assert await view.scan(family, b"", KEY_END, rows_max=100) == rows
            await view.close()
        some = await store.scan("payloads", b"", KEY_END, rows_max=100, bytes_max=VALUE_BYTES_MIN)
        assert some == rows[:5], "the size of a value counts, not that of its pointer"

    async def scenario(store: RocksStore) -> None:
        batch = WriteBatch()
        for place, value in enumerate(VALUES_OF_ALL_KINDS):
            batch.put("small", key_of(place), value)
            batch.put("payloads", key_of(place), value)
        await store.write(batch)
        await check(store)
        await store.sync()

    run(directory, scenario)
    run(directory, check)

    async def at_rest() -> None:
        store = await open_read_only(str(directory))
        for place, value in enumerate(VALUES_OF_ALL_KINDS):
            for family in ("small", "payloads"):
                assert await store.get(family, key_of(place)) == value
        await store.close()

    asyncio.run(at_rest())


def test_more_values_than_a_call_takes_and_a_call_that_takes_a_part(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = os.pwritev

    def partly(handle: int, buffers: Sequence[bytes], position: int) -> int:
        assert len(buffers) <= 1_024
        taken, left = [], 50_000
        for buffer in buffers:
            taken.append(buffer[:left])
            left -= len(taken[-1])
            if not left:
                break
        return inner(handle, taken, position)

    monkeypatch.setattr(os, "pwritev", partly)

    async def scenario(store: RocksStore) -> None:
        await put(store, range(1_100))
        assert await numbers_of(store) == list(range(1_100))

    run(directory, scenario)


def test_files_of_which_nothing_is_left_go(directory: Path) -> None:
    async def scenario(store: RocksStore) -> None:
        for number in range(0, 100, 4):
            await put(store, range(number, number + 4))
        count = len(files(directory))
        assert count > 5
        batch = WriteBatch()
        batch.delete_range("payloads", key_of(0), key_of(60))
        await store.write(batch)
        await store.sync()
        await rest(store)
        assert len(files(directory)) < count // 2 + 1
        assert await numbers_of(store) == list(range(60, 100))

    run(directory, scenario)
    run(directory, numbers_after(range(60, 100)))


def test_files_of_which_little_is_left_are_moved(directory: Path) -> None:
    kept = list(range(0, 100, 5))

    async def scenario(store: RocksStore) -> None:
        for number in range(0, 100, 4):
            await put(store, range(number, number + 4))
        count = len(files(directory))
        await delete(store, [number for number in range(100) if number % 5])
        await rest(store)
        assert len(files(directory)) <= count // 2
        assert 1 not in files(directory)
        assert await numbers_of(store) == kept

    run(directory, scenario)
    run(directory, numbers_after(kept))


def test_a_row_that_has_another_value_is_garbage_where_it_was(directory: Path) -> None:
    async def scenario(store: RocksStore) -> None:
        for _ in range(12):
            await put(store, [0])
        for number in range(1, 30):
            await put(store, [number])
        await delete(store, [29])
        await rest(store)
        assert 1 not in files(directory)
        assert await numbers_of(store) == list(range(29))

    run(directory, scenario)


def test_files_of_which_most_is_left_stay(directory: Path) -> None:
    async def scenario(store: RocksStore) -> None:
        for number in range(0, 100, 4):
            await put(store, range(number, number + 4))
        before = files(directory)
        await delete(store, range(0, 100, 5))
        await rest(store)
        assert files(directory) == before

    run(directory, scenario)


@pytest.mark.parametrize("seed", range(6))
def test_rows_change_while_their_files_are_looked_at(directory: Path, seed: int) -> None:
    """Nothing that was deleted comes back, nothing is lost, and restarts find the same."""
    random = Random(seed)
    alive: set[int] = set()

    async def live(store: RocksStore) -> None:
        assert await numbers_of(store) == sorted(alive)
        for _ in range(60):
            batch = WriteBatch()
            for number in random.sample(range(200), 5):
                batch.put("payloads", key_of(number), value_of(number))
                alive.add(number)
                if random.random() < 0.2:
                    store.write_ahead(batch)
            for number in random.sample(range(200), 4):
                batch.delete("payloads", key_of(number))
                alive.discard(number)
            if random.random() < 0.2:
                start = random.randrange(200)
                batch.delete_range("payloads", key_of(start), key_of(start + 40))
                alive.difference_update(range(start, start + 40))
            await store.write(batch)
            if random.random() < 0.7:
                await store.sync()
        assert await numbers_of(store) == sorted(alive)
        await rest(store)
        assert await numbers_of(store) == sorted(alive)
        stored = sum(path.stat().st_size for _, path in numbered(str(directory), VALUES))
        assert stored < 2.2 * len(alive) * LARGE + 2 * FILE_BYTES

    for _ in range(3):
        run(directory, live)


def test_a_view_keeps_its_files(directory: Path) -> None:
    async def scenario(store: RocksStore) -> None:
        await put(store, range(40))
        await put(store, range(40, 80))
        view = await store.snapshot()
        await delete(store, range(40))
        await rest(store)
        rows = await view.scan("payloads", b"", KEY_END, rows_max=1_000)
        assert [(int(key), value) for key, value in rows] == [
            (number, value_of(number)) for number in range(80)
        ]
        assert 1 in files(directory)
        await view.close()
        del view
        await rest(store, writes=1)
        assert 1 not in files(directory)

    run(directory, scenario)


def test_a_damaged_value_is_not_moved_and_its_file_stays(directory: Path) -> None:
    run(directory, fill_two_files)
    file = values_path(str(directory), 1)
    content = bytearray(file.read_bytes())
    content[content.index(value_of(7)) + 9] ^= 4
    file.write_bytes(content)

    async def scenario(store: RocksStore) -> None:
        await delete(store, [number for number in range(40) if number not in (5, 7, 9)])
        await rest(store)
        assert 1 in files(directory)
        for number in (5, 9):
            assert await store.get("payloads", key_of(number)) == value_of(number)
        with pytest.raises(RowsUnreadable, match=r"000001\.values is damaged"):
            await store.get("payloads", key_of(7))
        with pytest.raises(RowsUnreadable) as caught:
            await store.scan("payloads", b"", KEY_END, rows_max=100)
        assert [key for key, _ in caught.value.rows] == [key_of(5)]

    run(directory, scenario)


def damage_head(directory: Path, number: int) -> None:
    """A bit in front of a value of the first file; the value itself is whole."""
    file = values_path(str(directory), 1)
    content = bytearray(file.read_bytes())
    content[content.index(key_of(number))] ^= 1
    file.write_bytes(content)


def test_a_file_with_a_damaged_head_is_looked_at_through_all_rows(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It stayed for good, and each round complained of it."""
    run(directory, fill_two_files)
    damage_head(directory, 12)

    async def scenario(store: RocksStore) -> None:
        await delete(store, range(3, 40))
        # Rows of the other family, and small values, lie among those that are asked.
        await put(store, range(100, 110), family="others")
        batch = WriteBatch()
        for number in range(200, 1_000):
            batch.put("payloads", key_of(number), b"small")
        await store.write(batch)
        await rest(store, writes=400)
        assert 1 not in files(directory)
        for number in range(3):
            assert await store.get("payloads", key_of(number)) == value_of(number)
        assert caplog.text.count("000001.values is damaged: no value begins at byte") == 1

    run(directory, scenario)


def heads_at_rest(path: Path) -> list[str]:
    """What a check says of the heads of values."""

    async def read() -> list[str]:
        store = await open_read_only(str(path))
        found = list(store.damaged_heads())
        await store.close()
        return found

    return asyncio.run(read())


def test_a_check_reads_the_heads_of_values(directory: Path) -> None:
    """It said that everything is whole."""
    run(directory, fill_two_files)
    assert heads_at_rest(directory) == []
    damage_head(directory, 12)
    (found,) = heads_at_rest(directory)
    assert found.startswith("000001.values is damaged: no value begins at byte ")
    run(directory, numbers_after(range(60)))


def test_what_a_killed_process_began_to_append_is_no_damaged_head(directory: Path) -> None:
    left = killed(directory, range(8))
    with values_path(str(left), 1).open("ab") as file:
        file.write(b"a part of a head")
    assert heads_at_rest(left) == []
    damage_head(left, 5)
    assert len(heads_at_rest(left)) == 1, "what was synced is no torn end"


def test_a_file_with_a_damaged_head_stays_while_most_of_it_is_alive(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run(directory, fill_two_files)
    damage_head(directory, 12)

    async def scenario(store: RocksStore) -> None:
        for number in range(3):
            await delete(store, [number])
            await rest(store)
        assert 1 in files(directory)
        assert (await numbers_of(store))[:37] == list(range(3, 40))
        assert caplog.text.count("000001.values is damaged") == 1, "in several rounds"
        await delete(store, range(3, 40))
        await rest(store, writes=400)
        assert 1 not in files(directory)

    run(directory, scenario)


def test_a_file_with_a_damaged_head_stays_while_rows_are_out_of_reach(directory: Path) -> None:
    """A family that is not open may have rows that point there."""
    run(directory, fill_two_files)
    damage_head(directory, 12)

    async def scenario() -> None:
        store = RocksStore.open(directory, value_stores.FAMILIES, payload_families=("payloads",))
        await delete(store, range(40))
        await rest(store, writes=400)
        assert 1 in files(directory)
        await store.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("seed", range(4))
def test_rows_change_while_a_file_with_a_damaged_head_is_looked_at(
    directory: Path, seed: int
) -> None:
    random = Random(seed)
    run(directory, fill_two_files)
    damage_head(directory, 9)

    async def scenario(store: RocksStore) -> None:
        expected = {number: value_of(number) for number in await numbers_of(store)}
        for _ in range(150):
            batch = WriteBatch()
            for number in random.sample(range(60), random.randint(1, 4)):
                if random.random() < 0.5:
                    batch.delete("payloads", key_of(number))
                    expected.pop(number, None)
                else:
                    value = random.randbytes(random.choice((10, LARGE)))
                    batch.put("payloads", key_of(number), value)
                    expected[number] = value
            await store.write(batch)
            if random.random() < 0.3:
                await store.sync()
            for number in range(60):
                found = await store.get("payloads", key_of(number))
                assert found == expected.get(number)
        for number in range(60):
            batch = WriteBatch()
            batch.delete("payloads", key_of(number))
            await store.write(batch)
        await rest(store, writes=400)
        assert 1 not in files(directory)

    run(directory, scenario)


def test_a_killed_process_leaves_files_that_nobody_needs(directory: Path) -> None:
    left = killed(directory, range(8))
    values_path(str(left), 2).write_bytes(b"begun")
    with values_path(str(left), 1).open("ab") as file:
        file.write(b"a value without a row")

    async def check(store: RocksStore) -> None:
        assert files(left) == [1]
        await put(store, range(8, 40))
        await put(store, range(40, 41))
        assert await numbers_of(store) == list(range(41))

    run(left, check)
    run(left, numbers_after(range(41)))


@pytest.mark.parametrize("tail", [b"", b"a part of a head", "head", "record", "zeros"])
def test_what_a_killed_process_began_to_append_keeps_no_file(
    directory: Path, tail: bytes | str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing behind it could be looked at, so that the file stayed for ever."""
    left = killed(directory, range(8))
    file = values_path(str(left), 1)
    records = file.read_bytes()
    record_bytes = (len(records) - 16) // 8
    torn = {
        "head": records[16:70],
        "record": records[16 : 16 + record_bytes - 1],
        "zeros": bytes(2 * record_bytes),
    }
    with file.open("ab") as end:
        end.write(tail if isinstance(tail, bytes) else torn[tail])

    async def check(store: RocksStore) -> None:
        await put(store, range(8, 40))
        await put(store, range(40, 60))
        assert await numbers_of(store) == list(range(60))
        assert files(left) == ([1, 2, 3] if tail else [1, 2]), "nothing is written over"
        assert file.read_bytes().startswith(records)
        await delete(store, range(40))
        await rest(store)
        assert files(left) == ([3] if tail else [2])
        assert await numbers_of(store) == list(range(40, 60))

    run(left, check)
    assert "cannot be looked at" not in caplog.text
    run(left, numbers_after(range(40, 60)))


def test_a_file_that_is_damaged_where_it_was_synced_is_not_taken_for_one_that_was_cut(
    directory: Path,
) -> None:
    """Its other values have rows, and would go with it."""
    left = killed(directory, range(8))
    file = values_path(str(left), 1)
    content = bytearray(file.read_bytes())
    # The head of the second value.
    content[16 + (len(content) - 16) // 8] ^= 1
    file.write_bytes(content)

    async def check(store: RocksStore) -> None:
        await put(store, range(8, 40))
        await put(store, range(40, 60))
        await delete(store, [0])
        await rest(store)
        assert 1 in files(left)
        assert await numbers_of(store) == list(range(1, 60))

    run(left, check)
    run(left, numbers_after(range(1, 60)))


def test_a_file_whose_end_cannot_be_read_at_the_start_is_not_taken_for_one_that_was_cut(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values behind have rows, and would go with it."""
    left = killed(directory, range(8))

    def fail(*_: object) -> None:
        raise OSError("the disk does not answer")

    async def check() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(value_files.ValueFiles, "_place", fail)
            store = opened(left)
        await put(store, range(8, 10))
        assert files(left) == [1], "it goes on growing"
        assert await numbers_of(store) == list(range(10))
        await store.close()

    asyncio.run(check())


@pytest.mark.parametrize("damage", ["zeros", "cut", "gone"])
def test_a_loss_of_power_takes_a_change_whole(
    directory: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The last change is in the log, and its values are not, or not all of them."""
    left = directory.with_name("left")
    synced_bytes = 0

    async def scenario(store: RocksStore) -> None:
        nonlocal synced_bytes
        await put(store, range(4))
        if damage == "gone":
            # The change begins the next file.
            await put(store, range(4, 24))
        synced_bytes = values_path(str(directory), 1).stat().st_size
        batch = WriteBatch()
        batch.put("small", b"row", b"of the same change")
        for number in (50, 51):
            batch.put("payloads", key_of(number), value_of(number))
        await store.write(batch)
        kill(directory, left)

    run(directory, scenario)
    if damage == "gone":
        assert files(left) == [1, 2]
        values_path(str(left), 2).unlink()
    else:
        file = values_path(str(left), 1)
        size = file.stat().st_size
        os.truncate(file, synced_bytes if damage == "cut" else size - 100)
        if damage == "zeros":
            os.truncate(file, size)
    with pytest.raises(InvalidConfig, match="start its server once, which removes that change"):
        asyncio.run(open_read_only(str(left)))
    numbers = list(range(24 if damage == "gone" else 4))

    async def check(store: RocksStore) -> None:
        assert await numbers_of(store) == numbers
        assert await store.get("small", b"row") is None
        await put(store, [60])

    run(left, check)
    assert "it was not synced, and is removed" in caplog.text
    run(left, numbers_after([*numbers, 60]))


def test_what_was_not_synced_and_is_whole_stays(directory: Path) -> None:
    left = directory.with_name("left")

    async def scenario(store: RocksStore) -> None:
        await put(store, range(4))
        batch = WriteBatch()
        batch.put("payloads", key_of(4), value_of(4))
        await store.write(batch)
        kill(directory, left)

    run(directory, scenario)
    run(left, numbers_after(range(5)))


def test_values_that_were_synced_are_not_given_up(directory: Path) -> None:
    left = killed(directory, range(4))
    os.truncate(values_path(str(left), 1), LARGE)
    with pytest.raises(StoreDamaged, match=r"000001\.values has 16384 bytes, and had"):
        opened(left)
    values_path(str(left), 1).unlink()
    with pytest.raises(StoreDamaged, match=r"000001\.values is missing"):
        opened(left)


def test_values_are_synced_ahead_of_their_rows(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And their directory entry, when a file is new."""
    steps: list[str] = []
    sync_data, sync_name = os.fdatasync, durable_files.sync

    async def scenario(store: RocksStore) -> None:
        database = store._database

        class Database:
            write = staticmethod(database.write)

            def flush_wal(self, sync: bool) -> None:
                steps.append("rows")
                database.flush_wal(sync)

        def data_synced(handle: int) -> None:
            steps.append("values")
            sync_data(handle)

        def name_synced(path: Path) -> None:
            steps.append(path.name)
            sync_name(path)

        monkeypatch.setattr(os, "fdatasync", data_synced)
        monkeypatch.setattr(durable_files, "sync", name_synced)
        observed: Any = Database()
        store._database = observed
        await put(store, [1])
        assert steps[:3] == ["values", directory.name, "rows"]
        del steps[:]
        await put(store, [2])
        assert [step for step in steps if step in ("values", "rows")] == ["values", "rows"]
        await put(store, range(20))
        del steps[:]
        assert files(directory) == [1]
        await put(store, [3])
        assert files(directory) == [1, 2]
        assert directory.name in steps[: steps.index("rows")]
        del steps[:]
        await rest(store, writes=1)
        assert "values" not in steps
        store._database = database

    run(directory, scenario)


def test_a_full_disk_fails_the_store(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fill(store: RocksStore) -> None:
        await put(store, range(4))

    run(directory, fill)

    async def scenario() -> None:
        store = opened(directory)
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwritev", full)
            with pytest.raises(StoreFailed, match="No space left"):
                await put(store, [4])
        with pytest.raises(StoreFailed):
            await put(store, [5])
        await store.close()

    asyncio.run(scenario())
    run(directory, numbers_after(range(4)))


def test_a_disk_that_is_full_when_values_move_fails_the_store(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new file would take values that follow, and stand in no list: the next start removes it."""
    run(directory, fill_two_files)
    monkeypatch.setattr(os, "pwritev", full)

    async def scenario() -> None:
        store = opened(directory)
        await delete(store, range(1, 40))
        with pytest.raises(StoreFailed, match="No space left"):
            await rest(store)
        await store.close()

    asyncio.run(scenario())
    monkeypatch.undo()
    run(directory, numbers_after([0, *range(40, 60)]))


def test_a_loss_that_a_person_accepts_may_name_files_that_are_gone(directory: Path) -> None:
    """The change that took a file off the list is among those that are lost."""
    left = directory.with_name("left")
    kept_bytes = 0

    async def scenario(store: RocksStore) -> None:
        nonlocal kept_bytes
        batch = WriteBatch()
        batch.put("meta", KEY, StoreIdentity(kind="broker", member="b").SerializeToString())
        await store.write(batch)
        await put(store, range(40))
        await put(store, range(40, 44))
        kept_bytes = numbered(str(directory), LOG)[-1][1].stat().st_size
        await delete(store, range(40))
        await rest(store)
        assert 1 not in files(directory)
        kill(directory, left)

    run(directory, scenario)
    os.truncate(numbered(str(left), LOG)[-1][1], kept_bytes)
    accept_loss(str(left))

    async def check(store: RocksStore) -> None:
        assert await store.get("payloads", key_of(41)) == value_of(41)
        with pytest.raises(RowsUnreadable, match=r"000001\.values cannot be read"):
            await store.get("payloads", key_of(1))

    run(left, check)


def test_a_store_that_answers_before_it_syncs_has_files_too(directory: Path) -> None:
    run(directory, fill_two_files)

    async def scenario() -> None:
        store = opened(directory, late_syncs=True)
        await put(store, range(60, 100))
        await put(store, range(100, 120))
        assert await numbers_of(store) == list(range(120))
        assert len(files(directory)) == 4
        await delete(store, range(50))
        await rest(store)
        assert 1 not in files(directory)
        assert await numbers_of(store) == list(range(50, 120))
        await store.close()

    asyncio.run(scenario())
    run(directory, numbers_after(range(50, 120)))
