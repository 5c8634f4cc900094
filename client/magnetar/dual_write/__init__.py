"""Writes to a database and to topics that never disagree (KIP-939's dual-write recipe).

    with blocking.connect("127.0.0.1:6650") as client:
        producer = client.transactional_producer("orders", two_phase_commit=True)
        writer = DualWriter(producer, DbApiStore(sqlite3.connect("orders.db"), "qmark"))
        writer.start()
        with writer.unit() as unit:
            unit.store.execute("INSERT INTO orders VALUES (?, ?)", (7, "tea"))
            unit.send("orders", b"tea", key=b"7")

A service has a `DualWriterPool`, a program of asyncio an `AsyncDualWriter` or its pool.

The rows that a unit writes and the messages that it sends count together or not at all, whichever
process crashes. The database decides: it stores, in the same transaction as the data, which
transaction was prepared.
"""

from magnetar.dual_write.async_sql import AsyncDbApiStore, AsyncpgStore, AsyncSqlAlchemyStore
from magnetar.dual_write.async_writer import AsyncDualWriter, AsyncUnit
from magnetar.dual_write.pool import AsyncDualWriterPool, DualWriterPool
from magnetar.dual_write.recipe import Step
from magnetar.dual_write.rocks import RocksStore
from magnetar.dual_write.sql import DbApiStore, SqlAlchemyStore
from magnetar.dual_write.state_store import (
    AsyncPooledStore,
    AsyncStateStore,
    PooledStore,
    StateStore,
)
from magnetar.dual_write.writer import DualWriter, Unit

__all__ = [
    "AsyncDbApiStore",
    "AsyncDualWriter",
    "AsyncDualWriterPool",
    "AsyncPooledStore",
    "AsyncSqlAlchemyStore",
    "AsyncStateStore",
    "AsyncUnit",
    "AsyncpgStore",
    "DbApiStore",
    "DualWriter",
    "DualWriterPool",
    "PooledStore",
    "RocksStore",
    "SqlAlchemyStore",
    "StateStore",
    "Step",
    "Unit",
]
