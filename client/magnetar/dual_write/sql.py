"""Stores for relational databases, by DB-API connections or SQLAlchemy Core."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from magnetar.dual_write.here import here
from magnetar.dual_write.state_table import CREATE, TABLE, Rows, StateTable
from magnetar_core.errors import InvalidArgument

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection, Engine

PLACEHOLDERS = {"qmark": "?", "format": "%s", "pyformat": "%s"}


def placeholder(paramstyle: str) -> str:
    """Return the mark of a parameter in a statement.

    Raises:
        InvalidArgument: another paramstyle.
    """
    if paramstyle not in PLACEHOLDERS:
        raise InvalidArgument(
            f"paramstyle {paramstyle!r} is not known: use qmark, format or pyformat"
        )
    return PLACEHOLDERS[paramstyle]


class TableStore:
    """A store on a table of states; base of those for a kind of connection."""

    def __init__(self, table: StateTable) -> None:
        self._table = table

    def create_schema(self) -> None:
        """Create the table of states, and check that the connection does not commit by itself."""
        here(self._table.create())

    def begin(self) -> None:
        """Begin a database transaction."""
        here(self._table.begin())

    def read(self, transactional_id: str) -> str:
        """Return the text that was committed last."""
        return here(self._table.read(transactional_id))

    def claim(self, transactional_id: str, owner: str) -> str:
        """Become the owner of the id and return its text."""
        return here(self._table.claim(transactional_id, owner))

    def write(self, transactional_id: str, owner: str, text: str) -> bool:
        """Set the text, if the id still belongs to this owner."""
        return here(self._table.write(transactional_id, owner, text))

    def commit(self) -> None:
        """Commit the database transaction durably."""
        here(self._table.commit())

    def rollback(self) -> None:
        """Roll the database transaction back."""
        here(self._table.rollback())

    def holders(self, prefix: str) -> dict[str, str]:
        """Return who holds the ids that begin so; see PooledStore."""
        return here(self._table.holders(prefix))

    def hold(self, transactional_id: str, holder: str) -> bool:
        """Hold an id; see PooledStore."""
        return here(self._table.hold(transactional_id, holder))

    def release(self, transactional_id: str) -> None:
        """Release an id that is settled."""
        here(self._table.release(transactional_id))


class DbApiStore(TableStore):
    """A store on a DB-API connection (PEP 249), which no other code may use.

    Args:
        connection: the connection. It must not commit by itself.
        paramstyle: the `paramstyle` of the connection's module: qmark, format or pyformat.
    Raises:
        InvalidArgument: another paramstyle.
    """

    def __init__(self, connection: Any, paramstyle: str) -> None:
        self.connection = connection
        super().__init__(StateTable(_DbApiDriver(connection, placeholder(paramstyle))))

    def execute(self, statement: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> Any:
        """Run a statement in the current transaction and return the cursor."""
        cursor = self.connection.cursor()
        cursor.execute(statement, parameters)
        return cursor

    def close(self) -> None:
        """Close the connection."""
        self._table.close()
        self.connection.close()


class _DbApiDriver:
    # A transaction begins with its first statement (PEP 249).

    def __init__(self, connection: Any, mark: str) -> None:
        self._connection = connection
        self._mark = mark

    def create_table(self) -> None:
        self._execute(CREATE, ())

    def fetch(self, statement: str, *parameters: str) -> Rows:
        rows: Rows = self._execute(statement, parameters).fetchall()
        return rows

    def change(self, statement: str, *parameters: str) -> int:
        return int(self._execute(statement, parameters).rowcount)

    def begin(self) -> None:
        pass

    def commit(self) -> None:
        self._connection.commit()

    def rollback(self) -> None:
        self._connection.rollback()

    def _execute(self, statement: str, parameters: Sequence[str]) -> Any:
        cursor = self._connection.cursor()
        cursor.execute(statement.replace("?", self._mark), parameters)
        return cursor


class SqlAlchemyStore(TableStore):
    """A store with SQLAlchemy Core.

    Args:
        engine: the engine. The store holds a connection of it until close(). It must not commit by
            itself.
    """

    def __init__(self, engine: Engine) -> None:
        self.connection: Connection = engine.connect()
        # It is closed with its locks, and not lent to others with them.
        self.connection.detach()
        super().__init__(StateTable(SqlAlchemyDriver(self.connection)))

    def execute(self, statement: Any, parameters: Any = None) -> Any:
        """Run a statement of SQLAlchemy in the current transaction and return its result."""
        return self.connection.execute(statement, parameters)

    def close(self) -> None:
        """Close the connection."""
        self._table.close()
        self.connection.close()


class SqlAlchemyDriver:
    """A connection of SQLAlchemy, which begins a transaction with its first statement."""

    def __init__(self, connection: Connection) -> None:
        import sqlalchemy

        self._sqlalchemy = sqlalchemy
        self._connection = connection

    def create_table(self) -> None:
        """Create the table, by the dialect's statement."""
        sa = self._sqlalchemy
        sa.Table(
            TABLE,
            sa.MetaData(),
            sa.Column("transactional_id", sa.String(255), primary_key=True),
            sa.Column("prepared_transaction_state", sa.String(255), nullable=False),
            sa.Column("owner", sa.String(255), nullable=False),
            sa.Column("holder", sa.String(255), nullable=False),
        ).create(self._connection, checkfirst=True)

    def fetch(self, statement: str, *parameters: str) -> Rows:
        """Run a statement that returns rows."""
        return self._execute(statement, parameters).all()  # type: ignore[no-any-return]

    def change(self, statement: str, *parameters: str) -> int:
        """Run a statement that changes rows, and return how many."""
        return int(self._execute(statement, parameters).rowcount)

    def begin(self) -> None:
        """Do nothing: the first statement begins a transaction."""

    def commit(self) -> None:
        """Commit the transaction durably."""
        self._connection.commit()

    def rollback(self) -> None:
        """Roll the transaction back."""
        self._connection.rollback()

    def _execute(self, statement: str, parameters: Sequence[str]) -> Any:
        names = [f"p{number}" for number in range(len(parameters))]
        pieces = statement.split("?")
        text = "".join(
            piece + (f":{name}" if name else "")
            for piece, name in zip(pieces, [*names, ""], strict=True)
        )
        return self._connection.execute(
            self._sqlalchemy.text(text), dict(zip(names, parameters, strict=True))
        )
