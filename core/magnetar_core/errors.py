"""Errors: one name each, mapped once to the wire and to a gRPC status.

Each says what the caller may assume happened and what to do next. They travel as a typed detail
(`ServerError`), never as text to be parsed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from magnetar_core.wire import common_pb2 as pb

# In the details of DataLoss, as "state".
DAMAGED = "damaged"


class MagnetarError(Exception):
    """Anything that Magnetar reports to its caller.

    Attributes:
        details: facts for programs (offsets, limits, names), as text.
    """

    code: ClassVar[pb.ErrorCode] = pb.INTERNAL
    # Name of a grpc.StatusCode: this module stays free of gRPC.
    grpc_status: ClassVar[str] = "INTERNAL"
    # Whether asking again, unchanged, can succeed.
    retriable: ClassVar[bool] = False

    def __init__(self, message: str = "", **details: object) -> None:
        super().__init__(message or type(self).__doc__ or type(self).__name__)
        self.details: Mapping[str, str] = {name: str(value) for name, value in details.items()}

    def to_wire(self) -> pb.ServerError:
        return pb.ServerError(code=self.code, message=str(self), details=dict(self.details))


class TxnError(MagnetarError):
    """Errors of transactions."""


class TxnNotFound(TxnError):
    """This coordinator never issued that TxnID. No effect; check where the id comes from."""

    code = pb.TXN_NOT_FOUND
    grpc_status = "NOT_FOUND"


class TxnForgotten(TxnError):
    """The transaction ended longer ago than outcomes are kept. No effect; its outcome is in the
    data."""

    code = pb.TXN_FORGOTTEN
    grpc_status = "NOT_FOUND"


class InvalidTxnState(TxnError):
    """The transaction is not in a state that allows this. No effect; begin another transaction."""

    code = pb.INVALID_TXN_STATE
    grpc_status = "FAILED_PRECONDITION"


class TransactionConflict(TxnError):
    """Another transaction holds this ack, or it is acknowledged. No effect; abort, then retry."""

    code = pb.TRANSACTION_CONFLICT
    grpc_status = "ABORTED"


class ConcurrentTransactions(TxnError):
    """The last transaction of this identity is still ending. No effect; ask again."""

    code = pb.CONCURRENT_TRANSACTIONS
    grpc_status = "UNAVAILABLE"
    retriable = True


class TxnIncomplete(TxnError):
    """A participant lost what it had confirmed; the transaction stays COMMITTING until an
    administrator accepts the loss."""

    code = pb.TXN_INCOMPLETE
    grpc_status = "DATA_LOSS"


class ProducerFenced(TxnError):
    """A newer instance took this identity over. No effect; this instance must stop."""

    code = pb.PRODUCER_FENCED
    grpc_status = "FAILED_PRECONDITION"


class SequenceCommitted(TxnError):
    """The named sequence is committed already. No effect; skip the work, it is done."""

    code = pb.SEQUENCE_COMMITTED
    grpc_status = "ALREADY_EXISTS"

    @property
    def fingerprint(self) -> str | None:
        """Of what was committed, to be compared with what would be repeated; None: not kept."""
        return self.details.get("fingerprint")


class SequenceDiffers(TxnError):
    """The named sequence is committed with another content. No effect; this is other work: find
    out which of the two is right, and do not skip it."""

    code = pb.SEQUENCE_DIFFERS
    grpc_status = "FAILED_PRECONDITION"


class SequenceTooOld(TxnError):
    """A later sequence of this name is committed. No effect; do not repeat this work."""

    code = pb.SEQUENCE_TOO_OLD
    grpc_status = "FAILED_PRECONDITION"


class SequenceGap(MagnetarError):
    """A message before this one is missing. No effect; send what is missing first."""

    code = pb.SEQUENCE_GAP
    grpc_status = "FAILED_PRECONDITION"


class TopicNotFound(MagnetarError):
    """No topic or partition of this name. No effect; create it, or correct the name."""

    code = pb.TOPIC_NOT_FOUND
    grpc_status = "NOT_FOUND"


class SubscriptionNotFound(MagnetarError):
    """No subscription of this name. No effect; subscribe first."""

    code = pb.SUBSCRIPTION_NOT_FOUND
    grpc_status = "NOT_FOUND"


class Gone(MagnetarError):
    """The topic or subscription was deleted. No effect; look the name up again."""

    code = pb.GONE
    grpc_status = "NOT_FOUND"


class TopicExists(MagnetarError):
    """A topic of this name exists. No effect; use it, or choose another name."""

    code = pb.TOPIC_EXISTS
    grpc_status = "ALREADY_EXISTS"


class SubscriptionExists(MagnetarError):
    """The subscription exists with another type of consumers. No effect."""

    code = pb.SUBSCRIPTION_EXISTS
    grpc_status = "ALREADY_EXISTS"


class ConsumerBusy(MagnetarError):
    """An exclusive subscription has a consumer. No effect; close that one, or use another type."""

    code = pb.CONSUMER_BUSY
    grpc_status = "FAILED_PRECONDITION"
    retriable = True


class ResourceInUse(MagnetarError):
    """Open transactions or pending acks hold it. No effect; end them, or force."""

    code = pb.RESOURCE_IN_USE
    grpc_status = "FAILED_PRECONDITION"


class LogUnavailable(MagnetarError):
    """The server cannot answer now. Unknown effect, repeats are harmless; ask again."""

    code = pb.LOG_UNAVAILABLE
    grpc_status = "UNAVAILABLE"
    retriable = True


class PartitionMoved(MagnetarError):
    """Another broker owns the partition. No effect; look it up again."""

    code = pb.PARTITION_MOVED
    grpc_status = "UNAVAILABLE"
    retriable = True


class OutcomeUnknown(MagnetarError):
    """The time to wait ran out before the answer came. It may have happened; ask again to know."""

    code = pb.OUTCOME_UNKNOWN
    grpc_status = "UNKNOWN"


class OutOfRange(MagnetarError):
    """Retention removed what lies there. No effect; seek to the first offset or later."""

    code = pb.OUT_OF_RANGE
    grpc_status = "OUT_OF_RANGE"


class DataLoss(MagnetarError):
    """Stored data is missing or damaged. No effect; an administrator must look."""

    code = pb.DATA_LOSS
    grpc_status = "DATA_LOSS"

    @property
    def is_damaged(self) -> bool:
        """It is there, and cannot be read; otherwise it is missing, or nobody knows."""
        return self.details.get("state") == DAMAGED


class ChecksumMismatch(MagnetarError):
    """The batch was damaged on its way. No effect; send it again."""

    code = pb.CHECKSUM_MISMATCH
    grpc_status = "DATA_LOSS"


class QuotaExceeded(MagnetarError):
    """A configured limit is reached. No effect; finish something first, or raise the limit."""

    code = pb.QUOTA_EXCEEDED
    grpc_status = "RESOURCE_EXHAUSTED"


class DiskFull(MagnetarError):
    """The server's disk is below its reserve. No effect; free space, or add some."""

    code = pb.DISK_FULL
    grpc_status = "RESOURCE_EXHAUSTED"


