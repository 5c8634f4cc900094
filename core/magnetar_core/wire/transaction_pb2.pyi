from magnetar_core.wire import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CommandNewTxn(_message.Message):
    __slots__ = ("txn_timeout_ms", "partitions", "subscriptions")
    TXN_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    txn_timeout_ms: int
    partitions: _containers.RepeatedCompositeFieldContainer[_common_pb2.Partition]
    subscriptions: _containers.RepeatedCompositeFieldContainer[_common_pb2.Subscription]
    def __init__(self, txn_timeout_ms: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[_common_pb2.Partition, _Mapping]]] = ..., subscriptions: _Optional[_Iterable[_Union[_common_pb2.Subscription, _Mapping]]] = ...) -> None: ...

class CommandNewTxnResponse(_message.Message):
    __slots__ = ("txn_id", "txn_timeout_ms")
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    TXN_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    txn_id: _common_pb2.TxnId
    txn_timeout_ms: int
    def __init__(self, txn_id: _Optional[_Union[_common_pb2.TxnId, _Mapping]] = ..., txn_timeout_ms: _Optional[int] = ...) -> None: ...

class CommandAddPartitionToTxn(_message.Message):
    __slots__ = ("txn_id", "partitions")
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    txn_id: _common_pb2.TxnId
    partitions: _containers.RepeatedCompositeFieldContainer[_common_pb2.Partition]
    def __init__(self, txn_id: _Optional[_Union[_common_pb2.TxnId, _Mapping]] = ..., partitions: _Optional[_Iterable[_Union[_common_pb2.Partition, _Mapping]]] = ...) -> None: ...

class CommandAddPartitionToTxnResponse(_message.Message):
    __slots__ = ("txn_id",)
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    txn_id: _common_pb2.TxnId
    def __init__(self, txn_id: _Optional[_Union[_common_pb2.TxnId, _Mapping]] = ...) -> None: ...

class CommandAddSubscriptionToTxn(_message.Message):
    __slots__ = ("txn_id", "subscriptions")
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    txn_id: _common_pb2.TxnId
    subscriptions: _containers.RepeatedCompositeFieldContainer[_common_pb2.Subscription]
    def __init__(self, txn_id: _Optional[_Union[_common_pb2.TxnId, _Mapping]] = ..., subscriptions: _Optional[_Iterable[_Union[_common_pb2.Subscription, _Mapping]]] = ...) -> None: ...

class CommandAddSubscriptionToTxnResponse(_message.Message):
    __slots__ = ("txn_id",)
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    txn_id: _common_pb2.TxnId
    def __init__(self, txn_id: _Optional[_Union[_common_pb2.TxnId, _Mapping]] = ...) -> None: ...

