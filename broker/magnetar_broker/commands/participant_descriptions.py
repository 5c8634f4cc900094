"""CommandDescribeParticipants: the parts of one transaction at the participants of this broker.

While the transaction is open, memory tells it. Its end leaves a row in the transaction index and a
marker in the log, which tell it until the coordinator's watermark covers the transaction: that is
seconds after it has ended everywhere. From then on a commit is known by its messages alone, in the
txnlog; a part of them is counted.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from magnetar_broker import keys
from magnetar_broker.log.entries import MarkerEntry, parse_entry, stored_batch_header
from magnetar_broker.subscriptions.subscription import Subscription
from magnetar_broker.topics.partition import Partition
from magnetar_broker.topics.topics import Topics
from magnetar_broker.transactions.index_rows import EndedRow, OpenRow, parse
from magnetar_broker.transactions.transaction_index import Outcome, TransactionIndex
from magnetar_core.errors import DataLoss, InvalidArgument, MagnetarError
from magnetar_core.ids import TxnID
from magnetar_core.wire import broker_pb2 as wire
from magnetar_core.wire import common_pb2 as common
from magnetar_storage.store import RowsUnreadable, Store, end_of_prefix, scan_readable

PARTICIPANTS_MAX: Final = 1_000
# Rows of messages that are read for a participant, and how many bytes.
ROWS_MAX: Final = 512
BYTES_MAX: Final = 1 << 20
# Bytes that are read for a command.
COMMAND_BYTES_MAX: Final = 8 << 20

_STATUS = {Outcome.COMMITTED: common.COMMITTED, Outcome.ABORTED: common.ABORTED}


class _Kept(NamedTuple):
    """Rows that the end of a transaction has left at a participant.

    Attributes:
        start_time_ms: when it first wrote here; 0: not known.
        marker_entry_id: where the partition's log has its marker; None: there is none.
    """

    start_time_ms: int = 0
    marker_entry_id: int | None = None


class ParticipantDescriptions:
    """Answers of a broker about its participants."""

    def __init__(self, store: Store, topics: Topics) -> None:
        self._store = store
        self._topics = topics

    async def describe(
        self, command: wire.CommandDescribeParticipants
    ) -> wire.CommandDescribeParticipantsResponse:
        """Describe participants one after the other, while other commands have their turns.

        Raises:
            InvalidArgument: too many participants are named, or no transaction.
        """
        count = len(command.partitions) + len(command.subscriptions)
        if count > PARTICIPANTS_MAX:
            raise InvalidArgument(f"{count} participants are asked for: {PARTICIPANTS_MAX} at most")
        if not command.HasField("txn_id"):
            raise InvalidArgument("txn_id is missing")
        txn_id = TxnID.from_wire(command.txn_id)
        response = wire.CommandDescribeParticipantsResponse()
        bytes_left = COMMAND_BYTES_MAX
        for name in command.partitions:
            described = response.participants.add(partition=name)
            try:
                partition = self._topics.named(name)
                bytes_left -= await self._partition(partition, txn_id, described, bytes_left)
            except (MagnetarError, RowsUnreadable) as error:
                described.error.CopyFrom(_to_wire(error))
            await asyncio.sleep(0)
        for one in command.subscriptions:
            described = response.participants.add(
                partition=common.Partition(
                    topic=one.topic, partition=one.partition, topic_id=one.topic_id
                ),
                subscription=one.subscription,
            )
            try:
                subscription = self._topics.named(one).subscriptions.get(one.subscription)
                await self._subscription(subscription, txn_id, described)
            except (MagnetarError, RowsUnreadable) as error:
                described.error.CopyFrom(_to_wire(error))
            await asyncio.sleep(0)
        return response

    async def _partition(
        self,
        partition: Partition,
        txn_id: TxnID,
        described: wire.ParticipantDescription,
        bytes_max: int,
    ) -> int:
        """Describe a partition's part. Returns how many bytes were read."""
        _from_memory(partition.index, txn_id, described)
        if described.status == common.OPEN:
            return 0
        name = partition.name
        kept = await self._kept(keys.txnindex(txn_id, name.topic_id, name.partition))
        described.first_write_ms = kept.start_time_ms
        if described.status == common.ABORTED:
            return 0
        if kept.marker_entry_id is not None:
            key = keys.in_partition(name.topic_id, name.partition, kept.marker_entry_id)
            row = await self._store.get(keys.LOG, key)
            marker = None if row is None else parse_entry(kept.marker_entry_id, row)
            if isinstance(marker, MarkerEntry):
                described.status = common.COMMITTED
                described.count = marker.count
                described.bytes = marker.stored_bytes
                return 0
        return await self._count(partition, txn_id, described, min(bytes_max, BYTES_MAX))

    async def _count(
        self,
        partition: Partition,
        txn_id: TxnID,
        described: wire.ParticipantDescription,
        bytes_max: int,
    ) -> int:
        """Count messages in the txnlog, as far as the limits allow. Returns the bytes read."""
        if bytes_max <= 0:
            described.counted_partly = True
            return 0
        prefix = keys.partition(partition.name.topic_id, partition.name.partition)
        start = prefix + txn_id.to_bytes()
        end = end_of_prefix(start)
        rows = await scan_readable(
            self._store, keys.TXNLOG, start, end, rows_max=ROWS_MAX, bytes_max=bytes_max
        )
        if rows:
            described.status = common.COMMITTED
            described.count = sum(
                stored_batch_header(batch, verify=False).count for _, batch in rows
            )
            described.bytes = sum(len(batch) for _, batch in rows)
            more = await self._store.scan(
                keys.TXNLOG, rows[-1][0] + b"\x00", end, rows_max=1, bytes_max=1
            )
            described.counted_partly = bool(more)
        return sum(len(key) + len(batch) for key, batch in rows)

    async def _subscription(
        self, subscription: Subscription, txn_id: TxnID, described: wire.ParticipantDescription
    ) -> None:
        _from_memory(subscription.index, txn_id, described)
        pending = subscription.cursor.transactions.get(txn_id)
        if pending is not None:
            described.pending_ack_count = len(pending.offsets)
        if described.status != common.OPEN:
            name = subscription.name
            key = keys.txnindex(txn_id, name.topic_id, name.partition, subscription.subscription_id)
            described.first_write_ms = (await self._kept(key)).start_time_ms

    async def _kept(self, key: bytes) -> _Kept:
        row = await self._store.get(keys.TXNINDEX, key)
        try:
            found = None if row is None else parse(row)
        except ValueError as error:
            raise DataLoss(str(error)) from error
        if isinstance(found, EndedRow):
            return _Kept(found.start_time_ms, found.marker_entry_id)
        # The row of an end is not written yet.
        return _Kept(found.start_time_ms) if isinstance(found, OpenRow) else _Kept()


def _from_memory(
    index: TransactionIndex, txn_id: TxnID, described: wire.ParticipantDescription
) -> None:
    """Fill in the fields that memory knows, before anything else happens."""
    transaction = index.open.get(txn_id)
    if transaction is not None:
        writers = transaction.writers.values()
        described.status = common.OPEN
        described.count = sum(writer.next_index for writer in writers)
        described.bytes = sum(writer.stored_bytes for writer in writers)
        described.first_write_ms = transaction.start_time_ms
        return
    ended = index.ended.get(txn_id)
    if ended is not None:
        described.status = _STATUS[ended.outcome]


def _to_wire(error: MagnetarError | RowsUnreadable) -> common.ServerError:
    if isinstance(error, MagnetarError):
        return error.to_wire()
    return DataLoss(f"the requested rows cannot be read: {error}").to_wire()
