from magnetar_core.wire import common_pb2 as _common_pb2
from magnetar_core.wire import topic_pb2 as _topic_pb2
from magnetar_core.wire import transaction_pb2 as _transaction_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RecordDetails(_message.Message):
    __slots__ = ("identity", "principal", "selection_given", "selected_writer_ids", "fingerprint", "traceparent", "ledger_ids")
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    SELECTION_GIVEN_FIELD_NUMBER: _ClassVar[int]
    SELECTED_WRITER_IDS_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    LEDGER_IDS_FIELD_NUMBER: _ClassVar[int]
    identity: _common_pb2.ProducerIdentity
    principal: str
    selection_given: bool
    selected_writer_ids: _containers.RepeatedScalarFieldContainer[int]
    fingerprint: str
    traceparent: bytes
    ledger_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, identity: _Optional[_Union[_common_pb2.ProducerIdentity, _Mapping]] = ..., principal: _Optional[str] = ..., selection_given: _Optional[bool] = ..., selected_writer_ids: _Optional[_Iterable[int]] = ..., fingerprint: _Optional[str] = ..., traceparent: _Optional[bytes] = ..., ledger_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class IdentityRow(_message.Message):
    __slots__ = ("producer_id", "producer_epoch", "prev_producer_id", "next_producer_id", "next_producer_epoch", "txn_timeout_ms", "state", "txn_id", "two_phase_commit", "prev_producer_epoch", "last_used_run_time_ms", "last_init", "past_call_tokens")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PREV_PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    NEXT_PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    NEXT_PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    TXN_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    TWO_PHASE_COMMIT_FIELD_NUMBER: _ClassVar[int]
    PREV_PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LAST_USED_RUN_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_INIT_FIELD_NUMBER: _ClassVar[int]
    PAST_CALL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    producer_epoch: int
    prev_producer_id: int
    next_producer_id: int
    next_producer_epoch: int
    txn_timeout_ms: int
    state: _transaction_pb2.TransactionalState
    txn_id: _common_pb2.TxnId
    two_phase_commit: bool
    prev_producer_epoch: int
    last_used_run_time_ms: int
    last_init: InitCall
    past_call_tokens: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ..., prev_producer_id: _Optional[int] = ..., next_producer_id: _Optional[int] = ..., next_producer_epoch: _Optional[int] = ..., txn_timeout_ms: _Optional[int] = ..., state: _Optional[_Union[_transaction_pb2.TransactionalState, str]] = ..., txn_id: _Optional[_Union[_common_pb2.TxnId, _Mapping]] = ..., two_phase_commit: _Optional[bool] = ..., prev_producer_epoch: _Optional[int] = ..., last_used_run_time_ms: _Optional[int] = ..., last_init: _Optional[_Union[InitCall, _Mapping]] = ..., past_call_tokens: _Optional[_Iterable[int]] = ...) -> None: ...

class InitCall(_message.Message):
    __slots__ = ("token", "named_producer_id", "named_producer_epoch", "given_producer_id", "given_producer_epoch")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    NAMED_PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    NAMED_PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    GIVEN_PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    GIVEN_PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    token: int
    named_producer_id: int
    named_producer_epoch: int
    given_producer_id: int
    given_producer_epoch: int
    def __init__(self, token: _Optional[int] = ..., named_producer_id: _Optional[int] = ..., named_producer_epoch: _Optional[int] = ..., given_producer_id: _Optional[int] = ..., given_producer_epoch: _Optional[int] = ...) -> None: ...

class NameRow(_message.Message):
    __slots__ = ("has_committed", "committed_sequence", "open", "open_txn_id", "committed_fingerprint")
    HAS_COMMITTED_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    OPEN_TXN_ID_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    has_committed: bool
    committed_sequence: int
    open: _transaction_pb2.NamedSequence
    open_txn_id: _common_pb2.TxnId
    committed_fingerprint: str
    def __init__(self, has_committed: _Optional[bool] = ..., committed_sequence: _Optional[int] = ..., open: _Optional[_Union[_transaction_pb2.NamedSequence, _Mapping]] = ..., open_txn_id: _Optional[_Union[_common_pb2.TxnId, _Mapping]] = ..., committed_fingerprint: _Optional[str] = ...) -> None: ...

