from magnetar_core import requests as _requests
from magnetar_core.wire import broker_pb2 as _broker_pb2
from magnetar_core.wire import common_pb2 as _common_pb2
from magnetar_core.wire import record_pb2 as _record_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GroupState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    GROUP_EMPTY: _ClassVar[GroupState]
    GROUP_STABLE: _ClassVar[GroupState]
    GROUP_REBALANCING: _ClassVar[GroupState]
GROUP_EMPTY: GroupState
GROUP_STABLE: GroupState
GROUP_REBALANCING: GroupState

class CommandJoinGroup(_requests.Request[CommandJoinGroupResponse]):
    __slots__ = ("group", "member_id", "instance_id", "topics", "topic_pattern", "session_timeout_ms", "rebalance_timeout_ms", "initial_position", "client_name", "allow_two_phase_commit", "join_epoch")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_PATTERN_FIELD_NUMBER: _ClassVar[int]
    SESSION_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    REBALANCE_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    INITIAL_POSITION_FIELD_NUMBER: _ClassVar[int]
    CLIENT_NAME_FIELD_NUMBER: _ClassVar[int]
    ALLOW_TWO_PHASE_COMMIT_FIELD_NUMBER: _ClassVar[int]
    JOIN_EPOCH_FIELD_NUMBER: _ClassVar[int]
    group: str
    member_id: str
    instance_id: str
    topics: _containers.RepeatedScalarFieldContainer[str]
    topic_pattern: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    initial_position: _broker_pb2.InitialPosition
    client_name: str
    allow_two_phase_commit: bool
    join_epoch: int
    def __init__(self, group: _Optional[str] = ..., member_id: _Optional[str] = ..., instance_id: _Optional[str] = ..., topics: _Optional[_Iterable[str]] = ..., topic_pattern: _Optional[str] = ..., session_timeout_ms: _Optional[int] = ..., rebalance_timeout_ms: _Optional[int] = ..., initial_position: _Optional[_Union[_broker_pb2.InitialPosition, str]] = ..., client_name: _Optional[str] = ..., allow_two_phase_commit: _Optional[bool] = ..., join_epoch: _Optional[int] = ...) -> None: ...

class CommandJoinGroupResponse(_message.Message):
    __slots__ = ("session_timeout_ms", "rebalance_timeout_ms", "state")
    SESSION_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    REBALANCE_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    state: CommandGroupHeartbeatResponse
    def __init__(self, session_timeout_ms: _Optional[int] = ..., rebalance_timeout_ms: _Optional[int] = ..., state: _Optional[_Union[CommandGroupHeartbeatResponse, _Mapping]] = ...) -> None: ...

class CommandGroupHeartbeat(_requests.Request[CommandGroupHeartbeatResponse]):
    __slots__ = ("group", "member_id", "instance_id", "held", "heartbeat_number")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_NUMBER_FIELD_NUMBER: _ClassVar[int]
    group: str
    member_id: str
    instance_id: str
    held: _containers.RepeatedCompositeFieldContainer[AssignedPartition]
    heartbeat_number: int
    def __init__(self, group: _Optional[str] = ..., member_id: _Optional[str] = ..., instance_id: _Optional[str] = ..., held: _Optional[_Iterable[_Union[AssignedPartition, _Mapping]]] = ..., heartbeat_number: _Optional[int] = ...) -> None: ...

class CommandGroupHeartbeatResponse(_message.Message):
    __slots__ = ("generation", "heartbeat_interval_ms", "assigned", "coming")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    ASSIGNED_FIELD_NUMBER: _ClassVar[int]
    COMING_FIELD_NUMBER: _ClassVar[int]
    generation: int
    heartbeat_interval_ms: int
    assigned: _containers.RepeatedCompositeFieldContainer[AssignedPartition]
    coming: int
    def __init__(self, generation: _Optional[int] = ..., heartbeat_interval_ms: _Optional[int] = ..., assigned: _Optional[_Iterable[_Union[AssignedPartition, _Mapping]]] = ..., coming: _Optional[int] = ...) -> None: ...

class AssignedPartition(_message.Message):
    __slots__ = ("partition", "generation")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    partition: _common_pb2.Partition
    generation: int
    def __init__(self, partition: _Optional[_Union[_common_pb2.Partition, _Mapping]] = ..., generation: _Optional[int] = ...) -> None: ...

