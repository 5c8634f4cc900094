"""Names of participants, and their confirmed writes, as the client's messages say them. Pure.

A coordinator stores the fields of CommandEndTxn and passes them on as they are: they have the same
numbers in CommandEndTxnOnParticipants. It reads a command's fields as bytes and looks the names up,
since it meets the same ones again and again: protobuf's objects for them would cost more than the
rest of a small transaction.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from magnetar_coordinator.metadata.transaction import Participant
from magnetar_core.ids import PartitionName, SubscriptionName
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import packed_pb2 as packed_pb
from magnetar_core.wire import transaction_pb2 as pb

# How many names are kept.
NAMES_MAX: Final = 1_024
# Of longer commands nothing is kept.
_KEPT_BYTES_MAX: Final = 2_048


def participants_in(request: pb.CommandNewTxn) -> tuple[Participant, ...]:
    """Return the participants that a request names."""
    view = packed_pb.PackedNewTxn.FromString(request.SerializeToString())
    # A slice is a list, and costs a third of an iterator of protobuf's.
    return (*map(_partition, view.partitions[:]), *map(_subscription, view.subscriptions[:]))


def counts_in(counts: bytes) -> list[tuple[Participant, bytes]]:
    """Return the participants that a command or a row counts writes of, each with its field.

    Args:
        counts: CommandEndTxn, serialized, or fields of it.
    Raises:
        DecodeError: it is damaged.
    """
    view = packed_pb.PackedEndTxn.FromString(counts)
    read = _read if len(counts) <= _KEPT_BYTES_MAX else _read.__wrapped__
    return [
        *[read(one, False) for one in view.partition_counts[:]],
        *[read(one, True) for one in view.subscription_counts[:]],
    ]


def counts_message(field: bytes) -> Any:
    """Return the message that a participant's field has: PartitionCounts or SubscriptionCounts."""
    view = pb.CommandEndTxn.FromString(field)
    return (view.partition_counts or view.subscription_counts)[0]


def writer_counts(participant: Participant, field: bytes) -> tuple[tuple[int, int], ...]:
    """Return the pairs of writer id and count in a participant's field."""
    message = counts_message(field)
    is_subscription = isinstance(participant, SubscriptionName)
    counts = message.consumers if is_subscription else message.producers
    return tuple([(one.writer_id, one.count) for one in counts])


def with_ledger_id(field: bytes, ledger_id: int) -> bytes:
    """Return a participant's field with the ledger id that the participant had."""
    counts = pb.CommandEndTxn.FromString(field)
    (counts.partition_counts or counts.subscription_counts)[0].ledger_id = ledger_id
    return counts.SerializeToString()


@lru_cache(maxsize=NAMES_MAX)
def without_counts(participant: Participant) -> bytes:
    """Return the field of a participant that had nothing confirmed: all its writes are surplus."""
    counts = pb.CommandEndTxn()
    if isinstance(participant, SubscriptionName):
        counts.subscription_counts.add(subscription=participant.to_wire())
    else:
        counts.partition_counts.add(partition=participant.to_wire())
    return counts.SerializeToString()


@lru_cache(maxsize=NAMES_MAX)
def _read(packed: bytes, is_subscription: bool) -> tuple[Participant, bytes]:
    name = packed_pb.PackedCounts.FromString(packed).participant
    if is_subscription:
        field = packed_pb.PackedEndTxn(subscription_counts=(packed,)).SerializeToString()
        return _subscription(name), field
    field = packed_pb.PackedEndTxn(partition_counts=(packed,)).SerializeToString()
    return _partition(name), field


@lru_cache(maxsize=NAMES_MAX)
def _partition(packed: bytes) -> PartitionName:
    return PartitionName.from_wire(common.Partition.FromString(packed))


@lru_cache(maxsize=NAMES_MAX)
def _subscription(packed: bytes) -> SubscriptionName:
    return SubscriptionName.from_wire(common.Subscription.FromString(packed))
