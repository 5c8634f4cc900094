"""Databases as the recipe uses them, blocking and of asyncio."""

from __future__ import annotations

from typing import Protocol


class StateStore(Protocol):
    """A database that keeps a text for each transactional id, atomically with the data.

    It also keeps the owner of each id. If two instances are active, only the instance that claimed
    the id last may write. KIP-939 fences at the coordinator alone: there, a database transaction of
    the older instance could still commit after the newer instance has read the state.
    """

    def create_schema(self) -> None:
        """Create the table for the texts. Harmless if it exists. Whatever is open is rolled back.

        Raises:
            InvalidArgument: the connection commits by itself, so rollback() would undo nothing.
        """
        ...

    def begin(self) -> None:
        """Begin a database transaction. Whatever is open is rolled back.

        Raises here if the connection is lost, so that a unit fails before its block has run.
        """
        ...

    def read(self, transactional_id: str) -> str:
        """Return the text that was committed last; an empty text if there is none."""
        ...

    def claim(self, transactional_id: str, owner: str) -> str:
        """Become the owner of the id and return its text, in a separate transaction."""
        ...

    def write(self, transactional_id: str, owner: str, text: str) -> bool:
        """Set the text, in the transaction that begin() has opened.

        Returns:
            Whether the id still belongs to this owner. Otherwise nothing is written.
        """
        ...

    def commit(self) -> None:
        """Commit the database transaction durably."""
        ...

    def rollback(self) -> None:
        """Roll the database transaction back."""
        ...


class AsyncStateStore(Protocol):
    """A database as `StateStore` has it, for asyncio."""

    async def create_schema(self) -> None:
        """Create the table for the texts, as StateStore.create_schema."""
        ...

    async def begin(self) -> None:
        """Begin a database transaction, as StateStore.begin."""
        ...

    async def read(self, transactional_id: str) -> str:
        """Return the text that was committed last; an empty text if there is none."""
        ...

    async def claim(self, transactional_id: str, owner: str) -> str:
        """Become the owner of the id and return its text, in a separate transaction."""
        ...

    async def write(self, transactional_id: str, owner: str, text: str) -> bool:
        """Set the text in the open transaction, as StateStore.write."""
        ...

    async def commit(self) -> None:
        """Commit the database transaction durably."""
        ...

    async def rollback(self) -> None:
        """Roll the database transaction back."""
        ...


class PooledStore(StateStore, Protocol):
    """A database in which the writers of a pool hold their transactional ids.

    An id is held by a lock of the database that lasts as long as the connection, so it is free
    when its process has died, and not before.
    """

    def holders(self, prefix: str) -> dict[str, str]:
        """Return who holds the ids that begin so, or held them last and did not release them.

        Keys are transactional ids; an empty text: it was released.
        """
        ...

    def hold(self, transactional_id: str, holder: str) -> bool:
        """Hold an id until release() or close(), and write down who holds it.

        Returns:
            Whether the id was free.
        Raises:
            InvalidArgument: this kind of database has no such locks.
        """
        ...

    def release(self, transactional_id: str) -> None:
        """Release an id that is settled."""
        ...

    def close(self) -> None:
        """Close the connection, which releases its locks. Repeating it is harmless."""
        ...


class AsyncPooledStore(AsyncStateStore, Protocol):
    """A database as `PooledStore` has it, for asyncio."""

    async def holders(self, prefix: str) -> dict[str, str]:
        """Return who holds the ids that begin so, as PooledStore.holders."""
        ...

    async def hold(self, transactional_id: str, holder: str) -> bool:
        """Hold an id, as PooledStore.hold."""
        ...

    async def release(self, transactional_id: str) -> None:
        """Release an id that is settled."""
        ...

    async def close(self) -> None:
        """Close the connection, which releases its locks. Repeating it is harmless."""
        ...
