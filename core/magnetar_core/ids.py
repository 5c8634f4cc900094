"""Identifiers: transactions, partitions, subscriptions, messages. Pure.

All are plain tuples: they hash and compare fast, and sort as their stored keys do. The constructor
of a NamedTuple is a Python function, so what each command has is made without it.
"""

from __future__ import annotations

import re
import struct
from typing import NamedTuple, Self, TypeAlias

from magnetar_core.wire import common_pb2 as pb

TCID_MAX = 0xFFFF
INCARNATION_MAX = (1 << 48) - 1
COUNTER_MAX = (1 << 64) - 1
# In place of the epoch of a transactional producer: there is none.
NO_EPOCH = -1

_TXN_ID_BYTES = struct.Struct(">QQ")
_TXN_ID_TEXT = re.compile(r"(\d+):(\d+):(\d+)")


class TxnID(NamedTuple):
    """128-bit identifier of a transaction.

    The highest 16 bits are the coordinator's id (TCID), then come 48 bits of store incarnation and
    a 64-bit counter. A coordinator's ids increase, even when it loses its disk.
    Source: PIP-31, Data Structures, TxnID.
    """

    most_bits: int
    least_bits: int

    @classmethod
    def of(cls, tcid: int, incarnation: int, counter: int) -> Self:
        """Put the three parts together.

        Raises:
            ValueError: a part does not fit its width.
        """
        if not 0 <= tcid <= TCID_MAX:
            raise ValueError(f"tcid {tcid} does not fit 16 bits")
        if not 0 <= incarnation <= INCARNATION_MAX:
            raise ValueError(f"incarnation {incarnation} does not fit 48 bits")
        if not 0 <= counter <= COUNTER_MAX:
            raise ValueError(f"counter {counter} does not fit 64 bits")
        return cls(tcid << 48 | incarnation, counter)

    @property
    def tcid(self) -> int:
        """The id of the coordinator that issued this TxnID."""
        return self.most_bits >> 48

    @property
    def incarnation(self) -> int:
        """The incarnation of the coordinator's store."""
        return self.most_bits & INCARNATION_MAX

    @property
    def counter(self) -> int:
        """The number of the transaction in its incarnation."""
        return self.least_bits

    def to_bytes(self) -> bytes:
        """Return 16 bytes, big-endian: they sort as the ids do."""
        return _TXN_ID_BYTES.pack(*self)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read the 16 bytes that to_bytes() returns."""
        return cls(*_TXN_ID_BYTES.unpack(data))

    def to_wire(self) -> pb.TxnId:
        """Convert to the wire's message."""
        return pb.TxnId(most_bits=self.most_bits, least_bits=self.least_bits)

    @classmethod
    def from_wire(cls, wire: pb.TxnId) -> Self:
        """Convert from the wire's message."""
        return tuple.__new__(cls, (wire.most_bits, wire.least_bits))

    def __str__(self) -> str:
        return f"{self.tcid}:{self.incarnation}:{self.counter}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the text that str() returns: "tcid:incarnation:counter".

        Raises:
            ValueError: the text has another form, or a part does not fit its width.
        """
        match = _TXN_ID_TEXT.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"{text!r} is not a TxnID; expected TCID:INCARNATION:COUNTER")
        return cls.of(*(int(part) for part in match.groups()))


class PartitionName(NamedTuple):
    """Name of a partition. The topic id, never reused, tells apart topics of the same name."""

    topic: str
    partition: int
    topic_id: int

    def to_wire(self) -> pb.Partition:
        """Convert to the wire's message."""
        return pb.Partition(topic=self.topic, partition=self.partition, topic_id=self.topic_id)

    @classmethod
    def from_wire(cls, wire: pb.Partition) -> Self:
        """Convert from the wire's message."""
        return tuple.__new__(cls, (wire.topic, wire.partition, wire.topic_id))

    def __str__(self) -> str:
        return f"{self.topic}-partition-{self.partition}"


class SubscriptionName(NamedTuple):
    """Name of a subscription's cursor on a partition."""

    topic: str
    partition: int
    topic_id: int
    subscription: str

    @property
    def partition_name(self) -> PartitionName:
        """The name of the partition."""
        return PartitionName(self.topic, self.partition, self.topic_id)

    def to_wire(self) -> pb.Subscription:
        """Convert to the wire's message."""
        return pb.Subscription(
            topic=self.topic,
            partition=self.partition,
            topic_id=self.topic_id,
            subscription=self.subscription,
        )

    @classmethod
    def from_wire(cls, wire: pb.Subscription) -> Self:
        """Convert from the wire's message."""
        return tuple.__new__(cls, (wire.topic, wire.partition, wire.topic_id, wire.subscription))

    def __str__(self) -> str:
        return f"{self.topic}-partition-{self.partition}/{self.subscription}"


# Where a transaction sends or acknowledges.
Participant: TypeAlias = PartitionName | SubscriptionName


class MemberName(NamedTuple):
    """Name of a group's member, and the generation in which it got the partition."""

    member_id: str
    instance_id: str = ""
    generation: int = 0

    def to_wire(self) -> pb.GroupMember:
        """Convert to the wire's message."""
        return pb.GroupMember(
            member_id=self.member_id, instance_id=self.instance_id, generation=self.generation
        )

    @classmethod
    def from_wire(cls, wire: pb.GroupMember) -> Self:
        """Convert from the wire's message."""
        return cls(wire.member_id, wire.instance_id, wire.generation)


class MessageId(NamedTuple):
    """Position of a message: ledger id, entry id, index. Entry id + index is its offset.

    Source: PIP-31, Message ID (there the index counts from 1, here from 0).
    """

    ledger_id: int
    entry_id: int
    index: int  # type: ignore[assignment]
    partition: int = 0

    @property
    def offset(self) -> int:
        """The message's offset in its partition; offsets have no gaps."""
        return self.entry_id + self.index

    def to_wire(self) -> pb.MessageIdData:
        """Convert to the wire's message."""
        return pb.MessageIdData(ledger_id=self.ledger_id, entry_id=self.entry_id, index=self.index)

    def __str__(self) -> str:
        return f"{self.ledger_id}:{self.entry_id}:{self.index}@{self.partition}"
