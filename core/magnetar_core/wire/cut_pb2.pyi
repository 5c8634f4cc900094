from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CutToken(_message.Message):
    __slots__ = ("cluster_id", "stamp", "topics")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    STAMP_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    stamp: int
    topics: _containers.RepeatedCompositeFieldContainer[CutTopic]
    def __init__(self, cluster_id: _Optional[str] = ..., stamp: _Optional[int] = ..., topics: _Optional[_Iterable[_Union[CutTopic, _Mapping]]] = ...) -> None: ...

class CutTopic(_message.Message):
    __slots__ = ("topic", "topic_id", "partitions")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    topic_id: int
    partitions: _containers.RepeatedCompositeFieldContainer[CutPartition]
    def __init__(self, topic: _Optional[str] = ..., topic_id: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[CutPartition, _Mapping]]] = ...) -> None: ...

class CutPartition(_message.Message):
    __slots__ = ("ledger_id", "first_offset", "begun_offset", "end_offset")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    BEGUN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    first_offset: int
    begun_offset: int
    end_offset: int
    def __init__(self, ledger_id: _Optional[int] = ..., first_offset: _Optional[int] = ..., begun_offset: _Optional[int] = ..., end_offset: _Optional[int] = ...) -> None: ...
