"""Writers of names into a message in place.

A message that is given to a constructor or to append() is serialized and parsed on its way; filled
in place it is neither, at a third of the cost. Pure.
"""

from __future__ import annotations

from magnetar_coordinator.metadata.named_sequences import NamedSequence, NamedSequenceState
from magnetar_core.ids import TxnID
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import record_pb2 as records
from magnetar_core.wire import transaction_pb2 as pb


def put_txn_id(wire: common.TxnId, txn_id: TxnID) -> None:
    """Write a TxnID."""
    wire.most_bits, wire.least_bits = txn_id


def put_identity(
    wire: common.ProducerIdentity, transactional_id: str, pair: tuple[int, int]
) -> None:
    """Write a transactional id with its pair."""
    wire.transactional_id = transactional_id
    wire.producer_id, wire.producer_epoch = pair


def put_named_sequence(wire: pb.NamedSequence, named: NamedSequence) -> None:
    """Write a named sequence."""
    wire.name, wire.sequence, wire.run_token, wire.fingerprint = named


def put_name(
    wire: records.NameRow | pb.CommandDescribeNameResponse, name: NamedSequenceState
) -> None:
    """Write the state of a name: its last committed sequence, and the open sequence."""
    if name.committed is not None:
        wire.has_committed, wire.committed_sequence = True, name.committed
        wire.committed_fingerprint = name.fingerprint
    if name.open is not None and name.open_txn_id is not None:
        put_named_sequence(wire.open, name.open)
        put_txn_id(wire.open_txn_id, name.open_txn_id)
