"""Rules: the rights that each command needs. A test checks that every command has a rule.

A rule lists what is needed, all of it; each item has alternatives, one of which suffices. Checks
that need the answer (rows of a list, the owner of a transaction) are in the module `visible`;
whether a transaction may be ended is the coordinator's to say, which knows its owner.
Source: Kafka's table of operations per request
(https://cwiki.apache.org/confluence/display/KAFKA/Kafka+Authorizations+ACLs), KIP-664, KIP-679,
KIP-939 (ACL Changes), KIP-1037; Pulsar's pull requests 19467 and 26644 for participants. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from magnetar_core.access.needs import (
    ADMINISTRATION,
    ANYWHERE_DESCRIBE,
    ANYWHERE_READ,
    ANYWHERE_WRITE,
    FOR_FOREIGN_CLIENTS,
    FOREIGN_GROUPS,
    INCARNATIONS,
    TOPIC_DIRECTORY,
    TRANSACTION_ENDS,
    Kind,
    Need,
    Operation,
    Reach,
)
from magnetar_core.ids import SubscriptionName

# Each item is satisfied by any of its alternatives.
Needs = list[tuple[Need, ...]]


@dataclass(frozen=True, slots=True)
class Rule:
    """Rule of a command.

    Attributes:
        needs: what a command needs.
        finishing: the command ends what was begun: no quota of rates holds it up, and what the
            conversation could do once it may finish.
        administrative: the audit log has it.
    """

    needs: Callable[[Any], Needs]
    finishing: bool = False
    administrative: bool = False


def _nothing(_command: Any) -> Needs:
    return []


def _topic(operation: Operation, name: str) -> tuple[Need, ...]:
    return (Need(operation, Kind.TOPIC, name),)


def _group(operation: Operation, name: str) -> tuple[Need, ...]:
    return (Need(operation, Kind.GROUP, name),)


def _transactional_id(operation: Operation, name: str) -> tuple[Need, ...]:
    return (Need(operation, Kind.TRANSACTIONAL_ID, name),)


def _of_partition(operation: Operation) -> Callable[[Any], Needs]:
    return lambda command: [_topic(operation, command.partition.topic)]


def _of_topic(operation: Operation) -> Callable[[Any], Needs]:
    return lambda command: [_topic(operation, command.topic)]


def _of_group(operation: Operation) -> Callable[[Any], Needs]:
    return lambda command: [_group(operation, command.group)]


def _of_name(operation: Operation) -> Callable[[Any], Needs]:
    return lambda command: [_transactional_id(operation, command.name)]


def _of_cluster(operation: Operation, part: str) -> Callable[[Any], Needs]:
    needs: Needs = [(Need(operation, Kind.CLUSTER, part),)]
    return lambda _: needs


def _subscription(name: Any, operation: Operation = Operation.READ) -> Needs:
    return [_topic(Operation.READ, name.topic), _group(operation, name.subscription)]


def _describe_participants(command: Any) -> Needs:
    named = [*command.partitions, *command.subscriptions]
    topics = dict.fromkeys(one.topic for one in named)
    return [_topic(Operation.DESCRIBE, topic) for topic in topics] or [(ANYWHERE_DESCRIBE,)]


def _consuming(command: Any) -> Needs:
    return _subscription(command.subscription)


def _unsubscribe(command: Any) -> Needs:
    return _subscription(command.subscription, Operation.DELETE)


def _skip_damaged(command: Any) -> Needs:
    operation = Operation.DESCRIBE if command.dry_run else Operation.DELETE
    return [_topic(operation, command.partition.topic)]


_WILDCARD = re.compile(r"[*?\[]")


def _join_group(command: Any) -> Needs:
    needs = [_group(Operation.READ, command.group)]
    needs += [_topic(Operation.READ, topic) for topic in command.topics]
    if command.topic_pattern:
        # Whatever the pattern matches begins with what is before its first wildcard.
        found = _WILDCARD.search(command.topic_pattern)
        beginning = command.topic_pattern[: found.start()] if found else command.topic_pattern
        reach = Reach.NAMED if found is None else Reach.BEGINNING
        needs.append((Need(Operation.READ, Kind.TOPIC, beginning, reach),))
    return needs


def _init_producer(command: Any) -> Needs:
    needs = [_transactional_id(Operation.WRITE, command.transactional_id)]
    if command.enable_2pc:
        needs.append(_transactional_id(Operation.TWO_PHASE_COMMIT, command.transactional_id))
    return _or_for_foreign_clients(needs)


def _or_for_foreign_clients(needs: Needs) -> Needs:
    """Return needs that a broker has, too, which has checked its client's rights."""
    return [(*alternatives, FOR_FOREIGN_CLIENTS) for alternatives in needs]


