"""Errors: each has a name, and is mapped once to the wire, to a gRPC status, and to a kind.

Each error says what happened, whether it took effect, and what to do next; its kind says the same
to programs. Errors travel as a typed detail (`ServerError`), never as text to be parsed.
docs/errors.md is made from these.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from magnetar_core.error_kinds import ErrorKind, kind_from_wire
from magnetar_core.wire import common_pb2 as pb

# In the details of DataLoss, as "state".
DAMAGED = "damaged"


class MagnetarError(Exception):
    """Any error that Magnetar reports to its caller.

    Attributes:
        happened, advice: what this error means, and what to do next, for people. Docstrings are
            made of them: servers that run without docstrings say the same.
        kind: the caller's next step, for programs.
        details: facts for programs (offsets, limits, names), as text.
    """

    happened: ClassVar[str] = "An error occurred."
    advice: ClassVar[str] = "The error's name says more."

    code: ClassVar[pb.ErrorCode] = pb.INTERNAL
    # Name of a grpc.StatusCode: this module stays free of gRPC.
    grpc_status: ClassVar[str] = "INTERNAL"
    # Set by the class. For a code that this version does not know, the server names the kind.
    kind: ErrorKind = ErrorKind.BUG

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.__doc__ is None and "happened" in cls.__dict__:
            cls.__doc__ = f"{cls.happened} {cls.advice}"

    def __init__(self, message: str = "", **details: object) -> None:
        super().__init__(message or f"{self.happened} {self.advice}")
        self.details: Mapping[str, str] = {name: str(value) for name, value in details.items()}

    @property
    def retriable(self) -> bool:
        """Whether asking again, unchanged, can succeed."""
        return self.kind.is_retriable

    def to_wire(self) -> pb.ServerError:
        """Convert to the wire's message."""
        return pb.ServerError(
            code=self.code,
            message=str(self),
            details=dict(self.details),
            kind=self.kind.to_wire(),
        )


class TxnError(MagnetarError):
    """Errors of transactions."""


class TxnNotFound(TxnError):
    happened = "This coordinator never issued that TxnID."
    advice = "No effect; check where the id comes from."
    code = pb.TXN_NOT_FOUND
    grpc_status = "NOT_FOUND"
    kind = ErrorKind.FIX


class TxnForgotten(TxnError):
    happened = "The transaction ended so long ago that its outcome is no longer kept."
    advice = "No effect; read the data to learn the outcome."
    code = pb.TXN_FORGOTTEN
    grpc_status = "NOT_FOUND"
    kind = ErrorKind.START_OVER


class InvalidTxnState(TxnError):
    happened = "The transaction is not in a state that allows this."
    advice = "No effect; begin another transaction."
    code = pb.INVALID_TXN_STATE
    grpc_status = "FAILED_PRECONDITION"
    kind = ErrorKind.START_OVER


class TransactionConflict(TxnError):
    happened = "The message is acknowledged, or another transaction holds its ack."
    advice = "No effect; abort, then retry."
    code = pb.TRANSACTION_CONFLICT
    grpc_status = "ABORTED"
    kind = ErrorKind.START_OVER


class ConcurrentTransactions(TxnError):
    happened = "The previous transaction of this producer is still ending."
    advice = "No effect; ask again."
    code = pb.CONCURRENT_TRANSACTIONS
    grpc_status = "UNAVAILABLE"
    kind = ErrorKind.RETRY


class TxnIncomplete(TxnError):
    happened = "A participant lost data that it had confirmed; the transaction stays COMMITTING."
    advice = "An administrator must restore the data, or accept the loss."
    code = pb.TXN_INCOMPLETE
    grpc_status = "DATA_LOSS"
    kind = ErrorKind.DATA_LOST


class ProducerFenced(TxnError):
    happened = "A newer instance of this producer has taken over."
    advice = "No effect; this instance must stop."
    code = pb.PRODUCER_FENCED
    grpc_status = "FAILED_PRECONDITION"
    kind = ErrorKind.FENCED


class SequenceCommitted(TxnError):
    happened = "The named sequence is committed already."
    advice = "No effect; skip this work: it is done."
    code = pb.SEQUENCE_COMMITTED
    grpc_status = "ALREADY_EXISTS"
    kind = ErrorKind.DONE

    @property
    def fingerprint(self) -> str | None:
        """Fingerprint of the committed content, to compare with a replay's; None: not kept."""
        return self.details.get("fingerprint")


class SequenceDiffers(TxnError):
    happened = "The named sequence is committed with different content."
    advice = "No effect; find out which of the two contents is right, and do not skip this work."
    code = pb.SEQUENCE_DIFFERS
    grpc_status = "FAILED_PRECONDITION"
    kind = ErrorKind.FIX


class SequenceTooOld(TxnError):
    happened = "A later sequence of this name is committed."
    advice = "No effect; do not repeat this work."
    code = pb.SEQUENCE_TOO_OLD
    grpc_status = "FAILED_PRECONDITION"
    kind = ErrorKind.DONE


