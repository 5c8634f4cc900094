"""Continue after the broker's store lost data: a person accepted that, or the machine went down.

Nothing that was given out before may be given out again: ids of topics and subscriptions,
incarnations of coordinators, and offsets, of which clients and cursors may know more than the log.
Families of rows reach the disk at different times, so some know more than others.
Source: docs/protocol/rules.md, rules b and n; docs/design/0014-durability.md.
"""

from __future__ import annotations

import logging

from magnetar_broker import keys
from magnetar_broker.environment import Environment
from magnetar_broker.log.entries import parse_entry
from magnetar_broker.topics.partition import Partition
from magnetar_broker.topics.topics import Topics
from magnetar_core.errors import DataLoss
from magnetar_storage.store import RowsUnreadable, end_of_prefix

log = logging.getLogger(__name__)

# New ids begin above all ids that could have been given out: so many lie between two losses. Serial
# numbers of topics have fewer bits, which have to last for the loss of many whole stores.
ID_BITS = 32
SERIALS_BETWEEN_LOSSES = 1 << 24


async def go_on_without(environment: Environment, topics: Topics, losses: int) -> None:
    """Skip ids, incarnations and offsets that may be lost. Call it after recovery.

    It acts once after each loss.

    Args:
        losses: how many losses there were so far.
    """
    row = await environment.store.get(keys.META, keys.META_LOSSES)
    if losses <= (keys.read_u64(row) if row is not None else 0):
        return
    log.warning("continuing without the lost data: ledger %d", topics.ledger_id)
    if not environment.config.shard:
        # Other brokers give out none: the first broker's directory says which is the next.
        known = max(topics.next_serial, (losses - 1) * SERIALS_BETWEEN_LOSSES + 1)
        topics.next_serial = known + SERIALS_BETWEEN_LOSSES
    topics.next_subscription_id = max(topics.next_subscription_id, (losses << ID_BITS) + 1)
    for partition in topics.partitions():
        partition.log.jump(await _known_end(environment, partition))
        environment.defer_rows(partition)
    batch = environment.commits.batch
    batch.put(keys.META, keys.META_NEXT_TOPIC_ID, keys.u64(topics.next_serial))
    batch.put(keys.META, keys.META_NEXT_SUBSCRIPTION_ID, keys.u64(topics.next_subscription_id))
    batch.put(keys.META, keys.META_LOSSES, keys.u64(losses))


async def _known_end(environment: Environment, partition: Partition) -> int:
    """Return an offset above all offsets that any row mentions."""
    store = environment.store
    ends = [one.cursor.known_end for one in partition.subscriptions]
    prefix = keys.partition(partition.name.topic_id, partition.name.partition)
    # Where the log ends according to the partition's own row. Entries behind it are of a family
    # that reached the disk earlier.
    at: bytes | None = prefix + keys.u64(partition.log.end_offset)
    ahead: list[bytes] = []
    while at is not None and not ahead:
        ahead, at = await store.prefixes(
            keys.LOG, at, end_of_prefix(prefix), length=keys.IN_PARTITION_BYTES, count_max=1
        )
    if not ahead:
        # So the newest entry need not be readable.
        return max(ends, default=0)
    newest = await store.scan(keys.LOG, prefix, end_of_prefix(prefix), rows_max=1, reverse=True)
    try:
        ends += [parse_entry(keys.last_u64(key), value).end for key, value in newest]
    except DataLoss as error:
        raise RowsUnreadable(str(error), family=keys.LOG) from error
    return max(ends)