class WriterCount(_message.Message):
    __slots__ = ("writer_id", "count")
    WRITER_ID_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    writer_id: int
    count: int
    def __init__(self, writer_id: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class PartitionCounts(_message.Message):
    __slots__ = ("partition", "producers")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    partition: _common_pb2.Partition
    producers: _containers.RepeatedCompositeFieldContainer[WriterCount]
    def __init__(self, partition: _Optional[_Union[_common_pb2.Partition, _Mapping]] = ..., producers: _Optional[_Iterable[_Union[WriterCount, _Mapping]]] = ...) -> None: ...

class SubscriptionCounts(_message.Message):
    __slots__ = ("subscription", "consumers")
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    subscription: _common_pb2.Subscription
    consumers: _containers.RepeatedCompositeFieldContainer[WriterCount]
    def __init__(self, subscription: _Optional[_Union[_common_pb2.Subscription, _Mapping]] = ..., consumers: _Optional[_Iterable[_Union[WriterCount, _Mapping]]] = ...) -> None: ...

class CommandEndTxn(_message.Message):
    __slots__ = ("txn_id", "txn_action", "counts_given", "partition_counts", "subscription_counts", "selection_given", "selected_writer_ids", "wait_finished")
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    TXN_ACTION_FIELD_NUMBER: _ClassVar[int]
    COUNTS_GIVEN_FIELD_NUMBER: _ClassVar[int]
    PARTITION_COUNTS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_COUNTS_FIELD_NUMBER: _ClassVar[int]
    SELECTION_GIVEN_FIELD_NUMBER: _ClassVar[int]
    SELECTED_WRITER_IDS_FIELD_NUMBER: _ClassVar[int]
    WAIT_FINISHED_FIELD_NUMBER: _ClassVar[int]
    txn_id: _common_pb2.TxnId
    txn_action: _common_pb2.TxnAction
    counts_given: bool
    partition_counts: _containers.RepeatedCompositeFieldContainer[PartitionCounts]
    subscription_counts: _containers.RepeatedCompositeFieldContainer[SubscriptionCounts]
    selection_given: bool
    selected_writer_ids: _containers.RepeatedScalarFieldContainer[int]
    wait_finished: bool
    def __init__(self, txn_id: _Optional[_Union[_common_pb2.TxnId, _Mapping]] = ..., txn_action: _Optional[_Union[_common_pb2.TxnAction, str]] = ..., counts_given: _Optional[bool] = ..., partition_counts: _Optional[_Iterable[_Union[PartitionCounts, _Mapping]]] = ..., subscription_counts: _Optional[_Iterable[_Union[SubscriptionCounts, _Mapping]]] = ..., selection_given: _Optional[bool] = ..., selected_writer_ids: _Optional[_Iterable[int]] = ..., wait_finished: _Optional[bool] = ...) -> None: ...

class CommandEndTxnResponse(_message.Message):
    __slots__ = ("txn_id", "status")
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    txn_id: _common_pb2.TxnId
    status: _common_pb2.TxnStatus
    def __init__(self, txn_id: _Optional[_Union[_common_pb2.TxnId, _Mapping]] = ..., status: _Optional[_Union[_common_pb2.TxnStatus, str]] = ...) -> None: ...

class CommandDescribeTxn(_message.Message):
    __slots__ = ("txn_id",)
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    txn_id: _common_pb2.TxnId
    def __init__(self, txn_id: _Optional[_Union[_common_pb2.TxnId, _Mapping]] = ...) -> None: ...

class CommandDescribeTxnResponse(_message.Message):
    __slots__ = ("transaction",)
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    transaction: TransactionDescription
    def __init__(self, transaction: _Optional[_Union[TransactionDescription, _Mapping]] = ...) -> None: ...

class CommandListTxns(_message.Message):
    __slots__ = ("statuses", "age_ms_min", "limit")
    STATUSES_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_MIN_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    statuses: _containers.RepeatedScalarFieldContainer[_common_pb2.TxnStatus]
    age_ms_min: int
    limit: int
    def __init__(self, statuses: _Optional[_Iterable[_Union[_common_pb2.TxnStatus, str]]] = ..., age_ms_min: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class CommandListTxnsResponse(_message.Message):
    __slots__ = ("transactions", "truncated")
    TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    transactions: _containers.RepeatedCompositeFieldContainer[TransactionDescription]
    truncated: bool
    def __init__(self, transactions: _Optional[_Iterable[_Union[TransactionDescription, _Mapping]]] = ..., truncated: _Optional[bool] = ...) -> None: ...

class CommandAcceptTxnLoss(_message.Message):
    __slots__ = ("txn_id",)
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    txn_id: _common_pb2.TxnId
    def __init__(self, txn_id: _Optional[_Union[_common_pb2.TxnId, _Mapping]] = ...) -> None: ...

class CommandAcceptTxnLossResponse(_message.Message):
    __slots__ = ("txn_id",)
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    txn_id: _common_pb2.TxnId
    def __init__(self, txn_id: _Optional[_Union[_common_pb2.TxnId, _Mapping]] = ...) -> None: ...

class TransactionDescription(_message.Message):
    __slots__ = ("txn_id", "status", "txn_timeout_ms", "age_ms", "opened_at_ms", "partitions", "subscriptions", "unfinished")
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    TXN_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    OPENED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    UNFINISHED_FIELD_NUMBER: _ClassVar[int]
    txn_id: _common_pb2.TxnId
    status: _common_pb2.TxnStatus
    txn_timeout_ms: int
    age_ms: int
    opened_at_ms: int
    partitions: _containers.RepeatedCompositeFieldContainer[_common_pb2.Partition]
    subscriptions: _containers.RepeatedCompositeFieldContainer[_common_pb2.Subscription]
    unfinished: _containers.RepeatedCompositeFieldContainer[UnfinishedParticipant]
    def __init__(self, txn_id: _Optional[_Union[_common_pb2.TxnId, _Mapping]] = ..., status: _Optional[_Union[_common_pb2.TxnStatus, str]] = ..., txn_timeout_ms: _Optional[int] = ..., age_ms: _Optional[int] = ..., opened_at_ms: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[_common_pb2.Partition, _Mapping]]] = ..., subscriptions: _Optional[_Iterable[_Union[_common_pb2.Subscription, _Mapping]]] = ..., unfinished: _Optional[_Iterable[_Union[UnfinishedParticipant, _Mapping]]] = ...) -> None: ...

class UnfinishedParticipant(_message.Message):
    __slots__ = ("partition", "subscription", "last_error")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    partition: _common_pb2.Partition
    subscription: str
    last_error: str
    def __init__(self, partition: _Optional[_Union[_common_pb2.Partition, _Mapping]] = ..., subscription: _Optional[str] = ..., last_error: _Optional[str] = ...) -> None: ...

