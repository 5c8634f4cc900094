"""Locks that last as long as a connection to a database, and end with its process.

So an id that is locked belongs to a process that lives, and one that is free does not: no clock
decides.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Sequence
from typing import Any, Protocol
from urllib.parse import quote

from magnetar.dual_write.here import result_of
from magnetar_core.errors import InvalidArgument

# Of an advisory lock, so that other programs take other locks.
_NAMESPACE = "magnetar_transaction_state/"


class Statements(Protocol):
    """A driver, which runs statements on the connection."""

    def fetch(
        self, statement: str, *parameters: str
    ) -> Awaitable[Sequence[Sequence[Any]]] | Sequence[Sequence[Any]]:
        """Run a statement that returns rows."""
        ...

    def rollback(self) -> Awaitable[None] | None:
        """Roll the transaction back. Harmless if none is open."""
        ...


class SessionLocks(Protocol):
    """The locks of a connection."""

    async def take(self, name: str) -> bool:
        """Take a lock; return whether it was free."""
        ...

    def close(self) -> None:
        """Release what the end of the connection does not."""
        ...


async def session_locks(statements: Statements) -> SessionLocks:
    """Return the locks of this kind of database, which is asked for its kind.

    Raises:
        InvalidArgument: it is of a kind whose locks are not known here, or in memory.
    """
    if (await _answer(statements, "SELECT version()")).startswith("PostgreSQL"):
        return _AdvisoryLocks(statements)
    if await _answer(statements, "SELECT sqlite_version()"):
        databases = await result_of(statements.fetch("PRAGMA database_list"))
        await result_of(statements.rollback())
        file = next(str(file or "") for _, name, file in databases if name == "main")
        if not file:
            raise InvalidArgument(
                "this SQLite database is in memory, so no other connection sees it: give a pool a"
                " database in a file"
            )
        return _FileLocks(file)
    raise InvalidArgument(
        "a pool of writers needs PostgreSQL or SQLite, whose locks keep its ids apart. With another"
        " database give each process a DualWriter with an id of its own"
    )


async def _answer(statements: Statements, question: str) -> str:
    """Return the answer of a database; an empty text if it does not know the function."""
    try:
        rows = await result_of(statements.fetch(question))
    except Exception:
        return ""
    else:
        return str(rows[0][0])
    finally:
        await result_of(statements.rollback())


class _AdvisoryLocks:
    """Advisory locks of a session of PostgreSQL."""

    def __init__(self, statements: Statements) -> None:
        self._statements = statements

    async def take(self, name: str) -> bool:
        rows = await result_of(
            self._statements.fetch(
                "SELECT pg_try_advisory_lock(hashtextextended(?, 0))", _NAMESPACE + name
            )
        )
        # Locks of a session outlive its transactions.
        await result_of(self._statements.rollback())
        return bool(rows[0][0])

    def close(self) -> None:
        """Do nothing: the locks end with the session."""


class _FileLocks:
    """Locks of files beside a SQLite database. SQLite itself locks rows of a transaction only.

    Each is an empty database in which a transaction is open, so it is locked in the way that
    SQLite locks files on this system.
    """

    def __init__(self, database: str) -> None:
        self._database = database
        self._held: list[sqlite3.Connection] = []

    async def take(self, name: str) -> bool:
        file = f"{self._database}-{quote(name, safe='')}.lock"
        connection = sqlite3.connect(file, timeout=0, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            connection.close()
            if error.sqlite_errorname == "SQLITE_BUSY":
                return False
            raise
        self._held.append(connection)
        return True

    def close(self) -> None:
        """Release the locks."""
        held, self._held = self._held, []
        for connection in held:
            connection.close()
