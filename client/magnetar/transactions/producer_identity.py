"""The identity of a transactional producer, and the text with which a database keeps its state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from magnetar_core.errors import InvalidArgument
from magnetar_core.ids import TxnID
from magnetar_core.wire import common_pb2

_VERSION = "1"


class ProducerIdentity(NamedTuple):
    """A transactional id, with the producer id and epoch that its coordinator has issued."""

    transactional_id: str
    producer_id: int
    producer_epoch: int

    def to_wire(self) -> common_pb2.ProducerIdentity:
        """Return the message of the protocol."""
        return common_pb2.ProducerIdentity(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
        )

    def next_in(self, details: Mapping[str, str]) -> ProducerIdentity | None:
        """Return the identity with the next pair, if an error's details have one."""
        if "producer_epoch" not in details:
            return None
        pair = int(details["producer_id"]), int(details["producer_epoch"])
        return ProducerIdentity(self.transactional_id, *pair)

    @classmethod
    def from_wire(cls, wire: common_pb2.ProducerIdentity) -> ProducerIdentity:
        """Read the message of the protocol."""
        return cls(wire.transactional_id, wire.producer_id, wire.producer_epoch)


@dataclass(frozen=True, slots=True)
class PreparedTxnState:
    """Names a prepared transaction, or none.

    `str()` returns at most 80 characters, and `parse` reads them again. Store them in the database,
    in the same database transaction as the data.

    Attributes:
        producer_id: the producer's id; -1 for no transaction.
        producer_epoch: the producer's epoch; -1 for no transaction.
        txn_id: the transaction; None for no transaction.
    Source: KIP-939, KafkaProducer API Changes, PreparedTxnState.
    """

    producer_id: int = -1
    producer_epoch: int = -1
    txn_id: TxnID | None = None

    @classmethod
    def of(cls, identity: ProducerIdentity, txn_id: TxnID) -> PreparedTxnState:
        """Return the state of a transaction, from the identity that has begun it."""
        return cls(identity.producer_id, identity.producer_epoch, txn_id)

    def __str__(self) -> str:
        if self.txn_id is None:
            return ""
        return f"{_VERSION}/{self.producer_id}/{self.producer_epoch}/{self.txn_id}"

    @classmethod
    def parse(cls, text: str) -> PreparedTxnState:
        """Read the text that str() has written. An empty text means no transaction.

        Raises:
            InvalidArgument: the text is something else.
        """
        if not text:
            return cls()
        parts = text.split("/")
        try:
            version, producer_id, producer_epoch, txn_id = parts
            if version != _VERSION:
                raise InvalidArgument(
                    f"{text!r} was written by another version: complete it with that one"
                )
            return cls(int(producer_id), int(producer_epoch), TxnID.parse(txn_id))
        except ValueError:
            raise InvalidArgument(f"{text!r} is not the state of a prepared transaction") from None
