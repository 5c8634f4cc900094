"""Placement: which shard keeps a partition, and which coordinator a transactional id. Pure.

A topic id names the shards of its topic, as a TxnID names its coordinator: a client that knows a
partition's name knows its shard without asking a server. The partitions are dealt out to the shards
in turn, from a first shard that depends on the topic's name: the first partitions of all topics do
not meet on one.

    11 bits: shards of the topic, less one | 11 bits: the first | 40 bits: serial number

With a single shard the id is its serial number: 1, 2, 3. Ids fit 63 bits, as tables need.
Source: docs/design/0008-cluster.md, Placement.
"""

from __future__ import annotations

from collections.abc import Iterable

import google_crc32c

SERIAL_BITS = 40
SHARD_BITS = 11
SERIAL_MAX = (1 << SERIAL_BITS) - 1
SHARDS_MAX = 1 << SHARD_BITS
_SHARD_MASK = SHARDS_MAX - 1


def new_topic_id(topic: str, serial: int, shards: int) -> int:
    """Return the id of a topic that is spread over the first shards.

    Args:
        serial: from 1 to SERIAL_MAX, never used before.
        shards: how many, from 1 to SHARDS_MAX.
    Raises:
        ValueError: an argument is outside its range.
    """
    if not 0 < serial <= SERIAL_MAX:
        raise ValueError(f"serial {serial} does not fit {SERIAL_BITS} bits")
    if not 0 < shards <= SHARDS_MAX:
        raise ValueError(f"a topic has 1 to {SHARDS_MAX} shards, not {shards}")
    first: int = google_crc32c.value(topic.encode()) % shards
    return (shards - 1) << (SHARD_BITS + SERIAL_BITS) | first << SERIAL_BITS | serial


def serial_of(topic_id: int) -> int:
    """Return the serial number: a later topic has a higher one."""
    return topic_id & SERIAL_MAX


def shard_of(topic_id: int, partition: int) -> int:
    """Return the number of the shard that keeps a partition, from 0."""
    first = topic_id >> SERIAL_BITS & _SHARD_MASK
    return (first + partition) % shard_count_of(topic_id)


def shard_count_of(topic_id: int) -> int:
    """Return how many shards the topic is spread over: the first ones."""
    return (topic_id >> (SHARD_BITS + SERIAL_BITS) & _SHARD_MASK) + 1


def tcid_of(name: str, tcids: Iterable[int]) -> int:
    """Return the coordinator of a transactional id or a named sequence: rendezvous hashing.

    Everyone finds the same one, as long as the members are the same.

    Args:
        tcids: of all coordinators; one at least.
    """
    return max(tcids, key=lambda tcid: google_crc32c.value(f"{tcid}/{name}".encode()))
