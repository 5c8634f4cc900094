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
        is_for_strangers: it is answered before it is known who the client is.
        finishes: it ends what was begun, and never waits for a quota.
    """

    key: int
    name: str
    first: int
    last: int
    text: str
    is_for_strangers: bool = False
    finishes: bool = False


PRODUCE = Api(0, "Produce", 3, 12, "appends batches, in transactions or not")
FETCH = Api(1, "Fetch", 4, 12, "committed messages; waits for new ones; no fetch sessions")
LIST_OFFSETS = Api(2, "ListOffsets", 1, 7, "first, end, and by time")
METADATA = Api(3, "Metadata", 0, 12, "topics, the owners of their partitions, the brokers")
OFFSET_COMMIT = Api(8, "OffsetCommit", 2, 8, "committed offsets of groups", finishes=True)
OFFSET_FETCH = Api(9, "OffsetFetch", 1, 8, "committed offsets of groups")
FIND_COORDINATOR = Api(10, "FindCoordinator", 0, 6, "of groups and transactional ids")
JOIN_GROUP = Api(11, "JoinGroup", 0, 9, "classic groups, also with static members")
HEARTBEAT = Api(12, "Heartbeat", 0, 4, "of a member of a group", finishes=True)
LEAVE_GROUP = Api(13, "LeaveGroup", 0, 5, "members leave, or are removed", finishes=True)
SYNC_GROUP = Api(
    14, "SyncGroup", 0, 5, "assignments, as the leader of a group made them", finishes=True
)
DESCRIBE_GROUPS = Api(15, "DescribeGroups", 0, 5, "groups and their members")
LIST_GROUPS = Api(16, "ListGroups", 0, 4, "groups of this server")
SASL_HANDSHAKE = Api(
    17,
    "SaslHandshake",
    1,
    1,
    "chooses OAUTHBEARER or PLAIN",
    is_for_strangers=True,
    finishes=True,
)
API_VERSIONS = Api(18, "ApiVersions", 0, 3, "this table", is_for_strangers=True, finishes=True)
CREATE_TOPICS = Api(19, "CreateTopics", 2, 7, "creates topics")
DELETE_TOPICS = Api(20, "DeleteTopics", 1, 6, "deletes topics")
DELETE_RECORDS = Api(21, "DeleteRecords", 0, 2, "the first messages, up to an offset")
INIT_PRODUCER_ID = Api(
    22, "InitProducerId", 0, 6, "ids of producers; 6: two-phase commit (KIP-939)"
)
ADD_PARTITIONS_TO_TXN = Api(24, "AddPartitionsToTxn", 0, 5, "begins a transaction, or adds to it")
ADD_OFFSETS_TO_TXN = Api(25, "AddOffsetsToTxn", 0, 4, "begins a transaction, if none is open")
END_TXN = Api(
    26, "EndTxn", 0, 5, "commits or aborts; 5: and raises the epoch (KIP-890)", finishes=True
)
WRITE_TXN_MARKERS = Api(27, "WriteTxnMarkers", 1, 1, "aborts a hanging transaction (KIP-664)")
TXN_OFFSET_COMMIT = Api(28, "TxnOffsetCommit", 0, 5, "offsets of a group, in a transaction")
DESCRIBE_ACLS = Api(29, "DescribeAcls", 1, 3, "says that rights are in the access file")
DESCRIBE_CONFIGS = Api(32, "DescribeConfigs", 1, 4, "settings of topics and of this broker")
ALTER_CONFIGS = Api(33, "AlterConfigs", 0, 2, "settings of topics; what is not named: default")
DESCRIBE_LOG_DIRS = Api(35, "DescribeLogDirs", 1, 4, "bytes of the partitions of this broker")
SASL_AUTHENTICATE = Api(
    36,
    "SaslAuthenticate",
    0,
    2,
    "takes a token; again before it expires",
    is_for_strangers=True,
    finishes=True,
)
CREATE_PARTITIONS = Api(37, "CreatePartitions", 0, 3, "more partitions; their keys move")
DELETE_GROUPS = Api(42, "DeleteGroups", 0, 2, "groups without members, and their offsets")
INCREMENTAL_ALTER_CONFIGS = Api(44, "IncrementalAlterConfigs", 0, 1, "settings of topics")
OFFSET_DELETE = Api(47, "OffsetDelete", 0, 0, "offsets that no member uses")
DESCRIBE_CLUSTER = Api(60, "DescribeCluster", 0, 1, "the brokers")
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
    SASL_HANDSHAKE,
    API_VERSIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DELETE_RECORDS,
    INIT_PRODUCER_ID,
    ADD_PARTITIONS_TO_TXN,
    ADD_OFFSETS_TO_TXN,
    END_TXN,
    WRITE_TXN_MARKERS,
    TXN_OFFSET_COMMIT,
    DESCRIBE_ACLS,
    DESCRIBE_CONFIGS,
    ALTER_CONFIGS,
    DESCRIBE_LOG_DIRS,
    SASL_AUTHENTICATE,
    CREATE_PARTITIONS,
    DELETE_GROUPS,
    INCREMENTAL_ALTER_CONFIGS,
    OFFSET_DELETE,
    DESCRIBE_CLUSTER,
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    LIST_TRANSACTIONS,
)
API_OF_KEY = {api.key: api for api in APIS}
