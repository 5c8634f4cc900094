from magnetar_core import requests as _requests
from magnetar_core.wire import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RetainUnconsumed(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    YES: _ClassVar[RetainUnconsumed]
    NO: _ClassVar[RetainUnconsumed]
YES: RetainUnconsumed
NO: RetainUnconsumed

class CommandCreateTopic(_requests.Request[CommandCreateTopicResponse]):
    __slots__ = ("topic", "partitions", "retention_ms", "retention_bytes", "retain_unconsumed", "call_token", "exist_ok")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    RETENTION_MS_FIELD_NUMBER: _ClassVar[int]
    RETENTION_BYTES_FIELD_NUMBER: _ClassVar[int]
    RETAIN_UNCONSUMED_FIELD_NUMBER: _ClassVar[int]
    CALL_TOKEN_FIELD_NUMBER: _ClassVar[int]
    EXIST_OK_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partitions: int
    retention_ms: int
    retention_bytes: int
    retain_unconsumed: RetainUnconsumed
    call_token: int
    exist_ok: bool
    def __init__(self, topic: _Optional[str] = ..., partitions: _Optional[int] = ..., retention_ms: _Optional[int] = ..., retention_bytes: _Optional[int] = ..., retain_unconsumed: _Optional[_Union[RetainUnconsumed, str]] = ..., call_token: _Optional[int] = ..., exist_ok: _Optional[bool] = ...) -> None: ...

class CommandCreateTopicResponse(_message.Message):
    __slots__ = ("topic_id",)
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    topic_id: int
    def __init__(self, topic_id: _Optional[int] = ...) -> None: ...

class CommandAlterTopic(_requests.Request[CommandAlterTopicResponse]):
    __slots__ = ("topic", "topic_id", "partitions", "keys_move", "retention_ms", "retention_bytes", "retain_unconsumed", "dry_run", "call_token")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    KEYS_MOVE_FIELD_NUMBER: _ClassVar[int]
    RETENTION_MS_FIELD_NUMBER: _ClassVar[int]
    RETENTION_BYTES_FIELD_NUMBER: _ClassVar[int]
    RETAIN_UNCONSUMED_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    CALL_TOKEN_FIELD_NUMBER: _ClassVar[int]
    topic: str
    topic_id: int
    partitions: int
    keys_move: bool
    retention_ms: int
    retention_bytes: int
    retain_unconsumed: RetainUnconsumed
    dry_run: bool
    call_token: int
    def __init__(self, topic: _Optional[str] = ..., topic_id: _Optional[int] = ..., partitions: _Optional[int] = ..., keys_move: _Optional[bool] = ..., retention_ms: _Optional[int] = ..., retention_bytes: _Optional[int] = ..., retain_unconsumed: _Optional[_Union[RetainUnconsumed, str]] = ..., dry_run: _Optional[bool] = ..., call_token: _Optional[int] = ...) -> None: ...

class CommandAlterTopicResponse(_message.Message):
    __slots__ = ("topic_id",)
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    topic_id: int
    def __init__(self, topic_id: _Optional[int] = ...) -> None: ...

class CommandListTopics(_requests.Request[CommandListTopicsResponse]):
    __slots__ = ()
    def __init__(self) -> None: ...

class CommandListTopicsResponse(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[TopicSummary]
    def __init__(self, topics: _Optional[_Iterable[_Union[TopicSummary, _Mapping]]] = ...) -> None: ...

class TopicSummary(_message.Message):
    __slots__ = ("topic", "topic_id", "partitions")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    topic_id: int
    partitions: int
    def __init__(self, topic: _Optional[str] = ..., topic_id: _Optional[int] = ..., partitions: _Optional[int] = ...) -> None: ...

class CommandDescribeTopic(_requests.Request[CommandDescribeTopicResponse]):
    __slots__ = ("topic", "txns_max")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TXNS_MAX_FIELD_NUMBER: _ClassVar[int]
    topic: str
    txns_max: int
    def __init__(self, topic: _Optional[str] = ..., txns_max: _Optional[int] = ...) -> None: ...

class CommandDescribeTopicResponse(_message.Message):
    __slots__ = ("topic", "topic_id", "retention_ms", "retention_bytes", "retain_unconsumed", "partitions", "partition_count", "growing_to")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    RETENTION_MS_FIELD_NUMBER: _ClassVar[int]
    RETENTION_BYTES_FIELD_NUMBER: _ClassVar[int]
    RETAIN_UNCONSUMED_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    PARTITION_COUNT_FIELD_NUMBER: _ClassVar[int]
    GROWING_TO_FIELD_NUMBER: _ClassVar[int]
    topic: str
    topic_id: int
    retention_ms: int
    retention_bytes: int
    retain_unconsumed: RetainUnconsumed
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionDescription]
    partition_count: int
    growing_to: int
    def __init__(self, topic: _Optional[str] = ..., topic_id: _Optional[int] = ..., retention_ms: _Optional[int] = ..., retention_bytes: _Optional[int] = ..., retain_unconsumed: _Optional[_Union[RetainUnconsumed, str]] = ..., partitions: _Optional[_Iterable[_Union[PartitionDescription, _Mapping]]] = ..., partition_count: _Optional[int] = ..., growing_to: _Optional[int] = ...) -> None: ...

class PartitionDescription(_message.Message):
    __slots__ = ("partition", "broker_name", "ledger_id", "first_offset", "end_offset", "has_txnlog", "open_txns", "subscriptions", "open_txn_count")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    HAS_TXNLOG_FIELD_NUMBER: _ClassVar[int]
    OPEN_TXNS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    OPEN_TXN_COUNT_FIELD_NUMBER: _ClassVar[int]
    partition: int
    broker_name: str
    ledger_id: int
    first_offset: int
    end_offset: int
    has_txnlog: bool
    open_txns: _containers.RepeatedCompositeFieldContainer[_common_pb2.TxnId]
    subscriptions: _containers.RepeatedCompositeFieldContainer[SubscriptionDescription]
    open_txn_count: int
    def __init__(self, partition: _Optional[int] = ..., broker_name: _Optional[str] = ..., ledger_id: _Optional[int] = ..., first_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., has_txnlog: _Optional[bool] = ..., open_txns: _Optional[_Iterable[_Union[_common_pb2.TxnId, _Mapping]]] = ..., subscriptions: _Optional[_Iterable[_Union[SubscriptionDescription, _Mapping]]] = ..., open_txn_count: _Optional[int] = ...) -> None: ...

class SubscriptionDescription(_message.Message):
    __slots__ = ("subscription", "mark_delete_offset", "backlog", "pending_ack_count", "pending_txns", "consumers", "unacked_count", "pending_txn_count", "is_of_group")
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    MARK_DELETE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_FIELD_NUMBER: _ClassVar[int]
    PENDING_ACK_COUNT_FIELD_NUMBER: _ClassVar[int]
    PENDING_TXNS_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    UNACKED_COUNT_FIELD_NUMBER: _ClassVar[int]
    PENDING_TXN_COUNT_FIELD_NUMBER: _ClassVar[int]
    IS_OF_GROUP_FIELD_NUMBER: _ClassVar[int]
    subscription: str
    mark_delete_offset: int
    backlog: int
    pending_ack_count: int
    pending_txns: _containers.RepeatedCompositeFieldContainer[_common_pb2.TxnId]
    consumers: _containers.RepeatedScalarFieldContainer[str]
    unacked_count: int
    pending_txn_count: int
    is_of_group: bool
    def __init__(self, subscription: _Optional[str] = ..., mark_delete_offset: _Optional[int] = ..., backlog: _Optional[int] = ..., pending_ack_count: _Optional[int] = ..., pending_txns: _Optional[_Iterable[_Union[_common_pb2.TxnId, _Mapping]]] = ..., consumers: _Optional[_Iterable[str]] = ..., unacked_count: _Optional[int] = ..., pending_txn_count: _Optional[int] = ..., is_of_group: _Optional[bool] = ...) -> None: ...

class CommandDeleteTopic(_requests.Request[CommandDeleteTopicResponse]):
    __slots__ = ("topic", "topic_id", "call_token")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    CALL_TOKEN_FIELD_NUMBER: _ClassVar[int]
    topic: str
    topic_id: int
    call_token: int
    def __init__(self, topic: _Optional[str] = ..., topic_id: _Optional[int] = ..., call_token: _Optional[int] = ...) -> None: ...

class CommandDeleteTopicResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CommandLookup(_requests.Request[CommandLookupResponse]):
    __slots__ = ("topic", "reached_at")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    REACHED_AT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    reached_at: str
    def __init__(self, topic: _Optional[str] = ..., reached_at: _Optional[str] = ...) -> None: ...

class CommandLookupResponse(_message.Message):
    __slots__ = ("topic_id", "broker_addresses")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    topic_id: int
    broker_addresses: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topic_id: _Optional[int] = ..., broker_addresses: _Optional[_Iterable[str]] = ...) -> None: ...

