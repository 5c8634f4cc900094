"""Identifiers: transactions, partitions, subscriptions, messages. Pure.

All are plain tuples: they hash and compare fast, and sort as their stored keys do.
"""

from __future__ import annotations

import re
import struct
from typing import NamedTuple, Self

from magnetar_core.wire import common_pb2 as pb

TCID_MAX = 0xFFFF
INCARNATION_MAX = (1 << 48) - 1
COUNTER_MAX = (1 << 64) - 1

_TXN_ID_BYTES = struct.Struct(">QQ")
_TXN_ID_TEXT = re.compile(r"(\d+):(\d+):(\d+)")


class TxnID(NamedTuple):
    """A transaction's 128-bit id.

    The highest 16 bits are the coordinator's id (TCID), then 48 bits of store incarnation, then a
    64-bit counter. Increasing for each TCID, also across the loss of a coordinator's disk.
    Source: PIP-31, Data Structures, TxnID.
    """

    most_bits: int
    least_bits: int

    @classmethod
    def of(cls, tcid: int, incarnation: int, counter: int) -> Self:
        """Put the three parts together; each must fit its width."""
        if not 0 <= tcid <= TCID_MAX:
            raise ValueError(f"tcid {tcid} does not fit 16 bits")
        if not 0 <= incarnation <= INCARNATION_MAX:
            raise ValueError(f"incarnation {incarnation} does not fit 48 bits")
        if not 0 <= counter <= COUNTER_MAX:
            raise ValueError(f"counter {counter} does not fit 64 bits")
        return cls(tcid << 48 | incarnation, counter)

    @property
    def tcid(self) -> int:
        return self.most_bits >> 48

    @property
    def incarnation(self) -> int:
        return self.most_bits & INCARNATION_MAX

    @property
    def counter(self) -> int:
        return self.least_bits

    def to_bytes(self) -> bytes:
        """16 bytes, big-endian: sorts as the id does."""
        return _TXN_ID_BYTES.pack(self.most_bits, self.least_bits)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        return cls(*_TXN_ID_BYTES.unpack(data))

    def to_wire(self) -> pb.TxnId:
        return pb.TxnId(most_bits=self.most_bits, least_bits=self.least_bits)

    @classmethod
    def from_wire(cls, wire: pb.TxnId) -> Self:
        return cls(wire.most_bits, wire.least_bits)

    def __str__(self) -> str:
        return f"{self.tcid}:{self.incarnation}:{self.counter}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what str() writes: "tcid:incarnation:counter".

        Raises:
            ValueError: the text is not of that form, or a part does not fit.
        """
        match = _TXN_ID_TEXT.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"{text!r} is not a TxnID; expected TCID:INCARNATION:COUNTER")
        return cls.of(*(int(part) for part in match.groups()))


class PartitionName(NamedTuple):
    """A partition of one incarnation of a topic; topic ids are never reused."""

    topic: str
    partition: int
    topic_id: int

    def to_wire(self) -> pb.Partition:
        return pb.Partition(topic=self.topic, partition=self.partition, topic_id=self.topic_id)

    @classmethod
    def from_wire(cls, wire: pb.Partition) -> Self:
        return cls(wire.topic, wire.partition, wire.topic_id)

    def __str__(self) -> str:
        return f"{self.topic}-partition-{self.partition}"


class SubscriptionName(NamedTuple):
    """A subscription's cursor on one partition."""

    topic: str
    partition: int
    topic_id: int
    subscription: str

    @property
    def partition_name(self) -> PartitionName:
        return PartitionName(self.topic, self.partition, self.topic_id)

    def to_wire(self) -> pb.Subscription:
        return pb.Subscription(
            topic=self.topic,
            partition=self.partition,
            topic_id=self.topic_id,
            subscription=self.subscription,
        )

    @classmethod
    def from_wire(cls, wire: pb.Subscription) -> Self:
        return cls(wire.topic, wire.partition, wire.topic_id, wire.subscription)

    def __str__(self) -> str:
        return f"{self.topic}-partition-{self.partition}/{self.subscription}"


class MemberName(NamedTuple):
    """A group's member as it names itself, and when it got the partition of which it speaks."""

    member_id: str
    instance_id: str = ""
    generation: int = 0

    def to_wire(self) -> pb.GroupMember:
        return pb.GroupMember(
            member_id=self.member_id, instance_id=self.instance_id, generation=self.generation
        )

    @classmethod
    def from_wire(cls, wire: pb.GroupMember) -> Self:
        return cls(wire.member_id, wire.instance_id, wire.generation)


class MessageId(NamedTuple):
    """A message's place: (ledger id, entry id, index); entry id + index is its dense offset.

    Source: PIP-31, Message ID (there the index counts from 1, here from 0).
    """

    ledger_id: int
    entry_id: int
    index: int  # type: ignore[assignment]
    partition: int = 0

    @property
    def offset(self) -> int:
        return self.entry_id + self.index

    def to_wire(self) -> pb.MessageIdData:
        return pb.MessageIdData(ledger_id=self.ledger_id, entry_id=self.entry_id, index=self.index)

    def __str__(self) -> str:
        return f"{self.ledger_id}:{self.entry_id}:{self.index}@{self.partition}"
