"""The blocks of transactions, in which a send or an ack has to say whether it is part of it.

`async with client.transaction()` opens a block. It covers the task that opened it, and the tasks
that this task starts inside, as with gather() or a TaskGroup, since they get a copy of its context.
A task that goes on after the block has ended is no longer covered. With the blocking client a block
covers the thread that opened it. Only sends and acks of the same client are covered.
"""

from __future__ import annotations

from contextvars import ContextVar
from enum import Enum
from typing import Final, Protocol, TypeVar

from magnetar.link.runtime import Runtime
from magnetar_core.errors import InvalidArgument, MagnetarError


class NotGiven(Enum):
    """The default of `txn` in sends and acks: the call does not say whether it is part of one.

    Code that passes `txn` on has NotGiven.NOT_GIVEN as its own default: inside of the block of a
    transaction, None has another meaning.
    """

    NOT_GIVEN = "not given"

    def __repr__(self) -> str:
        return self.name


NOT_GIVEN: Final = NotGiven.NOT_GIVEN

TransactionT = TypeVar("TransactionT")


class Doomed(Protocol):
    """A transaction that a mistake in its block makes fail."""

    def doom(self, error: MagnetarError) -> None:
        """Make the transaction fail."""
        ...


class TransactionBlock:
    """A block of code that belongs to a transaction."""

    __slots__ = ("_outer", "_remedy", "_runtime", "_transaction")

    def __init__(self, runtime: Runtime, transaction: Doomed, remedy: str) -> None:
        """A block that is not open yet.

        Args:
            runtime: of the client whose sends and acks are covered.
            remedy: how to send or acknowledge in the transaction, for people.
        """
        self._runtime = runtime
        # None once the block has ended: tasks that it started may keep the block for long.
        self._transaction: Doomed | None = transaction
        self._remedy = remedy
        self._outer: TransactionBlock | None = None

    def open(self) -> None:
        """Begin the block, in this context and in those that are copied from it."""
        self._outer = _innermost.get()
        self.join()
        self._runtime.open_blocks.add(self)

    def join(self) -> None:
        """Be in the block from now on, in this context too."""
        _innermost.set(self)

    def leave(self) -> None:
        """Be in the block around it again, in this context."""
        if _innermost.get() is self:
            _innermost.set(self._outer)

    def end(self) -> None:
        """End the block, in all contexts, and leave it in this one."""
        self._transaction = None
        self._runtime.open_blocks.discard(self)
        self.leave()

    def __enter__(self) -> None:
        self.open()

    def __exit__(self, *_: object) -> None:
        self.end()

    def _covers(self, runtime: Runtime) -> bool:
        return self._transaction is not None and self._runtime is runtime

    def _refuse(self, call: str) -> InvalidArgument:
        error = InvalidArgument(
            f"a {call} without txn is refused in the block of a transaction, since it would stay if"
            f" the transaction aborted: {self._remedy}, or say txn=None if that is meant. The"
            " transaction has failed"
        )
        if self._transaction is not None:
            self._transaction.doom(error)
        return error


_innermost: ContextVar[TransactionBlock | None] = ContextVar("magnetar transaction", default=None)


def require_outside(runtime: Runtime, call: str) -> None:
    """Check that this task is not in the block of a transaction of this client.

    Call it where `runtime.open_blocks` is not empty: otherwise there is nothing to check.

    Args:
        call: "send" or "ack", for people.
    Raises:
        InvalidArgument: it is. The transaction has failed.
    """
    block = _innermost.get()
    while block is not None:
        if block._covers(runtime):
            raise block._refuse(call)
        block = block._outer


def given(txn: TransactionT | NotGiven | None, runtime: Runtime, call: str) -> TransactionT | None:
    """Return the transaction of a send or an ack; None: it is plain.

    Args:
        txn: what the caller was given.
        call: "send" or "ack", for people.
    Raises:
        InvalidArgument: as require_outside.
    """
    if not isinstance(txn, NotGiven):
        return txn
    if runtime.open_blocks:
        require_outside(runtime, call)
    return None
