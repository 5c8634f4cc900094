from magnetar_core import requests as _requests
from magnetar_core.wire import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SubscriptionType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EXCLUSIVE: _ClassVar[SubscriptionType]
    SHARED: _ClassVar[SubscriptionType]
    FAILOVER: _ClassVar[SubscriptionType]
    KEY_SHARED: _ClassVar[SubscriptionType]

class InitialPosition(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LATEST: _ClassVar[InitialPosition]
    EARLIEST: _ClassVar[InitialPosition]
EXCLUSIVE: SubscriptionType
SHARED: SubscriptionType
FAILOVER: SubscriptionType
KEY_SHARED: SubscriptionType
LATEST: InitialPosition
EARLIEST: InitialPosition

class CommandSend(_requests.Request[CommandSendResponse]):
    __slots__ = ("partition", "producer_id", "sequence_id", "num_messages", "txn_id", "follows_txn_ids", "batch", "producer_epoch", "txn_proof")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_ID_FIELD_NUMBER: _ClassVar[int]
    NUM_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    FOLLOWS_TXN_IDS_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    TXN_PROOF_FIELD_NUMBER: _ClassVar[int]
    partition: _common_pb2.Partition
    producer_id: int
    sequence_id: int
    num_messages: int
    txn_id: _common_pb2.TxnId
    follows_txn_ids: _containers.RepeatedCompositeFieldContainer[_common_pb2.TxnId]
    batch: bytes
    producer_epoch: int
    txn_proof: bytes
    def __init__(self, partition: _Optional[_Union[_common_pb2.Partition, _Mapping]] = ..., producer_id: _Optional[int] = ..., sequence_id: _Optional[int] = ..., num_messages: _Optional[int] = ..., txn_id: _Optional[_Union[_common_pb2.TxnId, _Mapping]] = ..., follows_txn_ids: _Optional[_Iterable[_Union[_common_pb2.TxnId, _Mapping]]] = ..., batch: _Optional[bytes] = ..., producer_epoch: _Optional[int] = ..., txn_proof: _Optional[bytes] = ...) -> None: ...

class CommandSendResponse(_message.Message):
    __slots__ = ("message_id", "duplicate", "settled_txn_ids", "all_settled")
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    SETTLED_TXN_IDS_FIELD_NUMBER: _ClassVar[int]
    ALL_SETTLED_FIELD_NUMBER: _ClassVar[int]
    message_id: _common_pb2.MessageIdData
    duplicate: bool
    settled_txn_ids: _containers.RepeatedCompositeFieldContainer[_common_pb2.TxnId]
    all_settled: bool
    def __init__(self, message_id: _Optional[_Union[_common_pb2.MessageIdData, _Mapping]] = ..., duplicate: _Optional[bool] = ..., settled_txn_ids: _Optional[_Iterable[_Union[_common_pb2.TxnId, _Mapping]]] = ..., all_settled: _Optional[bool] = ...) -> None: ...

class CommandSends(_requests.Request[CommandSendsResponse]):
    __slots__ = ("request_ids", "traceparents", "partitions", "partition_indexes", "producer_ids", "sequence_ids", "num_messages", "txn_most_bits", "txn_least_bits", "follows_counts", "follows_most_bits", "follows_least_bits", "batches", "producer_epochs", "txn_proofs")
    REQUEST_IDS_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENTS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    PARTITION_INDEXES_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_IDS_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_IDS_FIELD_NUMBER: _ClassVar[int]
    NUM_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    TXN_MOST_BITS_FIELD_NUMBER: _ClassVar[int]
    TXN_LEAST_BITS_FIELD_NUMBER: _ClassVar[int]
    FOLLOWS_COUNTS_FIELD_NUMBER: _ClassVar[int]
    FOLLOWS_MOST_BITS_FIELD_NUMBER: _ClassVar[int]
    FOLLOWS_LEAST_BITS_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCHS_FIELD_NUMBER: _ClassVar[int]
    TXN_PROOFS_FIELD_NUMBER: _ClassVar[int]
    request_ids: _containers.RepeatedScalarFieldContainer[int]
    traceparents: _containers.RepeatedScalarFieldContainer[bytes]
    partitions: _containers.RepeatedCompositeFieldContainer[_common_pb2.Partition]
    partition_indexes: _containers.RepeatedScalarFieldContainer[int]
    producer_ids: _containers.RepeatedScalarFieldContainer[int]
    sequence_ids: _containers.RepeatedScalarFieldContainer[int]
    num_messages: _containers.RepeatedScalarFieldContainer[int]
    txn_most_bits: _containers.RepeatedScalarFieldContainer[int]
    txn_least_bits: _containers.RepeatedScalarFieldContainer[int]
    follows_counts: _containers.RepeatedScalarFieldContainer[int]
    follows_most_bits: _containers.RepeatedScalarFieldContainer[int]
    follows_least_bits: _containers.RepeatedScalarFieldContainer[int]
    batches: _containers.RepeatedScalarFieldContainer[bytes]
    producer_epochs: _containers.RepeatedScalarFieldContainer[int]
    txn_proofs: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, request_ids: _Optional[_Iterable[int]] = ..., traceparents: _Optional[_Iterable[bytes]] = ..., partitions: _Optional[_Iterable[_Union[_common_pb2.Partition, _Mapping]]] = ..., partition_indexes: _Optional[_Iterable[int]] = ..., producer_ids: _Optional[_Iterable[int]] = ..., sequence_ids: _Optional[_Iterable[int]] = ..., num_messages: _Optional[_Iterable[int]] = ..., txn_most_bits: _Optional[_Iterable[int]] = ..., txn_least_bits: _Optional[_Iterable[int]] = ..., follows_counts: _Optional[_Iterable[int]] = ..., follows_most_bits: _Optional[_Iterable[int]] = ..., follows_least_bits: _Optional[_Iterable[int]] = ..., batches: _Optional[_Iterable[bytes]] = ..., producer_epochs: _Optional[_Iterable[int]] = ..., txn_proofs: _Optional[_Iterable[bytes]] = ...) -> None: ...

