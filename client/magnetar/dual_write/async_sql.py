"""Stores for relational databases in programs of asyncio."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from magnetar.dual_write.sql import SqlAlchemyDriver, placeholder
from magnetar.dual_write.state_table import CREATE, Rows, StateTable

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine


class AsyncTableStore:
    """A store on a table of states; base of those for a kind of connection."""

    def __init__(self, table: StateTable) -> None:
        self._table = table

    async def create_schema(self) -> None:
        """Create the table of states, and check that the connection does not commit by itself."""
        await self._table.create()

    async def begin(self) -> None:
        """Begin a database transaction."""
        await self._table.begin()

    async def read(self, transactional_id: str) -> str:
        """Return the text that was committed last."""
        return await self._table.read(transactional_id)

    async def claim(self, transactional_id: str, owner: str) -> str:
        """Become the owner of the id and return its text."""
        return await self._table.claim(transactional_id, owner)

    async def write(self, transactional_id: str, owner: str, text: str) -> bool:
        """Set the text, if the id still belongs to this owner."""
        return await self._table.write(transactional_id, owner, text)

    async def commit(self) -> None:
        """Commit the database transaction durably."""
        await self._table.commit()

    async def rollback(self) -> None:
        """Roll the database transaction back."""
        await self._table.rollback()

    async def holders(self, prefix: str) -> dict[str, str]:
        """Return who holds the ids that begin so; see PooledStore."""
        return await self._table.holders(prefix)

    async def hold(self, transactional_id: str, holder: str) -> bool:
        """Hold an id; see PooledStore."""
        return await self._table.hold(transactional_id, holder)

    async def release(self, transactional_id: str) -> None:
        """Release an id that is settled."""
        await self._table.release(transactional_id)


class AsyncDbApiStore(AsyncTableStore):
    """A store on a connection of psycopg or aiosqlite, which no other code may use.

    Args:
        connection: `psycopg.AsyncConnection`, or another whose `execute` returns a cursor. It must
            not commit by itself.
        paramstyle: the `paramstyle` of the connection's module: qmark, format or pyformat.
    Raises:
        InvalidArgument: another paramstyle.
    """

    def __init__(self, connection: Any, paramstyle: str) -> None:
        self.connection = connection
        super().__init__(StateTable(_AsyncDbApiDriver(connection, placeholder(paramstyle))))

    async def execute(
        self, statement: str, parameters: Sequence[Any] | Mapping[str, Any] = ()
    ) -> Any:
        """Run a statement in the current transaction and return the cursor."""
        return await self.connection.execute(statement, parameters)

    async def close(self) -> None:
        """Close the connection."""
        self._table.close()
        await self.connection.close()


class _AsyncDbApiDriver:
    def __init__(self, connection: Any, mark: str) -> None:
        self._connection = connection
        self._mark = mark

    async def create_table(self) -> None:
        await self._connection.execute(CREATE)

    async def fetch(self, statement: str, *parameters: str) -> Rows:
        cursor = await self._execute(statement, parameters)
        rows: Rows = await cursor.fetchall()
        return rows

    async def change(self, statement: str, *parameters: str) -> int:
        return int((await self._execute(statement, parameters)).rowcount)

    def begin(self) -> None:
        pass

    async def commit(self) -> None:
        await self._connection.commit()

    async def rollback(self) -> None:
        await self._connection.rollback()

    async def _execute(self, statement: str, parameters: Sequence[str]) -> Any:
        return await self._connection.execute(statement.replace("?", self._mark), parameters)


class AsyncpgStore(AsyncTableStore):
    """A store on a connection of asyncpg, which no other code may use.

    Args:
        connection: the connection itself, and not one of a pool: its locks end with it.
    """

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        super().__init__(StateTable(_AsyncpgDriver(connection)))

    async def execute(self, statement: str, *parameters: Any) -> str:
        """Run a statement in the current transaction and return its status."""
        status: str = await self.connection.execute(statement, *parameters)
        return status

    async def fetch(self, statement: str, *parameters: Any) -> list[Any]:
        """Run a query in the current transaction and return its records."""
        records: list[Any] = await self.connection.fetch(statement, *parameters)
        return records

    async def close(self) -> None:
        """Close the connection."""
        self._table.close()
        await self.connection.close()


class _AsyncpgDriver:
    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._transaction: Any = None

    async def create_table(self) -> None:
        await self._connection.execute(CREATE)

    async def fetch(self, statement: str, *parameters: str) -> Rows:
        rows: Rows = await self._connection.fetch(_numbered(statement), *parameters)
        return rows

    async def change(self, statement: str, *parameters: str) -> int:
        # "UPDATE 1", "INSERT 0 1"
        status = await self._connection.execute(_numbered(statement), *parameters)
        return int(status.rpartition(" ")[2])

    async def begin(self) -> None:
        self._transaction = self._connection.transaction()
        await self._transaction.start()

    async def commit(self) -> None:
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            await transaction.commit()

    async def rollback(self) -> None:
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            await transaction.rollback()


def _numbered(statement: str) -> str:
    """Replace each `?` by the number of its parameter."""
    pieces = statement.split("?")
    return pieces[0] + "".join(f"${number}{piece}" for number, piece in enumerate(pieces[1:], 1))


class AsyncSqlAlchemyStore(AsyncTableStore):
    """A store with SQLAlchemy's asyncio extension.

    Args:
        connection: a connection of an AsyncEngine, for this store alone; see `open`. It must not
            commit by itself.
    """

    def __init__(self, connection: AsyncConnection) -> None:
        self.connection = connection
        super().__init__(StateTable(_AsyncSqlAlchemyDriver(connection)))

    @classmethod
    async def open(cls, engine: AsyncEngine) -> AsyncSqlAlchemyStore:
        """Return a store on a new connection of the engine, which close() closes."""
        connection = await engine.connect()
        # It is closed with its locks, and not lent to others with them.
        await connection.run_sync(lambda inner: inner.detach())
        return cls(connection)

    async def execute(self, statement: Any, parameters: Any = None) -> Any:
        """Run a statement of SQLAlchemy in the current transaction and return its result."""
        return await self.connection.execute(statement, parameters)

    async def close(self) -> None:
        """Close the connection."""
        self._table.close()
        await self.connection.close()


class _AsyncSqlAlchemyDriver:
    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def create_table(self) -> None:
        await self._connection.run_sync(lambda inner: SqlAlchemyDriver(inner).create_table())

    async def fetch(self, statement: str, *parameters: str) -> Rows:
        return await self._connection.run_sync(
            lambda inner: SqlAlchemyDriver(inner).fetch(statement, *parameters)
        )

    async def change(self, statement: str, *parameters: str) -> int:
        return await self._connection.run_sync(
            lambda inner: SqlAlchemyDriver(inner).change(statement, *parameters)
        )

    def begin(self) -> None:
        pass

    async def commit(self) -> None:
        await self._connection.commit()

    async def rollback(self) -> None:
        await self._connection.rollback()
