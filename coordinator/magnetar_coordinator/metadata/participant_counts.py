"""Confirmed writes of participants, as the client's messages say them. Pure.

A coordinator stores the fields of CommandEndTxn and passes them on as they are: they have the same
numbers in CommandEndTxnOnParticipants.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from magnetar_coordinator.metadata.transaction import Participant
from magnetar_core.ids import SubscriptionName
from magnetar_core.wire import transaction_pb2 as pb

# How many names are kept.
NAMES_MAX: Final = 1_024


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