class CommandFollowDirectory(_requests.Request[CommandFollowDirectoryResponse]):
    __slots__ = ("broker_name", "store_token", "accepted_losses", "directory_life", "revision", "at_once")
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    STORE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_LOSSES_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_LIFE_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    AT_ONCE_FIELD_NUMBER: _ClassVar[int]
    broker_name: str
    store_token: str
    accepted_losses: int
    directory_life: int
    revision: int
    at_once: bool
    def __init__(self, broker_name: _Optional[str] = ..., store_token: _Optional[str] = ..., accepted_losses: _Optional[int] = ..., directory_life: _Optional[int] = ..., revision: _Optional[int] = ..., at_once: _Optional[bool] = ...) -> None: ...

class CommandFollowDirectoryResponse(_message.Message):
    __slots__ = ("directory_life", "revision", "all", "topics", "deleted_topic_ids", "next_serial", "coordinator_stores", "accepted_losses", "lives")
    DIRECTORY_LIFE_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    DELETED_TOPIC_IDS_FIELD_NUMBER: _ClassVar[int]
    NEXT_SERIAL_FIELD_NUMBER: _ClassVar[int]
    COORDINATOR_STORES_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_LOSSES_FIELD_NUMBER: _ClassVar[int]
    LIVES_FIELD_NUMBER: _ClassVar[int]
    directory_life: int
    revision: int
    all: bool
    topics: _containers.RepeatedCompositeFieldContainer[TopicRecord]
    deleted_topic_ids: _containers.RepeatedScalarFieldContainer[int]
    next_serial: int
    coordinator_stores: _containers.RepeatedCompositeFieldContainer[CoordinatorStore]
    accepted_losses: int
    lives: _containers.RepeatedCompositeFieldContainer[DirectoryLife]
    def __init__(self, directory_life: _Optional[int] = ..., revision: _Optional[int] = ..., all: _Optional[bool] = ..., topics: _Optional[_Iterable[_Union[TopicRecord, _Mapping]]] = ..., deleted_topic_ids: _Optional[_Iterable[int]] = ..., next_serial: _Optional[int] = ..., coordinator_stores: _Optional[_Iterable[_Union[CoordinatorStore, _Mapping]]] = ..., accepted_losses: _Optional[int] = ..., lives: _Optional[_Iterable[_Union[DirectoryLife, _Mapping]]] = ...) -> None: ...

