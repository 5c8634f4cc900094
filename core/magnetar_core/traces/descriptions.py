"""Descriptions of commands in spans: a name, and attributes without secrets. Pure.

A command that is not described here has no span. Names follow OpenTelemetry's semantic conventions
for messaging; names that these conventions do not have begin with `magnetar.`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from magnetar_core.ids import TxnID
from magnetar_core.wire import common_pb2 as common

# A client may send longer texts, which the handler then refuses.
TEXT_LENGTH_MAX = 256

Attributes: TypeAlias = dict[str, str | int | bool]

SYSTEM: Final[Attributes] = {"messaging.system.name": "magnetar"}
TXN_ID = "magnetar.txn.id"
TXN_ACTION = "magnetar.txn.action"
PARTICIPANT_COUNT = "magnetar.txn.participant_count"
ERROR_TYPE = "error.type"


class Description(NamedTuple):
    """Description of a command in its span."""

    name: str
    attributes: Attributes


# A server begins a trace with these commands, if their client makes no traces. With the others, it
# only continues one.
ROOTS: Final = frozenset({"end_txn", "init_producer", "new_txn", "publish", "send"})


def describe(name: str, command: Any) -> Description | None:
    """Return the description of a command in its span; None: the command has no span.

    Args:
        name: of the command's field in the envelope.
        command: its message or row.
    """
    describer = _DESCRIBERS.get(name)
    return None if describer is None else describer(command)


def shortened(text: str) -> str:
    """Return a text that is short enough for an attribute."""
    return text[:TEXT_LENGTH_MAX]


def txn_attributes(txn_id: TxnID) -> Attributes:
    """Return the attributes of a span about a transaction."""
    return {**SYSTEM, TXN_ID: str(txn_id)}


def processing(topic: str, count: int, partition: int | None) -> Description:
    """Return the description of the processing of messages.

    Args:
        partition: that of all of them; None: they are of several.
    """
    attributes: Attributes = {
        **SYSTEM,
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": shortened(topic),
    }
    if partition is not None:
        attributes["messaging.destination.partition.id"] = str(partition)
    if count > 1:
        attributes["messaging.batch.message_count"] = count
    return Description(f"process {shortened(topic)}", attributes)


def txn_id_of(command: Any) -> TxnID | None:
    """Return the transaction that a command belongs to; None: it belongs to none."""
    if isinstance(command, tuple):
        return getattr(command, "txn_id", None)
    if "txn_id" in command.DESCRIPTOR.fields_by_name and command.HasField("txn_id"):
        return TxnID.from_wire(command.txn_id)
    return None


def _attributes(command: Any, operation: str, kind: str = "") -> Attributes:
    """Return the attributes that all commands have.

    Args:
        operation: the operation's name.
        kind: the operation's type in the semantic conventions; empty: they do not know it.
    """
    attributes: Attributes = {**SYSTEM, "messaging.operation.name": operation}
    if kind:
        attributes["messaging.operation.type"] = kind
    txn_id = txn_id_of(command)
    if txn_id is not None:
        attributes[TXN_ID] = str(txn_id)
    return attributes


def _at(operation: str, place: Any, attributes: Attributes) -> Description:
    """Add the attributes that partitions and subscriptions have in common."""
    topic = shortened(place.topic)
    attributes["messaging.destination.name"] = topic
    attributes["messaging.destination.partition.id"] = str(place.partition)
    return Description(f"{operation} {topic}", attributes)


def _to_partition(operation: str, kind: str = "") -> Callable[[Any], Description]:
    def describer(command: Any) -> Description:
        return _at(operation, command.partition, _attributes(command, operation, kind))

    return describer


def _to_subscription(operation: str, kind: str = "") -> Callable[[Any], Description]:
    def describer(command: Any) -> Description:
        place = command.subscription
        attributes = _attributes(command, operation, kind)
        attributes["messaging.destination.subscription.name"] = shortened(place.subscription)
        return _at(operation, place, attributes)

    return describer


def _send(command: Any) -> Description:
    description = _to_partition("send", "send")(command)
    description.attributes["messaging.batch.message_count"] = command.num_messages
    return description


def _publish(command: Any) -> Description:
    description = _to_partition("send", "send")(command)
    description.attributes["messaging.batch.message_count"] = len(command.messages)
    return description


def _plain(operation: str) -> Callable[[Any], Description]:
    return lambda command: Description(operation, _attributes(command, operation))


def _end_on_participants(command: Any) -> Description:
    description = _plain("EndTxnOnParticipants")(command)
    description.attributes[PARTICIPANT_COUNT] = len(command.participants)
    return description


def _with_action(describer: Callable[[Any], Description]) -> Callable[[Any], Description]:
    def with_action(command: Any) -> Description:
        description = describer(command)
        is_commit = command.txn_action == common.COMMIT
        description.attributes[TXN_ACTION] = "commit" if is_commit else "abort"
        return description

    return with_action


_DESCRIBERS: Final[Mapping[str, Callable[[Any], Description]]] = {
    "ack": _to_subscription("ack", "settle"),
    "add_partition_to_txn": _plain("AddPartitionToTxn"),
    "add_subscription_to_txn": _plain("AddSubscriptionToTxn"),
    "end_txn": _with_action(_plain("EndTxn")),
    "end_txn_on_participants": _with_action(_end_on_participants),
    "end_txn_on_partition": _with_action(_to_partition("EndTxnOnPartition")),
    "end_txn_on_subscription": _with_action(_to_subscription("EndTxnOnSubscription")),
    "init_producer": _plain("InitProducer"),
    "new_txn": _plain("NewTxn"),
    "publish": _publish,
    "send": _send,
}
