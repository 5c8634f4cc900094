"""Magnetar's client: produce, consume, and do both exactly once in transactions.

    async with await magnetar.connect("127.0.0.1:6650") as client:
        producer = await client.create_producer("flights")
        async with client.transaction() as txn:
            await producer.send(b"departed", key=b"LH 400", txn=txn)

`magnetar.blocking` has the same without asyncio.
"""

from magnetar.client import Client, connect
from magnetar.cluster import ClusterInfo, Member
from magnetar.config import ClientConfig, ConsumerConfig, ProducerConfig
from magnetar.consumer import Consumer
from magnetar.dead_letters import DeadLetterPolicy
from magnetar.errors import ClientClosed, CommitRefused, UsedAfterFork
from magnetar.identity import PreparedTxnState
from magnetar.message import Message, MessageColumns
from magnetar.model import (
    HangingTransaction,
    InitialPosition,
    NameDescription,
    PartitionDescription,
    ProducerDescription,
    SubscriptionDescription,
    SubscriptionType,
    TopicDescription,
    TopicSummary,
    TransactionAction,
    TransactionalIdDescription,
    TransactionalState,
    TransactionDescription,
    TransactionStatus,
    TxnSend,
    UncommittedMessage,
    UnfinishedParticipant,
)
from magnetar.participants import TransactionPart
from magnetar.producer import Producer
from magnetar.transaction import Transaction
from magnetar.transactional_producer import TransactionalProducer
from magnetar_core.batch import Codec
from magnetar_core.errors import (
    AuthorizationFailed,
    ChecksumMismatch,
    ClusterMismatch,
    ConcurrentTransactions,
    ConsumerBusy,
    DataLoss,
    DiskFull,
    Gone,
    InternalError,
    InvalidArgument,
    InvalidTxnState,
    LogUnavailable,
    MagnetarError,
    MessageTooLarge,
    OutcomeUnknown,
    OutOfRange,
    PartitionMoved,
    ProducerFenced,
    QuotaExceeded,
    ResourceInUse,
    SequenceCommitted,
    SequenceGap,
    SequenceTooOld,
    SubscriptionExists,
    SubscriptionNotFound,
    TopicExists,
    TopicNotFound,
    TransactionalIdAuthorizationFailed,
    TransactionalIdNotFound,
    TransactionConflict,
    TxnError,
    TxnForgotten,
    TxnIncomplete,
    TxnNotFound,
)
from magnetar_core.ids import MessageId, PartitionName, SubscriptionName, TxnID

__all__ = [
    "AuthorizationFailed",
    "ChecksumMismatch",
    "Client",
    "ClientClosed",
    "ClientConfig",
    "ClusterInfo",
    "ClusterMismatch",
    "Codec",
    "CommitRefused",
    "ConcurrentTransactions",
    "Consumer",
    "ConsumerBusy",
    "ConsumerConfig",
    "DataLoss",
    "DeadLetterPolicy",
    "DiskFull",
    "Gone",
    "HangingTransaction",
    "InitialPosition",
    "InternalError",
    "InvalidArgument",
    "InvalidTxnState",
    "LogUnavailable",
    "MagnetarError",
    "Member",
    "Message",
    "MessageColumns",
    "MessageId",
    "MessageTooLarge",
    "NameDescription",
    "OutOfRange",
    "OutcomeUnknown",
    "PartitionDescription",
    "PartitionMoved",
    "PartitionName",
    "PreparedTxnState",
    "Producer",
    "ProducerConfig",
    "ProducerDescription",
    "ProducerFenced",
    "QuotaExceeded",
    "ResourceInUse",
    "SequenceCommitted",
    "SequenceGap",
    "SequenceTooOld",
    "SubscriptionDescription",
    "SubscriptionExists",
    "SubscriptionName",
    "SubscriptionNotFound",
    "SubscriptionType",
    "TopicDescription",
    "TopicExists",
    "TopicNotFound",
    "TopicSummary",
    "Transaction",
    "TransactionAction",
    "TransactionConflict",
    "TransactionDescription",
    "TransactionPart",
    "TransactionStatus",
    "TransactionalIdAuthorizationFailed",
    "TransactionalIdDescription",
    "TransactionalIdNotFound",
    "TransactionalProducer",
    "TransactionalState",
    "TxnError",
    "TxnForgotten",
    "TxnID",
    "TxnIncomplete",
    "TxnNotFound",
    "TxnSend",
    "UncommittedMessage",
    "UnfinishedParticipant",
    "UsedAfterFork",
    "connect",
]