class CoordinatorStore(_message.Message):
    __slots__ = ("tcid", "incarnation", "token_digest")
    TCID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    TOKEN_DIGEST_FIELD_NUMBER: _ClassVar[int]
    tcid: int
    incarnation: int
    token_digest: bytes
    def __init__(self, tcid: _Optional[int] = ..., incarnation: _Optional[int] = ..., token_digest: _Optional[bytes] = ...) -> None: ...

class DirectoryLife(_message.Message):
    __slots__ = ("life", "next_serial")
    LIFE_FIELD_NUMBER: _ClassVar[int]
    NEXT_SERIAL_FIELD_NUMBER: _ClassVar[int]
    life: int
    next_serial: int
    def __init__(self, life: _Optional[int] = ..., next_serial: _Optional[int] = ...) -> None: ...

class TopicRecord(_message.Message):
    __slots__ = ("topic_id", "topic", "partitions", "retention_ms", "retention_bytes", "retain_unconsumed", "ledger_id", "created_at_ms", "growing_to", "subscriptions", "groups")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    RETENTION_MS_FIELD_NUMBER: _ClassVar[int]
    RETENTION_BYTES_FIELD_NUMBER: _ClassVar[int]
    RETAIN_UNCONSUMED_FIELD_NUMBER: _ClassVar[int]
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    GROWING_TO_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    topic_id: int
    topic: str
    partitions: int
    retention_ms: int
    retention_bytes: int
    retain_unconsumed: RetainUnconsumed
    ledger_id: int
    created_at_ms: int
    growing_to: int
    subscriptions: _containers.RepeatedScalarFieldContainer[str]
    groups: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topic_id: _Optional[int] = ..., topic: _Optional[str] = ..., partitions: _Optional[int] = ..., retention_ms: _Optional[int] = ..., retention_bytes: _Optional[int] = ..., retain_unconsumed: _Optional[_Union[RetainUnconsumed, str]] = ..., ledger_id: _Optional[int] = ..., created_at_ms: _Optional[int] = ..., growing_to: _Optional[int] = ..., subscriptions: _Optional[_Iterable[str]] = ..., groups: _Optional[_Iterable[str]] = ...) -> None: ...

