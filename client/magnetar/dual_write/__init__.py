"""Writes to a database and to topics that never disagree (KIP-939's dual-write recipe).

    with blocking.connect("127.0.0.1:6650") as client:
        producer = client.transactional_producer("orders", two_phase_commit=True)
        writer = DualWriter(producer, DbApiStore(sqlite3.connect("orders.db"), "qmark"))
        writer.start()
        with writer.unit() as unit:
            unit.store.execute("INSERT INTO orders VALUES (?, ?)", (7, "tea"))
            unit.send("orders", b"tea", key=b"7")

The rows that a unit writes and the messages that it sends count together or not at all, whichever
process crashes. The database decides: it stores, in the same transaction as the data, which
transaction was prepared.
"""

from magnetar.dual_write.recipe import DualWriter, StateStore, Step, Unit
from magnetar.dual_write.rocks import RocksStore
from magnetar.dual_write.sql import DbApiStore, SqlAlchemyStore

__all__ = [
    "DbApiStore",
    "DualWriter",
    "RocksStore",
    "SqlAlchemyStore",
    "StateStore",
    "Step",
    "Unit",
]