class CommandLeaveGroup(_requests.Request[CommandLeaveGroupResponse]):
    __slots__ = ("group", "member_id", "instance_id", "call_token")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    CALL_TOKEN_FIELD_NUMBER: _ClassVar[int]
    group: str
    member_id: str
    instance_id: str
    call_token: int
    def __init__(self, group: _Optional[str] = ..., member_id: _Optional[str] = ..., instance_id: _Optional[str] = ..., call_token: _Optional[int] = ...) -> None: ...

class CommandLeaveGroupResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CommandGroupChange(_message.Message):
    __slots__ = ("group", "member_id")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    group: str
    member_id: str
    def __init__(self, group: _Optional[str] = ..., member_id: _Optional[str] = ...) -> None: ...

class CommandListGroups(_requests.Request[CommandListGroupsResponse]):
    __slots__ = ()
    def __init__(self) -> None: ...

class CommandListGroupsResponse(_message.Message):
    __slots__ = ("groups",)
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[GroupSummary]
    def __init__(self, groups: _Optional[_Iterable[_Union[GroupSummary, _Mapping]]] = ...) -> None: ...

class GroupSummary(_message.Message):
    __slots__ = ("group", "state", "generation", "members", "partitions", "lag")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    LAG_FIELD_NUMBER: _ClassVar[int]
    group: str
    state: GroupState
    generation: int
    members: int
    partitions: int
    lag: int
    def __init__(self, group: _Optional[str] = ..., state: _Optional[_Union[GroupState, str]] = ..., generation: _Optional[int] = ..., members: _Optional[int] = ..., partitions: _Optional[int] = ..., lag: _Optional[int] = ...) -> None: ...

class CommandDescribeGroup(_requests.Request[CommandDescribeGroupResponse]):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: str
    def __init__(self, group: _Optional[str] = ...) -> None: ...

class CommandDescribeGroupResponse(_message.Message):
    __slots__ = ("summary", "allow_two_phase_commit", "members", "partitions")
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    ALLOW_TWO_PHASE_COMMIT_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    summary: GroupSummary
    allow_two_phase_commit: bool
    members: _containers.RepeatedCompositeFieldContainer[GroupMemberDescription]
    partitions: _containers.RepeatedCompositeFieldContainer[GroupPartitionDescription]
    def __init__(self, summary: _Optional[_Union[GroupSummary, _Mapping]] = ..., allow_two_phase_commit: _Optional[bool] = ..., members: _Optional[_Iterable[_Union[GroupMemberDescription, _Mapping]]] = ..., partitions: _Optional[_Iterable[_Union[GroupPartitionDescription, _Mapping]]] = ...) -> None: ...

class GroupMemberDescription(_message.Message):
    __slots__ = ("member_id", "instance_id", "client_name", "topics", "topic_pattern", "session_timeout_ms", "rebalance_timeout_ms", "silent_ms", "partitions", "lag")
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_NAME_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_PATTERN_FIELD_NUMBER: _ClassVar[int]
    SESSION_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    REBALANCE_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    SILENT_MS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    LAG_FIELD_NUMBER: _ClassVar[int]
    member_id: str
    instance_id: str
    client_name: str
    topics: _containers.RepeatedScalarFieldContainer[str]
    topic_pattern: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    silent_ms: int
    partitions: int
    lag: int
    def __init__(self, member_id: _Optional[str] = ..., instance_id: _Optional[str] = ..., client_name: _Optional[str] = ..., topics: _Optional[_Iterable[str]] = ..., topic_pattern: _Optional[str] = ..., session_timeout_ms: _Optional[int] = ..., rebalance_timeout_ms: _Optional[int] = ..., silent_ms: _Optional[int] = ..., partitions: _Optional[int] = ..., lag: _Optional[int] = ...) -> None: ...

class GroupPartitionDescription(_message.Message):
    __slots__ = ("partition", "member_id", "generation", "next_member_id", "mark_delete_offset", "end_offset", "lag", "pending_ack_count", "awaited_txns")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    NEXT_MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    MARK_DELETE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAG_FIELD_NUMBER: _ClassVar[int]
    PENDING_ACK_COUNT_FIELD_NUMBER: _ClassVar[int]
    AWAITED_TXNS_FIELD_NUMBER: _ClassVar[int]
    partition: _common_pb2.Partition
    member_id: str
    generation: int
    next_member_id: str
    mark_delete_offset: int
    end_offset: int
    lag: int
    pending_ack_count: int
    awaited_txns: _containers.RepeatedCompositeFieldContainer[_common_pb2.TxnId]
    def __init__(self, partition: _Optional[_Union[_common_pb2.Partition, _Mapping]] = ..., member_id: _Optional[str] = ..., generation: _Optional[int] = ..., next_member_id: _Optional[str] = ..., mark_delete_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., lag: _Optional[int] = ..., pending_ack_count: _Optional[int] = ..., awaited_txns: _Optional[_Iterable[_Union[_common_pb2.TxnId, _Mapping]]] = ...) -> None: ...

