"""Where a server keeps its rows."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from magnetar_broker.config import BrokerConfig
from magnetar_cli.servers import broker
from magnetar_cli.servers.open_store import Rows, open_store, place_of
from magnetar_core.config import InvalidConfig
from magnetar_storage.store import StoreFailed, WriteBatch
from magnetar_storage.store_config import StoreConfig


def rows_of(directory: Path, store: str = "", *, kind: str = "broker", name: str = "b-0") -> Rows:
    return Rows(
        kind=kind,
        name=name,
        data_dir=directory,
        families=("rows",),
        block_cache_bytes=1 << 20,
        memtables_bytes=8 << 20,
        config=StoreConfig(store=store),
    )


def write_or_read(rows: Rows, value: bytes | None = None) -> bytes | None:
    """Set the row of a server's store, or return it."""

    async def scenario() -> bytes | None:
        ended: list[StoreFailed] = []
        store = await open_store(rows, CollectorRegistry(), ended.append)
        try:
            if value is not None:
                batch = WriteBatch()
                batch.put("rows", b"key", value)
                await store.write(batch)
                await store.sync()
            return await store.get("rows", b"key")
        finally:
            await store.close()

    return asyncio.run(scenario())


def test_servers_that_share_an_address_have_a_place_each(tmp_path: Path) -> None:
    store = f"file://{tmp_path}/objects"
    servers = [
        rows_of(tmp_path / "none", store, kind=kind, name=name)
        for kind in ("broker", "coordinator")
        for name in ("one", "two")
    ]
    for number, rows in enumerate(servers):
        write_or_read(rows, b"of %d" % number)
    assert [write_or_read(rows) for rows in servers] == [b"of %d" % one for one in range(4)]
    assert str(place_of(servers[3])) == f"{store}/coordinators/two"
    assert not (tmp_path / "none").exists(), "nothing lies on the server's own disk"


def test_a_directory_with_rows_is_not_passed_over(tmp_path: Path) -> None:
    """Else a server would begin anew, and its user would take the data for lost."""
    write_or_read(rows_of(tmp_path / "data"), b"old")
    with pytest.raises(InvalidConfig, match="has the rows of a server"):
        write_or_read(rows_of(tmp_path / "data", f"file://{tmp_path}/objects"))
    assert not (tmp_path / "objects").exists()
    assert write_or_read(rows_of(tmp_path / "data")) == b"old"


def test_a_name_that_no_object_store_keeps_as_it_is_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="cannot be part of a store's address"):
        write_or_read(rows_of(tmp_path, f"file://{tmp_path}/objects", name="my broker"))


@pytest.mark.parametrize(("given_bytes", "cache_bytes"), [(None, 32 << 20), (7 << 20, 7 << 20)])
def test_a_broker_gives_its_store_a_part_of_its_memory(
    tmp_path: Path, given_bytes: int | None, cache_bytes: int
) -> None:
    rows = broker._rows(
        {"data_dir": tmp_path},
        BrokerConfig(memory_bytes=256 << 20),
        StoreConfig(store="s3://bucket/prefix", store_memory_cache_bytes=given_bytes),
        "b-0",
    )
    assert rows.config.store_memory_cache_bytes == cache_bytes
    assert rows.config.store == "s3://bucket/prefix"
    assert rows.memtables_bytes == 32 << 20
    assert rows.block_cache_bytes == 16 << 20


def test_rocksdb_has_the_memory_that_it_was_given(tmp_path: Path) -> None:
    write_or_read(rows_of(tmp_path), b"value")
    newest = max(tmp_path.glob("OPTIONS-*"))
    assert f"  db_write_buffer_size={8 << 20}\n" in newest.read_text()