class CommandSendsResponse(_message.Message):
    __slots__ = ("request_ids", "ledger_ids", "entry_ids", "indexes", "duplicates", "all_settled", "settled_counts", "settled_most_bits", "settled_least_bits")
    REQUEST_IDS_FIELD_NUMBER: _ClassVar[int]
    LEDGER_IDS_FIELD_NUMBER: _ClassVar[int]
    ENTRY_IDS_FIELD_NUMBER: _ClassVar[int]
    INDEXES_FIELD_NUMBER: _ClassVar[int]
    DUPLICATES_FIELD_NUMBER: _ClassVar[int]
    ALL_SETTLED_FIELD_NUMBER: _ClassVar[int]
    SETTLED_COUNTS_FIELD_NUMBER: _ClassVar[int]
    SETTLED_MOST_BITS_FIELD_NUMBER: _ClassVar[int]
    SETTLED_LEAST_BITS_FIELD_NUMBER: _ClassVar[int]
    request_ids: _containers.RepeatedScalarFieldContainer[int]
    ledger_ids: _containers.RepeatedScalarFieldContainer[int]
    entry_ids: _containers.RepeatedScalarFieldContainer[int]
    indexes: _containers.RepeatedScalarFieldContainer[int]
    duplicates: _containers.RepeatedScalarFieldContainer[bool]
    all_settled: _containers.RepeatedScalarFieldContainer[bool]
    settled_counts: _containers.RepeatedScalarFieldContainer[int]
    settled_most_bits: _containers.RepeatedScalarFieldContainer[int]
    settled_least_bits: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, request_ids: _Optional[_Iterable[int]] = ..., ledger_ids: _Optional[_Iterable[int]] = ..., entry_ids: _Optional[_Iterable[int]] = ..., indexes: _Optional[_Iterable[int]] = ..., duplicates: _Optional[_Iterable[bool]] = ..., all_settled: _Optional[_Iterable[bool]] = ..., settled_counts: _Optional[_Iterable[int]] = ..., settled_most_bits: _Optional[_Iterable[int]] = ..., settled_least_bits: _Optional[_Iterable[int]] = ...) -> None: ...

class Message(_message.Message):
    __slots__ = ("key", "value", "event_time_ms", "properties", "message_id", "append_time_ms", "txn_id", "stamp", "null_value")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    EVENT_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    APPEND_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    STAMP_FIELD_NUMBER: _ClassVar[int]
    NULL_VALUE_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    value: bytes
    event_time_ms: int
    properties: _containers.ScalarMap[str, str]
    message_id: _common_pb2.MessageIdData
    append_time_ms: int
    txn_id: _common_pb2.TxnId
    stamp: int
    null_value: bool
    def __init__(self, key: _Optional[bytes] = ..., value: _Optional[bytes] = ..., event_time_ms: _Optional[int] = ..., properties: _Optional[_Mapping[str, str]] = ..., message_id: _Optional[_Union[_common_pb2.MessageIdData, _Mapping]] = ..., append_time_ms: _Optional[int] = ..., txn_id: _Optional[_Union[_common_pb2.TxnId, _Mapping]] = ..., stamp: _Optional[int] = ..., null_value: _Optional[bool] = ...) -> None: ...

