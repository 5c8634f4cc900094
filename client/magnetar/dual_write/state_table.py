"""The table of states in a relational database: its statements, written once for all drivers."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from random import Random
from typing import Any, Protocol

from magnetar.dual_write.here import result_of
from magnetar.dual_write.session_locks import SessionLocks, session_locks
from magnetar_core.errors import InvalidArgument

TABLE = "magnetar_transaction_state"
CREATE = (
    f"CREATE TABLE IF NOT EXISTS {TABLE} (transactional_id VARCHAR(255) PRIMARY KEY,"
    " prepared_transaction_state VARCHAR(255) NOT NULL, owner VARCHAR(255) NOT NULL,"
    " holder VARCHAR(255) NOT NULL)"
)
_WHERE = "WHERE transactional_id = ?"
_SELECT = f"SELECT prepared_transaction_state FROM {TABLE} {_WHERE}"
_CLAIM = f"UPDATE {TABLE} SET owner = ? {_WHERE}"
_HOLD = f"UPDATE {TABLE} SET holder = ? {_WHERE}"
_WRITE = f"UPDATE {TABLE} SET prepared_transaction_state = ? {_WHERE} AND owner = ?"
_INSERT = f"INSERT INTO {TABLE} VALUES (?, ?, ?, ?)"
_DELETE = f"DELETE FROM {TABLE} {_WHERE}"
_HOLDERS = f"SELECT transactional_id, holder FROM {TABLE} WHERE transactional_id LIKE ?"
# Any statement shows whether the connection is there.
_PROBE = "SELECT 1"

_COMMITS_BY_ITSELF = (
    "the database connection commits by itself: a rollback has not undone a row, so rows would stay"
    " when their unit fails. Switch that off; it is isolation_level=None or autocommit=True of"
    " sqlite3, autocommit=True of psycopg, isolation_level='AUTOCOMMIT' of SQLAlchemy, or a kind of"
    " table without transactions"
)

Rows = Sequence[Sequence[Any]]


class Driver(Protocol):
    """A connection to a database, blocking or of asyncio. Statements mark parameters by `?`."""

    def create_table(self) -> Awaitable[None] | None:
        """Create the table, if it is missing."""
        ...

    def fetch(self, statement: str, *parameters: str) -> Awaitable[Rows] | Rows:
        """Run a statement that returns rows."""
        ...

    def change(self, statement: str, *parameters: str) -> Awaitable[int] | int:
        """Run a statement that changes rows, and return how many."""
        ...

    def begin(self) -> Awaitable[None] | None:
        """Begin a transaction, if the first statement does not. Whatever is open is undone."""
        ...

    def commit(self) -> Awaitable[None] | None:
        """Commit the transaction durably."""
        ...

    def rollback(self) -> Awaitable[None] | None:
        """Roll the transaction back. Harmless if none is open."""
        ...


class StateTable:
    """The table, as stores use it."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._locks: SessionLocks | None = None

    async def create(self) -> None:
        """Create the table, and check that the connection does not commit by itself."""
        await self._rollback()
        try:
            await self._create()
        except Exception:
            # Another process may have created it at the same time, which PostgreSQL refuses even
            # with IF NOT EXISTS. Any other error comes again.
            await self._rollback()
            await self._create()
        await self._require_rollback()

    async def _create(self) -> None:
        await result_of(self._driver.begin())
        await result_of(self._driver.create_table())
        await self._commit()

    async def _require_rollback(self) -> None:
        """Check that a rollback undoes what was written: write a row, roll back, read it.

        Raises:
            InvalidArgument: it does not. The row was deleted again.
        """
        # A key that cannot be a transactional id, and that no other process uses at the same time.
        row = f"rollback {Random().getrandbits(64):016x}"
        await result_of(self._driver.begin())
        await result_of(self._driver.change(_INSERT, row, row, "", ""))
        await self._rollback()
        if await self.read(row):
            await result_of(self._driver.begin())
            await result_of(self._driver.change(_DELETE, row))
            await self._commit()
            raise InvalidArgument(_COMMITS_BY_ITSELF)

    async def begin(self) -> None:
        """Begin a database transaction, which shows whether the connection is there."""
        await self._rollback()
        await result_of(self._driver.begin())
        await result_of(self._driver.fetch(_PROBE))

    async def read(self, transactional_id: str) -> str:
        """Return the text that was committed last."""
        text = await self._text(transactional_id)
        await self._rollback()
        return text

    async def claim(self, transactional_id: str, owner: str) -> str:
        """Become the owner of the id and return its text."""
        await self._rollback()
        await result_of(self._driver.begin())
        if not await result_of(self._driver.change(_CLAIM, owner, transactional_id)):
            await result_of(self._driver.change(_INSERT, transactional_id, "", owner, ""))
        text = await self._text(transactional_id)
        await self._commit()
        return text

    async def write(self, transactional_id: str, owner: str, text: str) -> bool:
        """Set the text, if the id still belongs to this owner."""
        return bool(await result_of(self._driver.change(_WRITE, text, transactional_id, owner)))

    async def commit(self) -> None:
        """Commit the database transaction durably."""
        await self._commit()

    async def rollback(self) -> None:
        """Roll the database transaction back."""
        await self._rollback()

    async def holders(self, prefix: str) -> dict[str, str]:
        """Return who holds the ids that begin so."""
        rows = await result_of(self._driver.fetch(_HOLDERS, f"{prefix}%"))
        found = {str(name): str(holder) for name, holder in rows}
        await self._rollback()
        # In a pattern some letters have a meaning: it may have found too much.
        return {name: holder for name, holder in found.items() if name.startswith(prefix)}

    async def hold(self, transactional_id: str, holder: str) -> bool:
        """Hold an id until the connection ends."""
        await self._rollback()
        if self._locks is None:
            self._locks = await session_locks(self._driver)
        if not await self._locks.take(transactional_id):
            return False
        await result_of(self._driver.begin())
        if not await result_of(self._driver.change(_HOLD, holder, transactional_id)):
            await result_of(self._driver.change(_INSERT, transactional_id, "", "", holder))
        await self._commit()
        return True

    async def release(self, transactional_id: str) -> None:
        """Write down that an id is settled. Its lock ends with the connection."""
        await self._rollback()
        await result_of(self._driver.begin())
        await result_of(self._driver.change(_HOLD, "", transactional_id))
        await self._commit()

    def close(self) -> None:
        """Give up the locks that do not end with the connection."""
        if self._locks is not None:
            self._locks.close()

    async def _text(self, transactional_id: str) -> str:
        rows = await result_of(self._driver.fetch(_SELECT, transactional_id))
        return str(rows[0][0]) if rows else ""

    async def _commit(self) -> None:
        await result_of(self._driver.commit())

    async def _rollback(self) -> None:
        await result_of(self._driver.rollback())