class CommandDeleteGroup(_requests.Request[CommandDeleteGroupResponse]):
    __slots__ = ("group", "call_token")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CALL_TOKEN_FIELD_NUMBER: _ClassVar[int]
    group: str
    call_token: int
    def __init__(self, group: _Optional[str] = ..., call_token: _Optional[int] = ...) -> None: ...

class CommandDeleteGroupResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CommandCommitOffsets(_requests.Request[CommandCommitOffsetsResponse]):
    __slots__ = ("group", "generation", "offsets")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    group: str
    generation: int
    offsets: _containers.RepeatedCompositeFieldContainer[PartitionOffset]
    def __init__(self, group: _Optional[str] = ..., generation: _Optional[int] = ..., offsets: _Optional[_Iterable[_Union[PartitionOffset, _Mapping]]] = ...) -> None: ...

class CommandCommitOffsetsResponse(_message.Message):
    __slots__ = ("outcomes",)
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedCompositeFieldContainer[OffsetOutcome]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[OffsetOutcome, _Mapping]]] = ...) -> None: ...

class CommandFetchOffsets(_requests.Request[CommandFetchOffsetsResponse]):
    __slots__ = ("group", "generation", "partitions", "of_all")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    OF_ALL_FIELD_NUMBER: _ClassVar[int]
    group: str
    generation: int
    partitions: _containers.RepeatedCompositeFieldContainer[_common_pb2.Partition]
    of_all: bool
    def __init__(self, group: _Optional[str] = ..., generation: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[_common_pb2.Partition, _Mapping]]] = ..., of_all: _Optional[bool] = ...) -> None: ...

class CommandFetchOffsetsResponse(_message.Message):
    __slots__ = ("outcomes",)
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedCompositeFieldContainer[OffsetOutcome]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[OffsetOutcome, _Mapping]]] = ...) -> None: ...

class CommandForgetOffsets(_requests.Request[CommandForgetOffsetsResponse]):
    __slots__ = ("group", "partitions", "of_all", "expired", "call_token")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    OF_ALL_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_FIELD_NUMBER: _ClassVar[int]
    CALL_TOKEN_FIELD_NUMBER: _ClassVar[int]
    group: str
    partitions: _containers.RepeatedCompositeFieldContainer[_common_pb2.Partition]
    of_all: bool
    expired: bool
    call_token: int
    def __init__(self, group: _Optional[str] = ..., partitions: _Optional[_Iterable[_Union[_common_pb2.Partition, _Mapping]]] = ..., of_all: _Optional[bool] = ..., expired: _Optional[bool] = ..., call_token: _Optional[int] = ...) -> None: ...

class CommandForgetOffsetsResponse(_message.Message):
    __slots__ = ("outcomes",)
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedCompositeFieldContainer[OffsetOutcome]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[OffsetOutcome, _Mapping]]] = ...) -> None: ...

class CommandDescribeGroupMembers(_requests.Request[CommandDescribeGroupMembersResponse]):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: str
    def __init__(self, group: _Optional[str] = ...) -> None: ...

class CommandDescribeGroupMembersResponse(_message.Message):
    __slots__ = ("members", "kafka_members")
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    KAFKA_MEMBERS_FIELD_NUMBER: _ClassVar[int]
    members: int
    kafka_members: int
    def __init__(self, members: _Optional[int] = ..., kafka_members: _Optional[int] = ...) -> None: ...

class PartitionOffset(_message.Message):
    __slots__ = ("partition", "offset")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    partition: _common_pb2.Partition
    offset: _record_pb2.CommittedOffsetRow
    def __init__(self, partition: _Optional[_Union[_common_pb2.Partition, _Mapping]] = ..., offset: _Optional[_Union[_record_pb2.CommittedOffsetRow, _Mapping]] = ...) -> None: ...

class OffsetOutcome(_message.Message):
    __slots__ = ("partition", "error", "offset", "pending")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    partition: _common_pb2.Partition
    error: _common_pb2.ServerError
    offset: _record_pb2.CommittedOffsetRow
    pending: bool
    def __init__(self, partition: _Optional[_Union[_common_pb2.Partition, _Mapping]] = ..., error: _Optional[_Union[_common_pb2.ServerError, _Mapping]] = ..., offset: _Optional[_Union[_record_pb2.CommittedOffsetRow, _Mapping]] = ..., pending: _Optional[bool] = ...) -> None: ...
