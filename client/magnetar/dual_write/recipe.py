"""The eight steps of the recipe, and the recovery after a crash between any two of them.

Written once: `DualWriter` runs it on the thread that calls, `AsyncDualWriter` on the event loop.

Source: KIP-939, Motivation, Normal processing recipe and Recovery recipe.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import TypeAlias

from magnetar.blocking.transactional_producer import TransactionalProducer
from magnetar.dual_write.here import result_of
from magnetar.dual_write.state_store import AsyncStateStore, StateStore
from magnetar.transactions.producer_identity import PreparedTxnState
from magnetar.transactions.transactional_producer import (
    TransactionalProducer as AsyncTransactionalProducer,
)
from magnetar_core.errors import InvalidTxnState, ProducerFenced, TxnForgotten

log = logging.getLogger("magnetar")

AnyProducer: TypeAlias = TransactionalProducer | AsyncTransactionalProducer
AnyStore: TypeAlias = StateStore | AsyncStateStore


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


OnStep: TypeAlias = Callable[[Step], None]


class WriterState(Enum):
    """Whether a unit may begin: READY alone."""

    NEW = "start() was not called"
    READY = "no unit is open"
    UNSETTLED = "a unit is open, or could not be settled"


# What to do about a unit that could not be settled.
NEW_WRITER = "go on with start() of a new writer, with a producer and a store of its own"


class Recipe:
    """The steps on a database and a transactional id, for a unit at a time.

    A unit: `enter`, `begin`, its block, and then `finish`. If any of them but `enter` raises, or
    the block does, `give_up` ends the unit. `finish` has done that itself.
    """

    def __init__(
        self,
        producer: AnyProducer,
        store: AnyStore,
        *,
        on_step: OnStep = lambda step: None,
        remedy: str = NEW_WRITER,
    ) -> None:
        """A recipe that has not started.

        Args:
            on_step: called before each step.
            remedy: what to do about a unit that could not be settled, for people.
        """
        self.state = WriterState.NEW
        self._remedy = remedy
        self._producer = producer
        self._store = store
        self._on_step = on_step
        # Held by start() and by a unit, from its beginning to its end.
        self._busy = threading.Lock()
        # Why it is UNSETTLED, for messages.
        self._failure = ""
        self._owner = ""

    async def start(self) -> bool:
        """Take over the transactional id; see DualWriter.start."""
        self._enter(WriterState.NEW, WriterState.READY)
        try:
            await result_of(self._store.create_schema())
            self._on_step(Step.INIT)
            await result_of(self._producer.init(keep_prepared=True))
            with self._settling():
                identity = self._producer.identity
                self._owner = f"{identity.producer_id}/{identity.producer_epoch}"
                self._on_step(Step.READ_STATE)
                text = await result_of(self._store.claim(identity.transactional_id, self._owner))
                await self._check_outcome(PreparedTxnState.parse(text))
                return await self._complete(text)
        finally:
            self._busy.release()

    def enter(self) -> None:
        """Begin a unit, and keep others out until it has ended.

        Raises:
            InvalidTxnState: another unit is open, or the writer is not READY. No effect.
        """
        self._enter(WriterState.READY)

    async def begin(self) -> None:
        """Begin both transactions: steps 1 and 2."""
        self._on_step(Step.BEGIN_DATABASE)
        await result_of(self._store.begin())
        with self._settling():
            self._on_step(Step.BEGIN)
            await result_of(self._producer.begin())
            self._on_step(Step.SEND)

    @contextmanager
    def covered(self) -> Iterator[None]:
        """Make a send outside of the unit a mistake, in the block."""
        producer = self._producer
        inner = producer.inner if isinstance(producer, TransactionalProducer) else producer
        assert inner.transaction is not None
        with inner.transaction.work.cover("use unit.send()"):
            yield

    async def finish(self) -> None:
        """Commit both: steps 4 to 8. The database's commit decides."""
        try:
            with self._settling():
                await self._commit()
        finally:
            self._busy.release()

    async def give_up(self, error: BaseException) -> None:
        """Undo the unit, in which an error was raised that the caller sees."""
        try:
            # While it is READY, not even the database had begun.
            if self.state is WriterState.UNSETTLED:
                self._failure = self._failure or _named(error)
                await self._settle(self._abort, error)
        finally:
            self._busy.release()

    async def _commit(self) -> None:
        try:
            self._on_step(Step.PREPARE)
            prepared = await result_of(self._producer.prepare())
            self._on_step(Step.UPDATE_STATE)
            await self._write_state(prepared)
        except BaseException as error:
            await self._settle(self._abort, error)
            raise
        try:
            self._on_step(Step.COMMIT_DATABASE)
            await result_of(self._store.commit())
        except BaseException as error:
            await self._settle(self._find_out, error)
            raise
        self._on_step(Step.COMMIT)
        await result_of(self._producer.commit())
        self.state = WriterState.READY

    def _enter(self, *states: WriterState) -> None:
        if not self._busy.acquire(blocking=False):
            raise InvalidTxnState(
                "another unit of this writer is open, perhaps in another thread or task: it has one"
                " unit at a time. Use a lock, or a pool of writers"
            )
        if self.state not in states:
            self._busy.release()
            why = f"this writer has failed ({self._failure}): " if self._failure else ""
            is_new = self.state is WriterState.NEW
            what = "call start() first: it finishes what an earlier instance left undecided"
            raise InvalidTxnState(why + (what if is_new else self._remedy))

    @contextmanager
    def _settling(self) -> Iterator[None]:
        """Remember why the block did not bring the writer to READY."""
        self.state, self._failure = WriterState.UNSETTLED, ""
        try:
            yield
        except BaseException as error:
            self._failure = self._failure or _named(error)
            raise

    async def _check_outcome(self, prepared: PreparedTxnState) -> None:
        """Check that the unit which the database has committed last is in the topics, too."""
        try:
            await result_of(self._producer.check_outcome(prepared))
        except TxnForgotten as error:
            log.warning("the database has committed %s last: %s", prepared, error)

    async def _write_state(self, prepared: PreparedTxnState) -> None:
        transactional_id = self._producer.identity.transactional_id
        text = str(prepared)
        if not await result_of(self._store.write(transactional_id, self._owner, text)):
            raise ProducerFenced(
                f"another instance has claimed {transactional_id!r} in the database: this one must"
                " stop"
            )

    async def _settle(self, step: Callable[[], Awaitable[None]], error: BaseException) -> None:
        """Clean up after an error, which the caller has to see in any case."""
        try:
            await step()
        except Exception as failure:
            self._failure = _named(failure)
            log.warning("a unit was not settled after %r: %r", error, failure)
            error.add_note(
                f"and its transaction could not be settled ({self._failure}): {self._remedy}"
            )

    async def _find_out(self) -> None:
        """Read from the database whether it has committed, and end the transaction accordingly."""
        await result_of(self._store.rollback())
        self._on_step(Step.READ_STATE)
        text = await result_of(self._store.read(self._producer.identity.transactional_id))
        await self._complete(text)

    async def _abort(self) -> None:
        """Roll the database back, and abort the transaction: nothing was decided."""
        await result_of(self._store.rollback())
        try:
            await result_of(self._producer.abort())
        except InvalidTxnState:
            pass  # It has not begun, or was aborted by what failed.
        self.state = WriterState.READY

    async def _complete(self, text: str) -> bool:
        """End the kept transaction as the database says. Source: KIP-939, Recovery recipe."""
        self._on_step(Step.COMPLETE)
        committed = await result_of(self._producer.complete(PreparedTxnState.parse(text)))
        if committed:
            log.info("%s: the database had committed; so has the topic now", text)
        self.state = WriterState.READY
        return committed


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
