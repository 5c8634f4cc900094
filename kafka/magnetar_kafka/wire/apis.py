"""The requests of Kafka's clients that are answered, and their versions. Pure.

Source: Kafka's documentation, Protocol (https://kafka.apache.org/protocol.html).
"""

from __future__ import annotations

from typing import NamedTuple


class Api(NamedTuple):
    """A kind of request.

    Attributes:
        first: the lowest version that is answered.
        last: the highest one.
        text: what is answered, for people.
    """

    key: int
    name: str
    first: int
    last: int
    text: str


PRODUCE = Api(0, "Produce", 3, 12, "appends batches, in transactions or not")
FETCH = Api(1, "Fetch", 4, 12, "committed messages; waits for new ones; no fetch sessions")
LIST_OFFSETS = Api(2, "ListOffsets", 1, 7, "first, end, and by time")
METADATA = Api(3, "Metadata", 0, 12, "topics, their partitions, and this broker")
OFFSET_COMMIT = Api(8, "OffsetCommit", 2, 8, "committed offsets of groups")
OFFSET_FETCH = Api(9, "OffsetFetch", 1, 8, "committed offsets of groups")
FIND_COORDINATOR = Api(10, "FindCoordinator", 0, 4, "of groups and transactional ids")
JOIN_GROUP = Api(11, "JoinGroup", 0, 9, "classic groups, also with static members")
HEARTBEAT = Api(12, "Heartbeat", 0, 4, "of a member of a group")
LEAVE_GROUP = Api(13, "LeaveGroup", 0, 5, "members leave, or are removed")
SYNC_GROUP = Api(14, "SyncGroup", 0, 5, "assignments, as the leader of a group made them")
DESCRIBE_GROUPS = Api(15, "DescribeGroups", 0, 5, "groups and their members")
LIST_GROUPS = Api(16, "ListGroups", 0, 4, "groups of this server")
API_VERSIONS = Api(18, "ApiVersions", 0, 3, "this table")
CREATE_TOPICS = Api(19, "CreateTopics", 2, 7, "creates topics")
DELETE_TOPICS = Api(20, "DeleteTopics", 1, 6, "deletes topics")
INIT_PRODUCER_ID = Api(
    22, "InitProducerId", 0, 6, "ids of producers; 6: two-phase commit (KIP-939)"
)
ADD_PARTITIONS_TO_TXN = Api(24, "AddPartitionsToTxn", 0, 5, "begins a transaction, or adds to it")
ADD_OFFSETS_TO_TXN = Api(25, "AddOffsetsToTxn", 0, 4, "begins a transaction, if none is open")
END_TXN = Api(26, "EndTxn", 0, 5, "commits or aborts; 5: and raises the epoch (KIP-890)")
WRITE_TXN_MARKERS = Api(27, "WriteTxnMarkers", 1, 1, "aborts a hanging transaction (KIP-664)")
TXN_OFFSET_COMMIT = Api(28, "TxnOffsetCommit", 0, 5, "offsets of a group, in a transaction")
DESCRIBE_CONFIGS = Api(32, "DescribeConfigs", 1, 4, "settings of topics")
DELETE_GROUPS = Api(42, "DeleteGroups", 0, 2, "groups without members, and their offsets")
OFFSET_DELETE = Api(47, "OffsetDelete", 0, 0, "offsets that no member uses")
DESCRIBE_CLUSTER = Api(60, "DescribeCluster", 0, 1, "this broker")
DESCRIBE_PRODUCERS = Api(61, "DescribeProducers", 0, 0, "producers of partitions (KIP-664)")
DESCRIBE_TRANSACTIONS = Api(65, "DescribeTransactions", 0, 0, "transactional ids (KIP-664)")
LIST_TRANSACTIONS = Api(66, "ListTransactions", 0, 1, "transactional ids, by state (KIP-664)")

APIS = (
    PRODUCE,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    FIND_COORDINATOR,
    JOIN_GROUP,
    HEARTBEAT,
    LEAVE_GROUP,
    SYNC_GROUP,
    DESCRIBE_GROUPS,
    LIST_GROUPS,
    API_VERSIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    INIT_PRODUCER_ID,
    ADD_PARTITIONS_TO_TXN,
    ADD_OFFSETS_TO_TXN,
    END_TXN,
    WRITE_TXN_MARKERS,
    TXN_OFFSET_COMMIT,
    DESCRIBE_CONFIGS,
    DELETE_GROUPS,
    OFFSET_DELETE,
    DESCRIBE_CLUSTER,
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    LIST_TRANSACTIONS,
)
API_OF_KEY = {api.key: api for api in APIS}