class SubscriptionRecord(_message.Message):
    __slots__ = ("subscription_id", "topic_id", "partition", "subscription", "absent", "owner", "committed", "group_generation", "made_by_commit")
    SUBSCRIPTION_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    ABSENT_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    GROUP_GENERATION_FIELD_NUMBER: _ClassVar[int]
    MADE_BY_COMMIT_FIELD_NUMBER: _ClassVar[int]
    subscription_id: int
    topic_id: int
    partition: int
    subscription: str
    absent: bool
    owner: OwnerRow
    committed: CommittedOffsetRow
    group_generation: int
    made_by_commit: bool
    def __init__(self, subscription_id: _Optional[int] = ..., topic_id: _Optional[int] = ..., partition: _Optional[int] = ..., subscription: _Optional[str] = ..., absent: _Optional[bool] = ..., owner: _Optional[_Union[OwnerRow, _Mapping]] = ..., committed: _Optional[_Union[CommittedOffsetRow, _Mapping]] = ..., group_generation: _Optional[int] = ..., made_by_commit: _Optional[bool] = ...) -> None: ...

class CommittedOffsetRow(_message.Message):
    __slots__ = ("offset", "metadata", "leader_epoch")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    offset: int
    metadata: str
    leader_epoch: int
    def __init__(self, offset: _Optional[int] = ..., metadata: _Optional[str] = ..., leader_epoch: _Optional[int] = ...) -> None: ...

class GroupRow(_message.Message):
    __slots__ = ("generation", "allow_two_phase_commit", "members")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    ALLOW_TWO_PHASE_COMMIT_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    generation: int
    allow_two_phase_commit: bool
    members: _containers.RepeatedCompositeFieldContainer[GroupMemberRow]
    def __init__(self, generation: _Optional[int] = ..., allow_two_phase_commit: _Optional[bool] = ..., members: _Optional[_Iterable[_Union[GroupMemberRow, _Mapping]]] = ...) -> None: ...

class GroupMemberRow(_message.Message):
    __slots__ = ("member_id", "instance_id", "client_name", "topics", "topic_pattern", "session_timeout_ms", "rebalance_timeout_ms", "join_epoch")
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_NAME_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_PATTERN_FIELD_NUMBER: _ClassVar[int]
    SESSION_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    REBALANCE_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    JOIN_EPOCH_FIELD_NUMBER: _ClassVar[int]
    member_id: str
    instance_id: str
    client_name: str
    topics: _containers.RepeatedScalarFieldContainer[str]
    topic_pattern: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    join_epoch: int
    def __init__(self, member_id: _Optional[str] = ..., instance_id: _Optional[str] = ..., client_name: _Optional[str] = ..., topics: _Optional[_Iterable[str]] = ..., topic_pattern: _Optional[str] = ..., session_timeout_ms: _Optional[int] = ..., rebalance_timeout_ms: _Optional[int] = ..., join_epoch: _Optional[int] = ...) -> None: ...

class KafkaGroupRow(_message.Message):
    __slots__ = ("generation", "protocol_type", "protocol", "leader_id", "members", "is_stable", "used_run_time_ms")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_TYPE_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    IS_STABLE_FIELD_NUMBER: _ClassVar[int]
    USED_RUN_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    generation: int
    protocol_type: str
    protocol: str
    leader_id: str
    members: _containers.RepeatedCompositeFieldContainer[KafkaMemberRow]
    is_stable: bool
    used_run_time_ms: int
    def __init__(self, generation: _Optional[int] = ..., protocol_type: _Optional[str] = ..., protocol: _Optional[str] = ..., leader_id: _Optional[str] = ..., members: _Optional[_Iterable[_Union[KafkaMemberRow, _Mapping]]] = ..., is_stable: _Optional[bool] = ..., used_run_time_ms: _Optional[int] = ...) -> None: ...

class KafkaMemberRow(_message.Message):
    __slots__ = ("member_id", "instance_id", "client_id", "client_host", "session_timeout_ms", "rebalance_timeout_ms", "assignors", "assignment")
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_HOST_FIELD_NUMBER: _ClassVar[int]
    SESSION_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    REBALANCE_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    ASSIGNORS_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    member_id: str
    instance_id: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    assignors: _containers.RepeatedCompositeFieldContainer[KafkaAssignor]
    assignment: bytes
    def __init__(self, member_id: _Optional[str] = ..., instance_id: _Optional[str] = ..., client_id: _Optional[str] = ..., client_host: _Optional[str] = ..., session_timeout_ms: _Optional[int] = ..., rebalance_timeout_ms: _Optional[int] = ..., assignors: _Optional[_Iterable[_Union[KafkaAssignor, _Mapping]]] = ..., assignment: _Optional[bytes] = ...) -> None: ...