class CommandPublish(_requests.Request[CommandSendResponse]):
    __slots__ = ("partition", "messages", "producer_id", "sequence_id", "txn_id", "txn_proof")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_ID_FIELD_NUMBER: _ClassVar[int]
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    TXN_PROOF_FIELD_NUMBER: _ClassVar[int]
    partition: _common_pb2.Partition
    messages: _containers.RepeatedCompositeFieldContainer[Message]
    producer_id: int
    sequence_id: int
    txn_id: _common_pb2.TxnId
    txn_proof: bytes
    def __init__(self, partition: _Optional[_Union[_common_pb2.Partition, _Mapping]] = ..., messages: _Optional[_Iterable[_Union[Message, _Mapping]]] = ..., producer_id: _Optional[int] = ..., sequence_id: _Optional[int] = ..., txn_id: _Optional[_Union[_common_pb2.TxnId, _Mapping]] = ..., txn_proof: _Optional[bytes] = ...) -> None: ...

class DeliveredBatch(_message.Message):
    __slots__ = ("entry_id", "first_index", "num_messages", "batch", "excluded", "redelivery_count", "append_time_ms", "txn_id", "stamp")
    ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_INDEX_FIELD_NUMBER: _ClassVar[int]
    NUM_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    EXCLUDED_FIELD_NUMBER: _ClassVar[int]
    REDELIVERY_COUNT_FIELD_NUMBER: _ClassVar[int]
    APPEND_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    STAMP_FIELD_NUMBER: _ClassVar[int]
    entry_id: int
    first_index: int
    num_messages: int
    batch: bytes
    excluded: _containers.RepeatedCompositeFieldContainer[_common_pb2.OffsetRange]
    redelivery_count: int
    append_time_ms: int
    txn_id: _common_pb2.TxnId
    stamp: int
    def __init__(self, entry_id: _Optional[int] = ..., first_index: _Optional[int] = ..., num_messages: _Optional[int] = ..., batch: _Optional[bytes] = ..., excluded: _Optional[_Iterable[_Union[_common_pb2.OffsetRange, _Mapping]]] = ..., redelivery_count: _Optional[int] = ..., append_time_ms: _Optional[int] = ..., txn_id: _Optional[_Union[_common_pb2.TxnId, _Mapping]] = ..., stamp: _Optional[int] = ...) -> None: ...

class CommandDescribeProducers(_requests.Request[CommandDescribeProducersResponse]):
    __slots__ = ("partition", "producers_max")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    PRODUCERS_MAX_FIELD_NUMBER: _ClassVar[int]
    partition: _common_pb2.Partition
    producers_max: int
    def __init__(self, partition: _Optional[_Union[_common_pb2.Partition, _Mapping]] = ..., producers_max: _Optional[int] = ...) -> None: ...

class CommandDescribeProducersResponse(_message.Message):
    __slots__ = ("producers", "truncated")
    PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    producers: _containers.RepeatedCompositeFieldContainer[ProducerDescription]
    truncated: bool
    def __init__(self, producers: _Optional[_Iterable[_Union[ProducerDescription, _Mapping]]] = ..., truncated: _Optional[bool] = ...) -> None: ...

class ProducerDescription(_message.Message):
    __slots__ = ("producer_id", "producer_epoch", "last_sequence", "last_time_ms", "txn_id", "start_offset", "start_time_ms", "subscription")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LAST_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    START_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_time_ms: int
    txn_id: _common_pb2.TxnId
    start_offset: int
    start_time_ms: int
    subscription: str
    def __init__(self, producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ..., last_sequence: _Optional[int] = ..., last_time_ms: _Optional[int] = ..., txn_id: _Optional[_Union[_common_pb2.TxnId, _Mapping]] = ..., start_offset: _Optional[int] = ..., start_time_ms: _Optional[int] = ..., subscription: _Optional[str] = ...) -> None: ...

class CommandRead(_requests.Request[CommandReadResponse]):
    __slots__ = ("partition", "start_offset", "messages_max", "bytes_max")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_MAX_FIELD_NUMBER: _ClassVar[int]
    BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    partition: _common_pb2.Partition
    start_offset: int
    messages_max: int
    bytes_max: int
    def __init__(self, partition: _Optional[_Union[_common_pb2.Partition, _Mapping]] = ..., start_offset: _Optional[int] = ..., messages_max: _Optional[int] = ..., bytes_max: _Optional[int] = ...) -> None: ...

class CommandReadResponse(_message.Message):
    __slots__ = ("ledger_id", "batches", "next_offset", "end_offset")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    batches: _containers.RepeatedCompositeFieldContainer[DeliveredBatch]
    next_offset: int
    end_offset: int
    def __init__(self, ledger_id: _Optional[int] = ..., batches: _Optional[_Iterable[_Union[DeliveredBatch, _Mapping]]] = ..., next_offset: _Optional[int] = ..., end_offset: _Optional[int] = ...) -> None: ...

