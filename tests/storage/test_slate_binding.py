"""What passes the binding of SlateDB is what the binding itself would pass, byte for byte."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from slatedb import uniffi

from magnetar_storage.slatedb import binding as binding

generated: Any = uniffi._generated

values = st.binary(max_size=40) | st.just(b"large" * 1_000)


def test_this_version_of_the_binding_is_one_that_is_known() -> None:
    assert binding.IS_FAST, (
        f"slatedb {binding.VERSION} is not in TESTED_VERSIONS: when the other tests of this file"
        " pass with it, add it"
    )


def test_the_binding_still_moves_bytes_one_by_one() -> None:
    """Else slate_binding has nothing left to do: remove it, and call the binding."""
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


@pytest.mark.parametrize("is_fast", [True, False])
def test_all_calls_work_with_and_without_the_knowledge_of_inner_names(
    is_fast: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(binding, "IS_FAST", is_fast)
    binding.say_if_slow()
    assert ("moves bytes slowly" in caplog.text) == (not is_fast)

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
