"""The eight steps of the recipe, and the recovery after a crash between any two of them.

Source: KIP-939, Motivation, Normal processing recipe and Recovery recipe.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from typing import Generic, Protocol, TypeVar

from magnetar.blocking.transactional_producer import TransactionalProducer
from magnetar.transactions.producer_identity import PreparedTxnState
from magnetar.transactions.transaction_block import TransactionBlock
from magnetar_core.errors import InvalidTxnState, ProducerFenced, TxnForgotten

log = logging.getLogger("magnetar")


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
        """Begin a database transaction. Whatever is open is rolled back."""
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


class Step(Enum):
    """The steps of the recipe, numbered as in KIP-939."""

    BEGIN_DATABASE = 1
    BEGIN = 2
    SEND = 3
    PREPARE = 4
    UPDATE_DATA = 5
    UPDATE_STATE = 6
    COMMIT_DATABASE = 7
    COMMIT = 8
    # The steps of the recovery.
    INIT = 9
    READ_STATE = 10
    COMPLETE = 11


class _WriterState(Enum):
    """Whether a unit may begin: READY alone. Otherwise the text says what to do."""

    NEW = "call start() first: it finishes what an earlier instance left undecided"
    READY = "begin a unit"
    UNSETTLED = "go on with start() of a new DualWriter, with a producer and a store of its own"


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
        value: bytes | None,
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
        self._on_step = on_step
        self._state = _WriterState.NEW
        # Held by start() and by a unit, from its beginning to its end.
        self._busy = threading.Lock()
        # Why it is UNSETTLED, for messages.
        self._failure = ""
        self._owner = ""

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
        with self._alone():
            self._require(_WriterState.NEW, _WriterState.READY)
            self._store.create_schema()
            self._on_step(Step.INIT)
            self._producer.init(keep_prepared=True)
            with self._settling():
                identity = self._producer.identity
                self._owner = f"{identity.producer_id}/{identity.producer_epoch}"
                self._on_step(Step.READ_STATE)
                text = self._store.claim(identity.transactional_id, self._owner)
                self._check_outcome(PreparedTxnState.parse(text))
                return self._complete(text)

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
        with self._alone():
            self._require(_WriterState.READY)
            self._on_step(Step.BEGIN_DATABASE)
            self._store.begin()
            with self._settling():
                yield from self._steps()

    def _steps(self) -> Iterator[Unit[Store]]:
        """The steps of a unit that follow the beginning of the database transaction."""
        try:
            self._on_step(Step.BEGIN)
            self._producer.begin()
            self._on_step(Step.SEND)
            with self._covered():
                yield Unit(self._store, self._producer)
            self._on_step(Step.PREPARE)
            prepared = self._producer.prepare()
            self._on_step(Step.UPDATE_STATE)
            self._write_state(prepared)
        except BaseException as error:
            self._settle(self._give_up, error)
            raise
        try:
            self._on_step(Step.COMMIT_DATABASE)
            self._store.commit()
        except BaseException as error:
            self._settle(self._find_out, error)
            raise
        self._on_step(Step.COMMIT)
        self._producer.commit()
        self._state = _WriterState.READY

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other units, and start(), out of the block.

        Raises:
            InvalidTxnState: one of them is under way. No effect.
        """
        if not self._busy.acquire(blocking=False):
            raise InvalidTxnState(
                "another unit of this DualWriter is open, perhaps in another thread: it has one"
                " unit at a time. Use a lock, or a DualWriter with its own transactional id and its"
                " own connection for each thread"
            )
        try:
            yield
        finally:
            self._busy.release()

    @contextmanager
    def _settling(self) -> Iterator[None]:
        """Remember why the block did not bring the writer to READY."""
        self._state, self._failure = _WriterState.UNSETTLED, ""
        try:
            yield
        except BaseException as error:
            self._failure = self._failure or _named(error)
            raise

    def _require(self, *states: _WriterState) -> None:
        """Check that the writer is in one of these states.

        Raises:
            InvalidTxnState: it is in another one. No effect.
        """
        if self._state in states:
            return
        why = f"this DualWriter has failed ({self._failure}): " if self._failure else ""
        raise InvalidTxnState(f"{why}{self._state.value}")

    def _check_outcome(self, prepared: PreparedTxnState) -> None:
        """Check that the unit which the database has committed last is in the topics, too."""
        try:
            self._producer.check_outcome(prepared)
        except TxnForgotten as error:
            log.warning("the database has committed %s last: %s", prepared, error)

    def _covered(self) -> TransactionBlock:
        """Return a block in which a send outside of the unit is a mistake."""
        transaction = self._producer.inner.transaction
        assert transaction is not None
        return transaction.work.cover("use unit.send()")

    def _write_state(self, prepared: PreparedTxnState) -> None:
        transactional_id = self._producer.identity.transactional_id
        if not self._store.write(transactional_id, self._owner, str(prepared)):
            raise ProducerFenced(
                f"another instance has claimed {transactional_id!r} in the database: this one must"
                " stop"
            )

    def _settle(self, step: Callable[[], None], error: BaseException) -> None:
        """Clean up after an error, which the caller has to see in any case."""
        try:
            step()
        except Exception as failure:
            self._failure = _named(failure)
            log.warning("a unit was not settled after %r: %r", error, failure)
            error.add_note(
                f"and its transaction could not be settled ({self._failure}):"
                f" {_WriterState.UNSETTLED.value}"
            )

    def _find_out(self) -> None:
        """Read from the database whether it has committed, and end the transaction accordingly."""
        self._store.rollback()
        self._on_step(Step.READ_STATE)
        self._complete(self._store.read(self._producer.identity.transactional_id))

    def _give_up(self) -> None:
        """Roll the database back, and abort the transaction: nothing was decided."""
        self._store.rollback()
        try:
            self._producer.abort()
        except InvalidTxnState:
            pass  # It has not begun, or was aborted by what failed.
        self._state = _WriterState.READY

    def _complete(self, text: str) -> bool:
        """End the kept transaction as the database says. Source: KIP-939, Recovery recipe."""
        self._on_step(Step.COMPLETE)
        committed = self._producer.complete(PreparedTxnState.parse(text))
        if committed:
            log.info("%s: the database had committed; so has the topic now", text)
        self._state = _WriterState.READY
        return committed


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
