"""Connections to databases for pools of dual writers, by the name of a kind."""

from __future__ import annotations

import sqlite3
from typing import Any

from magnetar.dual_write import (
    AsyncDbApiStore,
    AsyncpgStore,
    AsyncSqlAlchemyStore,
    DbApiStore,
    SqlAlchemyStore,
)

# Of a statement in the table of numbers, with its mark for a parameter.
MARKS = {
    "sqlite3": "?",
    "psycopg": "%s",
    "sqlalchemy": ":number",
    "aiosqlite": "?",
    "psycopg-async": "%s",
    "asyncpg": "$1",
    "sqlalchemy-async": ":number",
}
BLOCKING = ("sqlite3", "psycopg", "sqlalchemy")
ASYNC = ("aiosqlite", "psycopg-async", "asyncpg", "sqlalchemy-async")


def is_sqlite(kind: str) -> bool:
    return kind.endswith("sqlite") or kind == "sqlite3"


def open_store(kind: str, database: str) -> Any:
    """Open a blocking store.

    Args:
        database: a file, or the URL of a PostgreSQL server.
    """
    if kind == "sqlite3":
        # A unit holds SQLite's one lock for writers; others wait for it.
        connection = sqlite3.connect(database, timeout=60, check_same_thread=False)
        return DbApiStore(connection, "qmark")
    if kind == "psycopg":
        import psycopg

        return DbApiStore(psycopg.connect(database), psycopg.paramstyle)
    import sqlalchemy
    from sqlalchemy.pool import NullPool

    url = database.replace("postgresql://", "postgresql+psycopg://")
    return SqlAlchemyStore(sqlalchemy.create_engine(url, poolclass=NullPool))


async def open_async_store(kind: str, database: str) -> Any:
    """Open a store for asyncio; as open_store."""
    if kind == "aiosqlite":
        import aiosqlite

        return AsyncDbApiStore(await aiosqlite.connect(database, timeout=60), "qmark")
    if kind == "psycopg-async":
        import psycopg

        return AsyncDbApiStore(await psycopg.AsyncConnection.connect(database), psycopg.paramstyle)
    if kind == "asyncpg":
        import asyncpg

        return AsyncpgStore(await asyncpg.connect(database))
    from sqlalchemy.ext.asyncio import create_async_engine
    from sqlalchemy.pool import NullPool

    url = database.replace("postgresql://", "postgresql+asyncpg://")
    return await AsyncSqlAlchemyStore.open(create_async_engine(url, poolclass=NullPool))


def insert(store: Any, kind: str, number: int) -> Any:
    """Insert a number; to be awaited if the kind is one of asyncio."""
    statement: Any = f"INSERT INTO numbers VALUES ({MARKS[kind]})"
    if kind.startswith("sqlalchemy"):
        import sqlalchemy

        return store.execute(sqlalchemy.text(statement), {"number": number})
    if kind == "asyncpg":
        return store.execute(statement, number)
    return store.execute(statement, (number,))


def create_table(database: str) -> None:
    """Create the table of numbers in an empty database."""
    store = open_store("psycopg" if "://" in database else "sqlite3", database)
    store.execute("DROP TABLE IF EXISTS numbers")
    store.execute("DROP TABLE IF EXISTS magnetar_transaction_state")
    store.execute("CREATE TABLE numbers (number INTEGER)")
    store.connection.commit()
    store.close()


def query(database: str, statement: str) -> list[tuple[Any, ...]]:
    """Ask the database on a connection of its own."""
    store = open_store("psycopg" if "://" in database else "sqlite3", database)
    rows = [tuple(row) for row in store.execute(statement).fetchall()]
    store.close()
    return rows
