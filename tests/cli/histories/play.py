"""Short histories by hand: a coordinator, two brokers, and what they have at the beginning."""

from __future__ import annotations

from collections.abc import Mapping

from magnetar_cli.histories.follower import Follower
from magnetar_core.history.events import (
    BROKER,
    COORDINATOR,
    BrokerRecovered,
    CoordinatorRecovered,
    CounterReserved,
    Counts,
    Decided,
    Durable,
    EndApplied,
    Event,
    Finished,
    Life,
    MarkerWritten,
    Opened,
    Participant,
    ParticipantCreated,
    Sealed,
    Server,
    WriterCounts,
    Wrote,
)
from magnetar_core.ids import PartitionName, SubscriptionName, TxnID

TC = Life(Server(COORDINATOR, 0), 1)
B0 = Life(Server(BROKER, 0), 1)
B1 = Life(Server(BROKER, 1), 1)
# Topics of two shards: partition 0 is at broker 0, partition 1 at broker 1.
TOPIC = 1 << 51 | 1
P = PartitionName("t", 0, TOPIC)
Q = PartitionName("t", 1, TOPIC)
S = SubscriptionName("t", 0, TOPIC, "s")
BOUND = 100
WRITER = 7


def txn(counter: int, incarnation: int = 1) -> TxnID:
    return TxnID.of(0, incarnation, counter)


T = txn(0)
U = txn(1)


class Play:
    """A history that begins with P, Q and S, and with counters below BOUND that may be told."""

    def __init__(self) -> None:
        self.follower = Follower()
        self.end_offsets: dict[PartitionName, int] = {}
        self._positions: dict[Life, int] = {}
        self.note(TC, CoordinatorRecovered(1, 0, (), ()), CounterReserved(BOUND))
        self.note(B0, BrokerRecovered(0), ParticipantCreated(P, 0), ParticipantCreated(S, 0))
        self.note(B1, BrokerRecovered(0), ParticipantCreated(Q, 0))
        self.commit()

    def note(self, life: Life, *events: Event) -> None:
        """These events happen, one after the other."""
        for event in events:
            self.follower.take(life, event)

    def commit(self, *lives: Life) -> None:
        """What these servers did becomes durable. No servers: all of the first lives."""
        for life in lives or (TC, B0, B1):
            self.seal(life)
            self.follower.take(life, Durable(self._positions[life]))

    def seal(self, life: Life) -> None:
        """The open group is closed."""
        self._positions[life] = self._positions.get(life, 0) + 1
        self.follower.take(life, Sealed(self._positions[life]))

    def refuses(self, life: Life, event: Event, rule: str, text: str) -> None:
        """The event cannot be next, for this reason."""
        refusal = self.follower.refusal_of(life, event)
        assert refusal is not None, f"{event} is taken"
        assert (refusal.rule, refusal.life, refusal.event) == (rule, life, event)
        assert text in refusal.text

    # What often comes first.

    def written(
        self,
        *participants: Participant,
        txn_id: TxnID = T,
        writes: int = 2,
        follows: tuple[TxnID, ...] = (),
    ) -> None:
        """A transaction has begun, and has written there."""
        self.note(TC, Opened(txn_id, participants))
        for name in participants:
            self.note(life_of(name), Wrote(name, txn_id, WRITER, 0, writes, follows))
        self.commit()

    def decided(
        self,
        *participants: Participant,
        txn_id: TxnID = T,
        writes: int = 2,
        counts: Mapping[Participant, int] | None = None,
        follows: tuple[TxnID, ...] = (),
        is_commit: bool = True,
    ) -> None:
        """A transaction has written, and its decision is durable. Args: counts: as was written."""
        self.written(*participants, txn_id=txn_id, writes=writes, follows=follows)
        confirmed = dict.fromkeys(participants, writes) if counts is None else counts
        told: Counts = tuple((name, ((WRITER, count),)) for name, count in confirmed.items())
        self.note(TC, Decided(txn_id, is_commit, told if is_commit else None, None))
        self.commit()

    def ended(self, name: PartitionName, *, txn_id: TxnID = T, writes: int = 2) -> None:
        """A commit has ended at a partition, and that is durable."""
        offset = self.end_offsets.get(name, 0)
        self.end_offsets[name] = offset + writes
        self.note(life_of(name), MarkerWritten(name, txn_id, offset, writes))
        self.note(life_of(name), end(name, txn_id, writes))
        self.commit()

    def finished(self, *participants: PartitionName, txn_id: TxnID = T) -> None:
        """A transaction has been committed, and has ended everywhere."""
        self.decided(*participants, txn_id=txn_id)
        for name in participants:
            self.ended(name, txn_id=txn_id)
        self.note(TC, Finished(txn_id, True))
        self.commit()


def life_of(name: Participant) -> Life:
    """The broker of a participant."""
    return B1 if name.partition else B0


def end(
    name: Participant,
    txn_id: TxnID = T,
    held: int = 2,
    kept: int | None = None,
    *,
    is_commit: bool = True,
    passes_on: tuple[TxnID, ...] = (),
    is_counted: bool = True,
    is_selected: bool = False,
    loss_accepted: bool = False,
    is_dropped: bool = False,
) -> EndApplied:
    """An end. Args: kept: all, unless it says less; of an abort, nothing."""
    keeps: WriterCounts = ((WRITER, held if kept is None else kept),)
    return EndApplied(
        name,
        txn_id,
        is_commit,
        held=((WRITER, held),) if held else (),
        kept=keeps if is_commit and held else (),
        is_counted=is_counted and is_commit,
        is_selected=is_selected,
        passes_on=passes_on,
        loss_accepted=loss_accepted,
        is_dropped=is_dropped,
    )
