"""Enumerations of the public API."""

from __future__ import annotations

from enum import IntEnum
from typing import Literal, TypeAlias

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


# Names of members, for those who write texts. Capitals do not matter.
SubscriptionTypeName: TypeAlias = Literal["exclusive", "shared", "failover", "key_shared"]
InitialPositionName: TypeAlias = Literal["latest", "earliest"]
CodecName: TypeAlias = Literal["none", "zstd", "lz4"]
BatchingName: TypeAlias = Literal["mixed", "by_key"]


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


class EndCause(IntEnum):
    """Why a transaction ends as it does.

    - CAUSE_UNKNOWN: its outcome is not decided, or was decided before its coordinator was started.
    - BY_CLIENT: a client that worked in it committed or aborted it.
    - BY_HAND: an administrator did, or another client that used `client.admin`.
    - TIMED_OUT: its timeout was over.
    - TAKEN_OVER: another instance took over its transactional id, or another run the name of its
      sequence.
    - MEMBER_EXPELLED: a member of a consumer group that took part is gone.
    - RESTORED_FROM_BACKUP: it was open in a backup that was restored.
    - DECIDED_BEFORE_LOSS: the coordinator lost the decision, and participants had carried it out.
    """

    CAUSE_UNKNOWN = transaction_pb2.CAUSE_UNKNOWN
    BY_CLIENT = transaction_pb2.BY_CLIENT
    BY_HAND = transaction_pb2.BY_HAND
    TIMED_OUT = transaction_pb2.TIMED_OUT
    TAKEN_OVER = transaction_pb2.TAKEN_OVER
    MEMBER_EXPELLED = transaction_pb2.MEMBER_EXPELLED
    RESTORED_FROM_BACKUP = transaction_pb2.RESTORED_FROM_BACKUP
    DECIDED_BEFORE_LOSS = transaction_pb2.DECIDED_BEFORE_LOSS


class DetailsMissing(IntEnum):
    """Why the details of a transaction that has ended are not kept.

    - DETAILS_ARE_THERE: they are.
    - ENDED_BEFORE_START: it had ended before its coordinator was started.
    - MANY_ENDED_SINCE: thousands have ended since.
    """

    DETAILS_ARE_THERE = transaction_pb2.DETAILS_ARE_THERE
    ENDED_BEFORE_START = transaction_pb2.ENDED_BEFORE_START
    MANY_ENDED_SINCE = transaction_pb2.MANY_ENDED_SINCE


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
