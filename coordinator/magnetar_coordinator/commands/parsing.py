"""Parsing of commands from the wire. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from magnetar_coordinator.metadata.named_sequences import NamedSequence
from magnetar_coordinator.metadata.transaction import Counts, Participant, TxnAction
from magnetar_coordinator.metadata.transactional_id import InitCall, Pair
from magnetar_coordinator.transactions.decision import EndTxnRequest
from magnetar_core.errors import InvalidArgument
from magnetar_core.ids import PartitionName, SubscriptionName, TxnID
from magnetar_core.transport.columns.end_txns import EndTxn
from magnetar_core.transport.columns.participants import Counted
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import transaction_pb2 as pb

FINGERPRINT_CHARACTERS_MAX = 255
_ACTIONS = {action.value: action for action in TxnAction}


def txn_id_of(request: Any) -> TxnID:
    """Return a request's TxnID.

    Raises:
        InvalidArgument: it is missing.
    """
    if not request.HasField("txn_id"):
        raise InvalidArgument("txn_id is missing")
    return TxnID.from_wire(request.txn_id)


def partitions_of(wire: Iterable[common.Partition]) -> list[PartitionName]:
    """Return the partitions that a request names.

    Raises:
        InvalidArgument: a partition has no topic.
    """
    names = [PartitionName.from_wire(one) for one in wire]
    check_names(names)
    return names


def subscriptions_of(wire: Iterable[common.Subscription]) -> list[SubscriptionName]:
    """Return the subscriptions that a request names.

    Raises:
        InvalidArgument: a subscription has no topic or no name.
    """
    names = [SubscriptionName.from_wire(one) for one in wire]
    check_names(names)
    return names


def check_names(names: Iterable[Participant]) -> None:
    """Check names of participants.

    Raises:
        InvalidArgument: a name is incomplete.
    """
    for name in names:
        # Of its fields, only texts can be empty.
        if "" in name:
            if isinstance(name, SubscriptionName):
                raise InvalidArgument("a subscription has no topic or no name")
            raise InvalidArgument("a partition has no topic")


def action_of(request: EndTxn) -> TxnAction:
    """Return the action of a request: COMMIT or ABORT.

    Raises:
        InvalidArgument: the action is unknown.
    """
    action = _ACTIONS.get(request.txn_action)
    if action is None:
        raise InvalidArgument(f"unknown action {request.txn_action}")
    return action


def end_of(request: EndTxn, txn_id: TxnID | None = None) -> EndTxnRequest:
    """Parse CommandEndTxn.

    Args:
        txn_id: the transaction to end, whatever the request says: that of the identity that it
            shows. None: the transaction that the request names.
    Raises:
        InvalidArgument: the action is unknown, or a participant is counted twice.
    """
    identity_shown = txn_id is not None
    action = action_of(request)
    if txn_id is None:
        txn_id = request.txn_id
        if txn_id is None:
            raise InvalidArgument("txn_id is missing")
    counts = None if request.counts is None else _counts(request.counts)
    selection = None if request.selection is None else tuple(request.selection)
    fingerprint = request.fingerprint
    if fingerprint:
        _check_fingerprint(fingerprint)
    return EndTxnRequest(
        txn_id,
        action,
        counts,
        selection,
        fingerprint,
        identity_shown,
        request.seen_stamp,
        request.keep_epoch and identity_shown,
    )


def _counts(given: Sequence[Counted]) -> Counts:
    counts = dict(given)
    if len(counts) != len(given):
        raise InvalidArgument("a participant is counted twice")
    return counts


def init_call_of(request: pb.CommandInitProducer) -> InitCall:
    """Parse CommandInitProducer.

    Raises:
        InvalidArgument: half of a pair is missing.
    """
    if request.HasField("producer_id") is not request.HasField("producer_epoch"):
        raise InvalidArgument("producer_id and producer_epoch belong together")
    if not request.HasField("producer_id"):
        return InitCall(request.call_token)
    return InitCall(request.call_token, Pair(request.producer_id, request.producer_epoch))


def pair_of(wire: common.ProducerIdentity) -> Pair:
    """Return the producer id and epoch of an identity."""
    return Pair(wire.producer_id, wire.producer_epoch)


def named_sequence_of(wire: pb.NamedSequence) -> NamedSequence:
    """Parse a named sequence.

    Raises:
        InvalidArgument: the fingerprint is malformed.
    """
    _check_fingerprint(wire.fingerprint)
    return NamedSequence(wire.name, wire.sequence, wire.run_token, wire.fingerprint)


def _check_fingerprint(text: str) -> None:
    """Check a fingerprint; empty: none is known.

    Raises:
        InvalidArgument: it is malformed.
    """
    if len(text) > FINGERPRINT_CHARACTERS_MAX or not text.isprintable():
        raise InvalidArgument(
            f"{text[:FINGERPRINT_CHARACTERS_MAX]!r} is not a fingerprint: at most"
            f" {FINGERPRINT_CHARACTERS_MAX} printable characters; take a digest of a longer content"
        )