class CommandGetClusterInfo(_requests.Request[CommandGetClusterInfoResponse]):
    __slots__ = ("reached_at",)
    REACHED_AT_FIELD_NUMBER: _ClassVar[int]
    reached_at: str
    def __init__(self, reached_at: _Optional[str] = ...) -> None: ...

class CommandGetClusterInfoResponse(_message.Message):
    __slots__ = ("cluster_id", "membership_version", "cluster_hash", "brokers", "coordinators", "server_version")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBERSHIP_VERSION_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_HASH_FIELD_NUMBER: _ClassVar[int]
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    COORDINATORS_FIELD_NUMBER: _ClassVar[int]
    SERVER_VERSION_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    membership_version: int
    cluster_hash: str
    brokers: _containers.RepeatedCompositeFieldContainer[Member]
    coordinators: _containers.RepeatedCompositeFieldContainer[Member]
    server_version: str
    def __init__(self, cluster_id: _Optional[str] = ..., membership_version: _Optional[int] = ..., cluster_hash: _Optional[str] = ..., brokers: _Optional[_Iterable[_Union[Member, _Mapping]]] = ..., coordinators: _Optional[_Iterable[_Union[Member, _Mapping]]] = ..., server_version: _Optional[str] = ...) -> None: ...

class Member(_message.Message):
    __slots__ = ("name", "address", "tcid")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    TCID_FIELD_NUMBER: _ClassVar[int]
    name: str
    address: str
    tcid: int
    def __init__(self, name: _Optional[str] = ..., address: _Optional[str] = ..., tcid: _Optional[int] = ...) -> None: ...

class CommandDescribeMembers(_requests.Request[CommandDescribeMembersResponse]):
    __slots__ = ()
    def __init__(self) -> None: ...

class CommandDescribeMembersResponse(_message.Message):
    __slots__ = ("name", "view_age_ms", "lease", "members", "shards", "held")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VIEW_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    name: MemberName
    view_age_ms: int
    lease: MemberLease
    members: _containers.RepeatedCompositeFieldContainer[DescribedMember]
    shards: _containers.RepeatedCompositeFieldContainer[DescribedShard]
    held: _containers.RepeatedCompositeFieldContainer[HeldShard]
    def __init__(self, name: _Optional[_Union[MemberName, _Mapping]] = ..., view_age_ms: _Optional[int] = ..., lease: _Optional[_Union[MemberLease, _Mapping]] = ..., members: _Optional[_Iterable[_Union[DescribedMember, _Mapping]]] = ..., shards: _Optional[_Iterable[_Union[DescribedShard, _Mapping]]] = ..., held: _Optional[_Iterable[_Union[HeldShard, _Mapping]]] = ...) -> None: ...