class CommandListOffsets(_requests.Request[CommandListOffsetsResponse]):
    __slots__ = ("topic", "topic_id", "partitions", "append_time_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    APPEND_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    topic_id: int
    partitions: _containers.RepeatedScalarFieldContainer[int]
    append_time_ms: int
    def __init__(self, topic: _Optional[str] = ..., topic_id: _Optional[int] = ..., partitions: _Optional[_Iterable[int]] = ..., append_time_ms: _Optional[int] = ...) -> None: ...

class CommandListOffsetsResponse(_message.Message):
    __slots__ = ("topic_id", "partitions", "partition_count")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    PARTITION_COUNT_FIELD_NUMBER: _ClassVar[int]
    topic_id: int
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionOffsets]
    partition_count: int
    def __init__(self, topic_id: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[PartitionOffsets, _Mapping]]] = ..., partition_count: _Optional[int] = ...) -> None: ...

class PartitionOffsets(_message.Message):
    __slots__ = ("partition", "ledger_id", "first_offset", "end_offset", "time_offset", "highest_stamp")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    TIME_OFFSET_FIELD_NUMBER: _ClassVar[int]
    HIGHEST_STAMP_FIELD_NUMBER: _ClassVar[int]
    partition: int
    ledger_id: int
    first_offset: int
    end_offset: int
    time_offset: int
    highest_stamp: int
    def __init__(self, partition: _Optional[int] = ..., ledger_id: _Optional[int] = ..., first_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., time_offset: _Optional[int] = ..., highest_stamp: _Optional[int] = ...) -> None: ...

class CommandPeek(_requests.Request[CommandPeekResponse]):
    __slots__ = ("partition", "start_offset", "messages_max", "uncommitted", "txn_id")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_MAX_FIELD_NUMBER: _ClassVar[int]
    UNCOMMITTED_FIELD_NUMBER: _ClassVar[int]
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    partition: _common_pb2.Partition
    start_offset: int
    messages_max: int
    uncommitted: bool
    txn_id: _common_pb2.TxnId
    def __init__(self, partition: _Optional[_Union[_common_pb2.Partition, _Mapping]] = ..., start_offset: _Optional[int] = ..., messages_max: _Optional[int] = ..., uncommitted: _Optional[bool] = ..., txn_id: _Optional[_Union[_common_pb2.TxnId, _Mapping]] = ...) -> None: ...

class CommandPeekResponse(_message.Message):
    __slots__ = ("messages", "next_offset", "end_offset")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[Message]
    next_offset: int
    end_offset: int
    def __init__(self, messages: _Optional[_Iterable[_Union[Message, _Mapping]]] = ..., next_offset: _Optional[int] = ..., end_offset: _Optional[int] = ...) -> None: ...

class CommandSkipDamaged(_requests.Request[CommandSkipDamagedResponse]):
    __slots__ = ("partition", "start_offset", "dry_run", "call_token")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    CALL_TOKEN_FIELD_NUMBER: _ClassVar[int]
    partition: _common_pb2.Partition
    start_offset: int
    dry_run: bool
    call_token: int
    def __init__(self, partition: _Optional[_Union[_common_pb2.Partition, _Mapping]] = ..., start_offset: _Optional[int] = ..., dry_run: _Optional[bool] = ..., call_token: _Optional[int] = ...) -> None: ...

class CommandSkipDamagedResponse(_message.Message):
    __slots__ = ("damaged", "next_offset", "end_offset")
    DAMAGED_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    damaged: _containers.RepeatedCompositeFieldContainer[_common_pb2.OffsetRange]
    next_offset: int
    end_offset: int
    def __init__(self, damaged: _Optional[_Iterable[_Union[_common_pb2.OffsetRange, _Mapping]]] = ..., next_offset: _Optional[int] = ..., end_offset: _Optional[int] = ...) -> None: ...

class CommandListStoredTxns(_requests.Request[CommandListStoredTxnsResponse]):
    __slots__ = ("partition", "first_txn_id", "limit", "txn_ids")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    FIRST_TXN_ID_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    TXN_IDS_FIELD_NUMBER: _ClassVar[int]
    partition: _common_pb2.Partition
    first_txn_id: _common_pb2.TxnId
    limit: int
    txn_ids: _containers.RepeatedCompositeFieldContainer[_common_pb2.TxnId]
    def __init__(self, partition: _Optional[_Union[_common_pb2.Partition, _Mapping]] = ..., first_txn_id: _Optional[_Union[_common_pb2.TxnId, _Mapping]] = ..., limit: _Optional[int] = ..., txn_ids: _Optional[_Iterable[_Union[_common_pb2.TxnId, _Mapping]]] = ...) -> None: ...