class MessageTooLarge(MagnetarError):
    """The batch exceeds the server's limit. No effect; split it: a transaction keeps it whole."""

    code = pb.MESSAGE_TOO_LARGE
    grpc_status = "RESOURCE_EXHAUSTED"


class AuthorizationFailed(MagnetarError):
    """Not permitted. No effect."""

    code = pb.AUTHORIZATION_FAILED
    grpc_status = "PERMISSION_DENIED"


class TransactionalIdAuthorizationFailed(AuthorizationFailed):
    """Two-phase commit is not allowed here. No effect; an administrator may allow it."""

    code = pb.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    grpc_status = "PERMISSION_DENIED"


class TransactionalIdNotFound(MagnetarError):
    """No such transactional id: never used, or idle for too long. No effect; initialise it."""

    code = pb.TRANSACTIONAL_ID_NOT_FOUND
    grpc_status = "NOT_FOUND"


class GroupNotFound(MagnetarError):
    """No group of this name. No effect; join it, or correct the name."""

    code = pb.GROUP_NOT_FOUND
    grpc_status = "NOT_FOUND"


class IllegalGeneration(MagnetarError):
    """The member does not own the partition, or got it again since. No effect; drop what was
    received there, abort, and go on with what the member owns now."""

    code = pb.ILLEGAL_GENERATION
    grpc_status = "FAILED_PRECONDITION"


class UnknownMember(MagnetarError):
    """The group has no such member: never joined, left, or expelled. No effect; join again."""

    code = pb.UNKNOWN_MEMBER
    grpc_status = "FAILED_PRECONDITION"


class FencedInstance(MagnetarError):
    """A newer member has this instance id. No effect; this one must stop."""

    code = pb.FENCED_INSTANCE
    grpc_status = "FAILED_PRECONDITION"


class InvalidArgument(MagnetarError):
    """The request makes no sense as it stands. No effect; correct it."""

    code = pb.INVALID_ARGUMENT
    grpc_status = "INVALID_ARGUMENT"


class ClusterMismatch(MagnetarError):
    """The two sides disagree about the cluster's members. No effect; give both the same file."""

    code = pb.CLUSTER_MISMATCH
    grpc_status = "FAILED_PRECONDITION"


class InternalError(MagnetarError):
    """A bug in the server. Unknown effect; its log says more."""

    code = pb.INTERNAL
    grpc_status = "INTERNAL"


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


def from_wire(wire: pb.ServerError) -> MagnetarError:
    """The error that a server sent; InternalError for a code that this version does not know."""
    error = ERROR_OF_CODE.get(wire.code, InternalError)(wire.message)
    error.details = dict(wire.details)
    return error
