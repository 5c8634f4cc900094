"""A database and topics that never disagree, whoever crashes: KIP-939's dual-write recipe.

    with blocking.connect("127.0.0.1:6650") as client:
        producer = client.transactional_producer("orders", two_phase_commit=True)
        writer = DualWriter(producer, DbApiStore(sqlite3.connect("orders.db"), "qmark"))
        writer.start()
        with writer.unit() as unit:
            unit.store.execute("INSERT INTO orders VALUES (?, ?)", (7, "tea"))
            unit.send("orders", b"tea", key=b"7")

What a unit writes to the database and sends to topics counts together, or not at all. The database
decides: it keeps, in the same transaction as the data, which transaction was prepared.
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
