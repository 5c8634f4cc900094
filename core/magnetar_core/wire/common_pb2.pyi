from magnetar_core import requests as _requests
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TxnAction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    COMMIT: _ClassVar[TxnAction]
    ABORT: _ClassVar[TxnAction]

class TxnStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TXN_STATUS_UNSPECIFIED: _ClassVar[TxnStatus]
    OPEN: _ClassVar[TxnStatus]
    COMMITTING: _ClassVar[TxnStatus]
    COMMITTED: _ClassVar[TxnStatus]
    ABORTING: _ClassVar[TxnStatus]
    ABORTED: _ClassVar[TxnStatus]

class ErrorCode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ERROR_CODE_UNSPECIFIED: _ClassVar[ErrorCode]
    TXN_NOT_FOUND: _ClassVar[ErrorCode]
    TXN_FORGOTTEN: _ClassVar[ErrorCode]
    TOPIC_NOT_FOUND: _ClassVar[ErrorCode]
    SUBSCRIPTION_NOT_FOUND: _ClassVar[ErrorCode]
    GONE: _ClassVar[ErrorCode]
    TOPIC_EXISTS: _ClassVar[ErrorCode]
    SEQUENCE_COMMITTED: _ClassVar[ErrorCode]
    INVALID_TXN_STATE: _ClassVar[ErrorCode]
    PRODUCER_FENCED: _ClassVar[ErrorCode]
    SEQUENCE_TOO_OLD: _ClassVar[ErrorCode]
    SEQUENCE_GAP: _ClassVar[ErrorCode]
    TRANSACTION_CONFLICT: _ClassVar[ErrorCode]
    CONCURRENT_TRANSACTIONS: _ClassVar[ErrorCode]
    LOG_UNAVAILABLE: _ClassVar[ErrorCode]
    PARTITION_MOVED: _ClassVar[ErrorCode]
    OUTCOME_UNKNOWN: _ClassVar[ErrorCode]
    OUT_OF_RANGE: _ClassVar[ErrorCode]
    DATA_LOSS: _ClassVar[ErrorCode]
    CHECKSUM_MISMATCH: _ClassVar[ErrorCode]
    TXN_INCOMPLETE: _ClassVar[ErrorCode]
    QUOTA_EXCEEDED: _ClassVar[ErrorCode]
    DISK_FULL: _ClassVar[ErrorCode]
    MESSAGE_TOO_LARGE: _ClassVar[ErrorCode]
    AUTHORIZATION_FAILED: _ClassVar[ErrorCode]
    INVALID_ARGUMENT: _ClassVar[ErrorCode]
    CONSUMER_BUSY: _ClassVar[ErrorCode]
    CLUSTER_MISMATCH: _ClassVar[ErrorCode]
    RESOURCE_IN_USE: _ClassVar[ErrorCode]
    SUBSCRIPTION_EXISTS: _ClassVar[ErrorCode]
    INTERNAL: _ClassVar[ErrorCode]
    TRANSACTIONAL_ID_NOT_FOUND: _ClassVar[ErrorCode]
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED: _ClassVar[ErrorCode]
    ILLEGAL_GENERATION: _ClassVar[ErrorCode]
    UNKNOWN_MEMBER: _ClassVar[ErrorCode]
    FENCED_INSTANCE: _ClassVar[ErrorCode]
    GROUP_NOT_FOUND: _ClassVar[ErrorCode]
    SEQUENCE_DIFFERS: _ClassVar[ErrorCode]
    UNSUPPORTED_VERSION: _ClassVar[ErrorCode]
    AUTHENTICATION_FAILED: _ClassVar[ErrorCode]
    UNIMPLEMENTED: _ClassVar[ErrorCode]
COMMIT: TxnAction
ABORT: TxnAction
TXN_STATUS_UNSPECIFIED: TxnStatus
OPEN: TxnStatus
COMMITTING: TxnStatus
COMMITTED: TxnStatus
ABORTING: TxnStatus
ABORTED: TxnStatus
ERROR_CODE_UNSPECIFIED: ErrorCode
TXN_NOT_FOUND: ErrorCode
TXN_FORGOTTEN: ErrorCode
TOPIC_NOT_FOUND: ErrorCode
SUBSCRIPTION_NOT_FOUND: ErrorCode
GONE: ErrorCode
TOPIC_EXISTS: ErrorCode
SEQUENCE_COMMITTED: ErrorCode
INVALID_TXN_STATE: ErrorCode
PRODUCER_FENCED: ErrorCode
SEQUENCE_TOO_OLD: ErrorCode
SEQUENCE_GAP: ErrorCode
TRANSACTION_CONFLICT: ErrorCode
CONCURRENT_TRANSACTIONS: ErrorCode
LOG_UNAVAILABLE: ErrorCode
PARTITION_MOVED: ErrorCode
OUTCOME_UNKNOWN: ErrorCode
OUT_OF_RANGE: ErrorCode
DATA_LOSS: ErrorCode
CHECKSUM_MISMATCH: ErrorCode
TXN_INCOMPLETE: ErrorCode
QUOTA_EXCEEDED: ErrorCode
DISK_FULL: ErrorCode
MESSAGE_TOO_LARGE: ErrorCode
AUTHORIZATION_FAILED: ErrorCode
INVALID_ARGUMENT: ErrorCode
CONSUMER_BUSY: ErrorCode
CLUSTER_MISMATCH: ErrorCode
RESOURCE_IN_USE: ErrorCode
SUBSCRIPTION_EXISTS: ErrorCode
INTERNAL: ErrorCode
TRANSACTIONAL_ID_NOT_FOUND: ErrorCode
TRANSACTIONAL_ID_AUTHORIZATION_FAILED: ErrorCode
ILLEGAL_GENERATION: ErrorCode
UNKNOWN_MEMBER: ErrorCode
FENCED_INSTANCE: ErrorCode
GROUP_NOT_FOUND: ErrorCode
SEQUENCE_DIFFERS: ErrorCode
UNSUPPORTED_VERSION: ErrorCode
AUTHENTICATION_FAILED: ErrorCode
UNIMPLEMENTED: ErrorCode