class KafkaAssignor(_message.Message):
    __slots__ = ("name", "metadata")
    NAME_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    name: str
    metadata: bytes
    def __init__(self, name: _Optional[str] = ..., metadata: _Optional[bytes] = ...) -> None: ...

class OwnerRow(_message.Message):
    __slots__ = ("member_id", "generation")
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    member_id: str
    generation: int
    def __init__(self, member_id: _Optional[str] = ..., generation: _Optional[int] = ...) -> None: ...

class ProducerRow(_message.Message):
    __slots__ = ("next_sequence_id", "last_time_ms", "last_sequence_id", "last_entry_id", "last_run_time_ms", "producer_epoch")
    NEXT_SEQUENCE_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_RUN_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    next_sequence_id: int
    last_time_ms: int
    last_sequence_id: int
    last_entry_id: int
    last_run_time_ms: int
    producer_epoch: int
    def __init__(self, next_sequence_id: _Optional[int] = ..., last_time_ms: _Optional[int] = ..., last_sequence_id: _Optional[int] = ..., last_entry_id: _Optional[int] = ..., last_run_time_ms: _Optional[int] = ..., producer_epoch: _Optional[int] = ...) -> None: ...

class PartitionRow(_message.Message):
    __slots__ = ("first_offset", "end_offset", "retained_bytes", "has_txnlog", "skipped", "highest_stamp", "last_append_time_ms", "timestamp_lead_ms")
    FIRST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    RETAINED_BYTES_FIELD_NUMBER: _ClassVar[int]
    HAS_TXNLOG_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    HIGHEST_STAMP_FIELD_NUMBER: _ClassVar[int]
    LAST_APPEND_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_LEAD_MS_FIELD_NUMBER: _ClassVar[int]
    first_offset: int
    end_offset: int
    retained_bytes: int
    has_txnlog: bool
    skipped: _containers.RepeatedCompositeFieldContainer[_common_pb2.OffsetRange]
    highest_stamp: int
    last_append_time_ms: int
    timestamp_lead_ms: int
    def __init__(self, first_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., retained_bytes: _Optional[int] = ..., has_txnlog: _Optional[bool] = ..., skipped: _Optional[_Iterable[_Union[_common_pb2.OffsetRange, _Mapping]]] = ..., highest_stamp: _Optional[int] = ..., last_append_time_ms: _Optional[int] = ..., timestamp_lead_ms: _Optional[int] = ...) -> None: ...

class ClockJumpsRow(_message.Message):
    __slots__ = ("jumps",)
    class Jump(_message.Message):
        __slots__ = ("before_ms", "jump_ms")
        BEFORE_MS_FIELD_NUMBER: _ClassVar[int]
        JUMP_MS_FIELD_NUMBER: _ClassVar[int]
        before_ms: int
        jump_ms: int
        def __init__(self, before_ms: _Optional[int] = ..., jump_ms: _Optional[int] = ...) -> None: ...
    JUMPS_FIELD_NUMBER: _ClassVar[int]
    jumps: _containers.RepeatedCompositeFieldContainer[ClockJumpsRow.Jump]
    def __init__(self, jumps: _Optional[_Iterable[_Union[ClockJumpsRow.Jump, _Mapping]]] = ...) -> None: ...

class WatermarkRow(_message.Message):
    __slots__ = ("incarnation", "low_watermark", "live", "orphans", "counter_bound", "next_counter", "store_digest")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    LOW_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    LIVE_FIELD_NUMBER: _ClassVar[int]
    ORPHANS_FIELD_NUMBER: _ClassVar[int]
    COUNTER_BOUND_FIELD_NUMBER: _ClassVar[int]
    NEXT_COUNTER_FIELD_NUMBER: _ClassVar[int]
    STORE_DIGEST_FIELD_NUMBER: _ClassVar[int]
    incarnation: int
    low_watermark: int
    live: _containers.RepeatedCompositeFieldContainer[_transaction_pb2.TxnRange]
    orphans: _containers.RepeatedScalarFieldContainer[int]
    counter_bound: int
    next_counter: int
    store_digest: bytes
    def __init__(self, incarnation: _Optional[int] = ..., low_watermark: _Optional[int] = ..., live: _Optional[_Iterable[_Union[_transaction_pb2.TxnRange, _Mapping]]] = ..., orphans: _Optional[_Iterable[int]] = ..., counter_bound: _Optional[int] = ..., next_counter: _Optional[int] = ..., store_digest: _Optional[bytes] = ...) -> None: ...

