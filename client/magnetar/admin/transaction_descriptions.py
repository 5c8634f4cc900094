"""Descriptions of transactions."""

from __future__ import annotations

from dataclasses import dataclass, field

from magnetar.enums import DetailsMissing, EndCause, TransactionStatus
from magnetar.transactions.producer_identity import PreparedTxnState, ProducerIdentity
from magnetar_core.errors import END_REFUSALS, MagnetarError, code_name
from magnetar_core.errors import from_wire as error_from_wire
from magnetar_core.ids import PartitionName, SubscriptionName, TxnID
from magnetar_core.wire import broker_pb2, transaction_pb2


@dataclass(frozen=True, slots=True)
class StoredTransaction:
    """A transaction with messages in a partition's sidecar.

    Attributes:
        is_open: whether it is open there; otherwise its commit marker is in the partition's log.
        start_offset: for an open transaction, as in ProducerDescription.
        start_time_ms: for an open transaction, as in ProducerDescription.
        producer_epoch: for an open transaction, as in ProducerDescription.
    """

    txn_id: TxnID
    is_open: bool
    start_offset: int
    start_time_ms: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class StoredTransactions:
    """A page of stored transactions, in the order of their TxnIDs.

    Attributes:
        next_txn_id: where the next page begins; None: this is the last page. A page can be empty
            although another page follows.
        end_offset: the log's end; the markers of transactions that are not open lie before it.
    """

    partition: PartitionName
    transactions: tuple[StoredTransaction, ...]
    next_txn_id: TxnID | None
    end_offset: int

    @classmethod
    def from_wire(
        cls, partition: PartitionName, wire: broker_pb2.CommandListStoredTxnsResponse
    ) -> StoredTransactions:
        return cls(
            partition,
            tuple(
                StoredTransaction(
                    TxnID.from_wire(one.txn_id),
                    one.open,
                    one.start_offset,
                    one.start_time_ms,
                    one.producer_epoch,
                )
                for one in wire.transactions
            ),
            TxnID.from_wire(wire.next_txn_id) if wire.HasField("next_txn_id") else None,
            wire.end_offset,
        )


@dataclass(frozen=True, slots=True)
class UnfinishedParticipant:
    """A participant that has not ended the transaction yet.

    Attributes:
        subscription: the subscription; None: the participant is the partition.
        last_error: its last error, as text for people; empty: there is none.
        error: its last error for programs; None: there is none.
    """

    partition: PartitionName
    subscription: str | None
    last_error: str
    error: MagnetarError | None = field(default=None, compare=False)

    @property
    def refuses(self) -> bool:
        """Whether the participant refuses the end, so that an administrator has to decide."""
        return isinstance(self.error, END_REFUSALS)

    @classmethod
    def from_wire(cls, wire: transaction_pb2.UnfinishedParticipant) -> UnfinishedParticipant:
        error = wire.error if wire.HasField("error") else None
        return cls(
            PartitionName.from_wire(wire.partition),
            wire.subscription or None,
            "" if error is None else f"{code_name(error.code)}: {error.message}",
            None if error is None else error_from_wire(error),
        )


@dataclass(frozen=True, slots=True)
class EndedParticipant:
    """A participant that has ended the transaction.

    Attributes:
        subscription: the subscription; None: the participant is the partition.
        ended_at_ms: when its broker answered, in milliseconds since the Unix epoch.
    """

    partition: PartitionName
    subscription: str | None
    ended_at_ms: int


@dataclass(frozen=True, slots=True)
class ConfirmedWrites:
    """The writes of a commit that its client had confirmed at a participant.

    Attributes:
        subscription: the subscription; None: the participant is the partition.
        count: messages; of a subscription: commands with acks.
    """

    partition: PartitionName
    subscription: str | None
    count: int


