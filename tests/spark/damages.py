"""Damages made on purpose: rows of a stopped broker's store, removed, copied and changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from magnetar_broker import keys
from magnetar_core.ids import TxnID
from magnetar_core.wire import record_pb2 as records
from magnetar_storage.rocksdb.engine import RocksStore
from magnetar_storage.store import KEY_END, WriteBatch, end_of_prefix

ROWS_MAX = 10_000


class Store:
    """A stopped broker's rows."""

    def __init__(self, rocks: RocksStore, batch: WriteBatch) -> None:
        self._rocks = rocks
        self.batch = batch

    async def rows(self, family: str, prefix: bytes) -> list[tuple[bytes, bytes]]:
        end = end_of_prefix(prefix) if prefix else KEY_END
        return await self._rocks.scan(family, prefix, end, rows_max=ROWS_MAX)

    async def log(self, topic_id: int, partition: int) -> list[tuple[bytes, bytes]]:
        return await self.rows(keys.LOG, keys.partition(topic_id, partition))

    async def remove_entry(self, topic_id: int, partition: int, place: int) -> None:
        """A gap."""
        self.batch.delete(keys.LOG, (await self.log(topic_id, partition))[place][0])

    async def copy_entry(
        self, topic_id: int, partition: int, place: int, *, offset: int | None = None
    ) -> None:
        """The same entry once more: at the end, or over what is there."""
        value = (await self.log(topic_id, partition))[place][1]
        key = keys.partition(topic_id, partition)
        ((_, row_value),) = await self.rows(keys.PARTITIONS, key)
        row = records.PartitionRow.FromString(row_value)
        at = row.end_offset if offset is None else offset
        self.batch.put(keys.LOG, keys.in_partition(topic_id, partition, at), value)
        if offset is None:
            row.end_offset += int.from_bytes(value[1:5], "little")
            self.batch.put(keys.PARTITIONS, key, row.SerializeToString())

    async def change_entry(self, topic_id: int, partition: int, place: int) -> None:
        """One bit, as disks do."""
        key, value = (await self.log(topic_id, partition))[place]
        self.batch.put(keys.LOG, key, value[:-8] + bytes((value[-8] ^ 1,)) + value[-7:])

    async def remove_from_sidecar(self, topic_id: int, partition: int) -> None:
        """The last batch of the last transaction: its marker promises more than is there."""
        rows = await self.rows(keys.TXNLOG, keys.partition(topic_id, partition))
        self.batch.delete(keys.TXNLOG, rows[-1][0])

    async def revive_in_sidecar(self, topic_id: int, partition: int, txn_id: TxnID) -> None:
        """A batch of a transaction that has ended: a copy of what another one has there."""
        prefix = keys.partition(topic_id, partition)
        value = (await self.rows(keys.TXNLOG, prefix))[0][1]
        self.batch.put(keys.TXNLOG, keys.txnlog(prefix, txn_id, 0, 0), value)

    async def remove_from_index(self, txn_id: TxnID, topic_id: int, partition: int) -> None:
        """What is in the sidecar log is then nobody's."""
        rows = await self.rows(keys.TXNINDEX, keys.txnindex(txn_id, topic_id, partition))
        assert rows
        for key, _ in rows:
            self.batch.delete(keys.TXNINDEX, key)


def damage(directory: Path, change: Callable[[Store], object]) -> None:
    """Change the rows of a broker that does not run."""

    async def run() -> None:
        rocks = RocksStore.open(directory, keys.FAMILIES, payload_families=keys.PAYLOAD_FAMILIES)
        store = Store(rocks, WriteBatch())
        await change(store)  # type: ignore[misc]
        await rocks.write(store.batch)
        await rocks.sync()
        await rocks.close()

    asyncio.run(run())