def _describe_transactional_id(command: Any) -> Needs:
    needs = [_transactional_id(Operation.DESCRIBE, command.transactional_id)]
    return _or_for_foreign_clients(needs)


def _participants(partitions: Iterable[Any], subscriptions: Iterable[Any]) -> Needs:
    needs = [_topic(Operation.WRITE, partition.topic) for partition in partitions]
    for subscription in subscriptions:
        needs += _subscription(subscription)
    return needs


def _new_txn(command: Any) -> Needs:
    needs: Needs = []
    for one in command.participants:
        if isinstance(one, SubscriptionName):
            needs += _subscription(one)
        else:
            needs.append(_topic(Operation.WRITE, one.topic))
    if command.identity is not None:
        needs.append(_transactional_id(Operation.WRITE, command.identity.transactional_id))
        needs = _or_for_foreign_clients(needs)
    if command.named_sequence is not None:
        needs.append(_transactional_id(Operation.WRITE, command.named_sequence.name))
    if not needs:
        needs.append((ANYWHERE_WRITE, ANYWHERE_READ))
    return needs


def _add_partitions(command: Any) -> Needs:
    needs = _participants(command.partitions, ())
    if command.HasField("identity"):
        needs.append(_transactional_id(Operation.WRITE, command.identity.transactional_id))
        needs = _or_for_foreign_clients(needs)
    return needs


def _add_subscriptions(command: Any) -> Needs:
    needs = _participants((), command.subscriptions)
    if command.HasField("identity"):
        needs.append(_transactional_id(Operation.WRITE, command.identity.transactional_id))
        needs = _or_for_foreign_clients(needs)
    return needs


ADMINISTERING = _of_cluster(Operation.ALTER, ADMINISTRATION)
_BACKING_UP = _of_cluster(Operation.BACKUP, ADMINISTRATION)


def _moving_shards(command: Any) -> Needs:
    operation = Operation.DESCRIBE if command.dry_run else Operation.ALTER
    return [(Need(operation, Kind.CLUSTER, ADMINISTRATION),)]


_COMMITTING = Rule(_of_cluster(Operation.CLUSTER_ACTION, FOREIGN_GROUPS), finishing=True)
_ENDING = Rule(_of_cluster(Operation.CLUSTER_ACTION, TRANSACTION_ENDS), finishing=True)

