"""The beginning of a transaction: what its coordinator is told, and what it answers."""

from __future__ import annotations

from typing import NamedTuple

from magnetar.link.connection_base import ConnectionBase
from magnetar.transactions.producer_identity import ProducerIdentity
from magnetar_core.ids import NO_EPOCH, TxnID


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

    @property
    def producer_epoch(self) -> int:
        """The epoch of its transactional producer; NO_EPOCH: there is none."""
        return NO_EPOCH if self.identity is None else self.identity.producer_epoch