class SequenceGap(MagnetarError):
    happened = "A message before this one is missing."
    advice = "No effect; send what is missing first."
    code = pb.SEQUENCE_GAP
    grpc_status = "FAILED_PRECONDITION"
    kind = ErrorKind.FIX


class TopicNotFound(MagnetarError):
    happened = "There is no topic or partition with this name."
    advice = "No effect; create it, or correct the name."
    code = pb.TOPIC_NOT_FOUND
    grpc_status = "NOT_FOUND"
    kind = ErrorKind.FIX


class SubscriptionNotFound(MagnetarError):
    happened = "There is no subscription with this name."
    advice = "No effect; subscribe first."
    code = pb.SUBSCRIPTION_NOT_FOUND
    grpc_status = "NOT_FOUND"
    kind = ErrorKind.FIX


class Gone(MagnetarError):
    happened = "The topic or subscription was deleted."
    advice = "No effect; look the name up again."
    code = pb.GONE
    grpc_status = "NOT_FOUND"
    kind = ErrorKind.FIX


class TopicExists(MagnetarError):
    happened = "A topic with this name exists already."
    advice = "No effect; use it, or choose another name."
    code = pb.TOPIC_EXISTS
    grpc_status = "ALREADY_EXISTS"
    kind = ErrorKind.DONE


class SubscriptionExists(MagnetarError):
    happened = "The subscription exists with another type of consumers."
    advice = "No effect; use that type, or choose another name."
    code = pb.SUBSCRIPTION_EXISTS
    grpc_status = "ALREADY_EXISTS"
    kind = ErrorKind.FIX


class ConsumerBusy(MagnetarError):
    happened = "The exclusive subscription already has a consumer."
    advice = "No effect; close that consumer, or use another type of subscription."
    code = pb.CONSUMER_BUSY
    grpc_status = "FAILED_PRECONDITION"
    kind = ErrorKind.RETRY


class ResourceInUse(MagnetarError):
    happened = "The topic or subscription has open transactions or pending acks."
    advice = "No effect; end them, or force the deletion."
    code = pb.RESOURCE_IN_USE
    grpc_status = "FAILED_PRECONDITION"
    kind = ErrorKind.LIMIT


class LogUnavailable(MagnetarError):
    happened = "The server cannot answer now."
    advice = "The effect is unknown; ask again: repeating is harmless."
    code = pb.LOG_UNAVAILABLE
    grpc_status = "UNAVAILABLE"
    kind = ErrorKind.RETRY


class PartitionMoved(MagnetarError):
    happened = "Another broker owns the partition."
    advice = "No effect; look it up again."
    code = pb.PARTITION_MOVED
    grpc_status = "UNAVAILABLE"
    kind = ErrorKind.LOOK_UP


class OutcomeUnknown(MagnetarError):
    happened = "The deadline passed before the answer came."
    advice = "The call may have taken effect; ask again to find out."
    code = pb.OUTCOME_UNKNOWN
    grpc_status = "UNKNOWN"
    kind = ErrorKind.ASK_OUTCOME


class OutOfRange(MagnetarError):
    happened = "Retention has removed the messages at this offset."
    advice = "No effect; seek to the first offset or later."
    code = pb.OUT_OF_RANGE
    grpc_status = "OUT_OF_RANGE"
    kind = ErrorKind.FIX


class DataLoss(MagnetarError):
    happened = "Stored data is missing or damaged."
    advice = "No effect; an administrator must examine the server."
    code = pb.DATA_LOSS
    grpc_status = "DATA_LOSS"
    kind = ErrorKind.DATA_LOST

    @property
    def is_damaged(self) -> bool:
        """Whether the data exists but cannot be read.

        False if it is missing, and if the server cannot tell.
        """
        return self.details.get("state") == DAMAGED


class ChecksumMismatch(MagnetarError):
    happened = "The batch was damaged on its way to the server."
    advice = "No effect; send it again."
    code = pb.CHECKSUM_MISMATCH
    grpc_status = "DATA_LOSS"
    kind = ErrorKind.RETRY


class QuotaExceeded(MagnetarError):
    happened = "A configured limit is reached."
    advice = "No effect; finish something first, or raise the limit."
    code = pb.QUOTA_EXCEEDED
    grpc_status = "RESOURCE_EXHAUSTED"
    kind = ErrorKind.LIMIT


class DiskFull(MagnetarError):
    happened = "The server's disk has less free space than its reserve."
    advice = "No effect; free disk space, or add some."
    code = pb.DISK_FULL
    grpc_status = "RESOURCE_EXHAUSTED"
    kind = ErrorKind.LIMIT


class MessageTooLarge(MagnetarError):
    happened = "The batch exceeds the server's limit."
    advice = "No effect; split the batch: a transaction keeps the parts together."
    code = pb.MESSAGE_TOO_LARGE
    grpc_status = "RESOURCE_EXHAUSTED"
    kind = ErrorKind.FIX


