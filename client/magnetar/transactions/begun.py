"""The beginning of a transaction: what its coordinator is told, and what it answers."""

from __future__ import annotations

from typing import NamedTuple

from magnetar.link.connection_base import ConnectionBase
from magnetar.transactions.producer_identity import ProducerIdentity
from magnetar.transactions.wire_names import txn_field
from magnetar_core.ids import TxnID
from magnetar_core.wire.broker_pb2 import CommandAck, CommandSend


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
