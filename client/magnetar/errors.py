"""All errors that applications see: those that servers answer, and those of the SDK alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar_core.error_kinds import ErrorKind
from magnetar_core.errors import (
    AuthenticationFailed as AuthenticationFailed,
)
from magnetar_core.errors import (
    AuthorizationFailed as AuthorizationFailed,
)
from magnetar_core.errors import (
    ChecksumMismatch as ChecksumMismatch,
)
from magnetar_core.errors import (
    ClusterMismatch as ClusterMismatch,
)
from magnetar_core.errors import (
    ConcurrentTransactions as ConcurrentTransactions,
)
from magnetar_core.errors import (
    ConsumerBusy as ConsumerBusy,
)
from magnetar_core.errors import (
    DataLoss as DataLoss,
)
from magnetar_core.errors import (
    DiskFull as DiskFull,
)
from magnetar_core.errors import (
    FencedInstance as FencedInstance,
)
from magnetar_core.errors import (
    Gone as Gone,
)
from magnetar_core.errors import (
    GroupNotFound as GroupNotFound,
)
from magnetar_core.errors import (
    IllegalGeneration as IllegalGeneration,
)
from magnetar_core.errors import (
    InternalError as InternalError,
)
from magnetar_core.errors import (
    InvalidArgument as InvalidArgument,
)
from magnetar_core.errors import (
    InvalidTxnState as InvalidTxnState,
)
from magnetar_core.errors import (
    LogUnavailable as LogUnavailable,
)
from magnetar_core.errors import (
    MagnetarError as MagnetarError,
)
from magnetar_core.errors import (
    MessageTooLarge as MessageTooLarge,
)
from magnetar_core.errors import (
    OutcomeUnknown as OutcomeUnknown,
)
from magnetar_core.errors import (
    OutOfRange as OutOfRange,
)
from magnetar_core.errors import (
    PartitionMoved as PartitionMoved,
)
from magnetar_core.errors import (
    ProducerFenced as ProducerFenced,
)
from magnetar_core.errors import (
    QuotaExceeded as QuotaExceeded,
)
from magnetar_core.errors import (
    ResourceInUse as ResourceInUse,
)
from magnetar_core.errors import (
    SequenceCommitted as SequenceCommitted,
)
from magnetar_core.errors import (
    SequenceDiffers as SequenceDiffers,
)
from magnetar_core.errors import (
    SequenceGap as SequenceGap,
)
from magnetar_core.errors import (
    SequenceTooOld as SequenceTooOld,
)
from magnetar_core.errors import (
    SubscriptionExists as SubscriptionExists,
)
from magnetar_core.errors import (
    SubscriptionNotFound as SubscriptionNotFound,
)
from magnetar_core.errors import (
    TopicExists as TopicExists,
)
from magnetar_core.errors import (
    TopicNotFound as TopicNotFound,
)
from magnetar_core.errors import (
    TransactionalIdAuthorizationFailed as TransactionalIdAuthorizationFailed,
)
from magnetar_core.errors import (
    TransactionalIdNotFound as TransactionalIdNotFound,
)
from magnetar_core.errors import (
    TransactionConflict as TransactionConflict,
)
from magnetar_core.errors import (
    TxnError as TxnError,
)
from magnetar_core.errors import (
    TxnForgotten as TxnForgotten,
)
from magnetar_core.errors import (
    TxnIncomplete as TxnIncomplete,
)
from magnetar_core.errors import (
    TxnNotFound as TxnNotFound,
)
from magnetar_core.errors import (
    Unimplemented as Unimplemented,
)
from magnetar_core.errors import (
    UnknownMember as UnknownMember,
)
from magnetar_core.errors import (
    UnsupportedVersion as UnsupportedVersion,
)

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


# Tracebacks name the module from which applications import an error.
for _error in [*globals().values()]:
    if isinstance(_error, type) and issubclass(_error, MagnetarError):
        _error.__module__ = __name__
