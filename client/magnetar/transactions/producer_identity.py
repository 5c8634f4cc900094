"""Who a transactional producer is, and what it prepared, as text that a database can keep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from magnetar_core.errors import InvalidArgument
from magnetar_core.ids import TxnID
from magnetar_core.wire import common_pb2

_VERSION = "1"


class ProducerIdentity(NamedTuple):
    """A transactional id with the pair that its coordinator has given."""

    transactional_id: str
    producer_id: int
    producer_epoch: int

    def to_wire(self) -> common_pb2.ProducerIdentity:
        return common_pb2.ProducerIdentity(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
        )

    @classmethod
    def from_wire(cls, wire: common_pb2.ProducerIdentity) -> ProducerIdentity:
        return cls(wire.transactional_id, wire.producer_id, wire.producer_epoch)


@dataclass(frozen=True, slots=True)
class PreparedTxnState:
    """Names a prepared transaction. Without values: none.

    `str()` gives at most 80 characters, which `parse` takes back; store them beside the data that
    they belong to, in the same database transaction.
    Source: KIP-939, KafkaProducer API Changes, PreparedTxnState.
    """

    producer_id: int = -1
    producer_epoch: int = -1
    txn_id: TxnID | None = None

    def __str__(self) -> str:
        if self.txn_id is None:
            return ""
        return f"{_VERSION}/{self.producer_id}/{self.producer_epoch}/{self.txn_id}"

    @classmethod
    def parse(cls, text: str) -> PreparedTxnState:
        """Read what str() wrote; an empty text is no transaction.

        Raises:
            InvalidArgument: anything else.
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
            raise InvalidArgument(f"{text!r} is no prepared transaction's state") from None