class CommandListStoredTxnsResponse(_message.Message):
    __slots__ = ("transactions", "next_txn_id", "end_offset")
    TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    NEXT_TXN_ID_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    transactions: _containers.RepeatedCompositeFieldContainer[StoredTxn]
    next_txn_id: _common_pb2.TxnId
    end_offset: int
    def __init__(self, transactions: _Optional[_Iterable[_Union[StoredTxn, _Mapping]]] = ..., next_txn_id: _Optional[_Union[_common_pb2.TxnId, _Mapping]] = ..., end_offset: _Optional[int] = ...) -> None: ...

class StoredTxn(_message.Message):
    __slots__ = ("txn_id", "open", "start_offset", "start_time_ms", "producer_epoch")
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    START_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    txn_id: _common_pb2.TxnId
    open: bool
    start_offset: int
    start_time_ms: int
    producer_epoch: int
    def __init__(self, txn_id: _Optional[_Union[_common_pb2.TxnId, _Mapping]] = ..., open: _Optional[bool] = ..., start_offset: _Optional[int] = ..., start_time_ms: _Optional[int] = ..., producer_epoch: _Optional[int] = ...) -> None: ...

class CommandDescribeParticipants(_requests.Request[CommandDescribeParticipantsResponse]):
    __slots__ = ("txn_id", "partitions", "subscriptions")
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    txn_id: _common_pb2.TxnId
    partitions: _containers.RepeatedCompositeFieldContainer[_common_pb2.Partition]
    subscriptions: _containers.RepeatedCompositeFieldContainer[_common_pb2.Subscription]
    def __init__(self, txn_id: _Optional[_Union[_common_pb2.TxnId, _Mapping]] = ..., partitions: _Optional[_Iterable[_Union[_common_pb2.Partition, _Mapping]]] = ..., subscriptions: _Optional[_Iterable[_Union[_common_pb2.Subscription, _Mapping]]] = ...) -> None: ...

class CommandDescribeParticipantsResponse(_message.Message):
    __slots__ = ("participants",)
    PARTICIPANTS_FIELD_NUMBER: _ClassVar[int]
    participants: _containers.RepeatedCompositeFieldContainer[ParticipantDescription]
    def __init__(self, participants: _Optional[_Iterable[_Union[ParticipantDescription, _Mapping]]] = ...) -> None: ...

class ParticipantDescription(_message.Message):
    __slots__ = ("partition", "subscription", "status", "count", "bytes", "counted_partly", "first_write_ms", "pending_ack_count", "error")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    COUNTED_PARTLY_FIELD_NUMBER: _ClassVar[int]
    FIRST_WRITE_MS_FIELD_NUMBER: _ClassVar[int]
    PENDING_ACK_COUNT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    partition: _common_pb2.Partition
    subscription: str
    status: _common_pb2.TxnStatus
    count: int
    bytes: int
    counted_partly: bool
    first_write_ms: int
    pending_ack_count: int
    error: _common_pb2.ServerError
    def __init__(self, partition: _Optional[_Union[_common_pb2.Partition, _Mapping]] = ..., subscription: _Optional[str] = ..., status: _Optional[_Union[_common_pb2.TxnStatus, str]] = ..., count: _Optional[int] = ..., bytes: _Optional[int] = ..., counted_partly: _Optional[bool] = ..., first_write_ms: _Optional[int] = ..., pending_ack_count: _Optional[int] = ..., error: _Optional[_Union[_common_pb2.ServerError, _Mapping]] = ...) -> None: ...

class CommandSubscribe(_requests.Request[CommandSubscribeResponse]):
    __slots__ = ("subscription", "consumer_id", "type", "initial_position", "consumer_name", "attach_epoch", "member", "after_txn_ids", "call_token")
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    INITIAL_POSITION_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_NAME_FIELD_NUMBER: _ClassVar[int]
    ATTACH_EPOCH_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    AFTER_TXN_IDS_FIELD_NUMBER: _ClassVar[int]
    CALL_TOKEN_FIELD_NUMBER: _ClassVar[int]
    subscription: _common_pb2.Subscription
    consumer_id: int
    type: SubscriptionType
    initial_position: InitialPosition
    consumer_name: str
    attach_epoch: int
    member: _common_pb2.GroupMember
    after_txn_ids: _containers.RepeatedCompositeFieldContainer[_common_pb2.TxnId]
    call_token: int
    def __init__(self, subscription: _Optional[_Union[_common_pb2.Subscription, _Mapping]] = ..., consumer_id: _Optional[int] = ..., type: _Optional[_Union[SubscriptionType, str]] = ..., initial_position: _Optional[_Union[InitialPosition, str]] = ..., consumer_name: _Optional[str] = ..., attach_epoch: _Optional[int] = ..., member: _Optional[_Union[_common_pb2.GroupMember, _Mapping]] = ..., after_txn_ids: _Optional[_Iterable[_Union[_common_pb2.TxnId, _Mapping]]] = ..., call_token: _Optional[int] = ...) -> None: ...

