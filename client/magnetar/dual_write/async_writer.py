"""A writer to a database and to topics, for asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

from magnetar.dual_write.here import to_the_end
from magnetar.dual_write.recipe import Recipe, Step
from magnetar.dual_write.state_store import AsyncStateStore
from magnetar.transactions.transactional_producer import TransactionalProducer

AsyncStore = TypeVar("AsyncStore", bound=AsyncStateStore)


class AsyncUnit(Generic[AsyncStore]):
    """A piece of work on the database and on topics that counts completely or not at all.

    Attributes:
        store: the database, for writes in the transaction of this unit.
    """

    def __init__(self, store: AsyncStore, producer: TransactionalProducer) -> None:
        self.store = store
        self._producer = producer

    async def send(
        self,
        topic: str,
        value: bytes,
        key: bytes | None = None,
        *,
        properties: Mapping[str, str] | None = None,
        event_time_ms: int | None = None,
        partition: int | None = None,
    ) -> None:
        """Send a message, which becomes visible when the unit commits.

        It waits only while the client has no room for the message.

        Args:
            topic: the topic's name.
            value: the content of the message.
            key: messages with the same key go to the same partition, and stay in order.
            properties: names and texts that travel with the message.
            event_time_ms: the application's own time, in milliseconds since the Unix epoch.
            partition: the partition's number; by default the key decides.
        """
        await self._producer.enqueue(
            topic,
            value,
            key,
            properties=properties,
            event_time_ms=event_time_ms,
            partition=partition,
        )


class AsyncDualWriter(Generic[AsyncStore]):
    """Writes to a database and to topics, atomically: one unit at a time, as `DualWriter` does.

    A task that is cancelled in the block of a unit undoes it. Behind the block the unit ends as it
    would have, in the background, and may count.

    Args:
        producer: a transactional producer of asyncio with two_phase_commit; no other code may use
            it.
        store: the database.
        on_step: called before each step, for tests and traces.
    """

    def __init__(
        self,
        producer: TransactionalProducer,
        store: AsyncStore,
        *,
        on_step: Callable[[Step], None] = lambda step: None,
    ) -> None:
        self._producer = producer
        self._store = store
        self._recipe = Recipe(producer, store, on_step=on_step)

    async def start(self) -> bool:
        """Take over the transactional id, and finish the transaction of an earlier instance.

        Returns:
            Whether an undecided transaction of an earlier instance was committed.
        Raises:
            MagnetarError: as DualWriter.start.
        """
        return await self._recipe.start()

    @asynccontextmanager
    async def unit(self) -> AsyncIterator[AsyncUnit[AsyncStore]]:
        """Run the block so that its rows and its messages count together or not at all.

        Raises:
            InvalidTxnState: another unit is open; start() was not called; or an earlier unit could
                not be settled: then call start() of a new AsyncDualWriter.
            Exception: what the block or the database raised; see DualWriter.unit.
        """
        recipe = self._recipe
        recipe.enter()
        try:
            await recipe.begin()
            with recipe.covered():
                yield AsyncUnit(self._store, self._producer)
        except BaseException as error:
            await to_the_end(recipe.give_up(error))
            raise
        await to_the_end(recipe.finish())
