"""Events of the protocol's history. Pure.

Each is an action of the model in `spec/Commit.tla`, or tells what the model takes as given: what is
durable, and what a life of a server found in its store. An event says what a server has done, in
the moment in which its memory has changed or an answer leaves. None has a payload, a key, a token,
or the name of a client.
Source: docs/design/0022-model.md, Histories; docs/protocol/rules.md.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from magnetar_core.ids import PartitionName, SubscriptionName, TxnID

Participant: TypeAlias = PartitionName | SubscriptionName
# Offsets or counters, first and last, both included.
Range: TypeAlias = tuple[int, int]
# Pairs of writer id and count.
WriterCounts: TypeAlias = tuple[tuple[int, int], ...]
# Confirmed counts of each participant.
Counts: TypeAlias = tuple[tuple[Participant, WriterCounts], ...]

BROKER = "broker"
COORDINATOR = "coordinator"


class Server(NamedTuple):
    """A server: a broker by its shard, a coordinator by its TCID."""

    kind: str
    number: int

    def __str__(self) -> str:
        return f"{self.kind} {self.number}"


class Life(NamedTuple):
    """A life of a server: from the opening of its store to its end.

    Attributes:
        number: higher than those of the server's earlier lives.
    """

    server: Server
    number: int

    def __str__(self) -> str:
        return f"{self.server}, life {self.number}"


# Group commits, of both kinds of servers. Rule a.


class Sealed(NamedTuple):
    """A group is closed: it has the rows of all events since the group before. Model: memory."""

    position: int


class Written(NamedTuple):
    """A group outlives the process. It comes only where groups are synced later (0014)."""

    position: int


class Durable(NamedTuple):
    """All groups up to a position are durable. Model: CommitGroup."""

    position: int


# Coordinators.


class LiveTransaction(NamedTuple):
    """A transaction as a coordinator has found it in its store.

    Attributes:
        outcome: None: it is OPEN. Otherwise whether it is being committed.
    """

    txn_id: TxnID
    participants: tuple[Participant, ...]
    outcome: bool | None
    counts: Counts | None
    selection: tuple[int, ...] | None
    loss_accepted: bool


class CoordinatorRecovered(NamedTuple):
    """A coordinator has read its store. Model: CrashCoordinator.

    Attributes:
        next_counter: smaller counters are issued, or never will be (invariant 8).
        lost: counters that may have been told, and have no record: they count as aborted.
    """

    incarnation: int
    next_counter: int
    live: tuple[LiveTransaction, ...]
    lost: tuple[Range, ...]


class CounterReserved(NamedTuple):
    """No counter from here on was told before. Invariant 8; model: Begin."""

    bound: int


class Opened(NamedTuple):
    """A transaction begins. Invariant 8; model: Begin."""

    txn_id: TxnID
    participants: tuple[Participant, ...]


class ParticipantsAdded(NamedTuple):
    """Participants take part in a transaction. Model: Enroll."""

    txn_id: TxnID
    participants: tuple[Participant, ...]


class Decided(NamedTuple):
    """The outcome of a transaction is fixed. Invariant 7, rules g and h; model: End, Expire.

    Attributes:
        counts: what clients had confirmed; None: the commit is not counted, or it is an abort.
        selection: writers that count, sorted; None: all.
    """

    txn_id: TxnID
    is_commit: bool
    counts: Counts | None
    selection: tuple[int, ...] | None


class LossAccepted(NamedTuple):
    """An administrator lets a commit go on without what its participants lost. Rule g."""

    txn_id: TxnID


class Finished(NamedTuple):
    """Every participant has ended a transaction. Invariant 7; model: Finish."""

    txn_id: TxnID
    is_commit: bool


class TxnTold(NamedTuple):
    """A client is told the TxnID of a new transaction. Invariant 8, rule a; model: Begin.

    Attributes:
        is_early: it may leave before its record is durable: its counter is durably reserved.
    """

    txn_id: TxnID
    is_early: bool


class ParticipantsConfirmed(NamedTuple):
    """A client is told that participants take part. Invariant 2, rule a; model: Enroll."""

    txn_id: TxnID
    participants: tuple[Participant, ...]


class OutcomeTold(NamedTuple):
    """A client is told an outcome. Invariants 2 and 7, rule e; model: End."""

    txn_id: TxnID
    is_commit: bool


class WatermarkAnnounced(NamedTuple):
    """A low watermark leaves for the brokers. Rule c; model: Announce."""

    incarnation: int
    low_watermark: int
    live: tuple[Range, ...]
    next_counter: int


# Participants, which are at brokers.


class HeldWriter(NamedTuple):
    """Writes of a writer that a participant holds in an open transaction.

    Attributes:
        writes: how many messages, or ack commands.
        follows: the transactions for which the end of this one waits (rule k).
    """

    writer_id: int
    writes: int
    follows: tuple[TxnID, ...]


class HeldTransaction(NamedTuple):
    """A transaction that is open at a participant."""

    txn_id: TxnID
    writers: tuple[HeldWriter, ...]


class EndedTransaction(NamedTuple):
    """The recorded end of a transaction. `follows`: the transactions that it passes on."""

    txn_id: TxnID
    is_commit: bool
    follows: tuple[TxnID, ...]


class ParticipantFound(NamedTuple):
    """A broker has found a participant in its store. BrokerRecovered comes after all of them.

    Attributes:
        exists: False: a subscription that does not exist, of which ends are kept (rule d).
        first_offset, end_offset: of the partition's log; 0 for a subscription.
    """

    participant: Participant
    exists: bool
    first_offset: int
    end_offset: int
    held: tuple[HeldTransaction, ...]
    ended: tuple[EndedTransaction, ...]


class CursorFound(NamedTuple):
    """A broker has found a subscription's cursor in its store.

    Attributes:
        floor: smaller offsets are acknowledged.
        deleted: further acknowledged offsets.
        pending: what transactions have acknowledged.
    """

    participant: SubscriptionName
    floor: int
    deleted: tuple[Range, ...]
    pending: tuple[tuple[TxnID, tuple[Range, ...]], ...]


class WatermarkFound(NamedTuple):
    """A broker has found a coordinator's watermark in its store. Rule c.

    Those of former incarnations come first, in their order.
    """

    tcid: int
    incarnation: int
    low_watermark: int
    live: tuple[Range, ...]


class BrokerRecovered(NamedTuple):
    """A broker has read its store, and serves. Model: CrashParticipant.

    Attributes:
        losses: how many losses of its store were accepted.
    """

    losses: int


class ParticipantCreated(NamedTuple):
    """A partition or a subscription begins to exist; a cursor begins at an offset."""

    participant: Participant
    offset: int


class ParticipantDeleted(NamedTuple):
    """A partition, with its subscriptions, or a subscription is gone. Rule j."""

    participant: Participant


class Wrote(NamedTuple):
    """A participant holds a send or an ack of a transaction. Invariant 9; model: AcceptWrite.

    Attributes:
        first_index: the place of its first message among those of the writer in the transaction.
        writes: how many messages, or ack commands.
        follows: unsettled transactions that the writer's first write makes it follow (rule k).
    """

    participant: Participant
    txn_id: TxnID
    writer_id: int
    first_index: int
    writes: int
    follows: tuple[TxnID, ...]


class WriteConfirmed(NamedTuple):
    """A client is told that a write is stored, up to an index. Invariant 2, rule a."""

    participant: Participant
    txn_id: TxnID
    writer_id: int
    end_index: int


# In place of a producer id: the messages have no sequence, and repeats are not recognised.
NO_PRODUCER = -1


class PlainSent(NamedTuple):
    """A partition has plain messages. Invariants 4 and 5; model: AcceptPlainSend.

    Attributes:
        producer_id: NO_PRODUCER: of a client of Kafka that is not idempotent.
    """

    participant: PartitionName
    producer_id: int
    sequence_id: int
    messages: int
    offset: int


class ProducersForgotten(NamedTuple):
    """A partition forgets plain producers that were idle: they begin with sequence 0. Rule l."""

    participant: PartitionName
    producer_ids: tuple[int, ...]


class PlainConfirmed(NamedTuple):
    """A client is told the offset of plain messages. Invariants 2 and 4, rule a.

    Attributes:
        offset: -1: it is no longer known; the messages were stored before.
        is_late: it may leave before a sync, where groups are synced later (0014).
    """

    participant: PartitionName
    producer_id: int
    sequence_id: int
    messages: int
    offset: int
    is_late: bool


class MarkerWritten(NamedTuple):
    """A partition's log has the marker of a commit; its end follows. Invariant 4; model: EndAt."""

    participant: PartitionName
    txn_id: TxnID
    offset: int
    messages: int