class CommandSubscribeResponse(_message.Message):
    __slots__ = ("ledger_id", "active", "waiting", "partition_count")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    PARTITION_COUNT_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    active: bool
    waiting: bool
    partition_count: int
    def __init__(self, ledger_id: _Optional[int] = ..., active: _Optional[bool] = ..., waiting: _Optional[bool] = ..., partition_count: _Optional[int] = ...) -> None: ...

class CommandFlow(_message.Message):
    __slots__ = ("subscription", "consumer_id", "permits", "permit_bytes")
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    PERMITS_FIELD_NUMBER: _ClassVar[int]
    PERMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    subscription: _common_pb2.Subscription
    consumer_id: int
    permits: int
    permit_bytes: int
    def __init__(self, subscription: _Optional[_Union[_common_pb2.Subscription, _Mapping]] = ..., consumer_id: _Optional[int] = ..., permits: _Optional[int] = ..., permit_bytes: _Optional[int] = ...) -> None: ...

class CommandDeliver(_message.Message):
    __slots__ = ("consumer_id", "topic_id", "partition", "ledger_id", "batches")
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    consumer_id: int
    topic_id: int
    partition: int
    ledger_id: int
    batches: _containers.RepeatedCompositeFieldContainer[DeliveredBatch]
    def __init__(self, consumer_id: _Optional[int] = ..., topic_id: _Optional[int] = ..., partition: _Optional[int] = ..., ledger_id: _Optional[int] = ..., batches: _Optional[_Iterable[_Union[DeliveredBatch, _Mapping]]] = ...) -> None: ...

class CommandConsumerChange(_message.Message):
    __slots__ = ("consumer_id", "topic_id", "partition", "active", "closed", "error", "waiting")
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    CLOSED_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    consumer_id: int
    topic_id: int
    partition: int
    active: bool
    closed: bool
    error: _common_pb2.ServerError
    waiting: bool
    def __init__(self, consumer_id: _Optional[int] = ..., topic_id: _Optional[int] = ..., partition: _Optional[int] = ..., active: _Optional[bool] = ..., closed: _Optional[bool] = ..., error: _Optional[_Union[_common_pb2.ServerError, _Mapping]] = ..., waiting: _Optional[bool] = ...) -> None: ...

class CommandAck(_requests.Request[CommandAckResponse]):
    __slots__ = ("subscription", "consumer_id", "ack_type", "message_ids", "ranges", "txn_id", "ack_sequence", "ledger_id", "producer_epoch", "member", "two_phase_commit", "attach_epoch", "txn_proof")
    class AckType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        INDIVIDUAL: _ClassVar[CommandAck.AckType]
        CUMULATIVE: _ClassVar[CommandAck.AckType]
    INDIVIDUAL: CommandAck.AckType
    CUMULATIVE: CommandAck.AckType
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    ACK_TYPE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_IDS_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    ACK_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    TWO_PHASE_COMMIT_FIELD_NUMBER: _ClassVar[int]
    ATTACH_EPOCH_FIELD_NUMBER: _ClassVar[int]
    TXN_PROOF_FIELD_NUMBER: _ClassVar[int]
    subscription: _common_pb2.Subscription
    consumer_id: int
    ack_type: CommandAck.AckType
    message_ids: _containers.RepeatedCompositeFieldContainer[_common_pb2.MessageIdData]
    ranges: _containers.RepeatedCompositeFieldContainer[_common_pb2.OffsetRange]
    txn_id: _common_pb2.TxnId
    ack_sequence: int
    ledger_id: int
    producer_epoch: int
    member: _common_pb2.GroupMember
    two_phase_commit: bool
    attach_epoch: int
    txn_proof: bytes
    def __init__(self, subscription: _Optional[_Union[_common_pb2.Subscription, _Mapping]] = ..., consumer_id: _Optional[int] = ..., ack_type: _Optional[_Union[CommandAck.AckType, str]] = ..., message_ids: _Optional[_Iterable[_Union[_common_pb2.MessageIdData, _Mapping]]] = ..., ranges: _Optional[_Iterable[_Union[_common_pb2.OffsetRange, _Mapping]]] = ..., txn_id: _Optional[_Union[_common_pb2.TxnId, _Mapping]] = ..., ack_sequence: _Optional[int] = ..., ledger_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ..., member: _Optional[_Union[_common_pb2.GroupMember, _Mapping]] = ..., two_phase_commit: _Optional[bool] = ..., attach_epoch: _Optional[int] = ..., txn_proof: _Optional[bytes] = ...) -> None: ...

