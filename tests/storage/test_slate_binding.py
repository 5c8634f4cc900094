"""What passes the binding of SlateDB is what the binding itself would pass, byte for byte."""

from __future__ import annotations

import ast
import asyncio
import fnmatch
import inspect
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from slatedb import uniffi

from magnetar_storage.slatedb import binding as binding

generated: Any = uniffi._generated

values = st.binary(max_size=40) | st.just(b"large" * 1_000)


# The private names of the binding that are used, and no others: whoever takes another version of
# slatedb looks at these.
PRIVATE = {
    "_UniffiFfiConverterTypeDbIterator",
    "_UniffiFfiConverterTypeError",
    "_UniffiFfiConverterTypeScanOptions",
    "_UniffiForeignBytes",
    "_UniffiLib",
    "_uniffi_rust_call",
    "_uniffi_rust_call_async",
    "_uniffi_rust_call_with_error",
    "ffi_slatedb_uniffi_rust_future_complete_*",
    "ffi_slatedb_uniffi_rust_future_free_*",
    "ffi_slatedb_uniffi_rust_future_poll_*",
    "ffi_slatedb_uniffi_rustbuffer_from_bytes",
    "uniffi_slatedb_uniffi_fn_method_*_*",
    "uniffi_slatedb_uniffi_fn_method_dbiterator_next_batch",
    "uniffi_slatedb_uniffi_fn_method_dbiterator_seek",
    "uniffi_slatedb_uniffi_fn_method_slatedbwaliterator_next",
    "uniffi_slatedb_uniffi_fn_method_writebatch_delete",
    "uniffi_slatedb_uniffi_fn_method_writebatch_put",
}
PRIVATE_OF_OBJECTS = {"_uniffi_clone_handle"}


