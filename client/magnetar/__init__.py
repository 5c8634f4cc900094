"""Magnetar's client: produce, consume, and do both exactly once in transactions.

    async with await magnetar.connect("127.0.0.1:6650") as client:
        producer = await client.create_producer("flights")
        async with client.transaction() as txn:
            await producer.send(b"departed", key=b"LH 400", txn=txn)

`magnetar.blocking` has the same without asyncio.
"""

from magnetar.admin.admin_client import AdminClient
from magnetar.admin.group_descriptions import (
    GroupDescription,
    GroupMember,
    GroupPartition,
    GroupState,
    GroupSummary,
    OffsetReset,
)
from magnetar.admin.members import (
    ClusterMember,
    ClusterMembers,
    MemberLease,
    MemberShard,
    ShardMove,
)
from magnetar.admin.producer_descriptions import (
    HangingTransaction,
    NameDescription,
    ProducerDescription,
    TransactionalIdDescription,
)
from magnetar.admin.topic_descriptions import (
    PartitionDescription,
    PartitionOffsets,
    SubscriptionDescription,
    TopicDescription,
    TopicOffsets,
    TopicSummary,
    UncommittedMessage,
)
from magnetar.admin.transaction_changes import TransactionChanges
from magnetar.admin.transaction_descriptions import (
    ConfirmedWrites,
    EndedParticipant,
    StoredTransaction,
    StoredTransactions,
    TransactionClient,
    TransactionDescription,
    UnfinishedParticipant,
)
from magnetar.admin.transaction_history import ParticipantHistory, TransactionHistory
from magnetar.client import Client
from magnetar.column_batch import BytesColumn, ColumnBatch
from magnetar.config import Batching, ClientConfig, ConsumerConfig, ProducerConfig
from magnetar.connecting import connect
from magnetar.cuts.cut import Cut
from magnetar.enums import (
    DetailsMissing,
    EndCause,
    InitialPosition,
    SubscriptionType,
    TransactionAction,
    TransactionalState,
    TransactionStatus,
)
from magnetar.errors import (
    AuthenticationFailed,
    AuthorizationFailed,
    ChecksumMismatch,
    ClientClosed,
    ClientFailed,
    ClusterMismatch,
    CommitRefused,
    ConcurrentTransactions,
    ConsumerBusy,
    CutUnfinished,
    DataLoss,
    DiskFull,
    FencedInstance,
    Gone,
    GroupNotFound,
    IllegalGeneration,
    InternalError,
    InvalidArgument,
    InvalidTxnState,
    LogUnavailable,
    MagnetarError,
    MessageTooLarge,
    OutcomeUnknown,
    OutOfRange,
    PartitionMoved,
    PoisonMessage,
    ProducerFenced,
    QuotaExceeded,
    ResourceInUse,
    SequenceCommitted,
    SequenceDiffers,
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
    Unimplemented,
    UnknownMember,
    UnsupportedEnvironment,
    UnsupportedVersion,
    UsedAfterFork,
    WrongEventLoop,
)
from magnetar.groups.group_consumer import GroupConsumer
from magnetar.groups.offsets import offsets
from magnetar.groups.processing import Output, ProcessSummary, process
from magnetar.link.members import ClusterInfo, Member
from magnetar.message import Message, MessageColumns
from magnetar.messaging.consuming.consumer import Consumer
from magnetar.messaging.consuming.dead_letters import DeadLetterPolicy
from magnetar.messaging.sending.producer import Producer
from magnetar.topic_partition import TopicPartition
from magnetar.transactions.producer_identity import PreparedTxnState
from magnetar.transactions.transaction import Transaction
from magnetar.transactions.transaction_block import NotGiven
from magnetar.transactions.transaction_part import TransactionPart
from magnetar.transactions.transactional_producer import TransactionalProducer
from magnetar.transactions.txn_send import TxnSend
from magnetar_core.batch import Codec
from magnetar_core.error_kinds import ErrorKind
from magnetar_core.ids import MessageId, PartitionName, SubscriptionName, TxnID
from magnetar_core.security.link_security import TlsFiles

__all__ = [
    "AdminClient",
    "AuthenticationFailed",
    "AuthorizationFailed",
    "Batching",
    "BytesColumn",
    "ChecksumMismatch",
    "Client",
    "ClientClosed",
    "ClientConfig",
    "ClientFailed",
    "ClusterInfo",
    "ClusterMember",
    "ClusterMembers",
    "ClusterMismatch",
    "Codec",
    "ColumnBatch",
    "CommitRefused",
    "ConcurrentTransactions",
    "ConfirmedWrites",
    "Consumer",
    "ConsumerBusy",
    "ConsumerConfig",
    "Cut",
    "CutUnfinished",
    "DataLoss",
    "DeadLetterPolicy",
    "DetailsMissing",
    "DiskFull",
    "EndCause",
    "EndedParticipant",
    "ErrorKind",
    "FencedInstance",
    "Gone",
    "GroupConsumer",
    "GroupDescription",
    "GroupMember",
    "GroupNotFound",
    "GroupPartition",
    "GroupState",
    "GroupSummary",
    "HangingTransaction",
    "IllegalGeneration",
    "InitialPosition",
    "InternalError",
    "InvalidArgument",
    "InvalidTxnState",
    "LogUnavailable",
    "MagnetarError",
    "Member",
    "MemberLease",
    "MemberShard",
    "Message",
    "MessageColumns",
    "MessageId",
    "MessageTooLarge",
    "NameDescription",
    "NotGiven",
    "OffsetReset",
    "OutOfRange",
    "OutcomeUnknown",
    "Output",
    "ParticipantHistory",
    "PartitionDescription",
    "PartitionMoved",
    "PartitionName",
    "PartitionOffsets",
    "PoisonMessage",
    "PreparedTxnState",
    "ProcessSummary",
    "Producer",
    "ProducerConfig",
    "ProducerDescription",
    "ProducerFenced",
    "QuotaExceeded",
    "ResourceInUse",
    "SequenceCommitted",
    "SequenceDiffers",
    "SequenceGap",
    "SequenceTooOld",
    "ShardMove",
    "StoredTransaction",
    "StoredTransactions",
    "SubscriptionDescription",
    "SubscriptionExists",
    "SubscriptionName",
    "SubscriptionNotFound",
    "SubscriptionType",
    "TlsFiles",
    "TopicDescription",
    "TopicExists",
    "TopicNotFound",
    "TopicOffsets",
    "TopicPartition",
    "TopicSummary",
    "Transaction",
    "TransactionAction",
    "TransactionChanges",
    "TransactionClient",
    "TransactionConflict",
    "TransactionDescription",
    "TransactionHistory",
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
    "Unimplemented",
    "UnknownMember",
    "UnsupportedEnvironment",
    "UnsupportedVersion",
    "UsedAfterFork",
    "WrongEventLoop",
    "connect",
    "offsets",
    "process",
]