class CommandAckResponse(_message.Message):
    __slots__ = ("consumer_id", "txn_id")
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    consumer_id: int
    txn_id: _common_pb2.TxnId
    def __init__(self, consumer_id: _Optional[int] = ..., txn_id: _Optional[_Union[_common_pb2.TxnId, _Mapping]] = ...) -> None: ...

class CommandAcks(_requests.Request[CommandAcksResponse]):
    __slots__ = ("request_ids", "traceparents", "subscriptions", "subscription_indexes", "consumer_ids", "ack_types", "range_counts", "firsts", "lasts", "txn_most_bits", "txn_least_bits", "ack_sequences", "ledger_ids", "producer_epochs", "members", "member_numbers", "two_phase_commit", "attach_epochs", "txn_proofs", "message_id_counts", "message_ids")
    REQUEST_IDS_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENTS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_INDEXES_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_IDS_FIELD_NUMBER: _ClassVar[int]
    ACK_TYPES_FIELD_NUMBER: _ClassVar[int]
    RANGE_COUNTS_FIELD_NUMBER: _ClassVar[int]
    FIRSTS_FIELD_NUMBER: _ClassVar[int]
    LASTS_FIELD_NUMBER: _ClassVar[int]
    TXN_MOST_BITS_FIELD_NUMBER: _ClassVar[int]
    TXN_LEAST_BITS_FIELD_NUMBER: _ClassVar[int]
    ACK_SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    LEDGER_IDS_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCHS_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    MEMBER_NUMBERS_FIELD_NUMBER: _ClassVar[int]
    TWO_PHASE_COMMIT_FIELD_NUMBER: _ClassVar[int]
    ATTACH_EPOCHS_FIELD_NUMBER: _ClassVar[int]
    TXN_PROOFS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_COUNTS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_IDS_FIELD_NUMBER: _ClassVar[int]
    request_ids: _containers.RepeatedScalarFieldContainer[int]
    traceparents: _containers.RepeatedScalarFieldContainer[bytes]
    subscriptions: _containers.RepeatedCompositeFieldContainer[_common_pb2.Subscription]
    subscription_indexes: _containers.RepeatedScalarFieldContainer[int]
    consumer_ids: _containers.RepeatedScalarFieldContainer[int]
    ack_types: _containers.RepeatedScalarFieldContainer[CommandAck.AckType]
    range_counts: _containers.RepeatedScalarFieldContainer[int]
    firsts: _containers.RepeatedScalarFieldContainer[int]
    lasts: _containers.RepeatedScalarFieldContainer[int]
    txn_most_bits: _containers.RepeatedScalarFieldContainer[int]
    txn_least_bits: _containers.RepeatedScalarFieldContainer[int]
    ack_sequences: _containers.RepeatedScalarFieldContainer[int]
    ledger_ids: _containers.RepeatedScalarFieldContainer[int]
    producer_epochs: _containers.RepeatedScalarFieldContainer[int]
    members: _containers.RepeatedCompositeFieldContainer[_common_pb2.GroupMember]
    member_numbers: _containers.RepeatedScalarFieldContainer[int]
    two_phase_commit: _containers.RepeatedScalarFieldContainer[bool]
    attach_epochs: _containers.RepeatedScalarFieldContainer[int]
    txn_proofs: _containers.RepeatedScalarFieldContainer[bytes]
    message_id_counts: _containers.RepeatedScalarFieldContainer[int]
    message_ids: _containers.RepeatedCompositeFieldContainer[_common_pb2.MessageIdData]
    def __init__(self, request_ids: _Optional[_Iterable[int]] = ..., traceparents: _Optional[_Iterable[bytes]] = ..., subscriptions: _Optional[_Iterable[_Union[_common_pb2.Subscription, _Mapping]]] = ..., subscription_indexes: _Optional[_Iterable[int]] = ..., consumer_ids: _Optional[_Iterable[int]] = ..., ack_types: _Optional[_Iterable[_Union[CommandAck.AckType, str]]] = ..., range_counts: _Optional[_Iterable[int]] = ..., firsts: _Optional[_Iterable[int]] = ..., lasts: _Optional[_Iterable[int]] = ..., txn_most_bits: _Optional[_Iterable[int]] = ..., txn_least_bits: _Optional[_Iterable[int]] = ..., ack_sequences: _Optional[_Iterable[int]] = ..., ledger_ids: _Optional[_Iterable[int]] = ..., producer_epochs: _Optional[_Iterable[int]] = ..., members: _Optional[_Iterable[_Union[_common_pb2.GroupMember, _Mapping]]] = ..., member_numbers: _Optional[_Iterable[int]] = ..., two_phase_commit: _Optional[_Iterable[bool]] = ..., attach_epochs: _Optional[_Iterable[int]] = ..., txn_proofs: _Optional[_Iterable[bytes]] = ..., message_id_counts: _Optional[_Iterable[int]] = ..., message_ids: _Optional[_Iterable[_Union[_common_pb2.MessageIdData, _Mapping]]] = ...) -> None: ...

