"""The beginning of a transaction: what its coordinator is told, and what it answers."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple, TypeAlias

from magnetar.link.connection_base import ConnectionBase
from magnetar.transactions.producer_identity import ProducerIdentity
from magnetar_core.ids import PartitionName, SubscriptionName, TxnID
from magnetar_core.transport.spliced import field_start
from magnetar_core.wire.broker_pb2 import CommandAck, CommandSend
from magnetar_core.wire.transaction_pb2 import CommandEndTxn, CommandNewTxn

# Where a transaction sends or acknowledges.
Participant: TypeAlias = PartitionName | SubscriptionName

# Transactions and participants whose bytes are kept: each is named in several commands.
KNOWN_NAMES_MAX = 1_000


@lru_cache(maxsize=KNOWN_NAMES_MAX)
def _name_of(txn_id: TxnID) -> bytes:
    return txn_id.to_wire().SerializeToString()


@lru_cache(maxsize=KNOWN_NAMES_MAX)
def txn_field(
    kind: type[CommandSend | CommandAck | CommandEndTxn], field: str, txn_id: TxnID
) -> bytes:
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


class Begun(NamedTuple):
    """The coordinator's answer to NewTxn."""

    txn_id: TxnID
    # 0: it never expires.
    timeout_ms: int
    coordinator: ConnectionBase
    identity: ProducerIdentity | None = None
    # Whether the coordinator has stored the transaction and the participants that it was given.
    is_durable: bool = True
    # The proof that brokers may ask of sends and acks in it; empty: this cluster asks for none.
    txn_proof: bytes = b""
    # What the coordinator was told with it.
    seen_stamp: int = 0

    def named_in(self, kind: type[CommandSend | CommandAck]) -> bytes:
        """Return the bytes with which a send or an ack, a class of commands, names it."""
        name = txn_field(kind, "txn_id", self.txn_id)  # type: ignore[arg-type]
        if self.identity is None and not self.txn_proof:
            return name
        epoch = None if self.identity is None else self.identity.producer_epoch
        command = kind(producer_epoch=epoch, txn_proof=self.txn_proof)
        return name + command.SerializeToString()
