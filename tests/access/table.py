"""The roles that may use each command. Written by hand: each new command needs a row here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from google.protobuf.message_factory import GetMessageClass
from tests.access.world import BROKER, COORDINATOR, write_access

from magnetar_core import batch
from magnetar_core.gates.access_file import AccessConfig
from magnetar_core.protocol_version import PROTOCOL_VERSION
from magnetar_core.transport.frames import FIELD_OF_BODY
from magnetar_core.wire import broker_pb2 as wire
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import group_pb2 as group
from magnetar_core.wire import service_pb2, topic_pb2
from magnetar_core.wire import transaction_pb2 as txn

ROLES = """
[[roles.reader]]
topic = ["topic-*"]
allow = ["READ"]
[[roles.reader]]
group = "group"
allow = ["READ"]

[[roles.writer]]
topic = ["topic-a", "other"]
allow = ["WRITE"]
[[roles.writer]]
transactional_id = "id-*"
allow = ["WRITE"]

[[roles.preparer]]
transactional_id = "id-*"
allow = ["WRITE", "TWO_PHASE_COMMIT"]

[[roles.manager]]
topic = "*"
allow = ["CREATE", "ALTER", "DELETE"]
[[roles.manager]]
group = "*"
allow = ["DELETE"]
[[roles.manager]]
transactional_id = "*"
allow = ["DELETE"]

[[roles.viewer]]
topic = "*"
allow = ["DESCRIBE"]
[[roles.viewer]]
group = "*"
allow = ["DESCRIBE"]
[[roles.viewer]]
transactional_id = "*"
allow = ["DESCRIBE"]
[[roles.viewer]]
cluster = true
allow = ["DESCRIBE"]

[[roles.operator]]
cluster = true
allow = ["ALTER"]

[[roles.keeper]]
cluster = true
allow = ["BACKUP"]

