"""RocksDB: data and state in one atomic batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import rocksdict

# Before every transactional id; choose keys for data that begin otherwise.
STATE_PREFIX = b"magnetar_transaction_state/"


class RocksStore:
    """A database that was opened in raw mode (bytes as keys and values), and that stays open.

    What a unit puts is seen by `database.get` only after the unit has committed.
    """

    def __init__(self, database: rocksdict.Rdict) -> None:
        import rocksdict

        self.database = database
        self._owners: dict[str, str] = {}
        self._rocksdict = rocksdict
        self._batch = rocksdict.WriteBatch(raw_mode=True)
        self._synced = rocksdict.WriteOptions()
        self._synced.sync = True

    def put(self, key: bytes, value: bytes) -> None:
        self._batch.put(key, value)

    def delete(self, key: bytes) -> None:
        self._batch.delete(key)

    def create_schema(self) -> None:
        """There is none: a key of its own for each transactional id."""

    def begin(self) -> None:
        self._batch = self._rocksdict.WriteBatch(raw_mode=True)

    def read(self, transactional_id: str) -> str:
        found = self.database.get(_key(transactional_id))
        return "" if found is None else bytes(found).decode()

    def claim(self, transactional_id: str, owner: str) -> str:
        # The database's lock has one process only; in that, the last writer is the owner.
        self._owners[transactional_id] = owner
        return self.read(transactional_id)

    def write(self, transactional_id: str, owner: str, text: str) -> bool:
        self._batch.put(_key(transactional_id), text.encode())
        return self._owners.get(transactional_id) == owner

    def commit(self) -> None:
        self.database.write(self._batch, self._synced)

    def rollback(self) -> None:
        self.begin()


def _key(transactional_id: str) -> bytes:
    return STATE_PREFIX + transactional_id.encode()