@dataclass(frozen=True, slots=True)
class TransactionClient:
    """The client that began a transaction.

    Attributes:
        name: its `client_name`; empty: it did not give one, or is not an SDK.
        host: its machine, as the coordinator sees it.
        is_connected: whether the connection is still there through which it began the transaction.
    """

    name: str
    host: str
    is_connected: bool


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transaction, as its coordinator describes it.

    Of a transaction that has ended, coordinators keep the details in memory, for the newest
    thousands and for those that took long: participants, timeout, client, and how it ended.

    Attributes:
        timeout_ms: its timeout in milliseconds; 0: it never expires.
        identity: the transactional producer that began it, with the producer id and the epoch that
            it had then.
        age_ms: how long it has been open, or how long ago it ended at all participants, in
            milliseconds of the coordinator's run time; downtime does not count.
        opened_at_ms: when it was opened, in milliseconds since the Unix epoch; 0: unknown.
        ended_at_ms: when it had ended at all participants, in milliseconds since the Unix epoch; 0:
            it has not.
        stamp: that of the commit, by which consistent cuts take it or leave it out; 0: it did not
            commit.
        principal: who began it; empty: a client that did not authenticate.
        client: the client that began it; None: its coordinator was restarted since, or details are
            missing.
        details_missing: why there are no details; DETAILS_ARE_THERE: there are.
        decided_at_ms: when its outcome was decided, in milliseconds since the Unix epoch; 0: it is
            not.
        cause: why it ends as it does.
        caused_by: the client that caused it, if it is not one that worked in it, such as
            `magnetar-cli at 10.0.0.7 (alice)`.
        ended: the participants that have ended it, in the order of their answers.
        confirmed: the writes of a commit that its client had confirmed, if it said so.
        trace_id: the trace that it belongs to, 32 hexadecimal digits; empty: none that its
            coordinator knows.
    """

    txn_id: TxnID
    status: TransactionStatus
    timeout_ms: int
    age_ms: int
    opened_at_ms: int
    partitions: tuple[PartitionName, ...]
    subscriptions: tuple[SubscriptionName, ...]
    unfinished: tuple[UnfinishedParticipant, ...]
    identity: ProducerIdentity | None = None
    two_phase_commit: bool = False
    ended_at_ms: int = 0
    stamp: int = 0
    principal: str = ""
    client: TransactionClient | None = None
    details_missing: DetailsMissing = DetailsMissing.DETAILS_ARE_THERE
    decided_at_ms: int = 0
    cause: EndCause = EndCause.CAUSE_UNKNOWN
    caused_by: str = ""
    ended: tuple[EndedParticipant, ...] = ()
    confirmed: tuple[ConfirmedWrites, ...] = ()
    trace_id: str = ""

    @property
    def expires_in_ms(self) -> int | None:
        """Time until an open transaction expires; below 0: it is about to. None: it does not."""
        if self.status is not TransactionStatus.OPEN or self.two_phase_commit:
            return None
        return self.timeout_ms - self.age_ms

    @property
    def may_be_prepared(self) -> bool:
        """Whether it is open and in two-phase commit: only its database knows how it ends."""
        return self.two_phase_commit and self.status is TransactionStatus.OPEN

    @property
    def prepared_state(self) -> PreparedTxnState:
        """The state that names it in its database, once it is prepared; empty without identity."""
        if self.identity is None:
            return PreparedTxnState()
        return PreparedTxnState.of(self.identity, self.txn_id)

    @classmethod
    def from_wire(cls, wire: transaction_pb2.TransactionDescription) -> TransactionDescription:
        return cls(
            TxnID.from_wire(wire.txn_id),
            TransactionStatus(wire.status),
            wire.txn_timeout_ms,
            wire.age_ms,
            wire.opened_at_ms,
            tuple(PartitionName.from_wire(one) for one in wire.partitions),
            tuple(SubscriptionName.from_wire(one) for one in wire.subscriptions),
            tuple(UnfinishedParticipant.from_wire(one) for one in wire.unfinished),
            ProducerIdentity.from_wire(wire.identity) if wire.HasField("identity") else None,
            wire.two_phase_commit,
            wire.ended_at_ms,
            wire.stamp,
            wire.principal,
            TransactionClient(wire.client.name, wire.client.host, wire.client.connected)
            if wire.HasField("client")
            else None,
            DetailsMissing(wire.details_missing),
            wire.decided_at_ms,
            EndCause(wire.cause),
            wire.caused_by,
            tuple(
                EndedParticipant(
                    PartitionName.from_wire(one.partition),
                    one.subscription or None,
                    one.ended_at_ms,
                )
                for one in wire.ended
            ),
            tuple(
                ConfirmedWrites(
                    PartitionName.from_wire(one.partition), one.subscription or None, one.count
                )
                for one in wire.confirmed
            ),
            wire.trace_id,
        )
