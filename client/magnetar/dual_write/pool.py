"""Pools of writers to a database and to topics, for services that have many units at once."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Generic, Self, TypeVar

from magnetar.arguments import integer, number
from magnetar.blocking.client import Client
from magnetar.blocking.transactional_producer import TransactionalProducer
from magnetar.client import Client as AsyncClient
from magnetar.dual_write.async_writer import AsyncUnit
from magnetar.dual_write.here import here, to_the_end
from magnetar.dual_write.members import Member, Members
from magnetar.dual_write.recipe import OnStep
from magnetar.dual_write.state_store import AsyncPooledStore, PooledStore
from magnetar.dual_write.writer import Unit
from magnetar.transactions.transactional_producer import (
    TransactionalProducer as AsyncTransactionalProducer,
)

log = logging.getLogger("magnetar")

Store = TypeVar("Store", bound=PooledStore)
AsyncStore = TypeVar("AsyncStore", bound=AsyncPooledStore)

SIZE_MAX = 1000


class DualWriterPool(Generic[Store]):
    """Writers to a database and to topics, one for each unit that runs at the same time.

        def open_store():
            return DbApiStore(psycopg.connect(DSN), psycopg.paramstyle)

        with DualWriterPool(client, "shop", open_store) as pool:
            with pool.unit() as unit:  # on any thread
                unit.store.execute("INSERT INTO orders VALUES (%s, %s)", (7, "tea"))
                unit.send("orders", b"tea", key=b"7")

    Any number of processes may have a pool of the same name: its ids, `shop-1` and so on, are held
    by locks of the database. The pool takes over the ids of processes that have died, and finishes
    what they left undecided. A writer whose connection is lost is replaced.

    Args:
        client: a client of magnetar.blocking.
        name: the name of the pool, the same in all processes of a service.
        open_store: opens a connection to the database, for a writer alone. It is called again
            whenever a writer is missing.
        size: how many units may run at once; further ones wait.
        settle_every_s: how often to look for ids of processes that have died.
        on_step: called before each step of each unit, for tests and traces.
    Raises:
        InvalidArgument: an argument is wrong.
    """

    def __init__(
        self,
        client: Client,
        name: str,
        open_store: Callable[[], Store],
        *,
        size: int = 8,
        settle_every_s: float = 10.0,
        on_step: OnStep = lambda step: None,
    ) -> None:
        self._permits = threading.Semaphore(integer("size", size, 1, SIZE_MAX))
        self._settle_every_s = number("settle_every_s", settle_every_s)
        self._members: Members[Store, TransactionalProducer] = Members(
            name,
            open_store,
            lambda each: client.transactional_producer(each, two_phase_commit=True),
            on_step,
        )
        self._closed = threading.Event()
        self._settling: threading.Thread | None = None

    def start(self) -> None:
        """Settle the units of processes that have died, now and from time to time.

        Raises:
            TransactionalIdAuthorizationFailed: the coordinator does not allow two-phase commit.
            InvalidArgument: the database has no locks that are known here, or its connections
                commit by themselves.
            Exception: what the database raised.
        """
        self.settle()
        self._settling = threading.Thread(
            target=self._settle_again, name="magnetar-dual-writes", daemon=True
        )
        self._settling.start()

    def settle(self) -> int:
        """Settle the units of processes that have died, now; return how many ids they held.

        Raises:
            Exception: what the database raised.
        """
        return here(self._members.settle())

    @contextmanager
    def unit(self) -> Iterator[Unit[Store]]:
        """Run the block so that its rows and its messages count together or not at all.

        Raises:
            ClientClosed: the pool is closed.
            Exception: what the block or the database raised; see DualWriter.unit. A unit that
                could not be settled at once is settled by the next writer that gets this id.
        """
        with self._permits:
            member = here(self._members.take())
            try:
                with member.recipe.covered():
                    yield Unit(member.store, member.producer)
            except BaseException as error:
                here(self._members.give_up(member, error))
                raise
            here(self._members.finish(member))

    def close(self) -> None:
        """Release the writers. Units that run go on, and release theirs. Harmless if repeated."""
        self._closed.set()
        if self._settling is not None:
            self._settling.join()
        here(self._members.close())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _settle_again(self) -> None:
        while not self._closed.wait(self._settle_every_s):
            try:
                self.settle()
            except Exception as error:
                log.warning("what dead processes may have left is looked for later: %r", error)


class AsyncDualWriterPool(Generic[AsyncStore]):
    """Writers to a database and to topics, as those of `DualWriterPool`, for asyncio.

        async def open_store():
            connection = await psycopg.AsyncConnection.connect(DSN)
            return AsyncDbApiStore(connection, psycopg.paramstyle)

        async with AsyncDualWriterPool(client, "shop", open_store) as pool:
            async with pool.unit() as unit:  # in any task
                await unit.store.execute("INSERT INTO orders VALUES (%s, %s)", (7, "tea"))
                await unit.send("orders", b"tea", key=b"7")

    Args:
        client: a client of asyncio.
        name: the name of the pool, the same in all processes of a service.
        open_store: opens a connection to the database, for a writer alone. It is called again
            whenever a writer is missing.
        size: how many units may run at once; further ones wait.
        settle_every_s: how often to look for ids of processes that have died.
        on_step: called before each step of each unit, for tests and traces.
    Raises:
        InvalidArgument: an argument is wrong.
    """

    def __init__(
        self,
        client: AsyncClient,
        name: str,
        open_store: Callable[[], Awaitable[AsyncStore]],
        *,
        size: int = 8,
        settle_every_s: float = 10.0,
        on_step: OnStep = lambda step: None,
    ) -> None:
        self._permits = asyncio.Semaphore(integer("size", size, 1, SIZE_MAX))
        self._settle_every_s = number("settle_every_s", settle_every_s)
        self._members: Members[AsyncStore, AsyncTransactionalProducer] = Members(
            name,
            open_store,
            lambda each: client.transactional_producer(each, two_phase_commit=True),
            on_step,
        )
        self._settling: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Settle the units of processes that have died, now and from time to time.

        Raises:
            Exception: as DualWriterPool.start.
        """
        await self.settle()
        self._settling = asyncio.create_task(self._settle_again())

    async def settle(self) -> int:
        """Settle the units of processes that have died, now; return how many ids they held.

        Raises:
            Exception: what the database raised.
        """
        return await to_the_end(self._members.settle())

    @asynccontextmanager
    async def unit(self) -> AsyncIterator[AsyncUnit[AsyncStore]]:
        """Run the block so that its rows and its messages count together or not at all.

        Raises:
            ClientClosed: the pool is closed.
            Exception: as DualWriterPool.unit.
        """
        await self._permits.acquire()
        taking = asyncio.create_task(self._members.take())
        try:
            member = await asyncio.shield(taking)
        except BaseException as error:
            await to_the_end(self._last(self._untake(taking, error)))
            raise
        try:
            with member.recipe.covered():
                yield AsyncUnit(member.store, member.producer)
        except BaseException as error:
            await to_the_end(self._last(self._members.give_up(member, error)))
            raise
        await to_the_end(self._last(self._members.finish(member)))

    async def close(self) -> None:
        """Release the writers. Units that run go on, and release theirs. Harmless if repeated."""
        if self._settling is not None:
            self._settling.cancel()
            await asyncio.wait([self._settling])
        await to_the_end(self._members.close())

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _last(self, work: Coroutine[Any, Any, None]) -> None:
        """Do the last step of a unit, and let another unit run."""
        try:
            await work
        finally:
            self._permits.release()

    async def _untake(
        self,
        taking: asyncio.Task[Member[AsyncStore, AsyncTransactionalProducer]],
        error: BaseException,
    ) -> None:
        """Give a unit up that was cancelled before it had its writer."""
        await asyncio.wait([taking])
        if taking.exception() is None:
            await self._members.give_up(taking.result(), error)

    async def _settle_again(self) -> None:
        while True:
            await asyncio.sleep(self._settle_every_s)
            try:
                await self.settle()
            except Exception as error:
                log.warning("what dead processes may have left is looked for later: %r", error)
