"""What a producer has of a send in a transaction: it has no MessageId yet."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar_core.ids import TxnID


@dataclass(frozen=True, slots=True)
class TxnSend:
    """A transactional send that its broker holds durably.

    It has no MessageId yet: ledger and entry are the commit marker's (PIP-31, Message ID).

    Attributes:
        index: place among the producer's messages in this transaction and partition, from 0.
    """

    txn_id: TxnID
    partition: int
    index: int
