"""A store for RocksDB, which keeps data and state in the same atomic batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import rocksdict

# The prefix of every transactional id; keys of data must begin with something else.
STATE_PREFIX = b"magnetar_transaction_state/"


class RocksStore:
    """A store on a RocksDB database.

    `database.get` sees the rows of a unit only after the unit has committed.

    Args:
        database: opened in raw mode (bytes as keys and values); it must stay open.
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
        """Put a row in the current unit."""
        self._batch.put(key, value)

    def delete(self, key: bytes) -> None:
        """Delete a row in the current unit."""
        self._batch.delete(key)

    def create_schema(self) -> None:
        """Do nothing: each transactional id has a key, and needs no schema."""

    def begin(self) -> None:
        """Begin a database transaction."""
        self._batch = self._rocksdict.WriteBatch(raw_mode=True)

    def read(self, transactional_id: str) -> str:
        """Return the text that was committed last."""
        found = self.database.get(_key(transactional_id))
        return "" if found is None else bytes(found).decode()

    def claim(self, transactional_id: str, owner: str) -> str:
        """Become the owner of the id and return its text."""
        # The database's lock has one process only; in that, the last writer is the owner.
        self._owners[transactional_id] = owner
        return self.read(transactional_id)

    def write(self, transactional_id: str, owner: str, text: str) -> bool:
        """Set the text, if the id still belongs to this owner."""
        self._batch.put(_key(transactional_id), text.encode())
        return self._owners.get(transactional_id) == owner

    def commit(self) -> None:
        """Commit the database transaction durably."""
        self.database.write(self._batch, self._synced)

    def rollback(self) -> None:
        """Roll the database transaction back."""
        self.begin()


def _key(transactional_id: str) -> bytes:
    return STATE_PREFIX + transactional_id.encode()