class MemberName(_message.Message):
    __slots__ = ("kind", "name")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    kind: str
    name: str
    def __init__(self, kind: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class MemberLease(_message.Message):
    __slots__ = ("duration_ms", "age_ms", "silent_age_ms")
    DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    SILENT_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    duration_ms: int
    age_ms: int
    silent_age_ms: int
    def __init__(self, duration_ms: _Optional[int] = ..., age_ms: _Optional[int] = ..., silent_age_ms: _Optional[int] = ...) -> None: ...

class DescribedMember(_message.Message):
    __slots__ = ("name", "address", "server_version", "draining", "leaving", "refused")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    SERVER_VERSION_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    name: MemberName
    address: str
    server_version: str
    draining: bool
    leaving: bool
    refused: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, name: _Optional[_Union[MemberName, _Mapping]] = ..., address: _Optional[str] = ..., server_version: _Optional[str] = ..., draining: _Optional[bool] = ..., leaving: _Optional[bool] = ..., refused: _Optional[_Iterable[int]] = ...) -> None: ...

class DescribedShard(_message.Message):
    __slots__ = ("kind", "number", "owner", "epoch", "moves_to", "pinned_to")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    MOVES_TO_FIELD_NUMBER: _ClassVar[int]
    PINNED_TO_FIELD_NUMBER: _ClassVar[int]
    kind: str
    number: int
    owner: str
    epoch: int
    moves_to: str
    pinned_to: str
    def __init__(self, kind: _Optional[str] = ..., number: _Optional[int] = ..., owner: _Optional[str] = ..., epoch: _Optional[int] = ..., moves_to: _Optional[str] = ..., pinned_to: _Optional[str] = ...) -> None: ...

class HeldShard(_message.Message):
    __slots__ = ("number", "epoch", "phase")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    number: int
    epoch: int
    phase: str
    def __init__(self, number: _Optional[int] = ..., epoch: _Optional[int] = ..., phase: _Optional[str] = ...) -> None: ...

class CommandDrainMember(_requests.Request[CommandDrainMemberResponse]):
    __slots__ = ("name", "undo", "dry_run", "call_token")
    NAME_FIELD_NUMBER: _ClassVar[int]
    UNDO_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    CALL_TOKEN_FIELD_NUMBER: _ClassVar[int]
    name: MemberName
    undo: bool
    dry_run: bool
    call_token: int
    def __init__(self, name: _Optional[_Union[MemberName, _Mapping]] = ..., undo: _Optional[bool] = ..., dry_run: _Optional[bool] = ..., call_token: _Optional[int] = ...) -> None: ...

class CommandDrainMemberResponse(_message.Message):
    __slots__ = ("moves",)
    MOVES_FIELD_NUMBER: _ClassVar[int]
    moves: _containers.RepeatedCompositeFieldContainer[ShardMove]
    def __init__(self, moves: _Optional[_Iterable[_Union[ShardMove, _Mapping]]] = ...) -> None: ...

class CommandRebalance(_requests.Request[CommandRebalanceResponse]):
    __slots__ = ("dry_run", "call_token")
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    CALL_TOKEN_FIELD_NUMBER: _ClassVar[int]
    dry_run: bool
    call_token: int
    def __init__(self, dry_run: _Optional[bool] = ..., call_token: _Optional[int] = ...) -> None: ...

class CommandRebalanceResponse(_message.Message):
    __slots__ = ("moves", "pins")
    MOVES_FIELD_NUMBER: _ClassVar[int]
    PINS_FIELD_NUMBER: _ClassVar[int]
    moves: _containers.RepeatedCompositeFieldContainer[ShardMove]
    pins: int
    def __init__(self, moves: _Optional[_Iterable[_Union[ShardMove, _Mapping]]] = ..., pins: _Optional[int] = ...) -> None: ...

class ShardMove(_message.Message):
    __slots__ = ("kind", "number", "before", "after")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    kind: str
    number: int
    before: str
    after: str
    def __init__(self, kind: _Optional[str] = ..., number: _Optional[int] = ..., before: _Optional[str] = ..., after: _Optional[str] = ...) -> None: ...

class CommandTakeIncarnation(_requests.Request[CommandTakeIncarnationResponse]):
    __slots__ = ("tcid", "store_token")
    TCID_FIELD_NUMBER: _ClassVar[int]
    STORE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    tcid: int
    store_token: str
    def __init__(self, tcid: _Optional[int] = ..., store_token: _Optional[str] = ...) -> None: ...

class CommandTakeIncarnationResponse(_message.Message):
    __slots__ = ("incarnation",)
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    incarnation: int
    def __init__(self, incarnation: _Optional[int] = ...) -> None: ...
