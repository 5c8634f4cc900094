"""Holds what servers say against what their disks would keep if the power went now.

Nothing leaves a process before the records behind it are durable (rule a). Frames and their records
are less than a millisecond apart: what a crash would have to hit, this sees in every frame.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

from tests.simulation.asked import Unanswered
from tests.simulation.wiretaps import Named

from magnetar_broker import keys
from magnetar_coordinator.metadata.records import (
    MetadataRecord,
    ParticipantsAdded,
    StatusChanged,
    TxnOpened,
)
from magnetar_coordinator.metadata.transaction_rows import decode_metadata, decode_outcome
from magnetar_core.ids import PartitionName, SubscriptionName, TxnID
from magnetar_core.wire import broker_pb2, common_pb2, record_pb2, transaction_pb2
from magnetar_core.wire import service_pb2 as pb
from magnetar_storage.memory.engine import MemoryDisk

ACTION_OF: dict[int, int] = {
    common_pb2.COMMITTING: common_pb2.COMMIT,
    common_pb2.COMMITTED: common_pb2.COMMIT,
    common_pb2.ABORTING: common_pb2.ABORT,
    common_pb2.ABORTED: common_pb2.ABORT,
}
ENDS_HERE = ("end_txn_on_partition", "end_txn_on_subscription")
ADDS = ("add_partition_to_txn", "add_subscription_to_txn")
ASKED = ("new_txn", "end_txn", "init_producer", "read", *ADDS)
# What a coordinator never takes back, whatever it goes through.
RISING = (b"counter", b"next_unopened", b"producer_id", b"run_time", b"stamp_bound")


class DurableWiretap:
    """Args:
    disk_of: the disk of the server at the end of a link, by its number; None: it is gone.
    disk_by_name: that of a server.
    violation: ends the run; invariant or rule, and text.
    """

    def __init__(
        self,
        disk_of: Callable[[int], MemoryDisk | None],
        disk_by_name: Callable[[str], MemoryDisk],
        violation: Callable[[str, str], NoReturn],
    ) -> None:
        self._disk_of = disk_of
        self._disk_by_name = disk_by_name
        self._violation = violation
        self._asked = Unanswered[Any]()
        # Name and sequence of those that have them.
        self._named: dict[TxnID, tuple[str, int]] = {}
        # What was seen of numbers that rise, by coordinator.
        self._risen: dict[tuple[str, bytes], int] = {}
        # Transactions whose records were durable when somebody was told of it.
        self._kept: set[TxnID] = set()
        # The newest entry that was shown and was durable, by the disk, topic id and partition.
        self._shown: dict[tuple[MemoryDisk, int, int], int] = {}

    def on_request(self, link: int, frame: pb.Frame) -> None:
        """A frame is about to be handled by a server."""
        for command in frame.commands:
            name = command.WhichOneof("body")
            if name in ASKED:
                self._asked.add(link, command.request_id, getattr(command, name))

    def on_reply(self, link: int, frame: pb.Frame) -> None:
        """A frame leaves a server."""
        for command in frame.commands:
            name = command.WhichOneof("body")
            assert name is not None
            if name == "deliver":
                wire = command.deliver
                self._check_shown(link, wire.topic_id, wire.partition, wire.batches)
                continue
            asked = self._asked.take(link, command.request_id)
            if asked is None:
                continue
            if name == "error":
                continue
            if name == "read_response":
                where = asked.partition
                batches = command.read_response.batches
                self._check_shown(link, where.topic_id, where.partition, batches)
                continue
            disk = self._disk_of(link)
            if disk is None:
                continue
            if name == "new_txn_response":
                self._begun(disk, asked, TxnID.from_wire(command.new_txn_response.txn_id))
            elif name == "end_txn_response":
                self._ended(disk, asked, command.end_txn_response)
            elif name == "init_producer_response":
                self._taken_over(disk, asked, command.init_producer_response)
            elif name in ("add_partition_to_txn_response", "add_subscription_to_txn_response"):
                self._added(disk, asked)

    def on_closed(self, link: int) -> None:
        """A server was told that a link is gone."""
        self._asked.forget(link)

    def on_said(self, link: int, speaker: Named, frame: pb.Frame) -> None:
        """A coordinator writes to the broker."""
        disk = self._disk_by_name(speaker.name)
        for command in frame.commands:
            name = command.WhichOneof("body")
            if name in ENDS_HERE:
                body = getattr(command, name)
                if not body.HasField("hanging"):
                    self._end_said(disk, TxnID.from_wire(body.txn_id), body.txn_action)
            elif name == "low_watermark":
                self._watermark_said(disk, command.low_watermark)
                self._check_kept(disk, command.low_watermark)
                self._check_rising(disk, speaker.name)

    # Answers.

    def _begun(self, disk: MemoryDisk, asked: Any, txn_id: TxnID) -> None:
        bound = int.from_bytes(disk.durable("meta", b"counter") or b"", "big")
        if txn_id.counter >= bound:
            self._violation("8", f"{txn_id} is told, and would be issued again from {bound}")
        has_owner = asked.HasField("identity") or asked.HasField("named_sequence")
        if asked.answer_before_durable and not has_owner:
            return
        status = _status(disk, txn_id)
        if status is None:
            self._violation("a", f"{txn_id} is told, and no disk has it")
        self._kept.add(txn_id)
        if asked.HasField("identity"):
            name = asked.identity.transactional_id
            row = _row(disk, "identities", name, record_pb2.IdentityRow)
            if row is None or TxnID.from_wire(row.txn_id) < txn_id:
                self._violation("a", f"{txn_id} is told to {name!r}, and no disk knows whose it is")
        elif asked.HasField("named_sequence"):
            name = asked.named_sequence.name
            self._named[txn_id] = name, asked.named_sequence.sequence
            row = _row(disk, "names", name, record_pb2.NameRow)
            is_open = status == common_pb2.OPEN
            if is_open and (row is None or TxnID.from_wire(row.open_txn_id) != txn_id):
                self._violation("a", f"{txn_id} is told, and no disk knows that {name!r} has it")

    def _added(self, disk: MemoryDisk, asked: Any) -> None:
        txn_id = TxnID.from_wire(asked.txn_id)
        if disk.durable("outcomes", txn_id.to_bytes()) is not None:
            return
        known: list[Any] = []
        for record in _records(disk, txn_id):
            if isinstance(record, TxnOpened | ParticipantsAdded):
                known += record.participants
        if isinstance(asked, transaction_pb2.CommandAddPartitionToTxn):
            told: list[Any] = [PartitionName.from_wire(one) for one in asked.partitions]
        else:
            told = [SubscriptionName.from_wire(one) for one in asked.subscriptions]
        if not known or any(one not in known for one in told):
            self._violation("a", f"participants of {txn_id} are confirmed, and no disk has them")
        self._kept.add(txn_id)

    def _ended(self, disk: MemoryDisk, asked: Any, answer: Any) -> None:
        by_identity = asked.HasField("identity")
        # Without a transaction, or with an abort of nothing, it tells of what came before.
        if answer.HasField("txn_id") and not (by_identity and asked.txn_action == common_pb2.ABORT):
            txn_id = TxnID.from_wire(answer.txn_id)
            self._check_decided(disk, txn_id, asked.txn_action)
            if txn_id in self._named and asked.txn_action == common_pb2.COMMIT:
                self._check_sequence(disk, *self._named[txn_id])
        if by_identity:
            self._check_pair(disk, asked.identity.transactional_id, answer.identity)

    def _check_sequence(self, disk: MemoryDisk, name: str, sequence: int) -> None:
        row = _row(disk, "names", name, record_pb2.NameRow)
        # Without a row it was removed by hand.
        if row is not None and not (row.has_committed and row.committed_sequence >= sequence):
            self._violation("a", f"{sequence} of {name!r} is committed, and no disk says so")

    def _taken_over(self, disk: MemoryDisk, asked: Any, answer: Any) -> None:
        self._check_pair(disk, asked.transactional_id, answer)

    def _check_pair(self, disk: MemoryDisk, name: str, told: Any) -> None:
        """It is stored, or what came of it is."""
        row = _row(disk, "identities", name, record_pb2.IdentityRow)
        pair = told.producer_id, told.producer_epoch
        newest = max(
            ((row.producer_id, row.producer_epoch), (row.next_producer_id, row.next_producer_epoch))
            if row is not None
            else ((-1, -1),)
        )
        if newest < pair:
            self._violation("a", f"{name!r} is told {pair}, and its disk has {newest}")

    # What brokers show.

    def _check_shown(
        self, link: int, topic_id: int, partition: int, batches: Sequence[broker_pb2.DeliveredBatch]
    ) -> None:
        """A reader sees what is durable: entries become durable in their order."""
        disk = self._disk_of(link) if batches and topic_id else None
        # A server that syncs late shows what it has written.
        if disk is None or disk._has_note:
            return
        place = disk, topic_id, partition
        newest = max(one.entry_id for one in batches)
        if newest <= self._shown.get(place, -1):
            return
        if disk.durable(keys.LOG, keys.in_partition(*place[1:], newest)) is None:
            row = disk.durable(keys.PARTITIONS, keys.partition(*place[1:]))
            # Deleted, or removed by retention, since it was read.
            if row is None or newest < record_pb2.PartitionRow.FromString(row).first_offset:
                return
            self._violation("a", f"{topic_id}/{partition} {newest} is shown, and no disk has it")
        self._shown[place] = newest

    # Words to brokers.

    def _end_said(self, disk: MemoryDisk, txn_id: TxnID, action: int) -> None:
        if action == common_pb2.COMMIT:
            self._check_decided(disk, txn_id, action)
        elif _status(disk, txn_id) == common_pb2.OPEN:
            # What has no row was never begun, or is forgotten. Of what is committed, nothing counts
            # that a participant holds unasked.
            self._violation("a", f"the abort of {txn_id} is told, and its disk has it open")

    def _check_decided(self, disk: MemoryDisk, txn_id: TxnID, action: int) -> None:
        status = _status(disk, txn_id)
        if status is None and action == common_pb2.ABORT and is_lost(disk, txn_id):
            return
        if ACTION_OF.get(status or 0) != action:
            name = common_pb2.TxnAction.Name(action)
            self._violation("a", f"{name} of {txn_id} is told, and its disk says {status}")
        self._kept.add(txn_id)

    def _watermark_said(self, disk: MemoryDisk, body: Any) -> None:
        issuer = body.tcid << 48 | body.incarnation
        for key in disk.durable_keys("metadata"):
            txn_id = TxnID.from_bytes(key[:16])
            counter = txn_id.counter
            if txn_id.most_bits != issuer or counter >= body.low_watermark:
                continue
            if not any(one.first <= counter <= one.last for one in body.live):
                self._violation("c", f"{txn_id} is covered, and on its disk it is live")

    def _check_kept(self, disk: MemoryDisk, body: Any) -> None:
        issuer = body.tcid << 48 | body.incarnation
        for txn_id in self._kept:
            if txn_id.most_bits == issuer and is_lost(disk, txn_id):
                self._violation("2", f"{txn_id} was durable, and is said to be lost")

    def _check_rising(self, disk: MemoryDisk, name: str) -> None:
        for key in RISING:
            value = int.from_bytes(disk.durable("meta", key) or b"", "big")
            if value < self._risen.get((name, key), 0):
                self._violation("8", f"{key.decode()} of {name} has fallen to {value}")
            self._risen[name, key] = value


def _status(disk: MemoryDisk, txn_id: TxnID) -> int | None:
    """What a transaction's rows say of it; None: there are none."""
    outcome = disk.durable("outcomes", txn_id.to_bytes())
    if outcome is not None:
        return decode_outcome(txn_id, outcome).status
    status: int | None = None
    for record in _records(disk, txn_id):
        if isinstance(record, TxnOpened):
            status = common_pb2.OPEN
        elif isinstance(record, StatusChanged):
            status = record.new
    return status


def _records(disk: MemoryDisk, txn_id: TxnID) -> Iterator[MetadataRecord]:
    """The records of a live transaction."""
    prefix = txn_id.to_bytes()
    sequence = 0
    while (row := disk.durable("metadata", prefix + sequence.to_bytes(4, "big"))) is not None:
        yield decode_metadata(txn_id, row)
        sequence += 1


def is_lost(disk: MemoryDisk, txn_id: TxnID) -> bool:
    """Whether a start found that this transaction's record had been lost."""
    ranges = struct.iter_unpack(">QQ", disk.durable("meta", b"lost") or b"")
    return any(first <= txn_id.counter < end for first, end in ranges)


def _row(disk: MemoryDisk, family: str, name: str, kind: Any) -> Any:
    value = disk.durable(family, name.encode())
    return None if value is None else kind.FromString(value)