class TxnId(_message.Message):
    __slots__ = ("most_bits", "least_bits")
    MOST_BITS_FIELD_NUMBER: _ClassVar[int]
    LEAST_BITS_FIELD_NUMBER: _ClassVar[int]
    most_bits: int
    least_bits: int
    def __init__(self, most_bits: _Optional[int] = ..., least_bits: _Optional[int] = ...) -> None: ...

class ProducerIdentity(_message.Message):
    __slots__ = ("transactional_id", "producer_id", "producer_epoch")
    TRANSACTIONAL_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    transactional_id: str
    producer_id: int
    producer_epoch: int
    def __init__(self, transactional_id: _Optional[str] = ..., producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ...) -> None: ...

class Partition(_message.Message):
    __slots__ = ("topic", "partition", "topic_id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    topic_id: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., topic_id: _Optional[int] = ...) -> None: ...

class Subscription(_message.Message):
    __slots__ = ("topic", "subscription", "partition", "topic_id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    subscription: str
    partition: int
    topic_id: int
    def __init__(self, topic: _Optional[str] = ..., subscription: _Optional[str] = ..., partition: _Optional[int] = ..., topic_id: _Optional[int] = ...) -> None: ...

class MessageIdData(_message.Message):
    __slots__ = ("ledger_id", "entry_id", "index")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    entry_id: int
    index: int
    def __init__(self, ledger_id: _Optional[int] = ..., entry_id: _Optional[int] = ..., index: _Optional[int] = ...) -> None: ...

class OffsetRange(_message.Message):
    __slots__ = ("first", "last")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    first: int
    last: int
    def __init__(self, first: _Optional[int] = ..., last: _Optional[int] = ...) -> None: ...

class GroupMember(_message.Message):
    __slots__ = ("member_id", "instance_id", "generation")
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    member_id: str
    instance_id: str
    generation: int
    def __init__(self, member_id: _Optional[str] = ..., instance_id: _Optional[str] = ..., generation: _Optional[int] = ...) -> None: ...

class ServerError(_message.Message):
    __slots__ = ("code", "message", "details", "kind")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[ServerError.Kind]
        RETRY: _ClassVar[ServerError.Kind]
        LOOK_UP: _ClassVar[ServerError.Kind]
        ASK_OUTCOME: _ClassVar[ServerError.Kind]
        START_OVER: _ClassVar[ServerError.Kind]
        DONE: _ClassVar[ServerError.Kind]
        FENCED: _ClassVar[ServerError.Kind]
        FIX: _ClassVar[ServerError.Kind]
        LIMIT: _ClassVar[ServerError.Kind]
        DATA_LOST: _ClassVar[ServerError.Kind]
        BUG: _ClassVar[ServerError.Kind]
    KIND_UNSPECIFIED: ServerError.Kind
    RETRY: ServerError.Kind
    LOOK_UP: ServerError.Kind
    ASK_OUTCOME: ServerError.Kind
    START_OVER: ServerError.Kind
    DONE: ServerError.Kind
    FENCED: ServerError.Kind
    FIX: ServerError.Kind
    LIMIT: ServerError.Kind
    DATA_LOST: ServerError.Kind
    BUG: ServerError.Kind
    class DetailsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    code: ErrorCode
    message: str
    details: _containers.ScalarMap[str, str]
    kind: ServerError.Kind
    def __init__(self, code: _Optional[_Union[ErrorCode, str]] = ..., message: _Optional[str] = ..., details: _Optional[_Mapping[str, str]] = ..., kind: _Optional[_Union[ServerError.Kind, str]] = ...) -> None: ...

class CommandHello(_requests.Request[CommandHelloResponse]):
    __slots__ = ("protocol_version", "client_name", "cluster_hash", "cluster_id", "membership_version")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    CLIENT_NAME_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_HASH_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBERSHIP_VERSION_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    client_name: str
    cluster_hash: str
    cluster_id: str
    membership_version: int
    def __init__(self, protocol_version: _Optional[int] = ..., client_name: _Optional[str] = ..., cluster_hash: _Optional[str] = ..., cluster_id: _Optional[str] = ..., membership_version: _Optional[int] = ...) -> None: ...

class CommandHelloResponse(_message.Message):
    __slots__ = ("protocol_version", "server_name", "cluster_hash", "frame_bytes_max", "batch_bytes_max", "cluster_id", "membership_version")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    SERVER_NAME_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_HASH_FIELD_NUMBER: _ClassVar[int]
    FRAME_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    BATCH_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBERSHIP_VERSION_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    server_name: str
    cluster_hash: str
    frame_bytes_max: int
    batch_bytes_max: int
    cluster_id: str
    membership_version: int
    def __init__(self, protocol_version: _Optional[int] = ..., server_name: _Optional[str] = ..., cluster_hash: _Optional[str] = ..., frame_bytes_max: _Optional[int] = ..., batch_bytes_max: _Optional[int] = ..., cluster_id: _Optional[str] = ..., membership_version: _Optional[int] = ...) -> None: ...

class CommandSetLogLevel(_requests.Request[CommandSetLogLevelResponse]):
    __slots__ = ("level", "logger")
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    LOGGER_FIELD_NUMBER: _ClassVar[int]
    level: str
    logger: str
    def __init__(self, level: _Optional[str] = ..., logger: _Optional[str] = ...) -> None: ...

class CommandSetLogLevelResponse(_message.Message):
    __slots__ = ("previous_level",)
    PREVIOUS_LEVEL_FIELD_NUMBER: _ClassVar[int]
    previous_level: str
    def __init__(self, previous_level: _Optional[str] = ...) -> None: ...

class CommandHoldBackup(_requests.Request[CommandHoldBackupResponse]):
    __slots__ = ("backup_token", "hold_ms")
    BACKUP_TOKEN_FIELD_NUMBER: _ClassVar[int]
    HOLD_MS_FIELD_NUMBER: _ClassVar[int]
    backup_token: int
    hold_ms: int
    def __init__(self, backup_token: _Optional[int] = ..., hold_ms: _Optional[int] = ...) -> None: ...

class CommandHoldBackupResponse(_message.Message):
    __slots__ = ("kind", "member", "families")
    KIND_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    FAMILIES_FIELD_NUMBER: _ClassVar[int]
    kind: str
    member: str
    families: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, kind: _Optional[str] = ..., member: _Optional[str] = ..., families: _Optional[_Iterable[str]] = ...) -> None: ...

class CommandReleaseBackup(_requests.Request[CommandReleaseBackupResponse]):
    __slots__ = ("backup_token",)
    BACKUP_TOKEN_FIELD_NUMBER: _ClassVar[int]
    backup_token: int
    def __init__(self, backup_token: _Optional[int] = ...) -> None: ...

class CommandReleaseBackupResponse(_message.Message):
    __slots__ = ("was_held",)
    WAS_HELD_FIELD_NUMBER: _ClassVar[int]
    was_held: bool
    def __init__(self, was_held: _Optional[bool] = ...) -> None: ...

class CommandReadBackup(_requests.Request[CommandReadBackupResponse]):
    __slots__ = ("backup_token", "family", "start_key", "bytes_max")
    BACKUP_TOKEN_FIELD_NUMBER: _ClassVar[int]
    FAMILY_FIELD_NUMBER: _ClassVar[int]
    START_KEY_FIELD_NUMBER: _ClassVar[int]
    BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    backup_token: int
    family: str
    start_key: bytes
    bytes_max: int
    def __init__(self, backup_token: _Optional[int] = ..., family: _Optional[str] = ..., start_key: _Optional[bytes] = ..., bytes_max: _Optional[int] = ...) -> None: ...

class CommandReadBackupResponse(_message.Message):
    __slots__ = ("rows", "row_count", "next_key", "is_last")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    ROW_COUNT_FIELD_NUMBER: _ClassVar[int]
    NEXT_KEY_FIELD_NUMBER: _ClassVar[int]
    IS_LAST_FIELD_NUMBER: _ClassVar[int]
    rows: bytes
    row_count: int
    next_key: bytes
    is_last: bool
    def __init__(self, rows: _Optional[bytes] = ..., row_count: _Optional[int] = ..., next_key: _Optional[bytes] = ..., is_last: _Optional[bool] = ...) -> None: ...

class CommandEndBackup(_requests.Request[CommandEndBackupResponse]):
    __slots__ = ("backup_token",)
    BACKUP_TOKEN_FIELD_NUMBER: _ClassVar[int]
    backup_token: int
    def __init__(self, backup_token: _Optional[int] = ...) -> None: ...

class CommandEndBackupResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CommandOwnersChanged(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
