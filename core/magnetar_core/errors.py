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

    happened: ClassVar[str] = "Magnetar reports an error."
    advice: ClassVar[str] = "Its name says more."

    code: ClassVar[pb.ErrorCode] = pb.INTERNAL
    # Name of a grpc.StatusCode: this module stays free of gRPC.
    grpc_status: ClassVar[str] = "INTERNAL"
    # The class has it; an error whose code this version does not know has what the server says.
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
    happened = "The transaction ended longer ago than outcomes are kept."
    advice = "No effect; its outcome is in the data."
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
    happened = "Another transaction holds this ack, or it is acknowledged."
    advice = "No effect; abort, then retry."
    code = pb.TRANSACTION_CONFLICT
    grpc_status = "ABORTED"
    kind = ErrorKind.START_OVER


class ConcurrentTransactions(TxnError):
    happened = "The last transaction of this identity is still ending."
    advice = "No effect; ask again."
    code = pb.CONCURRENT_TRANSACTIONS
    grpc_status = "UNAVAILABLE"
    kind = ErrorKind.RETRY


class TxnIncomplete(TxnError):
    happened = "A participant lost what it had confirmed; the transaction stays COMMITTING."
    advice = "An administrator restores what is missing, or accepts the loss."
    code = pb.TXN_INCOMPLETE
    grpc_status = "DATA_LOSS"
    kind = ErrorKind.DATA_LOST


class ProducerFenced(TxnError):
    happened = "A newer instance took this identity over."
    advice = "No effect; this instance must stop."
    code = pb.PRODUCER_FENCED
    grpc_status = "FAILED_PRECONDITION"
    kind = ErrorKind.FENCED


class SequenceCommitted(TxnError):
    happened = "The named sequence is committed already."
    advice = "No effect; skip the work, it is done."
    code = pb.SEQUENCE_COMMITTED
    grpc_status = "ALREADY_EXISTS"
    kind = ErrorKind.DONE

    @property
    def fingerprint(self) -> str | None:
        """Fingerprint of the committed content, to compare with a replay's; None: not kept."""
        return self.details.get("fingerprint")


class SequenceDiffers(TxnError):
    happened = "The named sequence is committed with another content."
    advice = (
        "No effect; this is other work: find out which of the two is right, and do not skip it."
    )
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
    happened = "No topic or partition of this name."
    advice = "No effect; create it, or correct the name."
    code = pb.TOPIC_NOT_FOUND
    grpc_status = "NOT_FOUND"
    kind = ErrorKind.FIX


class SubscriptionNotFound(MagnetarError):
    happened = "No subscription of this name."
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
    happened = "A topic of this name exists."
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
    happened = "An exclusive subscription has a consumer."
    advice = "No effect; close that one, or use another type."
    code = pb.CONSUMER_BUSY
    grpc_status = "FAILED_PRECONDITION"
    kind = ErrorKind.RETRY


class ResourceInUse(MagnetarError):
    happened = "Open transactions or pending acks hold it."
    advice = "No effect; end them, or force."
    code = pb.RESOURCE_IN_USE
    grpc_status = "FAILED_PRECONDITION"
    kind = ErrorKind.LIMIT


class LogUnavailable(MagnetarError):
    happened = "The server cannot answer now."
    advice = "Unknown effect, repeats are harmless; ask again."
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
    happened = "The time to wait ran out before the answer came."
    advice = "It may have happened; ask again to know."
    code = pb.OUTCOME_UNKNOWN
    grpc_status = "UNKNOWN"
    kind = ErrorKind.ASK_OUTCOME


class OutOfRange(MagnetarError):
    happened = "Retention removed what lies there."
    advice = "No effect; seek to the first offset or later."
    code = pb.OUT_OF_RANGE
    grpc_status = "OUT_OF_RANGE"
    kind = ErrorKind.FIX


