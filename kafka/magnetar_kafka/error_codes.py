"""Codes of errors for Kafka's clients, and which of ours has which. Pure.

Source: Kafka's documentation, Error Codes (https://kafka.apache.org/protocol.html#protocol_error_codes).
"""

from __future__ import annotations

from enum import IntEnum

from magnetar_core import errors
from magnetar_core.errors import MagnetarError


class ErrorCode(IntEnum):
    """A code of an error, as clients know it."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    MESSAGE_TOO_LARGE = 10
    OFFSET_METADATA_TOO_LARGE = 12
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    NOT_ENOUGH_REPLICAS = 19
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    UNSUPPORTED_COMPRESSION_TYPE = 76
    MEMBER_ID_REQUIRED = 79
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    UNKNOWN_TOPIC_ID = 100
    TRANSACTIONAL_ID_NOT_FOUND = 105
    TRANSACTION_ABORTABLE = 120


class Refused(Exception):
    """A request, or a part of it, is refused with a code of Kafka. Nothing was applied."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code


_CODES: dict[type[MagnetarError], ErrorCode] = {
    errors.TopicNotFound: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    errors.Gone: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    errors.PartitionMoved: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    errors.LogUnavailable: ErrorCode.LEADER_NOT_AVAILABLE,
    errors.OutOfRange: ErrorCode.OFFSET_OUT_OF_RANGE,
    errors.SequenceGap: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    errors.ProducerFenced: ErrorCode.INVALID_PRODUCER_EPOCH,
    errors.IllegalGeneration: ErrorCode.ILLEGAL_GENERATION,
    errors.UnknownMember: ErrorCode.UNKNOWN_MEMBER_ID,
    errors.FencedInstance: ErrorCode.FENCED_INSTANCE_ID,
    errors.TopicExists: ErrorCode.TOPIC_ALREADY_EXISTS,
    errors.MessageTooLarge: ErrorCode.MESSAGE_TOO_LARGE,
    errors.QuotaExceeded: ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    errors.DiskFull: ErrorCode.KAFKA_STORAGE_ERROR,
    errors.DataLoss: ErrorCode.CORRUPT_MESSAGE,
    errors.ChecksumMismatch: ErrorCode.CORRUPT_MESSAGE,
    errors.AuthenticationFailed: ErrorCode.SASL_AUTHENTICATION_FAILED,
    errors.AuthorizationFailed: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    errors.InvalidArgument: ErrorCode.INVALID_REQUEST,
    errors.ResourceInUse: ErrorCode.INVALID_REQUEST,
    errors.OutcomeUnknown: ErrorCode.REQUEST_TIMED_OUT,
}


def code_of(error: Refused | MagnetarError) -> ErrorCode:
    """Return the code for an error."""
    if isinstance(error, Refused):
        return error.code
    for kind in type(error).__mro__:
        if kind in _CODES:
            return _CODES[kind]
    return ErrorCode.UNKNOWN_SERVER_ERROR


def outcome_of(code: ErrorCode) -> str:
    """Return the outcome of an action for the audit log."""
    return code.name if code else "DONE"
