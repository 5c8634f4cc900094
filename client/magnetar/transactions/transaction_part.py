"""Counts of a commit: the confirmed messages and acks of each writer, by participant.

Source: docs/protocol/rules.md, g.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from magnetar_core.errors import InvalidArgument
from magnetar_core.ids import Participant, PartitionName, SubscriptionName, TxnID
from magnetar_core.transport.columns.end_txns import EndTxn
from magnetar_core.transport.columns.participants import Counted
from magnetar_core.wire.common_pb2 import COMMIT
from magnetar_core.wire.transaction_pb2 import CommandEndTxn

# A writer's place, its id, and how many messages or ack commands of it are confirmed.
Count = tuple[Participant, int, int]

# Small transactions have the same few counts again and again.
KNOWN_COUNTS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class TransactionPart:
    """The part of a client in a transaction that another client commits.

    Attributes:
        txn_id: the transaction.
        producers: the numbers of confirmed messages, by partition and producer id.
        consumers: the numbers of confirmed ack commands, by subscription and consumer id.
        seen_stamp: the highest stamp of a commit that the client knew; 0: none.
    """

    txn_id: TxnID
    producers: tuple[tuple[PartitionName, int, int], ...] = ()
    consumers: tuple[tuple[SubscriptionName, int, int], ...] = ()
    seen_stamp: int = 0


def counts_to_wire(counts: Iterable[Count]) -> list[Counted]:
    """Return the participants with their counts, as commands have them."""
    writers: dict[Participant, tuple[tuple[int, int], ...]] = {}
    for name, writer_id, count in counts:
        writers[name] = (*writers.get(name, ()), (writer_id, count))
    return [_counts_of(name, some) for name, some in writers.items()]


@lru_cache(maxsize=KNOWN_COUNTS_MAX)
def _counts_of(name: Participant, writers: tuple[tuple[int, int], ...]) -> Counted:
    command = CommandEndTxn()
    if isinstance(name, PartitionName):
        counted = command.partition_counts.add(partition=name.to_wire()).producers
    else:
        counted = command.subscription_counts.add(subscription=name.to_wire()).consumers
    for writer_id, count in writers:
        counted.add(writer_id=writer_id, count=count)
    return name, command.SerializeToString()


def commit_parts(parts: Sequence[TransactionPart]) -> EndTxn:
    """Return the command that commits these parts, and nothing else in the transaction.

    Raises:
        InvalidArgument: there are no parts, or parts of several transactions.
    """
    if len({part.txn_id for part in parts}) != 1:
        raise InvalidArgument("a commit takes the parts of one transaction, at least one")
    counts: list[Count] = []
    for part in parts:
        counts += part.producers
        counts += part.consumers
    return EndTxn(
        parts[0].txn_id,
        COMMIT,
        counts_to_wire(counts),
        sorted({writer_id for _, writer_id, _ in counts}),
        seen_stamp=max(part.seen_stamp for part in parts),
    )
