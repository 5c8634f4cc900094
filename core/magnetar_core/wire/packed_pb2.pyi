from magnetar_core.wire import common_pb2 as _common_pb2
from magnetar_core.wire import transaction_pb2 as _transaction_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PackedNewTxn(_message.Message):
    __slots__ = ("partitions", "subscriptions")
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedScalarFieldContainer[bytes]
    subscriptions: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, partitions: _Optional[_Iterable[bytes]] = ..., subscriptions: _Optional[_Iterable[bytes]] = ...) -> None: ...

class PackedEndTxn(_message.Message):
    __slots__ = ("partition_counts", "subscription_counts")
    PARTITION_COUNTS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_COUNTS_FIELD_NUMBER: _ClassVar[int]
    partition_counts: _containers.RepeatedScalarFieldContainer[bytes]
    subscription_counts: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, partition_counts: _Optional[_Iterable[bytes]] = ..., subscription_counts: _Optional[_Iterable[bytes]] = ...) -> None: ...

class PackedCounts(_message.Message):
    __slots__ = ("participant",)
    PARTICIPANT_FIELD_NUMBER: _ClassVar[int]
    participant: bytes
    def __init__(self, participant: _Optional[bytes] = ...) -> None: ...

class PackedEndTxnOnParticipants(_message.Message):
    __slots__ = ("txn_id", "txn_action", "counts_given", "partitions", "subscriptions", "selection_given", "selected_writer_ids", "loss_accepted", "stamp", "incarnation")
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    TXN_ACTION_FIELD_NUMBER: _ClassVar[int]
    COUNTS_GIVEN_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    SELECTION_GIVEN_FIELD_NUMBER: _ClassVar[int]
    SELECTED_WRITER_IDS_FIELD_NUMBER: _ClassVar[int]
    LOSS_ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    STAMP_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    txn_id: _common_pb2.TxnId
    txn_action: _common_pb2.TxnAction
    counts_given: bool
    partitions: _containers.RepeatedScalarFieldContainer[bytes]
    subscriptions: _containers.RepeatedScalarFieldContainer[bytes]
    selection_given: bool
    selected_writer_ids: _containers.RepeatedScalarFieldContainer[int]
    loss_accepted: bool
    stamp: int
    incarnation: int
    def __init__(self, txn_id: _Optional[_Union[_common_pb2.TxnId, _Mapping]] = ..., txn_action: _Optional[_Union[_common_pb2.TxnAction, str]] = ..., counts_given: _Optional[bool] = ..., partitions: _Optional[_Iterable[bytes]] = ..., subscriptions: _Optional[_Iterable[bytes]] = ..., selection_given: _Optional[bool] = ..., selected_writer_ids: _Optional[_Iterable[int]] = ..., loss_accepted: _Optional[bool] = ..., stamp: _Optional[int] = ..., incarnation: _Optional[int] = ...) -> None: ...

class PackedCommand(_message.Message):
    __slots__ = ("request_id", "traceparent", "end_txn_on_partition", "end_txn_on_subscription", "end_txn_on_participants")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    END_TXN_ON_PARTITION_FIELD_NUMBER: _ClassVar[int]
    END_TXN_ON_SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    END_TXN_ON_PARTICIPANTS_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    traceparent: bytes
    end_txn_on_partition: _transaction_pb2.CommandEndTxnOnPartition
    end_txn_on_subscription: _transaction_pb2.CommandEndTxnOnSubscription
    end_txn_on_participants: PackedEndTxnOnParticipants
    def __init__(self, request_id: _Optional[int] = ..., traceparent: _Optional[bytes] = ..., end_txn_on_partition: _Optional[_Union[_transaction_pb2.CommandEndTxnOnPartition, _Mapping]] = ..., end_txn_on_subscription: _Optional[_Union[_transaction_pb2.CommandEndTxnOnSubscription, _Mapping]] = ..., end_txn_on_participants: _Optional[_Union[PackedEndTxnOnParticipants, _Mapping]] = ...) -> None: ...

class PackedFrame(_message.Message):
    __slots__ = ("commands",)
    COMMANDS_FIELD_NUMBER: _ClassVar[int]
    commands: _containers.RepeatedCompositeFieldContainer[PackedCommand]
    def __init__(self, commands: _Optional[_Iterable[_Union[PackedCommand, _Mapping]]] = ...) -> None: ...
