"""The recipe itself: eight steps, and the recovery that puts right whatever stopped between them.

Source: KIP-939, Motivation, Normal processing recipe and Recovery recipe.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar

from magnetar.blocking.transactional_producer import TransactionalProducer
from magnetar.transactions.producer_identity import PreparedTxnState
from magnetar_core.errors import InvalidTxnState, ProducerFenced

log = logging.getLogger("magnetar")


class StateStore(Protocol):
    """A database that keeps a text for each transactional id, atomically with the data.

    And whose it is: of two instances that believe to be the only one, the one that claimed the id
    last may write. KIP-939 fences them at the coordinator alone; a database transaction of the
    other one could then still commit, after its state was read.
    """

    def create_schema(self) -> None:
        """Make the place for the texts; harmless when it is there."""
        ...

    def begin(self) -> None: ...

    def read(self, transactional_id: str) -> str:
        """The text that was committed last; empty without one."""
        ...

    def claim(self, transactional_id: str, owner: str) -> str:
        """Become its owner; returns the text. Both in a transaction of their own."""
        ...

    def write(self, transactional_id: str, owner: str, text: str) -> bool:
        """Set the text, within the transaction that begin() opened.

        Returns:
            Whether it is still this owner's; nothing is written otherwise.
        """
        ...

    def commit(self) -> None: ...

    def rollback(self) -> None: ...


class Step(Enum):
    """Before which step something happens; numbered as in KIP-939."""

    BEGIN_DATABASE = 1
    BEGIN = 2
    SEND = 3
    PREPARE = 4
    UPDATE_DATA = 5
    UPDATE_STATE = 6
    COMMIT_DATABASE = 7
    COMMIT = 8
    # Of the recovery.
    INIT = 9
    READ_STATE = 10
    COMPLETE = 11


Store = TypeVar("Store", bound=StateStore)


class Unit(Generic[Store]):
    """One atomic piece of work.

    Attributes:
        store: writes to the database, in the transaction of this unit.
    """

    def __init__(self, store: Store, producer: TransactionalProducer) -> None:
        self.store = store
        self._producer = producer

    def send(self, topic: str, value: bytes, key: bytes | None = None, **options: Any) -> None:
        """Send a message; it is visible when the unit has committed.

        Args:
            options: as of Producer.enqueue, without txn.
        """
        self._producer.enqueue(topic, value, key, **options)


class DualWriter(Generic[Store]):
    """Writes to a database and to topics.

    Args:
        producer: with two_phase_commit; nobody else uses it.
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
        self._is_ready = False
        self._owner = ""

    def start(self) -> bool:
        """Take the transactional id over, and settle what an earlier instance left.

        Returns:
            Whether a transaction was committed that had been left undecided.
        Raises:
            TransactionalIdAuthorizationFailed: the coordinator does not allow two-phase commit.
        """
        self._store.create_schema()
        self._on_step(Step.INIT)
        self._producer.init(keep_prepared=True)
        identity = self._producer.identity
        self._owner = f"{identity.producer_id}/{identity.producer_epoch}"
        self._on_step(Step.READ_STATE)
        return self._complete(self._store.claim(identity.transactional_id, self._owner))

    @contextmanager
    def unit(self) -> Iterator[Unit[Store]]:
        """Do what the block does, in the database and in topics, together or not at all.

        Raises:
            InvalidTxnState: start() was not called, or an earlier unit could not be settled: call
                start() of a new DualWriter then.
            Exception: what the block or the database raised; nothing counts then, unless the
                database committed all the same, which is found out at once. Where that is not
                possible, as when the coordinator is away, a note on the exception says so; nothing
                is lost, but only start() of a new DualWriter goes on.
        """
        if not self._is_ready:
            raise InvalidTxnState("call start() first: it settles what was left undecided")
        self._is_ready = False
        self._on_step(Step.BEGIN_DATABASE)
        self._store.begin()
        try:
            self._on_step(Step.BEGIN)
            self._producer.begin()
            self._on_step(Step.SEND)
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
        self._is_ready = True

    def _write_state(self, prepared: PreparedTxnState) -> None:
        transactional_id = self._producer.identity.transactional_id
        if not self._store.write(transactional_id, self._owner, str(prepared)):
            raise ProducerFenced(
                f"another instance has claimed {transactional_id!r} in the database: this one must"
                " stop"
            )

    def _settle(self, step: Callable[[], None], error: BaseException) -> None:
        """Put in order what an error has left; it is that one which the caller has to see."""
        try:
            step()
        except Exception as failure:
            log.warning("a unit was not settled after %r: %r", error, failure)
            error.add_note(
                f"and its transaction could not be settled ({type(failure).__name__}: {failure}):"
                " go on with start() of a new DualWriter and a producer of its own"
            )

    def _find_out(self) -> None:
        """The database may have committed: what it holds decides."""
        self._store.rollback()
        self._on_step(Step.READ_STATE)
        self._complete(self._store.read(self._producer.identity.transactional_id))

    def _give_up(self) -> None:
        """Nothing is decided: the database rolls back, so the transaction has to abort."""
        self._store.rollback()
        try:
            self._producer.abort()
        except InvalidTxnState:
            pass  # It has not begun, or was aborted by what failed.
        self._is_ready = True

    def _complete(self, text: str) -> bool:
        """KIP-939, Recovery recipe."""
        self._on_step(Step.COMPLETE)
        committed = self._producer.complete(PreparedTxnState.parse(text))
        if committed:
            log.info("%s: the database had committed; so has the topic now", text)
        self._is_ready = True
        return committed
