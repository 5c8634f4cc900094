"""Ends that an accepted loss has taken: transactions that are OPEN in the remaining records.

Such a transaction belongs to an earlier incarnation. Its end may have been decided, told to its
client and carried out at some participants: another outcome at the other participants would tear
it. So the coordinator asks brokers before it serves clients.
Source: docs/protocol/rules.md, rule n.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple

from magnetar_coordinator.metadata.transaction import TxnAction, TxnStatus
from magnetar_coordinator.transactions.shard import Shard
from magnetar_core.cuts.hybrid_clock import NO_STAMP
from magnetar_core.ids import TxnID
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import transaction_pb2 as pb

# How many TxnIDs a question names.
ASKED_MAX = 1_000


class PastEnd(NamedTuple):
    """End of a transaction at participants.

    Attributes:
        selection_digest: of a commit; empty: all writers count.
        stamp: of a commit; 0: it did not commit.
    """

    action: TxnAction
    selection_digest: bytes = b""
    stamp: int = NO_STAMP


class PastEnds(NamedTuple):
    """Findings about transactions that are OPEN in the remaining records.

    Attributes:
        known: those that have ended at a participant at least.
        forgotten: those that have ended at all participants; their outcome is forgotten.
    """

    known: dict[TxnID, PastEnd]
    forgotten: list[TxnID]


Ask = Callable[[pb.CommandDescribeEnds], Coroutine[Any, Any, pb.CommandDescribeEndsResponse]]


def open_before_loss(shard: Shard) -> list[TxnID]:
    """Return transactions that are OPEN here and may have ended elsewhere."""
    return [
        one.txn_id
        for one in shard.select(frozenset({TxnStatus.OPEN}))
        if one.txn_id.incarnation < shard.incarnation
    ]


async def past_ends(
    asks: Sequence[Ask], txn_ids: list[TxnID], *, tcid: int, incarnation: int, store_token: str
) -> PastEnds:
    """Ask how these transactions have ended at participants.

    All brokers have the new incarnation before the first answer counts, so that no former process
    ends anything after it was asked about.

    A participant that took no part is told to abort what it holds (rule f). So where one has
    committed a transaction and another has aborted it, it was committed; and where one has aborted
    it and another has forgotten the outcome, the outcome is not known.

    Args:
        asks: a question to each broker. All are awaited: any of them may know the only end.
        incarnation: of the store that has lost its latest records.
    """
    found: dict[TxnID, PastEnd] = {}
    forgotten: dict[TxnID, None] = {}
    for start in range(0, len(txn_ids), ASKED_MAX):
        some = txn_ids[start : start + ASKED_MAX]
        request = pb.CommandDescribeEnds(
            txn_ids=[one.to_wire() for one in some],
            tcid=tcid,
            incarnation=incarnation,
            store_token=store_token,
        )
        async with asyncio.TaskGroup() as group:
            answers = [group.create_task(ask(request)) for ask in asks]
        for answer in answers:
            for end in answer.result().ends:
                txn_id = TxnID.from_wire(end.txn_id)
                if end.txn_action == common.COMMIT:
                    found[txn_id] = PastEnd(TxnAction.COMMIT, end.selection_digest, end.stamp)
                else:
                    found.setdefault(txn_id, PastEnd(TxnAction.ABORT))
            for wire in answer.result().forgotten:
                forgotten[TxnID.from_wire(wire)] = None
    for txn_id in list(forgotten):
        if txn_id in found and found[txn_id].action is TxnAction.COMMIT:
            del forgotten[txn_id]
        else:
            found.pop(txn_id, None)
    return PastEnds(found, list(forgotten))
