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
    end_txn_on_participants: bytes
    def __init__(self, request_id: _Optional[int] = ..., traceparent: _Optional[bytes] = ..., end_txn_on_partition: _Optional[_Union[_transaction_pb2.CommandEndTxnOnPartition, _Mapping]] = ..., end_txn_on_subscription: _Optional[_Union[_transaction_pb2.CommandEndTxnOnSubscription, _Mapping]] = ..., end_txn_on_participants: _Optional[bytes] = ...) -> None: ...

class PackedFrame(_message.Message):
    __slots__ = ("commands",)
    COMMANDS_FIELD_NUMBER: _ClassVar[int]
    commands: _containers.RepeatedCompositeFieldContainer[PackedCommand]
    def __init__(self, commands: _Optional[_Iterable[_Union[PackedCommand, _Mapping]]] = ...) -> None: ...
