"""Errors that only the SDK raises; all others are in magnetar_core.errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar_core.error_kinds import ErrorKind
from magnetar_core.errors import MagnetarError, TxnError

if TYPE_CHECKING:
    from magnetar.message import Message


class CommitRefused(TxnError):
    """A send or an ack of the transaction failed, so the SDK aborted it instead of committing.

    Nothing of the transaction counts. `__cause__` is the first failure; begin another transaction.
    """

    happened = "A send or an ack of the transaction failed, so the SDK aborted it."
    advice = "Nothing of it counts; its cause is the first failure. Begin another transaction."
    grpc_status = "ABORTED"
    kind = ErrorKind.START_OVER


class CutUnfinished(TxnError):
    """Commits from before the cut do not finish in time. The details name them, as `txn_ids`.

    No effect. Ask again; or see what these transactions wait for, and help.
    """

    happened = "Commits from before the cut do not finish in time."
    advice = "No effect; ask again, or see what the transactions that it names wait for."
    grpc_status = "UNAVAILABLE"
    kind = ErrorKind.RETRY


class ClientClosed(MagnetarError):
    """The client, producer or consumer is closed. No effect; make another one."""

    happened = "The client, producer or consumer is closed."
    advice = "No effect; make another one."
    grpc_status = "FAILED_PRECONDITION"
    kind = ErrorKind.FIX


class ClientFailed(MagnetarError):
    """A part of the client failed unexpectedly: a bug, or no memory was left. `__cause__` says why.

    What it was doing may have happened or not. If later calls raise it too, make another client.
    """

    happened = "A part of the client failed unexpectedly: a bug, or no memory was left."
    advice = (
        "What it was doing may have happened; its cause says why. If it comes again, reconnect."
    )
    grpc_status = "INTERNAL"
    kind = ErrorKind.BUG


class UsedAfterFork(MagnetarError, RuntimeError):
    """A client of the parent was used in a forked child. No effect; connect again in the child."""

    happened = "A client of the parent process was used in a forked child."
    advice = "No effect; connect again in the child process."
    grpc_status = "FAILED_PRECONDITION"
    kind = ErrorKind.FIX


class WrongEventLoop(MagnetarError, RuntimeError):
    """A client was used outside of the event loop in which it was made. No effect.

    Make a client in each event loop. For threads and scripts there is magnetar.blocking.
    """

    happened = "A client was used outside of the event loop in which it was made."
    advice = "No effect; make a client in each event loop, or use magnetar.blocking."
    grpc_status = "FAILED_PRECONDITION"
    kind = ErrorKind.FIX


class UnsupportedEnvironment(MagnetarError):
    """Something has replaced what a client needs of its process, such as the clock. No effect."""

    happened = "Something has replaced what a client needs of its process, such as the clock."
    advice = "No effect; the message says what to do without."
    grpc_status = "FAILED_PRECONDITION"
    kind = ErrorKind.FIX


class PoisonMessage(MagnetarError):
    """A message that cannot be transformed. Nothing of its batch counts; `__cause__` says why.

    Correct the program, or give it a topic for dead letters.

    Attributes:
        poison: the message.
    """

    happened = "A message cannot be transformed."
    advice = "Nothing of its batch counts; correct the program, or name a topic for dead letters."
    grpc_status = "FAILED_PRECONDITION"
    kind = ErrorKind.FIX

    def __init__(self, poison: Message, attempts: int) -> None:
        super().__init__(
            f"{poison!r} could not be transformed in {attempts} attempts; nothing of its batch"
            " counts",
            topic=poison.topic,
            message_id=poison.message_id,
        )
        self.poison = poison
        self._attempts = attempts

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle it, for another process."""
        return PoisonMessage, (self.poison, self._attempts)


def failure_of(error: BaseException, what: str) -> MagnetarError:
    """Return the error for callers whose work an exception has ended.

    Args:
        error: one that applications know is passed on as it is.
        what: what failed, for people.
    """
    if isinstance(error, MagnetarError):
        return error
    failure = ClientFailed(f"{what} failed: {type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure
