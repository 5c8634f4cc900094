"""Messages of open transactions in a partition, for people who look for a fault.

Such messages have no id yet: the commit of their transaction decides their position. A transaction
may end during the command; its messages are then shown or not.
Source: PIP-31, Isolation Level: READ_UNCOMMITTED is needed for debugging only.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncGenerator
from contextlib import aclosing

from magnetar_broker import keys
from magnetar_broker.commands.views import Peeked, messages_of_batch
from magnetar_broker.log.entries import stored_batch_header
from magnetar_broker.topics.partition import Partition
from magnetar_broker.transactions.transaction_index import OpenTransaction, Writer
from magnetar_core.ids import TxnID
from magnetar_core.wire import broker_pb2 as wire
from magnetar_storage.store import Store

ROWS_AT_ONCE = 64
BYTES_AT_ONCE = 1 << 20


async def peek_uncommitted(
    store: Store, partition: Partition, txn_id: TxnID | None, *, skip: int, messages_max: int
) -> wire.CommandPeekResponse:
    """Return messages of an open transaction, or of all in the order of their TxnIDs.

    Args:
        skip: how many messages of that order are left out.
    Returns:
        `next_offset` is the `skip` to continue with, `end_offset` the number of messages.
    """
    open_here = partition.index.open
    chosen = sorted(open_here) if txn_id is None else [txn_id] if txn_id in open_here else []
    parts = [
        (open_here[one], writer)
        for one in chosen
        for writer in sorted(open_here[one].writers.values(), key=lambda each: each.ordinal)
    ]
    total = sum(writer.next_index for _, writer in parts)
    peeked = Peeked(messages_max)
    base = 0
    for transaction, writer in parts:
        count = writer.next_index
        if base + count > skip:
            messages = _messages(store, partition, transaction, writer, skip - base)
            async with aclosing(messages):
                async for message in messages:
                    peeked.add(message)
                    if peeked.is_full:
                        break
        base += count
        if peeked.is_full:
            break
    return peeked.response(next_offset=skip + len(peeked.messages), end_offset=total)


async def _messages(
    store: Store, partition: Partition, transaction: OpenTransaction, writer: Writer, skip: int
) -> AsyncGenerator[wire.Message, None]:
    """Yield a writer's messages, beginning with index skip."""
    prefix = keys.partition(partition.name.topic_id, partition.name.partition)
    starts = writer.batch_starts
    place = bisect_right(starts, max(skip, 0)) - 1
    # Batches that recovery could not read are not among them; reading them now reports that.
    at = starts[place] if place >= 0 and writer.are_starts_known else 0
    end = keys.txnlog(prefix, transaction.txn_id, writer.ordinal, writer.next_index)
    start = keys.txnlog(prefix, transaction.txn_id, writer.ordinal, at)
    while rows := await store.scan(
        keys.TXNLOG, start, end, rows_max=ROWS_AT_ONCE, bytes_max=BYTES_AT_ONCE
    ):
        for key, batch in rows:
            first_index = keys.last_u64(key)
            stored_batch_header(batch)
            for _, message in messages_of_batch(batch, max(0, skip - first_index)):
                message.txn_id.CopyFrom(transaction.txn_id.to_wire())
                yield message
            # Opening a batch takes time: other tasks have their turn.
            await asyncio.sleep(0)
        start = rows[-1][0] + b"\x00"
