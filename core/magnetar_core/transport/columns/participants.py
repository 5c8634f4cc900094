"""Participants as fields of commands to the coordinator. Pure.

CommandEndTxn has counts in the same fields as CommandEndTxnOnParticipants, so that a coordinator
passes them on as they are.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, TypeAlias

from google.protobuf.message import DecodeError

from magnetar_core.ids import Participant, PartitionName, SubscriptionName
from magnetar_core.transport.spliced import field_start
from magnetar_core.wire.common_pb2 import (
    Partition,
    Subscription,
)
from magnetar_core.wire.packed_pb2 import PackedCounts, PackedEndTxn, PackedNewTxn
from magnetar_core.wire.transaction_pb2 import (
    CommandEndTxn,
    CommandNewTxn,
)

# Names, and participants with counts, whose bytes are kept: the same ones come again and again.
_KEPT_MAX: Final = 1_024
# Longer ones are not kept.
_KEPT_BYTES_MAX: Final = 2_048
# A participant, and its confirmed writes as a field of CommandEndTxn.
Counted: TypeAlias = tuple[Participant, bytes]


def counts_in(fields: bytes) -> list[Counted]:
    """Return the participants that a command or a row counts writes of, each with its field.

    Partitions come first.

    Args:
        fields: CommandEndTxn, serialized, or fields of it.
    Raises:
        DecodeError: it is damaged.
    """
    view = PackedEndTxn.FromString(fields)
    produced, acked = view.partition_counts[:], view.subscription_counts[:]
    if len(fields) <= _KEPT_BYTES_MAX:
        return [*map(_produced, produced), *map(_acked, acked)]
    return [*map(_produced.__wrapped__, produced), *map(_acked.__wrapped__, acked)]


@lru_cache(maxsize=_KEPT_MAX)
def _produced(packed: bytes) -> Counted:
    name = partition_in(PackedCounts.FromString(packed).participant)
    return name, field_start(CommandEndTxn, "partition_counts", len(packed)) + packed


@lru_cache(maxsize=_KEPT_MAX)
def _acked(packed: bytes) -> Counted:
    name = subscription_in(PackedCounts.FromString(packed).participant)
    return name, field_start(CommandEndTxn, "subscription_counts", len(packed)) + packed


def counted_in(field: bytes) -> Counted:
    """Return a participant and the field of CommandEndTxn with its counts.

    Raises:
        DecodeError: it is damaged, or not one field.
    """
    return _counted(field) if len(field) <= _KEPT_BYTES_MAX else _counted.__wrapped__(field)


@lru_cache(maxsize=_KEPT_MAX)
def _counted(field: bytes) -> Counted:
    counted = counts_in(field)
    if len(counted) != 1:
        raise DecodeError("not one participant")
    return counted[0][0], field


@lru_cache(maxsize=_KEPT_MAX)
def participant_field(name: Participant) -> bytes:
    """Return a participant as a field of CommandNewTxn."""
    if isinstance(name, SubscriptionName):
        return CommandNewTxn(subscriptions=[name.to_wire()]).SerializeToString()
    return CommandNewTxn(partitions=[name.to_wire()]).SerializeToString()


def participant_in(field: bytes) -> Participant:
    """Return the participant that a field of CommandNewTxn names.

    Raises:
        DecodeError: it is damaged, or not one field.
    """
    if len(field) <= _KEPT_BYTES_MAX:
        return _participant(field)
    return _participant.__wrapped__(field)


@lru_cache(maxsize=_KEPT_MAX)
def _participant(field: bytes) -> Participant:
    view = PackedNewTxn.FromString(field)
    if len(view.partitions) + len(view.subscriptions) != 1:
        raise DecodeError("not one participant")
    for packed in view.partitions:
        return partition_in(packed)
    return subscription_in(view.subscriptions[0])


@lru_cache(maxsize=_KEPT_MAX)
def partition_in(packed: bytes) -> PartitionName:
    """Return the name in a Partition, serialized."""
    return PartitionName.from_wire(Partition.FromString(packed))


@lru_cache(maxsize=_KEPT_MAX)
def subscription_in(packed: bytes) -> SubscriptionName:
    """Return the name in a Subscription, serialized."""
    return SubscriptionName.from_wire(Subscription.FromString(packed))