class DataLoss(MagnetarError):
    happened = "Stored data is missing or damaged."
    advice = "No effect; an administrator must look."
    code = pb.DATA_LOSS
    grpc_status = "DATA_LOSS"
    kind = ErrorKind.DATA_LOST

    @property
    def is_damaged(self) -> bool:
        """Whether the data is there and cannot be read.

        Otherwise it is missing, or nobody knows.
        """
        return self.details.get("state") == DAMAGED


class ChecksumMismatch(MagnetarError):
    happened = "The batch was damaged on its way."
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
    happened = "The server's disk is below its reserve."
    advice = "No effect; free space, or add some."
    code = pb.DISK_FULL
    grpc_status = "RESOURCE_EXHAUSTED"
    kind = ErrorKind.LIMIT


class MessageTooLarge(MagnetarError):
    happened = "The batch exceeds the server's limit."
    advice = "No effect; split it: a transaction keeps it whole."
    code = pb.MESSAGE_TOO_LARGE
    grpc_status = "RESOURCE_EXHAUSTED"
    kind = ErrorKind.FIX


class AuthenticationFailed(MagnetarError):
    happened = "The server does not know who this is, or TLS does not come about."
    advice = "No effect; correct the certificate, the token or the authority that it names."
    code = pb.AUTHENTICATION_FAILED
    grpc_status = "UNAUTHENTICATED"
    kind = ErrorKind.FIX


class AuthorizationFailed(MagnetarError):
    happened = "Not permitted."
    advice = "No effect; ask an administrator."
    code = pb.AUTHORIZATION_FAILED
    grpc_status = "PERMISSION_DENIED"
    kind = ErrorKind.FIX


class TransactionalIdAuthorizationFailed(AuthorizationFailed):
    happened = "Two-phase commit is not allowed here."
    advice = "No effect; an administrator may allow it."
    code = pb.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    grpc_status = "PERMISSION_DENIED"
    kind = ErrorKind.FIX


class TransactionalIdNotFound(MagnetarError):
    happened = "No such transactional id: never used, or idle for too long."
    advice = "No effect; initialise it."
    code = pb.TRANSACTIONAL_ID_NOT_FOUND
    grpc_status = "NOT_FOUND"
    kind = ErrorKind.FIX


class GroupNotFound(MagnetarError):
    happened = "No group of this name."
    advice = "No effect; join it, or correct the name."
    code = pb.GROUP_NOT_FOUND
    grpc_status = "NOT_FOUND"
    kind = ErrorKind.FIX


class IllegalGeneration(MagnetarError):
    happened = "The member does not own the partition, or got it again since."
    advice = (
        "No effect; drop what was received there, abort, and go on with what the member owns now."
    )
    code = pb.ILLEGAL_GENERATION
    grpc_status = "FAILED_PRECONDITION"
    kind = ErrorKind.START_OVER


class UnknownMember(MagnetarError):
    happened = "The group has no such member: never joined, left, or expelled."
    advice = "No effect; join again."
    code = pb.UNKNOWN_MEMBER
    grpc_status = "FAILED_PRECONDITION"
    kind = ErrorKind.START_OVER


class FencedInstance(MagnetarError):
    happened = "A newer member has this instance id."
    advice = "No effect; this one must stop."
    code = pb.FENCED_INSTANCE
    grpc_status = "FAILED_PRECONDITION"
    kind = ErrorKind.FENCED


class InvalidArgument(MagnetarError):
    happened = "The request makes no sense as it stands."
    advice = "No effect; correct it."
    code = pb.INVALID_ARGUMENT
    grpc_status = "INVALID_ARGUMENT"
    kind = ErrorKind.FIX


class ClusterMismatch(MagnetarError):
    happened = "The two sides disagree about the cluster's members."
    advice = "No effect; give both the same file."
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
    advice = "No effect; upgrade the server, or ask one of the other kind."
    code = pb.UNIMPLEMENTED
    grpc_status = "UNIMPLEMENTED"
    kind = ErrorKind.FIX


class InternalError(MagnetarError):
    happened = "A bug in the server."
    advice = "Unknown effect; its log says more."
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
