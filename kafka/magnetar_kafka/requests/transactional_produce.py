"""Batches of transactions: kept apart until their transaction is committed, without offsets.

A batch is accepted only when the coordinator has its partition as a participant. From version 12
of Produce on the broker sees to that (KIP-890); before, only AddPartitionsToTxn in this
transaction does.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from magnetar_broker.transactions.sender import Sender
from magnetar_core.errors import (
    InvalidArgument,
    InvalidTxnState,
    MagnetarError,
    SequenceGap,
    TxnNotFound,
)
from magnetar_core.ids import PartitionName, TxnID
from magnetar_kafka.error_codes import ErrorCode, Refused
from magnetar_kafka.requests.batches import Batch, refusing
from magnetar_kafka.requests.partitions import locate
from magnetar_kafka.shards import Shards
from magnetar_kafka.transactions.transaction_codes import codes_of_produce
from magnetar_kafka.transactions.transactions import Pair, Transactions

FIRST_PRODUCE_OF_V2 = 12


class TransactionalProduce:
    """Appends batches of transactions."""

    def __init__(self, shards: Shards, transactions: Transactions) -> None:
        self._shards = shards
        self._transactions = transactions

    async def append(
        self, transactional_id: str, batches: Sequence[Batch], *, version: int, sender: Sender
    ) -> None:
        """Append the batches of a request, and fill in their parts of the answer.

        Args:
            version: of the request.
        """
        codes = codes_of_produce(version)
        head = batches[0].head
        pair = Pair(head.producer_id, head.producer_epoch)
        txn_id: TxnID | None = None
        missing: Collection[PartitionName] = ()
        reason: Refused | MagnetarError = InvalidTxnState(
            f"{transactional_id!r} has not added the partition to its transaction"
        )
        try:
            if any((one.head.producer_id, one.head.producer_epoch) != pair for one in batches):
                raise Refused(ErrorCode.INVALID_RECORD, "the batches are of several producers")
            names = [one.name for one in batches]
            if version >= FIRST_PRODUCE_OF_V2:
                txn_id = await self._transactions.add(transactional_id, pair, names)
            else:
                txn_id, missing = await self._transactions.open_txn(transactional_id, pair, names)
        except (Refused, MagnetarError) as error:
            reason = error
        for batch in batches:
            with refusing(batch.part, codes.of):
                if txn_id is None or batch.name in missing:
                    raise reason
                try:
                    await self._append(txn_id, pair, batch, sender)
                except (InvalidTxnState, TxnNotFound) as error:
                    await self._say_why(transactional_id, pair, batch)
                    raise Refused(codes.ended, str(error)) from None

    async def _append(self, txn_id: TxnID, pair: Pair, batch: Batch, sender: Sender) -> None:
        """Append a batch.

        Raises:
            Refused: it is neither the producer's next one nor a repeat, or the topic is another.
            MagnetarError: as LocalAccess.append_in_transaction.
        """
        name, head, part = batch.name, batch.head, batch.part
        shard, _ = locate(self._shards, name.topic, name.partition, part)
        await shard.access.announced(txn_id)
        shard, partition = locate(self._shards, name.topic, name.partition, part)
        if partition.name != name:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name.topic!r} was deleted")
        try:
            part.confirms = shard.access.append_in_transaction(
                partition,
                batch.records,
                head.count,
                head.max_timestamp_ms,
                txn_id=txn_id,
                producer_id=pair.producer_id,
                producer_epoch=pair.epoch,
                sequence=head.base_sequence,
                sender=sender,
            )
        except (SequenceGap, InvalidArgument) as error:
            raise Refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, str(error)) from None
        part.fields["log_start_offset"] = partition.log.first_offset

    async def _say_why(self, transactional_id: str, pair: Pair, batch: Batch) -> None:
        """Let the coordinator say why a transaction that seemed open has ended.

        Raises:
            MagnetarError: the reason. Without one only this partition has ended it.
        """
        self._transactions.forget(transactional_id)
        await self._transactions.open_txn(transactional_id, pair, [batch.name])
