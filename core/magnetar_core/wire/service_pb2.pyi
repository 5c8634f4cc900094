from magnetar_core.wire import broker_pb2 as _broker_pb2
from magnetar_core.wire import common_pb2 as _common_pb2
from magnetar_core.wire import group_pb2 as _group_pb2
from magnetar_core.wire import topic_pb2 as _topic_pb2
from magnetar_core.wire import transaction_pb2 as _transaction_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Frame(_message.Message):
    __slots__ = ("commands",)
    COMMANDS_FIELD_NUMBER: _ClassVar[int]
    commands: _containers.RepeatedCompositeFieldContainer[Command]
    def __init__(self, commands: _Optional[_Iterable[_Union[Command, _Mapping]]] = ...) -> None: ...

class SealedFrame(_message.Message):
    __slots__ = ("commands",)
    COMMANDS_FIELD_NUMBER: _ClassVar[int]
    commands: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, commands: _Optional[_Iterable[bytes]] = ...) -> None: ...

class CommandHead(_message.Message):
    __slots__ = ("request_id", "send", "publish", "end_txn")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SEND_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_FIELD_NUMBER: _ClassVar[int]
    END_TXN_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    send: bytes
    publish: bytes
    end_txn: bytes
    def __init__(self, request_id: _Optional[int] = ..., send: _Optional[bytes] = ..., publish: _Optional[bytes] = ..., end_txn: _Optional[bytes] = ...) -> None: ...