# Right, and beside what is asked for.
[[roles.neighbour]]
topic = ["topic", "topic-", "topic-aa", "b*"]
allow = ["READ", "WRITE", "CREATE", "ALTER", "DELETE"]
[[roles.neighbour]]
group = ["group-", "g"]
allow = ["READ", "DELETE"]
[[roles.neighbour]]
transactional_id = ["id", "id-", "id-aa"]
allow = ["WRITE", "DELETE", "TWO_PHASE_COMMIT"]
"""

PRINCIPALS = (
    "admin",
    "coordinator",
    "broker",
    "reader",
    "writer",
    "preparer",
    "manager",
    "viewer",
    "operator",
    "keeper",
    "neighbour",
    "nobody",
)
EVERYBODY = frozenset(PRINCIPALS)
DESCRIBING = {"admin", "reader", "writer", "manager", "viewer", "broker"}

PARTITION = common.Partition(topic="topic-a")
SUBSCRIPTION = common.Subscription(topic="topic-a", subscription="group")
IDENTITY = common.ProducerIdentity(transactional_id="id-a")
# Of a coordinator that does not exist.
STRANGE = common.TxnId(most_bits=(77 << 48) + 1, least_bits=1)
# Of the coordinator, and never issued.
NEVER = common.TxnId(most_bits=0xFFFF_FFFF, least_bits=1)
MESSAGES = batch.encode([b"1"])

# Which roles may use a command, for each command as it is below.
TABLE: list[tuple[str, Any, Set[str]]] = [
    (BROKER, common.CommandHello(protocol_version=PROTOCOL_VERSION), EVERYBODY),
    (COORDINATOR, common.CommandHello(protocol_version=PROTOCOL_VERSION), EVERYBODY),
    (BROKER, topic_pb2.CommandGetClusterInfo(), EVERYBODY),
    *(
        (service, topic_pb2.CommandDescribeMembers(), {"admin", "viewer", "operator", "keeper"})
        for service in (BROKER, COORDINATOR)
    ),
    (BROKER, topic_pb2.CommandDrainMember(), {"admin", "operator"}),
    (
        BROKER,
        topic_pb2.CommandDrainMember(dry_run=True),
        {"admin", "viewer", "operator", "keeper"},
    ),
    (BROKER, topic_pb2.CommandRebalance(), {"admin", "operator"}),
    (BROKER, common.CommandSetLogLevel(logger="nobody"), {"admin", "operator"}),
    (COORDINATOR, common.CommandSetLogLevel(logger="nobody"), {"admin", "operator"}),
    (
        BROKER,
        wire.CommandSend(partition=PARTITION, producer_id=1, num_messages=1, batch=MESSAGES),
        {"admin", "writer"},
    ),
    (
        BROKER,
        wire.CommandPublish(partition=PARTITION, messages=[wire.Message(value=b"1")]),
        {"admin", "writer"},
    ),
    (BROKER, wire.CommandRead(partition=PARTITION), {"admin", "reader"}),
    (BROKER, wire.CommandPeek(partition=PARTITION), {"admin", "reader"}),
    (BROKER, wire.CommandListOffsets(topic="topic-a"), DESCRIBING),
    (BROKER, wire.CommandListStoredTxns(partition=PARTITION), DESCRIBING),
    (BROKER, wire.CommandDescribeProducers(partition=PARTITION), DESCRIBING),
    (
        BROKER,
        wire.CommandDescribeParticipants(
            txn_id=NEVER, partitions=[PARTITION], subscriptions=[SUBSCRIPTION]
        ),
        DESCRIBING,
    ),
    (BROKER, wire.CommandSkipDamaged(partition=PARTITION, dry_run=True), DESCRIBING),
    (BROKER, wire.CommandSkipDamaged(partition=PARTITION), {"admin", "manager", "broker"}),
    (BROKER, wire.CommandSubscribe(subscription=SUBSCRIPTION), {"admin", "reader"}),
    (BROKER, wire.CommandFlow(subscription=SUBSCRIPTION), {"admin", "reader"}),
    (BROKER, wire.CommandAck(subscription=SUBSCRIPTION), {"admin", "reader"}),
    (BROKER, wire.CommandNack(subscription=SUBSCRIPTION), {"admin", "reader"}),
    (BROKER, wire.CommandCloseConsumer(subscription=SUBSCRIPTION), {"admin", "reader"}),
    (
        BROKER,
        wire.CommandSeek(subscription=SUBSCRIPTION, position=wire.EARLIEST),
        {"admin", "reader"},
    ),
    # It takes reading the topic, and deleting the group.
    (BROKER, wire.CommandUnsubscribe(subscription=SUBSCRIPTION), {"admin"}),
    (BROKER, group.CommandJoinGroup(group="group", topics=["topic-a"]), {"admin", "reader"}),
    (BROKER, group.CommandJoinGroup(group="group", topics=["topic-a", "b"]), {"admin"}),
    (BROKER, group.CommandJoinGroup(group="group", topic_pattern="topic-?"), {"admin", "reader"}),
    (BROKER, group.CommandJoinGroup(group="group", topic_pattern="topi*"), {"admin"}),
    (BROKER, group.CommandJoinGroup(group="group", topic_pattern="[t]opic-a"), {"admin"}),
    (BROKER, group.CommandGroupHeartbeat(group="group"), {"admin", "reader"}),
    (BROKER, group.CommandLeaveGroup(group="group"), {"admin", "reader"}),
    (BROKER, group.CommandListGroups(), EVERYBODY),
    (
        BROKER,
        group.CommandDescribeGroup(group="group"),
        {"admin", "reader", "manager", "viewer"},
    ),
    (BROKER, group.CommandDeleteGroup(group="group"), {"admin", "manager"}),
    (BROKER, group.CommandCommitOffsets(group="group"), {"broker"}),
    (BROKER, group.CommandFetchOffsets(group="group"), {"broker"}),
    (BROKER, group.CommandForgetOffsets(group="group"), {"broker"}),
    (BROKER, group.CommandDescribeGroupMembers(group="group"), {"broker"}),
    (BROKER, topic_pb2.CommandCreateTopic(topic="topic-a"), {"admin", "manager", "broker"}),
    (BROKER, topic_pb2.CommandAlterTopic(topic="topic-a"), {"admin", "manager", "broker"}),
    (BROKER, topic_pb2.CommandListTopics(), EVERYBODY),
    (BROKER, topic_pb2.CommandDescribeTopic(topic="topic-a"), DESCRIBING),
    (BROKER, topic_pb2.CommandLookup(topic="topic-a"), DESCRIBING),
    (BROKER, topic_pb2.CommandDeleteTopic(topic="topic-z"), {"admin", "manager", "broker"}),
    (
        BROKER,
        topic_pb2.CommandTakeIncarnation(tcid=7, store_token="s"),
        {"coordinator", "broker"},
    ),
    (BROKER, topic_pb2.CommandFollowDirectory(at_once=True), {"broker"}),
    (
        BROKER,
        txn.CommandEndTxnOnPartition(txn_id=STRANGE, partition=PARTITION),
        {"coordinator"},
    ),
    (
        BROKER,
        txn.CommandEndTxnOnSubscription(txn_id=STRANGE, subscription=SUBSCRIPTION),
        {"coordinator"},
    ),
    (BROKER, txn.CommandEndTxnOnParticipants(txn_id=STRANGE), {"coordinator"}),
    (BROKER, txn.CommandDescribeEnds(), {"coordinator"}),
    (BROKER, txn.CommandLowWatermark(tcid=7, incarnation=1), {"coordinator"}),
    (BROKER, txn.CommandTxnsIssued(tcid=7, incarnation=1), {"coordinator"}),
    (
        COORDINATOR,
        txn.CommandInitProducer(transactional_id="id-a"),
        {"admin", "writer", "preparer", "broker"},
    ),
    (
        COORDINATOR,
        txn.CommandInitProducer(transactional_id="id-a", enable_2pc=True),
        {"admin", "preparer", "broker"},
    ),
    (COORDINATOR, txn.CommandNewTxn(), {"admin", "reader", "writer", "neighbour"}),
    (COORDINATOR, txn.CommandNewTxn(partitions=[PARTITION]), {"admin", "writer"}),
    (COORDINATOR, txn.CommandNewTxn(subscriptions=[SUBSCRIPTION]), {"admin", "reader"}),
    (COORDINATOR, txn.CommandNewTxn(identity=IDENTITY), {"admin", "writer", "preparer", "broker"}),
    (
        COORDINATOR,
        txn.CommandNewTxn(partitions=[PARTITION], identity=IDENTITY),
        {"admin", "writer", "broker"},
    ),
    (
        COORDINATOR,
        txn.CommandNewTxn(named_sequence=txn.NamedSequence(name="id-n", run_token="r")),
        {"admin", "writer", "preparer"},
    ),
    (
        COORDINATOR,
        txn.CommandNewTxn(subscriptions=[SUBSCRIPTION], identity=IDENTITY),
        {"admin", "broker"},
    ),
    (
        COORDINATOR,
        txn.CommandAddPartitionToTxn(txn_id=NEVER, partitions=[PARTITION]),
        {"admin", "writer"},
    ),
    (
        COORDINATOR,
        txn.CommandAddPartitionToTxn(
            txn_id=NEVER, partitions=[PARTITION, common.Partition(topic="b")]
        ),
        {"admin"},
    ),
    (
        COORDINATOR,
        txn.CommandAddSubscriptionToTxn(txn_id=NEVER, subscriptions=[SUBSCRIPTION]),
        {"admin", "reader"},
    ),
    # Whose transaction it is says the coordinator: see test_ownership.py.
    (COORDINATOR, txn.CommandEndTxn(txn_id=NEVER), EVERYBODY),
    (COORDINATOR, txn.CommandDescribeTxn(txn_id=NEVER), EVERYBODY),
    (COORDINATOR, txn.CommandListTxns(), EVERYBODY),
    (COORDINATOR, txn.CommandListTxnChanges(), EVERYBODY),
    # Principals that may describe any topic.
    (COORDINATOR, txn.CommandCloseCut(), DESCRIBING | {"neighbour"}),
    (
        COORDINATOR,
        txn.CommandDescribeTransactionalId(transactional_id="id-a"),
        {"admin", "writer", "preparer", "manager", "viewer", "broker"},
    ),
    (COORDINATOR, txn.CommandListTransactionalIds(), EVERYBODY),
    (
        COORDINATOR,
        txn.CommandDescribeName(name="id-n"),
        {"admin", "writer", "preparer", "manager", "viewer"},
    ),
    (COORDINATOR, txn.CommandRemoveName(name="id-m"), {"admin", "manager"}),
    (COORDINATOR, txn.CommandAcceptTxnLoss(txn_id=NEVER), {"admin", "operator"}),
    (COORDINATOR, txn.CommandAbortHangingTxn(txn_id=NEVER), {"admin", "operator", "broker"}),
]

# A backup has everything, of both servers: the right to alter the cluster is not enough.
TABLE += [
    (service, body, {"admin", "keeper"})
    for service in (BROKER, COORDINATOR)
    for body in (
        common.CommandHoldBackup(backup_token=1, hold_ms=1),
        common.CommandReleaseBackup(backup_token=1),
        common.CommandReadBackup(backup_token=1),
        common.CommandEndBackup(backup_token=1),
    )
]


def give_roles(path: Path, others: Mapping[str, list[str]]) -> AccessConfig:
    """Write an access file by which each principal has the role of its name, and others theirs."""
    roles = {principal: [principal] if principal != "nobody" else [] for principal in PRINCIPALS}
    return write_access(path, {**roles, **others}, ROLES)


def methods(service: str) -> set[str]:
    """The commands that the proto has for a service in the unary form."""
    return {
        FIELD_OF_BODY[GetMessageClass(method.input_type)]
        for method in service_pb2.DESCRIPTOR.services_by_name[service].methods
        if not method.client_streaming
    }


def rows(service: str, form: str) -> Sequence[tuple[Any, Set[str]]]:
    """The commands of a service that have a form, and who may use them."""
    known = methods(service)
    return [
        (body, allowed)
        for where, body, allowed in TABLE
        if where == service and (form == "stream" or FIELD_OF_BODY[type(body)] in known)
    ]
