"""Verdict about a transaction that a participant holds open and asks about. Pure.

    live, and takes part          KNOWN: the participant will be told the end
    OPEN, and does not take part  WAIT: the participant may be added at any moment
    decided without it            END: nothing that it holds can count
    not live, and issued          END
    not issued                    WAIT: the coordinator first makes sure that it never issues it

Source: docs/design/0001-protocol.md, Orphaned participants; docs/protocol/rules.md, rule f.
"""

from __future__ import annotations

from enum import Enum, auto

from magnetar_coordinator.metadata.transaction import Participant, TxnStatus
from magnetar_coordinator.transactions.shard import Shard
from magnetar_core.ids import TxnID


class OrphanVerdict(Enum):
    """Verdict that a participant is told."""

    KNOWN = auto()
    WAIT = auto()
    END = auto()


def judge(shard: Shard, txn_id: TxnID, participant: Participant) -> OrphanVerdict:
    """Return the verdict. Its reasons must be durable before the participant is told."""
    transaction = shard.live.get(txn_id)
    if transaction is None:
        return OrphanVerdict.END if shard.is_issued(txn_id) else OrphanVerdict.WAIT
    # A client that adds a participant may leave out the topic's id.
    names = (participant, participant._replace(topic_id=0))
    if any(name in transaction.participants for name in names):
        return OrphanVerdict.KNOWN
    return OrphanVerdict.WAIT if transaction.status is TxnStatus.OPEN else OrphanVerdict.END
