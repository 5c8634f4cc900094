"""The writers of a pool: how they get their transactional ids, and what becomes of them.

Written once: `DualWriterPool` runs it on the threads that call, `AsyncDualWriterPool` on the event
loop. Each writer has a connection to the database, and holds its id by a lock of that connection.
So an id has one writer among all processes, and is free when its process has died.
"""

from __future__ import annotations

import itertools
import logging
import os
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Generic, TypeAlias, TypeVar

from magnetar.dual_write.here import result_of
from magnetar.dual_write.recipe import AnyProducer, OnStep, Recipe, WriterState
from magnetar.dual_write.state_store import AsyncPooledStore, PooledStore
from magnetar.errors import ClientClosed
from magnetar_core.errors import DataLoss, InvalidArgument, TxnNotFound

log = logging.getLogger("magnetar")

AnyPooledStore: TypeAlias = PooledStore | AsyncPooledStore
StoreT = TypeVar("StoreT", bound=AnyPooledStore)
ProducerT = TypeVar("ProducerT", bound=AnyProducer)

# Room for "-" and a number behind it in a transactional id of 255 letters.
NAME_LETTERS_MAX = 240


class Member(Generic[StoreT, ProducerT]):
    """A writer of a pool, which holds its transactional id."""

    def __init__(
        self, transactional_id: str, store: StoreT, producer: ProducerT, on_step: OnStep
    ) -> None:
        self.transactional_id = transactional_id
        self.store = store
        self.producer = producer
        remedy = "the next writer with its id does that"
        self.recipe = Recipe(producer, store, on_step=on_step, remedy=remedy)


class Members(Generic[StoreT, ProducerT]):
    """The writers that have nothing to do, and the way to another one.

    Threads may share it: what changes is a deque.
    """

    def __init__(
        self,
        name: str,
        open_store: Callable[[], Awaitable[StoreT] | StoreT],
        producer_of: Callable[[str], ProducerT],
        on_step: OnStep,
    ) -> None:
        """A pool without writers.

        Args:
            name: transactional ids are this name, "-" and a number from 1 on.
            open_store: opens a connection to the database.
            producer_of: returns a producer for a transactional id.
            on_step: called before each step of each writer.
        Raises:
            InvalidArgument: the name is not a text, or is too long.
        """
        if not isinstance(name, str) or not 0 < len(name) <= NAME_LETTERS_MAX:
            raise InvalidArgument(
                f"the name of a pool is a text of 1 to {NAME_LETTERS_MAX} letters, not {name!r}"
            )
        self._is_closed = False
        self._prefix = f"{name}-"
        self._open_store = open_store
        self._producer_of = producer_of
        self._on_step = on_step
        self._holder = f"{socket.gethostname()}, process {os.getpid()}"
        self._idle: deque[Member[StoreT, ProducerT]] = deque()

    async def take(self) -> Member[StoreT, ProducerT]:
        """Return a writer whose unit has begun.

        A writer whose connection was lost while it had nothing to do is replaced.
        """
        while True:
            if self._is_closed:
                raise ClientClosed("this pool of writers is closed")
            try:
                member = self._idle.pop()
            except IndexError:
                member = await self._new()
                await self._begin(member)
                return member
            try:
                await self._begin(member)
            except Exception as error:
                log.info("the writer %s is replaced: %r", member.transactional_id, error)
            else:
                return member

    async def finish(self, member: Member[StoreT, ProducerT]) -> None:
        """Commit the unit of a writer, and take the writer back."""
        try:
            await member.recipe.finish()
        finally:
            await self._take_back(member)

    async def give_up(self, member: Member[StoreT, ProducerT], error: BaseException) -> None:
        """Undo the unit of a writer, and take the writer back."""
        try:
            await member.recipe.give_up(error)
        finally:
            await self._take_back(member)

    async def settle(self) -> int:
        """Settle the units of processes that have died; return how many ids they held."""
        settled = 0
        while not self._is_closed:
            member = await self._held(lambda known: [name for name in known if known[name]])
            if member is None:
                break
            settled += 1
            await self._release(member)
        return settled

    async def close(self) -> None:
        """Release the writers that have nothing to do; others are released with their units."""
        self._is_closed = True
        while self._idle:
            await self._release(self._idle.pop())

    async def _begin(self, member: Member[StoreT, ProducerT]) -> None:
        member.recipe.enter()
        try:
            await member.recipe.begin()
        except BaseException as error:
            await member.recipe.give_up(error)
            await self._drop(member)
            raise

    async def _new(self) -> Member[StoreT, ProducerT]:
        """Return a writer with an id that was free: best one that a dead process has left."""

        def in_order(known: dict[str, str]) -> itertools.chain[str]:
            unused = (f"{self._prefix}{number}" for number in itertools.count(1))
            return itertools.chain(
                sorted(known, key=lambda name: not known[name]),
                (name for name in unused if name not in known),
            )

        member = await self._held(in_order)
        assert member is not None
        return member

    async def _held(
        self, candidates: Callable[[dict[str, str]], Iterable[str]]
    ) -> Member[StoreT, ProducerT] | None:
        """Return a writer with the first of these ids that is free, once it is settled.

        Args:
            candidates: chooses from the ids of this pool, which it is given with their holders.
        """
        store = await result_of(self._open_store())
        try:
            await result_of(store.create_schema())
            known = await result_of(store.holders(self._prefix))
            mine = {n: h for n, h in known.items() if n[len(self._prefix) :].isdecimal()}
            for name in candidates(mine):
                if not await result_of(store.hold(name, self._holder)):
                    continue
                member = Member(name, store, self._producer_of(name), self._on_step)
                try:
                    if await member.recipe.start():
                        log.info("%s: a unit that was left undecided is committed", name)
                except (DataLoss, TxnNotFound) as error:
                    # It stays locked as long as this connection, so that others pass it over.
                    log.error("%s is not used until this is settled: %s", name, error)
                    await _close(member.producer)
                else:
                    return member
        except BaseException:
            await _close(store)
            raise
        await _close(store)
        return None

    async def _take_back(self, member: Member[StoreT, ProducerT]) -> None:
        if member.recipe.state is not WriterState.READY:
            await self._drop(member)
        elif self._is_closed:
            await self._release(member)
        else:
            self._idle.append(member)

    async def _release(self, member: Member[StoreT, ProducerT]) -> None:
        """Give up a writer that is settled."""
        try:
            await result_of(member.store.release(member.transactional_id))
        except Exception as error:
            log.info("%s was not released: %r", member.transactional_id, error)
        await self._drop(member)

    async def _drop(self, member: Member[StoreT, ProducerT]) -> None:
        """Give up a writer. The next holder of its id settles what it left."""
        await _close(member.producer)
        # The last step: it frees the id.
        await _close(member.store)


async def _close(thing: AnyPooledStore | AnyProducer) -> None:
    """Close a producer, or a connection, either of which may be lost."""
    try:
        await result_of(thing.close())
    except Exception as error:
        log.info("%r was not closed: %r", thing, error)