def used_names() -> set[str]:
    """The private names of the binding in the source; `*` stands for what is formatted in."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(inspect.getsource(binding))):
        if isinstance(node, ast.Attribute) and "niffi" in node.attr:
            names.add(node.attr)
        elif isinstance(node, ast.JoinedStr) and "uniffi" in ast.unparse(node):
            parts = [
                value.value if isinstance(value, ast.Constant) else "*" for value in node.values
            ]
            names.add("".join(map(str, parts)))
    return names


def test_these_private_names_of_the_binding_are_used() -> None:
    """All of them are there, and no other module knows any."""
    assert used_names() == PRIVATE | PRIVATE_OF_OBJECTS
    known = [*dir(generated), *vars(generated._UniffiLib)]
    for name in PRIVATE:
        assert fnmatch.filter(known, name), name
    room = Path(inspect.getfile(binding)).parent
    knowing = {one.name for one in room.glob("*.py") if "_generated" in one.read_text()}
    assert knowing == {"binding.py"}


def test_the_tested_version_is_the_one_that_is_asked_for() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    assert f"slatedb=={binding.TESTED_VERSION}" in extras["object-store"]


def test_the_binding_still_moves_bytes_one_by_one() -> None:
    """Otherwise binding.py has nothing left to do: remove it, and call the binding."""
    assert "for i, byte in enumerate(value)" in inspect.getsource(
        generated._UniffiRustBufferBuilder.write
    )
    assert "struct.unpack" in inspect.getsource(generated._UniffiRustBufferStream._unpack_from)
    assert "alloc_with_builder" in inspect.getsource(generated._UniffiConverterRustBuffer.lower)


@given(value=values)
def test_bytes_are_packed_as_the_binding_packs_them(value: bytes) -> None:
    expected = binding.content_of(generated._UniffiFfiConverterBytes.lower(value))
    assert binding.content_of(binding.buffer_of(binding.packed(value))) == expected


@given(start=values, end=values)
def test_ranges_are_packed_as_the_binding_packs_them(start: bytes, end: bytes) -> None:
    bounds = uniffi.KeyRange(start=start, start_inclusive=True, end=end, end_inclusive=False)
    expected = binding.content_of(generated._UniffiFfiConverterTypeKeyRange.lower(bounds))
    assert binding.packed_range(start, end) == expected


@given(value=st.none() | values)
def test_an_optional_value_is_unpacked_as_the_binding_unpacks_it(value: bytes | None) -> None:
    lower = generated._UniffiFfiConverterOptionalBytes.lower
    assert binding.optional_bytes_from(lower(value)) == value


@given(
    rows=st.lists(
        st.tuples(values, values, st.integers(0, 2**64 - 1), st.none() | st.integers(0, 2**62)),
        max_size=4,
    )
)
def test_rows_are_unpacked_as_the_binding_unpacks_them(rows: list[Any]) -> None:
    pairs = [
        uniffi.KeyValue(key=key, value=value, seq=seq, create_ts=-1, expire_ts=expires)
        for key, value, seq, expires in rows
    ]
    converter = generated._UniffiFfiConverterSequenceTypeKeyValue
    assert converter.lift(converter.lower(pairs)) == pairs
    assert binding.rows_from(converter.lower(pairs)) == [(key, value) for key, value, _, _ in rows]


@given(
    rows=st.none()
    | st.lists(
        st.builds(
            uniffi.RowEntry,
            kind=st.sampled_from(uniffi.RowEntryKind),
            key=values,
            value=st.none() | values,
            seq=st.integers(1, 2**64 - 1),
            create_ts=st.none() | st.integers(0, 2**62),
            expire_ts=st.none() | st.integers(0, 2**62),
        ),
        max_size=4,
    )
)
def test_the_newest_row_of_a_log_object_is_that_which_the_binding_unpacks(
    rows: list[Any] | None,
) -> None:
    found = None if rows is None else uniffi.WalRows(rows=rows, last_consumed_wal_file_id=7)
    converter = generated._UniffiFfiConverterOptionalTypeWalRows
    assert converter.lift(converter.lower(found)) == found
    newest = max((row.seq for row in rows or ()), default=0)
    assert binding.newest_from(converter.lower(found)) == newest


def test_all_calls_work() -> None:
    async def scenario() -> None:
        objects = uniffi.ObjectStore.resolve("memory:///")
        database = await uniffi.DbBuilder("rows", objects).build()
        batch = uniffi.WriteBatch()
        for key in (b"a", b"b", b"c", b"d", b"e"):
            binding.put(batch, key, b"value of " + key)
        binding.put(batch, b"empty", b"")
        binding.delete(batch, b"b")
        await database.write(batch)
        plan = binding.ScanPlan(
            uniffi.ScanOptions(
                durability_filter=uniffi.DurabilityLevel.MEMORY,
                dirty=False,
                read_ahead_bytes=1,
                cache_blocks=True,
                max_fetch_tasks=1,
            ),
            is_reverse=False,
        )
        for reader in (database, await database.snapshot()):
            assert await binding.get(reader, b"a") == b"value of a"
            assert await binding.get(reader, b"b") is None
            assert await binding.get(reader, b"empty") == b""
            iterator = await binding.scan(reader, b"a", b"e", plan)
            assert await binding.next_rows(iterator, 1) == [(b"a", b"value of a")]
            await binding.seek(iterator, b"d")
            assert await binding.next_rows(iterator, 9) == [(b"d", b"value of d")]
        with pytest.raises(uniffi.Error.Invalid):
            binding.put(uniffi.WriteBatch(), b"", b"a key is never empty")
        await database.flush_with_options(uniffi.FlushOptions(flush_type=uniffi.FlushType.WAL))
        log = uniffi.SlateDbWalReader("rows", objects)
        newest = await log.iterator(await log.last_wal_file_id(0))
        assert await binding.newest_in_log_object(newest) == database.status().durable_seq
        await database.shutdown()
        with pytest.raises(uniffi.Error.Closed):
            await binding.get(database, b"a")

    asyncio.run(scenario())