class CommandAcksResponse(_message.Message):
    __slots__ = ("request_ids", "consumer_ids", "txn_most_bits", "txn_least_bits")
    REQUEST_IDS_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_IDS_FIELD_NUMBER: _ClassVar[int]
    TXN_MOST_BITS_FIELD_NUMBER: _ClassVar[int]
    TXN_LEAST_BITS_FIELD_NUMBER: _ClassVar[int]
    request_ids: _containers.RepeatedScalarFieldContainer[int]
    consumer_ids: _containers.RepeatedScalarFieldContainer[int]
    txn_most_bits: _containers.RepeatedScalarFieldContainer[int]
    txn_least_bits: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, request_ids: _Optional[_Iterable[int]] = ..., consumer_ids: _Optional[_Iterable[int]] = ..., txn_most_bits: _Optional[_Iterable[int]] = ..., txn_least_bits: _Optional[_Iterable[int]] = ...) -> None: ...

class CommandNack(_requests.Request[CommandNackResponse]):
    __slots__ = ("subscription", "consumer_id", "ranges", "redelivery_count")
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    REDELIVERY_COUNT_FIELD_NUMBER: _ClassVar[int]
    subscription: _common_pb2.Subscription
    consumer_id: int
    ranges: _containers.RepeatedCompositeFieldContainer[_common_pb2.OffsetRange]
    redelivery_count: int
    def __init__(self, subscription: _Optional[_Union[_common_pb2.Subscription, _Mapping]] = ..., consumer_id: _Optional[int] = ..., ranges: _Optional[_Iterable[_Union[_common_pb2.OffsetRange, _Mapping]]] = ..., redelivery_count: _Optional[int] = ...) -> None: ...

class CommandNackResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CommandSeek(_requests.Request[CommandSeekResponse]):
    __slots__ = ("subscription", "offset", "append_time_ms", "position", "member", "dry_run", "call_token")
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    APPEND_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    CALL_TOKEN_FIELD_NUMBER: _ClassVar[int]
    subscription: _common_pb2.Subscription
    offset: int
    append_time_ms: int
    position: InitialPosition
    member: _common_pb2.GroupMember
    dry_run: bool
    call_token: int
    def __init__(self, subscription: _Optional[_Union[_common_pb2.Subscription, _Mapping]] = ..., offset: _Optional[int] = ..., append_time_ms: _Optional[int] = ..., position: _Optional[_Union[InitialPosition, str]] = ..., member: _Optional[_Union[_common_pb2.GroupMember, _Mapping]] = ..., dry_run: _Optional[bool] = ..., call_token: _Optional[int] = ...) -> None: ...

class CommandSeekResponse(_message.Message):
    __slots__ = ("offset",)
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    offset: int
    def __init__(self, offset: _Optional[int] = ...) -> None: ...

class CommandCloseConsumer(_requests.Request[CommandCloseConsumerResponse]):
    __slots__ = ("subscription", "consumer_id")
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    subscription: _common_pb2.Subscription
    consumer_id: int
    def __init__(self, subscription: _Optional[_Union[_common_pb2.Subscription, _Mapping]] = ..., consumer_id: _Optional[int] = ...) -> None: ...

class CommandCloseConsumerResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CommandUnsubscribe(_requests.Request[CommandUnsubscribeResponse]):
    __slots__ = ("subscription", "call_token")
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    CALL_TOKEN_FIELD_NUMBER: _ClassVar[int]
    subscription: _common_pb2.Subscription
    call_token: int
    def __init__(self, subscription: _Optional[_Union[_common_pb2.Subscription, _Mapping]] = ..., call_token: _Optional[int] = ...) -> None: ...

class CommandUnsubscribeResponse(_message.Message):
    __slots__ = ("partition_count",)
    PARTITION_COUNT_FIELD_NUMBER: _ClassVar[int]
    partition_count: int
    def __init__(self, partition_count: _Optional[int] = ...) -> None: ...