# Keys are names of command fields in the envelope.
RULES: dict[str, Rule] = {
    # Where the servers are, and which version they speak, is open to all who are let in.
    "hello": Rule(_nothing, finishing=True),
    "get_cluster_info": Rule(_nothing, finishing=True),
    "describe_members": Rule(_of_cluster(Operation.DESCRIBE, ADMINISTRATION)),
    "drain_member": Rule(_moving_shards, administrative=True),
    "rebalance": Rule(_moving_shards, administrative=True),
    "set_log_level": Rule(ADMINISTERING, administrative=True),
    # A backup has everything that is stored. That it is made is audited, each part of it not.
    "hold_backup": Rule(_BACKING_UP, administrative=True),
    "release_backup": Rule(_BACKING_UP),
    "read_backup": Rule(_BACKING_UP),
    "end_backup": Rule(_BACKING_UP),
    # Messages.
    "send": Rule(_of_partition(Operation.WRITE)),
    "publish": Rule(_of_partition(Operation.WRITE)),
    "read": Rule(_of_partition(Operation.READ)),
    # It shows to people what no reader gets.
    "peek": Rule(_of_partition(Operation.READ), administrative=True),
    "list_offsets": Rule(_of_topic(Operation.DESCRIBE)),
    "list_stored_txns": Rule(_of_partition(Operation.DESCRIBE)),
    "describe_producers": Rule(_of_partition(Operation.DESCRIBE)),
    "describe_participants": Rule(_describe_participants),
    "skip_damaged": Rule(_skip_damaged, administrative=True),
    # Subscriptions.
    "subscribe": Rule(_consuming),
    "flow": Rule(_consuming),
    "ack": Rule(_consuming, finishing=True),
    "nack": Rule(_consuming, finishing=True),
    "close_consumer": Rule(_consuming, finishing=True),
    "seek": Rule(_consuming, administrative=True),
    "unsubscribe": Rule(_unsubscribe, administrative=True),
    # Groups.
    "join_group": Rule(_join_group),
    "group_heartbeat": Rule(_of_group(Operation.READ), finishing=True),
    "leave_group": Rule(_of_group(Operation.READ), finishing=True),
    "list_groups": Rule(_nothing),
    "describe_group": Rule(_of_group(Operation.DESCRIBE)),
    "delete_group": Rule(_of_group(Operation.DELETE), administrative=True),
    # Topics.
    "create_topic": Rule(_of_topic(Operation.CREATE), administrative=True),
    "alter_topic": Rule(_of_topic(Operation.ALTER), administrative=True),
    "delete_topic": Rule(_of_topic(Operation.DELETE), administrative=True),
    "list_topics": Rule(_nothing),
    "describe_topic": Rule(_of_topic(Operation.DESCRIBE)),
    "lookup": Rule(_of_topic(Operation.DESCRIBE), finishing=True),
    # Servers only.
    "follow_directory": Rule(
        _of_cluster(Operation.CLUSTER_ACTION, TOPIC_DIRECTORY), finishing=True
    ),
    "take_incarnation": Rule(
        _of_cluster(Operation.CLUSTER_ACTION, INCARNATIONS), finishing=True, administrative=True
    ),
    "commit_offsets": _COMMITTING,
    "fetch_offsets": _COMMITTING,
    "forget_offsets": _COMMITTING,
    "describe_group_members": _COMMITTING,
    "end_txn_on_partition": _ENDING,
    "end_txn_on_subscription": _ENDING,
    "end_txn_on_participants": _ENDING,
    "low_watermark": _ENDING,
    "txns_issued": _ENDING,
    "describe_ends": _ENDING,
    # Transactions.
    "init_producer": Rule(_init_producer),
    "new_txn": Rule(_new_txn),
    "add_partition_to_txn": Rule(_add_partitions),
    "add_subscription_to_txn": Rule(_add_subscriptions),
    "end_txn": Rule(_nothing, finishing=True),
    "describe_txn": Rule(_nothing),
    "list_txns": Rule(_nothing),
    "list_txn_changes": Rule(_nothing),
    # It names TxnIDs alone; what the cut is of is read at brokers.
    "close_cut": Rule(lambda _: [(ANYWHERE_DESCRIBE,)]),
    "describe_transactional_id": Rule(_describe_transactional_id),
    "list_transactional_ids": Rule(_nothing),
    "describe_name": Rule(_of_name(Operation.DESCRIBE)),
    "remove_name": Rule(_of_name(Operation.DELETE), administrative=True),
    "accept_txn_loss": Rule(ADMINISTERING, administrative=True),
    "abort_hanging_txn": Rule(
        lambda command: _or_for_foreign_clients(ADMINISTERING(command)), administrative=True
    ),
}
