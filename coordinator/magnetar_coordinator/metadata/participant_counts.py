"""Names of participants, and their confirmed writes, as the client's messages say them. Pure.

A coordinator stores the messages and passes them on as they are. It reads a command's fields as
bytes and looks the names up, since it meets the same ones again and again: protobuf's objects for
them would cost more than all else in a small transaction.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from magnetar_coordinator.metadata.transaction import Participant
from magnetar_core.ids import PartitionName, SubscriptionName
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import packed_pb2 as packed_pb
from magnetar_core.wire import transaction_pb2 as pb

# How many names are kept.
NAMES_MAX: Final = 1_024


def participants_in(request: pb.CommandNewTxn) -> list[Participant]:
    """Return the participants that a request names."""
    view = packed_pb.PackedNewTxn.FromString(request.SerializeToString())
    names: list[Participant] = [_partition(one) for one in view.partitions]
    names += [_subscription(one) for one in view.subscriptions]
    return names


def counts_in(request: pb.CommandEndTxn) -> list[tuple[Participant, bytes]]:
    """Return the participants that a request counts writes of, with their serialized messages."""
    view = packed_pb.PackedEndTxn.FromString(request.SerializeToString())
    counts: list[tuple[Participant, bytes]] = [
        (_partition(_name_in(one)), one) for one in view.partition_counts
    ]
    counts += [(_subscription(_name_in(one)), one) for one in view.subscription_counts]
    return counts


def participant_of(packed: bytes, *, is_subscription: bool) -> Participant:
    """Return the participant whose writes a message counts.

    Args:
        packed: PartitionCounts or SubscriptionCounts, serialized.
    Raises:
        DecodeError: it is damaged.
    """
    name = _name_in(packed)
    return _subscription(name) if is_subscription else _partition(name)


def writer_counts(participant: Participant, packed: bytes) -> tuple[tuple[int, int], ...]:
    """Return the pairs of writer id and count in a message about a participant."""
    if isinstance(participant, SubscriptionName):
        counts = pb.SubscriptionCounts.FromString(packed).consumers
    else:
        counts = pb.PartitionCounts.FromString(packed).producers
    return tuple([(one.writer_id, one.count) for one in counts])


def _name_in(packed: bytes) -> bytes:
    return packed_pb.PackedCounts.FromString(packed).participant


@lru_cache(maxsize=NAMES_MAX)
def _partition(packed: bytes) -> PartitionName:
    return PartitionName.from_wire(common.Partition.FromString(packed))


@lru_cache(maxsize=NAMES_MAX)
def _subscription(packed: bytes) -> SubscriptionName:
    return SubscriptionName.from_wire(common.Subscription.FromString(packed))
