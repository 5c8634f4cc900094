"""Stores for relational databases, by DB-API connections or SQLAlchemy Core."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from magnetar_core.errors import InvalidArgument

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection, Engine

TABLE = "magnetar_transaction_state"
_CREATE = (
    f"CREATE TABLE IF NOT EXISTS {TABLE} (transactional_id VARCHAR(255) PRIMARY KEY,"
    " prepared_transaction_state VARCHAR(255) NOT NULL, owner VARCHAR(255) NOT NULL)"
)
_PLACEHOLDERS = {"qmark": "?", "format": "%s", "pyformat": "%s"}


_COMMITS_BY_ITSELF = (
    "the database connection commits by itself: a rollback has not undone a row, so rows would stay"
    " when their unit fails. Switch that off; it is isolation_level=None or autocommit=True of"
    " sqlite3, autocommit=True of psycopg, isolation_level='AUTOCOMMIT' of SQLAlchemy, or a kind of"
    " table without transactions"
)


def _require_rollback(store: DbApiStore | SqlAlchemyStore) -> None:
    """Check that a rollback undoes what was written: write a row, roll back, read it.

    Raises:
        InvalidArgument: it does not. The row was deleted again.
    """
    # A key that cannot be a transactional id, and that no other process uses at the same time.
    row = f"rollback {Random().getrandbits(64):016x}"
    store._insert(row, text=row, owner="")
    store.rollback()
    if store.read(row):
        store._delete(row)
        store.commit()
        raise InvalidArgument(_COMMITS_BY_ITSELF)


class DbApiStore:
    """A store on a DB-API connection (PEP 249), which no other code may use.

    Args:
        connection: the connection. It must not commit by itself.
        paramstyle: the `paramstyle` of the connection's module: qmark, format or pyformat.
    Raises:
        InvalidArgument: another paramstyle.
    """

    def __init__(self, connection: Any, paramstyle: str) -> None:
        if paramstyle not in _PLACEHOLDERS:
            raise InvalidArgument(
                f"paramstyle {paramstyle!r} is not known: use qmark, format or pyformat"
            )
        self.connection = connection
        mark = _PLACEHOLDERS[paramstyle]
        where = f"WHERE transactional_id = {mark}"
        self._select = f"SELECT prepared_transaction_state FROM {TABLE} {where}"
        self._claim = f"UPDATE {TABLE} SET owner = {mark} {where}"
        self._update = (
            f"UPDATE {TABLE} SET prepared_transaction_state = {mark} {where} AND owner = {mark}"
        )
        self._insert_statement = f"INSERT INTO {TABLE} VALUES ({mark}, {mark}, {mark})"
        self._delete_statement = f"DELETE FROM {TABLE} {where}"

    def execute(self, statement: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> Any:
        """Run a statement in the current transaction and return the cursor."""
        cursor = self.connection.cursor()
        cursor.execute(statement, parameters)
        return cursor

    def create_schema(self) -> None:
        """Create the table of states, and check that the connection does not commit by itself."""
        self.connection.rollback()
        self.execute(_CREATE)
        self.connection.commit()
        _require_rollback(self)

    def _insert(self, transactional_id: str, *, text: str, owner: str) -> None:
        """Add the row of a transactional id."""
        self.execute(self._insert_statement, (transactional_id, text, owner))

    def _delete(self, transactional_id: str) -> None:
        """Delete the row of a transactional id."""
        self.execute(self._delete_statement, (transactional_id,))

    def begin(self) -> None:
        """Begin a database transaction."""
        # PEP 249: a transaction begins with the first statement. This ends a transaction that a
        # failed unit or a read has left open.
        self.connection.rollback()

    def read(self, transactional_id: str) -> str:
        """Return the text that was committed last."""
        row = self.execute(self._select, (transactional_id,)).fetchone()
        self.connection.rollback()
        return "" if row is None else str(row[0])

    def claim(self, transactional_id: str, owner: str) -> str:
        """Become the owner of the id and return its text."""
        self.connection.rollback()
        if not self.execute(self._claim, (owner, transactional_id)).rowcount:
            self._insert(transactional_id, text="", owner=owner)
        row = self.execute(self._select, (transactional_id,)).fetchone()
        self.connection.commit()
        return str(row[0])

    def write(self, transactional_id: str, owner: str, text: str) -> bool:
        """Set the text, if the id still belongs to this owner."""
        return bool(self.execute(self._update, (text, transactional_id, owner)).rowcount)

    def commit(self) -> None:
        """Commit the database transaction durably."""
        self.connection.commit()

    def rollback(self) -> None:
        """Roll the database transaction back."""
        self.connection.rollback()


class SqlAlchemyStore:
    """A store with SQLAlchemy Core.

    Args:
        engine: the engine. The store holds a connection of it until close(). It must not commit by
            itself.
    """

    def __init__(self, engine: Engine) -> None:
        import sqlalchemy

        self._sqlalchemy = sqlalchemy
        self.connection: Connection = engine.connect()
        self._table = sqlalchemy.Table(
            TABLE,
            sqlalchemy.MetaData(),
            sqlalchemy.Column("transactional_id", sqlalchemy.String(255), primary_key=True),
            sqlalchemy.Column("prepared_transaction_state", sqlalchemy.String(255), nullable=False),
            sqlalchemy.Column("owner", sqlalchemy.String(255), nullable=False),
        )

    def execute(self, statement: Any, parameters: Any = None) -> Any:
        """Run a statement of SQLAlchemy in the current transaction and return its result."""
        return self.connection.execute(statement, parameters)

    def create_schema(self) -> None:
        """Create the table of states, and check that the connection does not commit by itself."""
        self.connection.rollback()
        self._table.create(self.connection, checkfirst=True)
        self.connection.commit()
        _require_rollback(self)

    def _insert(self, transactional_id: str, *, text: str, owner: str) -> None:
        """Add the row of a transactional id."""
        self.connection.execute(
            self._table.insert().values(
                transactional_id=transactional_id, prepared_transaction_state=text, owner=owner
            )
        )

    def _delete(self, transactional_id: str) -> None:
        """Delete the row of a transactional id."""
        self.connection.execute(self._table.delete().where(self._is(transactional_id)))

    def begin(self) -> None:
        """Begin a database transaction."""
        self.connection.rollback()

    def read(self, transactional_id: str) -> str:
        """Return the text that was committed last."""
        column = self._table.c.prepared_transaction_state
        found = self.connection.execute(
            self._sqlalchemy.select(column).where(self._is(transactional_id))
        ).scalar()
        self.connection.rollback()
        return found or ""

    def claim(self, transactional_id: str, owner: str) -> str:
        """Become the owner of the id and return its text."""
        self.connection.rollback()
        mine = self._is(transactional_id)
        claimed = self.connection.execute(self._table.update().where(mine).values(owner=owner))
        if not claimed.rowcount:
            self._insert(transactional_id, text="", owner=owner)
        column = self._table.c.prepared_transaction_state
        found = self.connection.execute(self._sqlalchemy.select(column).where(mine)).scalar()
        self.connection.commit()
        return found or ""

    def write(self, transactional_id: str, owner: str, text: str) -> bool:
        """Set the text, if the id still belongs to this owner."""
        changed = self.connection.execute(
            self._table.update()
            .where(self._is(transactional_id), self._table.c.owner == owner)
            .values(prepared_transaction_state=text)
        )
        return bool(changed.rowcount)

    def commit(self) -> None:
        """Commit the database transaction durably."""
        self.connection.commit()

    def rollback(self) -> None:
        """Roll the database transaction back."""
        self.connection.rollback()

    def close(self) -> None:
        """Give the connection back."""
        self.connection.close()

    def _is(self, transactional_id: str) -> Any:
        return self._table.c.transactional_id == transactional_id
