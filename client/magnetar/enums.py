"""Enumerations of the public API."""

from __future__ import annotations

from enum import IntEnum

from magnetar_core.wire import broker_pb2, common_pb2, transaction_pb2


class SubscriptionType(IntEnum):
    """Type of a subscription: how its consumers share a partition.

    - EXCLUSIVE: the subscription has a single consumer.
    - FAILOVER: a single consumer gets the messages; the others wait to take its place.
    - SHARED: the consumers take turns, without any order.
    - KEY_SHARED: the messages of a key go to the same consumer, in order.
    """

    EXCLUSIVE = broker_pb2.EXCLUSIVE
    SHARED = broker_pb2.SHARED
    FAILOVER = broker_pb2.FAILOVER
    KEY_SHARED = broker_pb2.KEY_SHARED


class InitialPosition(IntEnum):
    """Start of a new subscription: with the oldest stored message, or with the next one."""

    LATEST = broker_pb2.LATEST
    EARLIEST = broker_pb2.EARLIEST


class TransactionStatus(IntEnum):
    """The state of a transaction.

    COMMITTING and ABORTING mean that the outcome is decided, and that participants carry it out.
    Source: PIP-31, Concepts, TxnStatus.
    """

    OPEN = common_pb2.OPEN
    COMMITTING = common_pb2.COMMITTING
    COMMITTED = common_pb2.COMMITTED
    ABORTING = common_pb2.ABORTING
    ABORTED = common_pb2.ABORTED


class TransactionAction(IntEnum):
    """Decision about a transaction."""

    COMMIT = common_pb2.COMMIT
    ABORT = common_pb2.ABORT


class TransactionalState(IntEnum):
    """The state of a transactional id, with Kafka's names."""

    EMPTY = transaction_pb2.EMPTY
    ONGOING = transaction_pb2.ONGOING
    PREPARE_COMMIT = transaction_pb2.PREPARE_COMMIT
    PREPARE_ABORT = transaction_pb2.PREPARE_ABORT
    COMPLETE_COMMIT = transaction_pb2.COMPLETE_COMMIT
    COMPLETE_ABORT = transaction_pb2.COMPLETE_ABORT