class Command(_message.Message):
    __slots__ = ("request_id", "error", "hello", "hello_response", "send", "send_response", "publish", "read", "read_response", "peek", "peek_response", "subscribe", "subscribe_response", "flow", "deliver", "consumer_change", "ack", "ack_response", "nack", "nack_response", "seek", "seek_response", "close_consumer", "close_consumer_response", "unsubscribe", "unsubscribe_response", "create_topic", "create_topic_response", "list_topics", "list_topics_response", "describe_topic", "describe_topic_response", "delete_topic", "delete_topic_response", "lookup", "lookup_response", "get_cluster_info", "get_cluster_info_response", "take_incarnation", "take_incarnation_response", "follow_directory", "follow_directory_response", "new_txn", "new_txn_response", "add_partition_to_txn", "add_partition_to_txn_response", "add_subscription_to_txn", "add_subscription_to_txn_response", "end_txn", "end_txn_response", "describe_txn", "describe_txn_response", "list_txns", "list_txns_response", "accept_txn_loss", "accept_txn_loss_response", "init_producer", "init_producer_response", "describe_transactional_id", "describe_transactional_id_response", "list_transactional_ids", "list_transactional_ids_response", "remove_name", "remove_name_response", "describe_name", "describe_name_response", "abort_hanging_txn", "abort_hanging_txn_response", "describe_producers", "describe_producers_response", "join_group", "join_group_response", "group_heartbeat", "group_heartbeat_response", "leave_group", "leave_group_response", "group_change", "list_groups", "list_groups_response", "describe_group", "describe_group_response", "delete_group", "delete_group_response", "list_offsets", "list_offsets_response", "list_stored_txns", "list_stored_txns_response", "skip_damaged", "skip_damaged_response", "end_txn_on_partition", "end_txn_on_partition_response", "end_txn_on_subscription", "end_txn_on_subscription_response", "low_watermark", "low_watermark_response", "abort_expelled", "txns_issued", "describe_ends", "describe_ends_response")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    HELLO_FIELD_NUMBER: _ClassVar[int]
    HELLO_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    SEND_FIELD_NUMBER: _ClassVar[int]
    SEND_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_FIELD_NUMBER: _ClassVar[int]
    READ_FIELD_NUMBER: _ClassVar[int]
    READ_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    PEEK_FIELD_NUMBER: _ClassVar[int]
    PEEK_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBE_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    FLOW_FIELD_NUMBER: _ClassVar[int]
    DELIVER_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_CHANGE_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    ACK_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    NACK_FIELD_NUMBER: _ClassVar[int]
    NACK_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    SEEK_FIELD_NUMBER: _ClassVar[int]
    SEEK_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    CLOSE_CONSUMER_FIELD_NUMBER: _ClassVar[int]
    CLOSE_CONSUMER_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    UNSUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    UNSUBSCRIBE_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    CREATE_TOPIC_FIELD_NUMBER: _ClassVar[int]
    CREATE_TOPIC_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    LIST_TOPICS_FIELD_NUMBER: _ClassVar[int]
    LIST_TOPICS_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_TOPIC_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_TOPIC_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    DELETE_TOPIC_FIELD_NUMBER: _ClassVar[int]
    DELETE_TOPIC_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    LOOKUP_FIELD_NUMBER: _ClassVar[int]
    LOOKUP_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    GET_CLUSTER_INFO_FIELD_NUMBER: _ClassVar[int]
    GET_CLUSTER_INFO_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    TAKE_INCARNATION_FIELD_NUMBER: _ClassVar[int]
    TAKE_INCARNATION_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_DIRECTORY_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    NEW_TXN_FIELD_NUMBER: _ClassVar[int]
    NEW_TXN_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    ADD_PARTITION_TO_TXN_FIELD_NUMBER: _ClassVar[int]
    ADD_PARTITION_TO_TXN_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    ADD_SUBSCRIPTION_TO_TXN_FIELD_NUMBER: _ClassVar[int]
    ADD_SUBSCRIPTION_TO_TXN_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    END_TXN_FIELD_NUMBER: _ClassVar[int]
    END_TXN_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_TXN_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_TXN_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    LIST_TXNS_FIELD_NUMBER: _ClassVar[int]
    LIST_TXNS_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    ACCEPT_TXN_LOSS_FIELD_NUMBER: _ClassVar[int]
    ACCEPT_TXN_LOSS_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    INIT_PRODUCER_FIELD_NUMBER: _ClassVar[int]
    INIT_PRODUCER_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_TRANSACTIONAL_ID_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_TRANSACTIONAL_ID_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    LIST_TRANSACTIONAL_IDS_FIELD_NUMBER: _ClassVar[int]
    LIST_TRANSACTIONAL_IDS_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    REMOVE_NAME_FIELD_NUMBER: _ClassVar[int]
    REMOVE_NAME_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_NAME_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    ABORT_HANGING_TXN_FIELD_NUMBER: _ClassVar[int]
    ABORT_HANGING_TXN_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_PRODUCERS_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    JOIN_GROUP_FIELD_NUMBER: _ClassVar[int]
    JOIN_GROUP_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    GROUP_HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    GROUP_HEARTBEAT_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    LEAVE_GROUP_FIELD_NUMBER: _ClassVar[int]
    LEAVE_GROUP_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    GROUP_CHANGE_FIELD_NUMBER: _ClassVar[int]
    LIST_GROUPS_FIELD_NUMBER: _ClassVar[int]
    LIST_GROUPS_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_GROUP_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_GROUP_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    DELETE_GROUP_FIELD_NUMBER: _ClassVar[int]
    DELETE_GROUP_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    LIST_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    LIST_OFFSETS_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    LIST_STORED_TXNS_FIELD_NUMBER: _ClassVar[int]
    LIST_STORED_TXNS_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    SKIP_DAMAGED_FIELD_NUMBER: _ClassVar[int]
    SKIP_DAMAGED_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    END_TXN_ON_PARTITION_FIELD_NUMBER: _ClassVar[int]
    END_TXN_ON_PARTITION_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    END_TXN_ON_SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    END_TXN_ON_SUBSCRIPTION_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    LOW_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    LOW_WATERMARK_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    ABORT_EXPELLED_FIELD_NUMBER: _ClassVar[int]
    TXNS_ISSUED_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_ENDS_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_ENDS_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    error: _common_pb2.ServerError
    hello: _common_pb2.CommandHello
    hello_response: _common_pb2.CommandHelloResponse
    send: _broker_pb2.CommandSend
    send_response: _broker_pb2.CommandSendResponse
    publish: _broker_pb2.CommandPublish
    read: _broker_pb2.CommandRead
    read_response: _broker_pb2.CommandReadResponse
    peek: _broker_pb2.CommandPeek
    peek_response: _broker_pb2.CommandPeekResponse
    subscribe: _broker_pb2.CommandSubscribe
    subscribe_response: _broker_pb2.CommandSubscribeResponse
    flow: _broker_pb2.CommandFlow
    deliver: _broker_pb2.CommandDeliver
    consumer_change: _broker_pb2.CommandConsumerChange
    ack: _broker_pb2.CommandAck
    ack_response: _broker_pb2.CommandAckResponse
    nack: _broker_pb2.CommandNack
    nack_response: _broker_pb2.CommandNackResponse
    seek: _broker_pb2.CommandSeek
    seek_response: _broker_pb2.CommandSeekResponse
    close_consumer: _broker_pb2.CommandCloseConsumer
    close_consumer_response: _broker_pb2.CommandCloseConsumerResponse
    unsubscribe: _broker_pb2.CommandUnsubscribe
    unsubscribe_response: _broker_pb2.CommandUnsubscribeResponse
    create_topic: _topic_pb2.CommandCreateTopic
    create_topic_response: _topic_pb2.CommandCreateTopicResponse
    list_topics: _topic_pb2.CommandListTopics
    list_topics_response: _topic_pb2.CommandListTopicsResponse
    describe_topic: _topic_pb2.CommandDescribeTopic
    describe_topic_response: _topic_pb2.CommandDescribeTopicResponse
    delete_topic: _topic_pb2.CommandDeleteTopic
    delete_topic_response: _topic_pb2.CommandDeleteTopicResponse
    lookup: _topic_pb2.CommandLookup
    lookup_response: _topic_pb2.CommandLookupResponse
    get_cluster_info: _topic_pb2.CommandGetClusterInfo
    get_cluster_info_response: _topic_pb2.CommandGetClusterInfoResponse
    take_incarnation: _topic_pb2.CommandTakeIncarnation
    take_incarnation_response: _topic_pb2.CommandTakeIncarnationResponse
    follow_directory: _topic_pb2.CommandFollowDirectory
    follow_directory_response: _topic_pb2.CommandFollowDirectoryResponse
    new_txn: _transaction_pb2.CommandNewTxn
    new_txn_response: _transaction_pb2.CommandNewTxnResponse
    add_partition_to_txn: _transaction_pb2.CommandAddPartitionToTxn
    add_partition_to_txn_response: _transaction_pb2.CommandAddPartitionToTxnResponse
    add_subscription_to_txn: _transaction_pb2.CommandAddSubscriptionToTxn
    add_subscription_to_txn_response: _transaction_pb2.CommandAddSubscriptionToTxnResponse
    end_txn: _transaction_pb2.CommandEndTxn
    end_txn_response: _transaction_pb2.CommandEndTxnResponse
    describe_txn: _transaction_pb2.CommandDescribeTxn
    describe_txn_response: _transaction_pb2.CommandDescribeTxnResponse
    list_txns: _transaction_pb2.CommandListTxns
    list_txns_response: _transaction_pb2.CommandListTxnsResponse
    accept_txn_loss: _transaction_pb2.CommandAcceptTxnLoss
    accept_txn_loss_response: _transaction_pb2.CommandAcceptTxnLossResponse
    init_producer: _transaction_pb2.CommandInitProducer
    init_producer_response: _transaction_pb2.CommandInitProducerResponse
    describe_transactional_id: _transaction_pb2.CommandDescribeTransactionalId
    describe_transactional_id_response: _transaction_pb2.CommandDescribeTransactionalIdResponse
    list_transactional_ids: _transaction_pb2.CommandListTransactionalIds
    list_transactional_ids_response: _transaction_pb2.CommandListTransactionalIdsResponse
    remove_name: _transaction_pb2.CommandRemoveName
    remove_name_response: _transaction_pb2.CommandRemoveNameResponse
    describe_name: _transaction_pb2.CommandDescribeName
    describe_name_response: _transaction_pb2.CommandDescribeNameResponse
    abort_hanging_txn: _transaction_pb2.CommandAbortHangingTxn
    abort_hanging_txn_response: _transaction_pb2.CommandAbortHangingTxnResponse
    describe_producers: _broker_pb2.CommandDescribeProducers
    describe_producers_response: _broker_pb2.CommandDescribeProducersResponse
    join_group: _group_pb2.CommandJoinGroup
    join_group_response: _group_pb2.CommandJoinGroupResponse
    group_heartbeat: _group_pb2.CommandGroupHeartbeat
    group_heartbeat_response: _group_pb2.CommandGroupHeartbeatResponse
    leave_group: _group_pb2.CommandLeaveGroup
    leave_group_response: _group_pb2.CommandLeaveGroupResponse
    group_change: _group_pb2.CommandGroupChange
    list_groups: _group_pb2.CommandListGroups
    list_groups_response: _group_pb2.CommandListGroupsResponse
    describe_group: _group_pb2.CommandDescribeGroup
    describe_group_response: _group_pb2.CommandDescribeGroupResponse
    delete_group: _group_pb2.CommandDeleteGroup
    delete_group_response: _group_pb2.CommandDeleteGroupResponse
    list_offsets: _broker_pb2.CommandListOffsets
    list_offsets_response: _broker_pb2.CommandListOffsetsResponse
    list_stored_txns: _broker_pb2.CommandListStoredTxns
    list_stored_txns_response: _broker_pb2.CommandListStoredTxnsResponse
    skip_damaged: _broker_pb2.CommandSkipDamaged
    skip_damaged_response: _broker_pb2.CommandSkipDamagedResponse
    end_txn_on_partition: _transaction_pb2.CommandEndTxnOnPartition
    end_txn_on_partition_response: _transaction_pb2.CommandEndTxnOnPartitionResponse
    end_txn_on_subscription: _transaction_pb2.CommandEndTxnOnSubscription
    end_txn_on_subscription_response: _transaction_pb2.CommandEndTxnOnSubscriptionResponse
    low_watermark: _transaction_pb2.CommandLowWatermark
    low_watermark_response: _transaction_pb2.CommandLowWatermarkResponse
    abort_expelled: _transaction_pb2.CommandAbortExpelled
    txns_issued: _transaction_pb2.CommandTxnsIssued
    describe_ends: _transaction_pb2.CommandDescribeEnds
    describe_ends_response: _transaction_pb2.CommandDescribeEndsResponse
    def __init__(self, request_id: _Optional[int] = ..., error: _Optional[_Union[_common_pb2.ServerError, _Mapping]] = ..., hello: _Optional[_Union[_common_pb2.CommandHello, _Mapping]] = ..., hello_response: _Optional[_Union[_common_pb2.CommandHelloResponse, _Mapping]] = ..., send: _Optional[_Union[_broker_pb2.CommandSend, _Mapping]] = ..., send_response: _Optional[_Union[_broker_pb2.CommandSendResponse, _Mapping]] = ..., publish: _Optional[_Union[_broker_pb2.CommandPublish, _Mapping]] = ..., read: _Optional[_Union[_broker_pb2.CommandRead, _Mapping]] = ..., read_response: _Optional[_Union[_broker_pb2.CommandReadResponse, _Mapping]] = ..., peek: _Optional[_Union[_broker_pb2.CommandPeek, _Mapping]] = ..., peek_response: _Optional[_Union[_broker_pb2.CommandPeekResponse, _Mapping]] = ..., subscribe: _Optional[_Union[_broker_pb2.CommandSubscribe, _Mapping]] = ..., subscribe_response: _Optional[_Union[_broker_pb2.CommandSubscribeResponse, _Mapping]] = ..., flow: _Optional[_Union[_broker_pb2.CommandFlow, _Mapping]] = ..., deliver: _Optional[_Union[_broker_pb2.CommandDeliver, _Mapping]] = ..., consumer_change: _Optional[_Union[_broker_pb2.CommandConsumerChange, _Mapping]] = ..., ack: _Optional[_Union[_broker_pb2.CommandAck, _Mapping]] = ..., ack_response: _Optional[_Union[_broker_pb2.CommandAckResponse, _Mapping]] = ..., nack: _Optional[_Union[_broker_pb2.CommandNack, _Mapping]] = ..., nack_response: _Optional[_Union[_broker_pb2.CommandNackResponse, _Mapping]] = ..., seek: _Optional[_Union[_broker_pb2.CommandSeek, _Mapping]] = ..., seek_response: _Optional[_Union[_broker_pb2.CommandSeekResponse, _Mapping]] = ..., close_consumer: _Optional[_Union[_broker_pb2.CommandCloseConsumer, _Mapping]] = ..., close_consumer_response: _Optional[_Union[_broker_pb2.CommandCloseConsumerResponse, _Mapping]] = ..., unsubscribe: _Optional[_Union[_broker_pb2.CommandUnsubscribe, _Mapping]] = ..., unsubscribe_response: _Optional[_Union[_broker_pb2.CommandUnsubscribeResponse, _Mapping]] = ..., create_topic: _Optional[_Union[_topic_pb2.CommandCreateTopic, _Mapping]] = ..., create_topic_response: _Optional[_Union[_topic_pb2.CommandCreateTopicResponse, _Mapping]] = ..., list_topics: _Optional[_Union[_topic_pb2.CommandListTopics, _Mapping]] = ..., list_topics_response: _Optional[_Union[_topic_pb2.CommandListTopicsResponse, _Mapping]] = ..., describe_topic: _Optional[_Union[_topic_pb2.CommandDescribeTopic, _Mapping]] = ..., describe_topic_response: _Optional[_Union[_topic_pb2.CommandDescribeTopicResponse, _Mapping]] = ..., delete_topic: _Optional[_Union[_topic_pb2.CommandDeleteTopic, _Mapping]] = ..., delete_topic_response: _Optional[_Union[_topic_pb2.CommandDeleteTopicResponse, _Mapping]] = ..., lookup: _Optional[_Union[_topic_pb2.CommandLookup, _Mapping]] = ..., lookup_response: _Optional[_Union[_topic_pb2.CommandLookupResponse, _Mapping]] = ..., get_cluster_info: _Optional[_Union[_topic_pb2.CommandGetClusterInfo, _Mapping]] = ..., get_cluster_info_response: _Optional[_Union[_topic_pb2.CommandGetClusterInfoResponse, _Mapping]] = ..., take_incarnation: _Optional[_Union[_topic_pb2.CommandTakeIncarnation, _Mapping]] = ..., take_incarnation_response: _Optional[_Union[_topic_pb2.CommandTakeIncarnationResponse, _Mapping]] = ..., follow_directory: _Optional[_Union[_topic_pb2.CommandFollowDirectory, _Mapping]] = ..., follow_directory_response: _Optional[_Union[_topic_pb2.CommandFollowDirectoryResponse, _Mapping]] = ..., new_txn: _Optional[_Union[_transaction_pb2.CommandNewTxn, _Mapping]] = ..., new_txn_response: _Optional[_Union[_transaction_pb2.CommandNewTxnResponse, _Mapping]] = ..., add_partition_to_txn: _Optional[_Union[_transaction_pb2.CommandAddPartitionToTxn, _Mapping]] = ..., add_partition_to_txn_response: _Optional[_Union[_transaction_pb2.CommandAddPartitionToTxnResponse, _Mapping]] = ..., add_subscription_to_txn: _Optional[_Union[_transaction_pb2.CommandAddSubscriptionToTxn, _Mapping]] = ..., add_subscription_to_txn_response: _Optional[_Union[_transaction_pb2.CommandAddSubscriptionToTxnResponse, _Mapping]] = ..., end_txn: _Optional[_Union[_transaction_pb2.CommandEndTxn, _Mapping]] = ..., end_txn_response: _Optional[_Union[_transaction_pb2.CommandEndTxnResponse, _Mapping]] = ..., describe_txn: _Optional[_Union[_transaction_pb2.CommandDescribeTxn, _Mapping]] = ..., describe_txn_response: _Optional[_Union[_transaction_pb2.CommandDescribeTxnResponse, _Mapping]] = ..., list_txns: _Optional[_Union[_transaction_pb2.CommandListTxns, _Mapping]] = ..., list_txns_response: _Optional[_Union[_transaction_pb2.CommandListTxnsResponse, _Mapping]] = ..., accept_txn_loss: _Optional[_Union[_transaction_pb2.CommandAcceptTxnLoss, _Mapping]] = ..., accept_txn_loss_response: _Optional[_Union[_transaction_pb2.CommandAcceptTxnLossResponse, _Mapping]] = ..., init_producer: _Optional[_Union[_transaction_pb2.CommandInitProducer, _Mapping]] = ..., init_producer_response: _Optional[_Union[_transaction_pb2.CommandInitProducerResponse, _Mapping]] = ..., describe_transactional_id: _Optional[_Union[_transaction_pb2.CommandDescribeTransactionalId, _Mapping]] = ..., describe_transactional_id_response: _Optional[_Union[_transaction_pb2.CommandDescribeTransactionalIdResponse, _Mapping]] = ..., list_transactional_ids: _Optional[_Union[_transaction_pb2.CommandListTransactionalIds, _Mapping]] = ..., list_transactional_ids_response: _Optional[_Union[_transaction_pb2.CommandListTransactionalIdsResponse, _Mapping]] = ..., remove_name: _Optional[_Union[_transaction_pb2.CommandRemoveName, _Mapping]] = ..., remove_name_response: _Optional[_Union[_transaction_pb2.CommandRemoveNameResponse, _Mapping]] = ..., describe_name: _Optional[_Union[_transaction_pb2.CommandDescribeName, _Mapping]] = ..., describe_name_response: _Optional[_Union[_transaction_pb2.CommandDescribeNameResponse, _Mapping]] = ..., abort_hanging_txn: _Optional[_Union[_transaction_pb2.CommandAbortHangingTxn, _Mapping]] = ..., abort_hanging_txn_response: _Optional[_Union[_transaction_pb2.CommandAbortHangingTxnResponse, _Mapping]] = ..., describe_producers: _Optional[_Union[_broker_pb2.CommandDescribeProducers, _Mapping]] = ..., describe_producers_response: _Optional[_Union[_broker_pb2.CommandDescribeProducersResponse, _Mapping]] = ..., join_group: _Optional[_Union[_group_pb2.CommandJoinGroup, _Mapping]] = ..., join_group_response: _Optional[_Union[_group_pb2.CommandJoinGroupResponse, _Mapping]] = ..., group_heartbeat: _Optional[_Union[_group_pb2.CommandGroupHeartbeat, _Mapping]] = ..., group_heartbeat_response: _Optional[_Union[_group_pb2.CommandGroupHeartbeatResponse, _Mapping]] = ..., leave_group: _Optional[_Union[_group_pb2.CommandLeaveGroup, _Mapping]] = ..., leave_group_response: _Optional[_Union[_group_pb2.CommandLeaveGroupResponse, _Mapping]] = ..., group_change: _Optional[_Union[_group_pb2.CommandGroupChange, _Mapping]] = ..., list_groups: _Optional[_Union[_group_pb2.CommandListGroups, _Mapping]] = ..., list_groups_response: _Optional[_Union[_group_pb2.CommandListGroupsResponse, _Mapping]] = ..., describe_group: _Optional[_Union[_group_pb2.CommandDescribeGroup, _Mapping]] = ..., describe_group_response: _Optional[_Union[_group_pb2.CommandDescribeGroupResponse, _Mapping]] = ..., delete_group: _Optional[_Union[_group_pb2.CommandDeleteGroup, _Mapping]] = ..., delete_group_response: _Optional[_Union[_group_pb2.CommandDeleteGroupResponse, _Mapping]] = ..., list_offsets: _Optional[_Union[_broker_pb2.CommandListOffsets, _Mapping]] = ..., list_offsets_response: _Optional[_Union[_broker_pb2.CommandListOffsetsResponse, _Mapping]] = ..., list_stored_txns: _Optional[_Union[_broker_pb2.CommandListStoredTxns, _Mapping]] = ..., list_stored_txns_response: _Optional[_Union[_broker_pb2.CommandListStoredTxnsResponse, _Mapping]] = ..., skip_damaged: _Optional[_Union[_broker_pb2.CommandSkipDamaged, _Mapping]] = ..., skip_damaged_response: _Optional[_Union[_broker_pb2.CommandSkipDamagedResponse, _Mapping]] = ..., end_txn_on_partition: _Optional[_Union[_transaction_pb2.CommandEndTxnOnPartition, _Mapping]] = ..., end_txn_on_partition_response: _Optional[_Union[_transaction_pb2.CommandEndTxnOnPartitionResponse, _Mapping]] = ..., end_txn_on_subscription: _Optional[_Union[_transaction_pb2.CommandEndTxnOnSubscription, _Mapping]] = ..., end_txn_on_subscription_response: _Optional[_Union[_transaction_pb2.CommandEndTxnOnSubscriptionResponse, _Mapping]] = ..., low_watermark: _Optional[_Union[_transaction_pb2.CommandLowWatermark, _Mapping]] = ..., low_watermark_response: _Optional[_Union[_transaction_pb2.CommandLowWatermarkResponse, _Mapping]] = ..., abort_expelled: _Optional[_Union[_transaction_pb2.CommandAbortExpelled, _Mapping]] = ..., txns_issued: _Optional[_Union[_transaction_pb2.CommandTxnsIssued, _Mapping]] = ..., describe_ends: _Optional[_Union[_transaction_pb2.CommandDescribeEnds, _Mapping]] = ..., describe_ends_response: _Optional[_Union[_transaction_pb2.CommandDescribeEndsResponse, _Mapping]] = ...) -> None: ...