class AuthenticationFailed(MagnetarError):
    happened = "Authentication failed, or the TLS handshake failed."
    advice = "No effect; correct the certificate, the token, or the trusted authority."
    code = pb.AUTHENTICATION_FAILED
    grpc_status = "UNAUTHENTICATED"
    kind = ErrorKind.FIX


class AuthorizationFailed(MagnetarError):
    happened = "The client lacks the right to do this."
    advice = "No effect; ask an administrator for the right."
    code = pb.AUTHORIZATION_FAILED
    grpc_status = "PERMISSION_DENIED"
    kind = ErrorKind.FIX


class TransactionalIdAuthorizationFailed(AuthorizationFailed):
    happened = "Two-phase commit is not allowed for this producer."
    advice = "No effect; an administrator may allow it."
    code = pb.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    grpc_status = "PERMISSION_DENIED"
    kind = ErrorKind.FIX


class TransactionalIdNotFound(MagnetarError):
    happened = "The transactional id is unknown: it was never used, or was idle for too long."
    advice = "No effect; initialise the producer."
    code = pb.TRANSACTIONAL_ID_NOT_FOUND
    grpc_status = "NOT_FOUND"
    kind = ErrorKind.FIX


class GroupNotFound(MagnetarError):
    happened = "There is no group with this name."
    advice = "No effect; join the group, or correct the name."
    code = pb.GROUP_NOT_FOUND
    grpc_status = "NOT_FOUND"
    kind = ErrorKind.FIX


class IllegalGeneration(MagnetarError):
    happened = "The member does not own the partition, or lost it and got it back."
    advice = (
        "No effect; drop what was received from it, abort, and continue with the partitions that "
        "the member owns now."
    )
    code = pb.ILLEGAL_GENERATION
    grpc_status = "FAILED_PRECONDITION"
    kind = ErrorKind.START_OVER


class UnknownMember(MagnetarError):
    happened = "The group does not have this member: it never joined, left, or was expelled."
    advice = "No effect; join again."
    code = pb.UNKNOWN_MEMBER
    grpc_status = "FAILED_PRECONDITION"
    kind = ErrorKind.START_OVER


class FencedInstance(MagnetarError):
    happened = "A newer member has this instance id."
    advice = "No effect; this member must stop."
    code = pb.FENCED_INSTANCE
    grpc_status = "FAILED_PRECONDITION"
    kind = ErrorKind.FENCED


class InvalidArgument(MagnetarError):
    happened = "The request is not valid."
    advice = "No effect; correct the request."
    code = pb.INVALID_ARGUMENT
    grpc_status = "INVALID_ARGUMENT"
    kind = ErrorKind.FIX


class ClusterMismatch(MagnetarError):
    happened = "The two sides disagree about the cluster's members."
    advice = "No effect; give both the same cluster file."
    code = pb.CLUSTER_MISMATCH
    grpc_status = "FAILED_PRECONDITION"
    kind = ErrorKind.FIX


class UnsupportedVersion(MagnetarError):
    happened = "The two sides speak different versions of the protocol."
    advice = "No effect; upgrade the older side, servers before clients."
    code = pb.UNSUPPORTED_VERSION
    grpc_status = "FAILED_PRECONDITION"
    kind = ErrorKind.FIX


class Unimplemented(MagnetarError):
    happened = "The server does not have this command."
    advice = "No effect; upgrade the server, or ask a server of the other kind."
    code = pb.UNIMPLEMENTED
    grpc_status = "UNIMPLEMENTED"
    kind = ErrorKind.FIX


class InternalError(MagnetarError):
    happened = "The server has a bug."
    advice = "The effect is unknown; the server's log says more."
    code = pb.INTERNAL
    grpc_status = "INTERNAL"
    kind = ErrorKind.BUG


def _concrete(base: type[MagnetarError]) -> list[type[MagnetarError]]:
    found = []
    for child in base.__subclasses__():
        if "code" in child.__dict__:
            found.append(child)
        found.extend(_concrete(child))
    return found


ERROR_OF_CODE: dict[int, type[MagnetarError]] = {
    error.code: error for error in _concrete(MagnetarError)
}


# How a participant refuses to end a transaction, where only an administrator can help.
END_REFUSALS = (TxnIncomplete, InvalidTxnState)


def code_name(code: int) -> str:
    """Return the name of a code for people; the number for a code of a later version."""
    return pb.ErrorCode.Name(code) if code in pb.ErrorCode.values() else f"error {code}"


def from_wire(wire: pb.ServerError) -> MagnetarError:
    """Convert a server's error; InternalError for a code that this version does not know."""
    error = ERROR_OF_CODE.get(wire.code, InternalError)(wire.message)
    error.details = dict(wire.details)
    if isinstance(error, InternalError):
        error.kind = kind_from_wire(wire.kind) or error.kind
    return error
