"""Families and keys of the broker's store. Big-endian, so that scans come in order.

    topics         topic id                                             TopicRecord
    partitions     topic id, partition                                  PartitionRow
    log            topic id, partition, entry id                        an entry, see entries.py
    txnlog         topic id, partition, TxnID, producer ordinal, index  a batch
    txnindex       TxnID, topic id, partition, subscription id          see index_rows.py
                   ... and writer ordinal, but for the first writer     see index_rows.py
    producers      topic id, partition, producer id                     ProducerRow
    subscriptions  topic id, partition, subscription id                 SubscriptionRecord
    cursors        topic id, partition, subscription id, chunk          512 bytes of acked bits
    pendingacks    topic id, partition, subscription id, TxnID, consumer ordinal, ack sequence
                                                                        see acknowledgements.py
    groups         a group's name                                       GroupRow
    meta           a name                         counters, watermarks, incarnations, identity,
                                                  stores of other brokers, groups of Kafka's clients

A partition's own index rows have the subscription id 0. The lowest row of a cursor is where its
mark-delete lies: everything below that chunk is acknowledged.
"""

from __future__ import annotations

import struct

from magnetar_core.ids import TxnID

TOPICS = "topics"
PARTITIONS = "partitions"
LOG = "log"
TXNLOG = "txnlog"
TXNINDEX = "txnindex"
PRODUCERS = "producers"
SUBSCRIPTIONS = "subscriptions"
CURSORS = "cursors"
PENDINGACKS = "pendingacks"
GROUPS = "groups"
META = "meta"

FAMILIES = (
    TOPICS,
    PARTITIONS,
    LOG,
    TXNLOG,
    TXNINDEX,
    PRODUCERS,
    SUBSCRIPTIONS,
    CURSORS,
    PENDINGACKS,
    GROUPS,
    META,
)
PAYLOAD_FAMILIES = (LOG, TXNLOG)
# Families whose keys begin with the partition.
PARTITION_FAMILIES = (PARTITIONS, LOG, TXNLOG, PRODUCERS, SUBSCRIPTIONS, CURSORS, PENDINGACKS)

META_NEXT_TOPIC_ID = b"next_topic_id"
META_NEXT_SUBSCRIPTION_ID = b"next_subscription_id"
META_LOSSES = b"losses"
META_INCARNATION = b"incarnation/"
META_WATERMARK = b"watermark/"
META_FORMER_WATERMARK = b"former_watermark/"
META_RUN_TIME = b"run_time"
META_CLOCK_JUMPS = b"clock_jumps"
META_DIRECTORY_COPY = b"directory_copy"
META_DIRECTORY_LIVES = b"directory_lives"
META_PAST_CALL = b"past_call/"
META_BROKER_STORE = b"broker_store/"
META_KAFKA_GROUP = b"kafka_group/"

_U16 = struct.Struct(">H")
_U64 = struct.Struct(">Q")
_PARTITION = struct.Struct(">QI")
_PARTITION_AND_U64 = struct.Struct(">QIQ")
# The length of a key of log, producers or subscriptions.
IN_PARTITION_BYTES = _PARTITION_AND_U64.size
_SUBSCRIPTION_CHUNK = struct.Struct(">QIQQ")
_ORDINAL_AND_INDEX = struct.Struct(">IQ")
_ORDINAL = struct.Struct(">I")
# A TxnID with an ordinal and an index; a TxnID with a topic id, partition and subscription id.
_IN_TXN = struct.Struct(">QQIQ")
_TXN_AT = struct.Struct(">QQQIQ")

PARTITION_BYTES = _PARTITION.size
TXN_ID_BYTES = 16


def topic(topic_id: int) -> bytes:
    """Return the key of a topic."""
    return _U64.pack(topic_id)


def partition(topic_id: int, number: int) -> bytes:
    """Return the prefix of all keys that belong to a partition."""
    return _PARTITION.pack(topic_id, number)


def in_partition(topic_id: int, number: int, key: int) -> bytes:
    """Return a key of log, producers or subscriptions: a partition and a number."""
    return _PARTITION_AND_U64.pack(topic_id, number, key)


def last_u64(key: bytes) -> int:
    """Return the number at a key's end."""
    return int(_U64.unpack_from(key, len(key) - 8)[0])