class CommandEndTxnOnPartition(_message.Message):
    __slots__ = ("txn_id", "partition", "txn_action", "counts_given", "counts", "selection_given", "selected_writer_ids", "loss_accepted")
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    TXN_ACTION_FIELD_NUMBER: _ClassVar[int]
    COUNTS_GIVEN_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    SELECTION_GIVEN_FIELD_NUMBER: _ClassVar[int]
    SELECTED_WRITER_IDS_FIELD_NUMBER: _ClassVar[int]
    LOSS_ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    txn_id: _common_pb2.TxnId
    partition: _common_pb2.Partition
    txn_action: _common_pb2.TxnAction
    counts_given: bool
    counts: _containers.RepeatedCompositeFieldContainer[WriterCount]
    selection_given: bool
    selected_writer_ids: _containers.RepeatedScalarFieldContainer[int]
    loss_accepted: bool
    def __init__(self, txn_id: _Optional[_Union[_common_pb2.TxnId, _Mapping]] = ..., partition: _Optional[_Union[_common_pb2.Partition, _Mapping]] = ..., txn_action: _Optional[_Union[_common_pb2.TxnAction, str]] = ..., counts_given: _Optional[bool] = ..., counts: _Optional[_Iterable[_Union[WriterCount, _Mapping]]] = ..., selection_given: _Optional[bool] = ..., selected_writer_ids: _Optional[_Iterable[int]] = ..., loss_accepted: _Optional[bool] = ...) -> None: ...

class CommandEndTxnOnPartitionResponse(_message.Message):
    __slots__ = ("txn_id",)
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    txn_id: _common_pb2.TxnId
    def __init__(self, txn_id: _Optional[_Union[_common_pb2.TxnId, _Mapping]] = ...) -> None: ...

class CommandEndTxnOnSubscription(_message.Message):
    __slots__ = ("txn_id", "subscription", "txn_action", "counts_given", "counts", "selection_given", "selected_writer_ids", "loss_accepted")
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    TXN_ACTION_FIELD_NUMBER: _ClassVar[int]
    COUNTS_GIVEN_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    SELECTION_GIVEN_FIELD_NUMBER: _ClassVar[int]
    SELECTED_WRITER_IDS_FIELD_NUMBER: _ClassVar[int]
    LOSS_ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    txn_id: _common_pb2.TxnId
    subscription: _common_pb2.Subscription
    txn_action: _common_pb2.TxnAction
    counts_given: bool
    counts: _containers.RepeatedCompositeFieldContainer[WriterCount]
    selection_given: bool
    selected_writer_ids: _containers.RepeatedScalarFieldContainer[int]
    loss_accepted: bool
    def __init__(self, txn_id: _Optional[_Union[_common_pb2.TxnId, _Mapping]] = ..., subscription: _Optional[_Union[_common_pb2.Subscription, _Mapping]] = ..., txn_action: _Optional[_Union[_common_pb2.TxnAction, str]] = ..., counts_given: _Optional[bool] = ..., counts: _Optional[_Iterable[_Union[WriterCount, _Mapping]]] = ..., selection_given: _Optional[bool] = ..., selected_writer_ids: _Optional[_Iterable[int]] = ..., loss_accepted: _Optional[bool] = ...) -> None: ...

class CommandEndTxnOnSubscriptionResponse(_message.Message):
    __slots__ = ("txn_id",)
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    txn_id: _common_pb2.TxnId
    def __init__(self, txn_id: _Optional[_Union[_common_pb2.TxnId, _Mapping]] = ...) -> None: ...

class TxnRange(_message.Message):
    __slots__ = ("first", "last")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    first: int
    last: int
    def __init__(self, first: _Optional[int] = ..., last: _Optional[int] = ...) -> None: ...

class CommandLowWatermark(_message.Message):
    __slots__ = ("tcid", "incarnation", "low_watermark", "live")
    TCID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    LOW_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    LIVE_FIELD_NUMBER: _ClassVar[int]
    tcid: int
    incarnation: int
    low_watermark: int
    live: _containers.RepeatedCompositeFieldContainer[TxnRange]
    def __init__(self, tcid: _Optional[int] = ..., incarnation: _Optional[int] = ..., low_watermark: _Optional[int] = ..., live: _Optional[_Iterable[_Union[TxnRange, _Mapping]]] = ...) -> None: ...

class CommandLowWatermarkResponse(_message.Message):
    __slots__ = ("orphans",)
    ORPHANS_FIELD_NUMBER: _ClassVar[int]
    orphans: _containers.RepeatedCompositeFieldContainer[OrphanedParticipant]
    def __init__(self, orphans: _Optional[_Iterable[_Union[OrphanedParticipant, _Mapping]]] = ...) -> None: ...

class OrphanedParticipant(_message.Message):
    __slots__ = ("txn_id", "partition", "subscription")
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    txn_id: _common_pb2.TxnId
    partition: _common_pb2.Partition
    subscription: str
    def __init__(self, txn_id: _Optional[_Union[_common_pb2.TxnId, _Mapping]] = ..., partition: _Optional[_Union[_common_pb2.Partition, _Mapping]] = ..., subscription: _Optional[str] = ...) -> None: ...
