"""List of transactions that have messages in a partition's txnlog, open or committed.

PIP-31 keeps messages of open and committed transactions in the same place, so a transaction that is
stored and not open must have its marker in the partition's log: an audit compares the two. A page
is gathered in short steps, between which other commands have their turn.
Source: PIP-31, Broker - Transaction Buffer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from magnetar_broker import keys
from magnetar_broker.topics.partition import Partition
from magnetar_core.errors import Gone, InvalidArgument
from magnetar_core.ids import TxnID
from magnetar_core.list_limits import ROWS_MAX, rows_of
from magnetar_core.wire import broker_pb2 as wire
from magnetar_core.wire import common_pb2 as common
from magnetar_storage.store import Store, end_of_prefix

# TxnIDs in a step, and steps in a page: a page ends early where most rows were deleted.
STEP_COUNT = 32
STEPS_MAX = 400

_PREFIX_BYTES = keys.PARTITION_BYTES + keys.TXN_ID_BYTES


async def list_stored(
    store: Store, partition: Partition, command: wire.CommandListStoredTxns
) -> wire.CommandListStoredTxnsResponse:
    """Return a page. It may leave when everything applied so far is durable.

    Raises:
        InvalidArgument: the command names more TxnIDs than a page may have.
        Gone: the topic was deleted meanwhile.
    """
    limit = rows_of(command.limit)
    if len(command.txn_ids) > ROWS_MAX:
        raise InvalidArgument(f"{len(command.txn_ids)} TxnIDs are asked for: {ROWS_MAX} at most")
    response = wire.CommandListStoredTxnsResponse()
    if command.txn_ids:
        await _add_named(store, partition, command.txn_ids, response)
    else:
        await _add_page(store, partition, command, limit, response)
    if partition.deleted:
        raise Gone(f"{partition.name} was deleted while it was looked at")
    response.end_offset = partition.log.end_offset
    return response


async def _add_page(
    store: Store,
    partition: Partition,
    command: wire.CommandListStoredTxns,
    limit: int,
    response: wire.CommandListStoredTxnsResponse,
) -> None:
    prefix = keys.partition(partition.name.topic_id, partition.name.partition)
    end = end_of_prefix(prefix)
    at: bytes | None = prefix
    if command.HasField("first_txn_id"):
        at = prefix + TxnID.from_wire(command.first_txn_id).to_bytes()
    for _ in range(STEPS_MAX):
        left = limit - len(response.transactions)
        if at is None or not left:
            break
        found, at = await store.prefixes(
            keys.TXNLOG, at, end, length=_PREFIX_BYTES, count_max=min(left, STEP_COUNT)
        )
        # A transaction that was in the store and is not open now has ended before the end offset of
        # this answer.
        for one in found:
            _add(partition, one, response)
        await asyncio.sleep(0)
    if at is not None:
        response.next_txn_id.CopyFrom(_txn_id_at(at).to_wire())


async def _add_named(
    store: Store,
    partition: Partition,
    txn_ids: Iterable[common.TxnId],
    response: wire.CommandListStoredTxnsResponse,
) -> None:
    prefix = keys.partition(partition.name.topic_id, partition.name.partition)
    for number, one in enumerate(txn_ids, start=1):
        start = prefix + TxnID.from_wire(one).to_bytes()
        at: bytes | None = start
        found: list[bytes] = []
        while at is not None and not found:
            found, at = await store.prefixes(
                keys.TXNLOG, at, end_of_prefix(start), length=_PREFIX_BYTES, count_max=1
            )
        for each in found:
            _add(partition, each, response)
        if number % STEP_COUNT == 0:
            await asyncio.sleep(0)


def _add(partition: Partition, prefix: bytes, response: wire.CommandListStoredTxnsResponse) -> None:
    txn_id = _txn_id_at(prefix)
    stored = response.transactions.add(txn_id=txn_id.to_wire())
    transaction = partition.index.open.get(txn_id)
    if transaction is not None:
        stored.open = True
        stored.start_offset = transaction.start_offset
        stored.start_time_ms = transaction.start_time_ms
        stored.producer_epoch = transaction.producer_epoch


def _txn_id_at(key: bytes) -> TxnID:
    """Return the first TxnID whose rows may lie at a key of the txnlog, or after it."""
    return TxnID.from_bytes(
        key[keys.PARTITION_BYTES : _PREFIX_BYTES].ljust(keys.TXN_ID_BYTES, b"\x00")
    )