class EndApplied(NamedTuple):
    """A transaction ends at a participant. Invariants 1, 3 and 7, rules c to h; model: EndAt.

    Attributes:
        held: what the participant held of each writer.
        kept: what of it counts.
        is_counted: whether the command had counts.
        is_selected: whether it had a selection.
        passes_on: the unsettled transactions that it followed (rule k).
        is_dropped: the participant is being deleted: no end is recorded.
    """

    participant: Participant
    txn_id: TxnID
    is_commit: bool
    held: WriterCounts
    kept: WriterCounts
    is_counted: bool
    is_selected: bool
    passes_on: tuple[TxnID, ...]
    loss_accepted: bool
    is_dropped: bool


class EndsForgotten(NamedTuple):
    """A participant forgets ends that the watermark covers. Rule c; model: HearWatermark."""

    participant: Participant
    txn_ids: tuple[TxnID, ...]


class WatermarkTaken(NamedTuple):
    """A broker has a coordinator's watermark. Rule c; model: HearWatermark."""

    tcid: int
    incarnation: int
    low_watermark: int
    live: tuple[Range, ...]


class AcksPending(NamedTuple):
    """A transaction acknowledges messages. Rule i; model: AcceptWrite."""

    participant: SubscriptionName
    txn_id: TxnID
    writer_id: int
    ack_sequence: int
    ranges: tuple[Range, ...]


class Acked(NamedTuple):
    """Messages are newly acknowledged outside of transactions. Rule i."""

    participant: SubscriptionName
    ranges: tuple[Range, ...]


class MessagesRemoved(NamedTuple):
    """Smaller offsets count as acknowledged: retention removed the messages. Rule m."""

    participant: SubscriptionName
    first_offset: int


class CursorMoved(NamedTuple):
    """A cursor begins anew at an offset. Rule j: no ack is pending."""

    participant: SubscriptionName
    offset: int


Event: TypeAlias = (
    Sealed
    | Written
    | Durable
    | CoordinatorRecovered
    | CounterReserved
    | Opened
    | ParticipantsAdded
    | Decided
    | LossAccepted
    | Finished
    | TxnTold
    | ParticipantsConfirmed
    | OutcomeTold
    | WatermarkAnnounced
    | ParticipantFound
    | CursorFound
    | WatermarkFound
    | BrokerRecovered
    | ParticipantCreated
    | ParticipantDeleted
    | Wrote
    | WriteConfirmed
    | PlainSent
    | ProducersForgotten
    | PlainConfirmed
    | MarkerWritten
    | EndApplied
    | EndsForgotten
    | WatermarkTaken
    | AcksPending
    | Acked
    | MessagesRemoved
    | CursorMoved
)
EVENTS: tuple[type[Event], ...] = Event.__args__
