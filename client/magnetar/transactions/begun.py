"""The beginning of a transaction: what its coordinator is told, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from magnetar.link.connection_base import ConnectionBase
from magnetar.transactions.producer_identity import ProducerIdentity
from magnetar_core.ids import PartitionName, SubscriptionName, TxnID
from magnetar_core.wire import common_pb2


class Participating(NamedTuple):
    """The participants of a transaction, in the order in which they were added.

    Attributes:
        partitions: those to which it sends, and their names on the wire.
        subscriptions: those on which it acknowledges, and their names on the wire.
    """

    partitions: Mapping[PartitionName, common_pb2.Partition]
    subscriptions: Mapping[SubscriptionName, common_pb2.Subscription]


NOBODY_TAKES_PART = Participating({}, {})


class Begun(NamedTuple):
    """The coordinator's answer to NewTxn."""

    txn_id: TxnID
    wire_id: common_pb2.TxnId
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
    def producer_epoch(self) -> int | None:
        """The epoch of the transactional producer, if there is one."""
        return None if self.identity is None else self.identity.producer_epoch
