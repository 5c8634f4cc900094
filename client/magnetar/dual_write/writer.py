"""A writer to a database and to topics, for programs with threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Generic, TypeVar

from magnetar.blocking.transactional_producer import TransactionalProducer
from magnetar.dual_write.here import here
from magnetar.dual_write.recipe import Recipe, Step
from magnetar.dual_write.state_store import StateStore

Store = TypeVar("Store", bound=StateStore)


class Unit(Generic[Store]):
    """A piece of work on the database and on topics that counts completely or not at all.

    Attributes:
        store: the database, for writes in the transaction of this unit.
    """

    def __init__(self, store: Store, producer: TransactionalProducer) -> None:
        self.store = store
        self._producer = producer

    def send(
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

        Args:
            topic: the topic's name.
            value: the content of the message.
            key: messages with the same key go to the same partition, and stay in order.
            properties: names and texts that travel with the message.
            event_time_ms: the application's own time, in milliseconds since the Unix epoch.
            partition: the partition's number; by default the key decides.
        """
        self._producer.enqueue(
            topic,
            value,
            key,
            properties=properties,
            event_time_ms=event_time_ms,
            partition=partition,
        )


class DualWriter(Generic[Store]):
    """Writes to a database and to topics, atomically: one unit at a time, whichever thread calls.

    Args:
        producer: a transactional producer with two_phase_commit; no other code may use it.
        store: the database.
        on_step: called before each step, for tests and traces.
    """

    def __init__(
        self,
        producer: TransactionalProducer,
        store: Store,
        *,
        on_step: Callable[[Step], None] = lambda step: None,
    ) -> None:
        self._producer = producer
        self._store = store
        self._recipe = Recipe(producer, store, on_step=on_step)

    def start(self) -> bool:
        """Take over the transactional id, and finish the transaction of an earlier instance.

        Returns:
            Whether an undecided transaction of an earlier instance was committed.
        Raises:
            TransactionalIdAuthorizationFailed: the coordinator does not allow two-phase commit.
            InvalidArgument: the database connection commits by itself. No effect.
            InvalidTxnState: a unit is open, or an earlier unit could not be settled. No effect.
            DataLoss: the database has committed a unit whose transaction was aborted. Nothing was
                ended; the error names both, and says what to do.
            TxnNotFound: the database has committed a unit whose transaction this cluster has never
                opened. Nothing was ended.
        """
        return here(self._recipe.start())

    @contextmanager
    def unit(self) -> Iterator[Unit[Store]]:
        """Run the block so that its rows and its messages count together or not at all.

        Raises:
            InvalidTxnState: another unit is open; start() was not called; or an earlier unit could
                not be settled: then call start() of a new DualWriter.
            Exception: what the block or the database raised. Nothing counts then, unless the
                database has committed nevertheless, which the writer finds out at once. If it
                cannot, for example because the coordinator is away, a note on the exception says
                so. Nothing is lost, but only start() of a new DualWriter can go on.
        """
        recipe = self._recipe
        recipe.enter()
        try:
            here(recipe.begin())
            with recipe.covered():
                yield Unit(self._store, self._producer)
        except BaseException as error:
            here(recipe.give_up(error))
            raise
        here(recipe.finish())
