from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional

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
