"""The bytes with which commands name transactions and their participants. Pure.

To make them takes longer than the rest of such a command, so they are made once.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TypeAlias

from magnetar_core.ids import PartitionName, SubscriptionName, TxnID
from magnetar_core.transport.spliced import field_start
from magnetar_core.wire.transaction_pb2 import CommandEndTxn, CommandNewTxn

# Where a transaction sends or acknowledges.
Participant: TypeAlias = PartitionName | SubscriptionName

# Transactions and participants whose bytes are kept: each is named in several commands.
KNOWN_NAMES_MAX = 1_000


@lru_cache(maxsize=KNOWN_NAMES_MAX)
def _name_of(txn_id: TxnID) -> bytes:
    return txn_id.to_wire().SerializeToString()


@lru_cache(maxsize=KNOWN_NAMES_MAX)
def txn_field(kind: type[CommandEndTxn], field: str, txn_id: TxnID) -> bytes:
    """Return the bytes of a command of which only this field is set, to a transaction's id."""
    name = _name_of(txn_id)
    return field_start(kind, field, len(name)) + name  # type: ignore[arg-type]


@lru_cache(maxsize=KNOWN_NAMES_MAX)
def participant_in_new_txn(name: Participant) -> bytes:
    """Return the bytes of a CommandNewTxn of which only a participant is set."""
    if isinstance(name, PartitionName):
        command = CommandNewTxn(partitions=[name.to_wire()])
    else:
        command = CommandNewTxn(subscriptions=[name.to_wire()])
    return command.SerializeToString()
