"""Conformance, continued: all engines against a dict, in any order of operations."""

from __future__ import annotations

import asyncio
import tempfile
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from magnetar_storage.memory.engine import MemoryDisk, MemoryStore
from magnetar_storage.rocksdb import prefixes as rocks_prefixes
from magnetar_storage.rocksdb.engine import RocksStore
from magnetar_storage.store import DELETE, KEY_END, PUT, Store, WriteBatch

FAMILIES = ("one", "two")
Rows = dict[str, dict[bytes, bytes]]

families = st.sampled_from(FAMILIES)
keys = st.binary(max_size=2) | st.sampled_from([b"a", b"ab", b"b", b"\xff\xff"])
values = st.binary(max_size=3) | st.just(b"large" * 2000)
operations = st.one_of(
    st.tuples(st.just(PUT), families, keys, values),
    st.tuples(st.just(PUT), families, keys, values),
    st.tuples(st.just(DELETE), families, keys, st.just(b"")),
    st.tuples(st.just(2), families, keys, keys),
)


def apply(rows: Rows, operation: tuple[int, str, bytes, bytes]) -> None:
    kind, family, key, value = operation
    if kind == PUT:
        rows[family][key] = value
    elif kind == DELETE:
        rows[family].pop(key, None)
    else:
        for doomed in [one for one in rows[family] if key <= one < value]:
            del rows[family][doomed]


class StoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.store = self.open()
        self.rows: Rows = {family: {} for family in FAMILIES}
        self.snapshots: list[tuple[Any, Rows]] = []

    def open(self) -> Store:
        raise NotImplementedError

    def wait(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    @rule(many=st.lists(operations, max_size=6), synced=st.booleans())
    def write(self, many: list[tuple[int, str, bytes, bytes]], synced: bool) -> None:
        batch = WriteBatch()
        for kind, family, key, value in many:
            if kind == PUT:
                batch.put(family, key, value)
            elif kind == DELETE:
                batch.delete(family, key)
            elif key <= value:
                batch.delete_range(family, key, value)
        self.wait(self.store.write(batch))
        if synced:
            self.wait(self.store.sync())
        for operation in batch.operations:
            apply(self.rows, operation)

    @rule()
    def snapshot(self) -> None:
        copy = {family: dict(rows) for family, rows in self.rows.items()}
        self.snapshots = [*self.snapshots[-1:], (self.wait(self.store.snapshot()), copy)]

    @rule()
    def reopen(self) -> None:
        self.wait(self.store.sync())
        self.wait(self.store.close())
        self.snapshots.clear()
        self.store = self.open()

    @rule(
        family=families,
        start=keys,
        end=keys,
        rows_max=st.integers(1, 4),
        bytes_max=st.none() | st.integers(1, 12),
        reverse=st.booleans(),
        key=keys,
    )
    def read(
        self,
        family: str,
        start: bytes,
        end: bytes,
        rows_max: int,
        bytes_max: int | None,
        reverse: bool,
        key: bytes,
    ) -> None:
        for reader, rows in [(self.store, self.rows), *self.snapshots]:
            expected: list[tuple[bytes, bytes]] = []
            size = 0
            for one in sorted(rows[family], reverse=reverse):
                if start <= one < end and len(expected) < rows_max:
                    if bytes_max is not None and size >= bytes_max:
                        break
                    expected.append((one, rows[family][one]))
                    size += len(one) + len(rows[family][one])
            found = self.wait(
                reader.scan(
                    family, start, end, rows_max=rows_max, bytes_max=bytes_max, reverse=reverse
                )
            )
            assert found == expected
            assert self.wait(reader.get(family, key)) == rows[family].get(key)

    @rule(
        family=families,
        start=keys,
        end=keys,
        length=st.integers(1, 3),
        count_max=st.integers(1, 3),
    )
    def read_prefixes(
        self, family: str, start: bytes, end: bytes, length: int, count_max: int
    ) -> None:
        expected = sorted({key[:length] for key in self.rows[family] if start <= key < end})
        found: list[bytes] = []
        at: bytes | None = start
        while at is not None:
            some, at = self.wait(
                self.store.prefixes(family, at, end, length=length, count_max=count_max)
            )
            assert len(some) <= count_max
            found += some
        assert found == expected

    @invariant()
    def everything_is_there(self) -> None:
        for reader, rows in [(self.store, self.rows), *self.snapshots]:
            for family in FAMILIES:
                found = self.wait(reader.scan(family, b"", KEY_END, rows_max=10_000))
                assert found == sorted(rows[family].items())

    def teardown(self) -> None:
        self.wait(self.store.close())
        self.loop.close()


class MemoryMachine(StoreMachine):
    def __init__(self) -> None:
        self.disk = MemoryDisk()
        super().__init__()

    def open(self) -> Store:
        return MemoryStore(self.disk, FAMILIES)


class RocksMachine(StoreMachine):
    def __init__(self) -> None:
        self.directory = tempfile.TemporaryDirectory()
        # Few rows are to be many, so that walks over prefixes give up and go on.
        self.patched = pytest.MonkeyPatch()
        self.patched.setattr(rocks_prefixes, "SKIPPED_MAX", 1)
        self.patched.setattr(rocks_prefixes, "MISSES_MAX", 2)
        super().__init__()

    def open(self) -> Store:
        return RocksStore.open(self.directory.name, FAMILIES, payload_families=("two",))

    def teardown(self) -> None:
        super().teardown()
        self.patched.undo()
        self.directory.cleanup()


class SlateMachine(StoreMachine):
    def __init__(self) -> None:
        self.directory = tempfile.TemporaryDirectory()
        super().__init__()

    def open(self) -> Store:
        from magnetar_storage.object_store.url import ObjectStoreUrl
        from magnetar_storage.slatedb.engine import SlateStore

        url = ObjectStoreUrl.parse(f"file://{self.directory.name}/store")
        # Rows are read from tables as well as from memory.
        store: Store = self.wait(
            SlateStore.open(url, FAMILIES, payload_families=("two",), unflushed_groups_max=2)
        )
        return store

    def teardown(self) -> None:
        super().teardown()
        self.directory.cleanup()


TestMemory = MemoryMachine.TestCase
TestMemory.settings = settings(max_examples=60, stateful_step_count=20)
TestRocks = RocksMachine.TestCase
TestRocks.settings = settings(max_examples=12, stateful_step_count=20)
TestSlate = SlateMachine.TestCase
TestSlate.settings = settings(max_examples=8, stateful_step_count=20)