class IncarnationRow(_message.Message):
    __slots__ = ("incarnation", "store_token", "past", "accepted_losses")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    STORE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    PAST_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_LOSSES_FIELD_NUMBER: _ClassVar[int]
    incarnation: int
    store_token: str
    past: _containers.RepeatedCompositeFieldContainer[PastStore]
    accepted_losses: int
    def __init__(self, incarnation: _Optional[int] = ..., store_token: _Optional[str] = ..., past: _Optional[_Iterable[_Union[PastStore, _Mapping]]] = ..., accepted_losses: _Optional[int] = ...) -> None: ...

class PastStore(_message.Message):
    __slots__ = ("incarnation", "store_token")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    STORE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    incarnation: int
    store_token: str
    def __init__(self, incarnation: _Optional[int] = ..., store_token: _Optional[str] = ...) -> None: ...

class BrokerStoreRow(_message.Message):
    __slots__ = ("store_token", "accepted_losses", "past")
    STORE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_LOSSES_FIELD_NUMBER: _ClassVar[int]
    PAST_FIELD_NUMBER: _ClassVar[int]
    store_token: str
    accepted_losses: int
    past: _containers.RepeatedCompositeFieldContainer[PastBrokerStore]
    def __init__(self, store_token: _Optional[str] = ..., accepted_losses: _Optional[int] = ..., past: _Optional[_Iterable[_Union[PastBrokerStore, _Mapping]]] = ...) -> None: ...

class PastBrokerStore(_message.Message):
    __slots__ = ("store_token", "accepted_losses")
    STORE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_LOSSES_FIELD_NUMBER: _ClassVar[int]
    store_token: str
    accepted_losses: int
    def __init__(self, store_token: _Optional[str] = ..., accepted_losses: _Optional[int] = ...) -> None: ...

class DirectoryCopyRow(_message.Message):
    __slots__ = ("store_token", "accepted", "directory_losses", "own_losses", "directory_life")
    STORE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_LOSSES_FIELD_NUMBER: _ClassVar[int]
    OWN_LOSSES_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_LIFE_FIELD_NUMBER: _ClassVar[int]
    store_token: str
    accepted: bool
    directory_losses: int
    own_losses: int
    directory_life: int
    def __init__(self, store_token: _Optional[str] = ..., accepted: _Optional[bool] = ..., directory_losses: _Optional[int] = ..., own_losses: _Optional[int] = ..., directory_life: _Optional[int] = ...) -> None: ...

class PastCallRow(_message.Message):
    __slots__ = ("call_token", "topic_id")
    CALL_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    call_token: int
    topic_id: int
    def __init__(self, call_token: _Optional[int] = ..., topic_id: _Optional[int] = ...) -> None: ...

class DirectoryLivesRow(_message.Message):
    __slots__ = ("lives",)
    LIVES_FIELD_NUMBER: _ClassVar[int]
    lives: _containers.RepeatedCompositeFieldContainer[_topic_pb2.DirectoryLife]
    def __init__(self, lives: _Optional[_Iterable[_Union[_topic_pb2.DirectoryLife, _Mapping]]] = ...) -> None: ...

class StoreIdentity(_message.Message):
    __slots__ = ("format", "kind", "member", "membership_version", "cluster_hash", "losses", "brokers", "restored_at_s", "lost_tails")
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    MEMBERSHIP_VERSION_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_HASH_FIELD_NUMBER: _ClassVar[int]
    LOSSES_FIELD_NUMBER: _ClassVar[int]
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    RESTORED_AT_S_FIELD_NUMBER: _ClassVar[int]
    LOST_TAILS_FIELD_NUMBER: _ClassVar[int]
    format: int
    kind: str
    member: str
    membership_version: int
    cluster_hash: str
    losses: int
    brokers: _containers.RepeatedScalarFieldContainer[str]
    restored_at_s: int
    lost_tails: int
    def __init__(self, format: _Optional[int] = ..., kind: _Optional[str] = ..., member: _Optional[str] = ..., membership_version: _Optional[int] = ..., cluster_hash: _Optional[str] = ..., losses: _Optional[int] = ..., brokers: _Optional[_Iterable[str]] = ..., restored_at_s: _Optional[int] = ..., lost_tails: _Optional[int] = ...) -> None: ...