def txnlog(prefix: bytes, txn_id: TxnID, ordinal: int, index: int) -> bytes:
    """Return the key of a batch in the txnlog."""
    return prefix + _IN_TXN.pack(*txn_id, ordinal, index)


def txnlog_place(key: bytes) -> tuple[TxnID, int, int]:
    """Return TxnID, producer ordinal and index of a txnlog key."""
    txn_id = TxnID.from_bytes(key[PARTITION_BYTES : PARTITION_BYTES + TXN_ID_BYTES])
    ordinal, index = _ORDINAL_AND_INDEX.unpack_from(key, PARTITION_BYTES + TXN_ID_BYTES)
    return txn_id, ordinal, index


def txnindex(txn_id: TxnID, topic_id: int, number: int, subscription_id: int = 0) -> bytes:
    """Return the key of a transaction in a participant's index."""
    return _TXN_AT.pack(*txn_id, topic_id, number, subscription_id)


def txnindex_writer(index_key: bytes, ordinal: int) -> bytes:
    """Return the key of a writer's row in a participant's index."""
    return index_key + _ORDINAL.pack(ordinal)


def txnindex_place(key: bytes) -> tuple[TxnID, int, int, int, int | None]:
    """Return TxnID, topic id, partition, subscription id, and a writer row's ordinal."""
    txn_id = TxnID.from_bytes(key[:TXN_ID_BYTES])
    topic_id, number, subscription_id = _PARTITION_AND_U64.unpack_from(key, TXN_ID_BYTES)
    at = TXN_ID_BYTES + _PARTITION_AND_U64.size
    ordinal = _ORDINAL.unpack_from(key, at)[0] if len(key) > at else None
    return txn_id, topic_id, number, subscription_id, ordinal


def cursor_chunk(topic_id: int, number: int, subscription_id: int, chunk: int) -> bytes:
    """Return the key of a chunk of a cursor."""
    return _SUBSCRIPTION_CHUNK.pack(topic_id, number, subscription_id, chunk)


def pending_ack(prefix: bytes, txn_id: TxnID, ordinal: int, ack_sequence: int) -> bytes:
    """Return the key of a pending ack.

    Args:
        prefix: in_partition(topic id, partition, subscription id).
    """
    return prefix + _IN_TXN.pack(*txn_id, ordinal, ack_sequence)


def pending_ack_place(key: bytes) -> tuple[TxnID, int, int]:
    """Return TxnID, consumer ordinal and ack sequence of a pendingacks key."""
    at = _PARTITION_AND_U64.size
    txn_id = TxnID.from_bytes(key[at : at + TXN_ID_BYTES])
    ordinal, ack_sequence = _ORDINAL_AND_INDEX.unpack_from(key, at + TXN_ID_BYTES)
    return txn_id, ordinal, ack_sequence


def group(name: str) -> bytes:
    """Return the key of a group."""
    return name.encode()


def incarnation(tcid: int) -> bytes:
    """Return the key of a coordinator's incarnation."""
    return META_INCARNATION + _U16.pack(tcid)


def broker_store(name: str) -> bytes:
    """Return the key of another broker's store."""
    return META_BROKER_STORE + name.encode()


def kafka_group(name: str) -> bytes:
    """Return the key of a group of Kafka's clients."""
    return META_KAFKA_GROUP + name.encode()


def past_call(number: int) -> bytes:
    """Return the key of a call that created or deleted a topic."""
    return META_PAST_CALL + _U64.pack(number)


def watermark(tcid: int) -> bytes:
    """Return the key of a coordinator's watermark."""
    return META_WATERMARK + _U16.pack(tcid)


def former_watermark(tcid: int, incarnation: int) -> bytes:
    """Return the key of the last watermark of a coordinator's former incarnation."""
    return META_FORMER_WATERMARK + _U16.pack(tcid) + _U64.pack(incarnation)


def former_watermark_tcid(key: bytes) -> int:
    """Return the TCID in the key of a former incarnation's watermark."""
    return int(_U16.unpack_from(key, len(META_FORMER_WATERMARK))[0])


def u64(value: int) -> bytes:
    """Encode a 64-bit number."""
    return _U64.pack(value)


def read_u64(value: bytes) -> int:
    """Decode a 64-bit number."""
    return int(_U64.unpack(value)[0])
