"""The result of a send in a transaction."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar_core.ids import TxnID


@dataclass(frozen=True, slots=True)
class TxnSend:
    """The result of a send in a transaction, which the broker has stored durably.

    The message has no MessageId before the commit, since ledger and entry are those of the commit
    marker (PIP-31, Message ID).

    Attributes:
        txn_id: the transaction.
        partition: the partition's number.
        index: the place among this producer's messages in the same transaction and partition,
            from 0.
    """

    txn_id: TxnID
    partition: int
    index: int
