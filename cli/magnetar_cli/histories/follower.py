"""Follower of a history: is what servers did a behaviour of the protocol? Pure.

It is the server half of spec/Commit.tla: each event is an action, which has to be enabled in the
state that the events before have made. Beyond the model it knows answers, offsets, crashes of
brokers, shards that move, selections, accepted losses, and what was deleted.

It takes one event after the other. Those of a life come in their order; those of several servers
in any order in which each comes after what it rests on: `refusal_of` says whether an event may be
next.
Source: docs/design/0022-model.md, Histories; docs/protocol/rules.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from magnetar_cli.histories.broker_state import BrokerState, Coverage
from magnetar_cli.histories.coordinator_state import (
    CoordinatorState,
    Status,
    Transaction,
    is_lost,
    lost_among,
)
from magnetar_cli.histories.lives import RECOVERIES, Lives
from magnetar_cli.histories.participant_state import ParticipantState
from magnetar_core.history import events
from magnetar_core.history.events import BROKER, Event, Life, Participant
from magnetar_core.ids import PartitionName, SubscriptionName, TxnID
from magnetar_core.membership.placement import shard_of


class Refusal(NamedTuple):
    """Refusal of an event. Its text says what was expected.

    Attributes:
        rule: the rule or invariant that the event breaks.
    """

    life: Life
    event: Event
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.text} ({self.life}: {self.event})"


class HistoryRefused(Exception):
    """The history is no behaviour of the protocol."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


class _No(Exception):
    """The event is not enabled. Args: rule or invariant, and what was expected."""


Brokers = Lives[BrokerState]
Coordinators = Lives[CoordinatorState]


class Follower:
    """State of a cluster, as far as its history tells it.

    Attributes:
        taken: how many events were taken.
        unjudged: how often something could not be judged, by reason.
    """

    def __init__(self) -> None:
        self.taken = 0
        self.unjudged: Counter[str] = Counter()
        self._brokers: dict[int, Brokers] = {}
        self._coordinators: dict[int, Coordinators] = {}
        # While an event is only tried, nothing is counted.
        self._doubts: list[str] = []

    def refusal_of(self, life: Life, event: Event) -> Refusal | None:
        """Return why an event cannot be next; None: it can. Changes nothing."""
        self._doubts = []
        check = _CHECKS.get(type(event))
        try:
            if check is not None:
                lives = self._lives(life)
                if not lives.is_reading(life) or isinstance(event, RECOVERIES):
                    check(self, life, event)
        except _No as refused:
            return Refusal(life, event, *refused.args)
        return None

    def take(self, life: Life, event: Event) -> None:
        """Take the next event.

        Raises:
            HistoryRefused: it cannot be next. No effect.
        """
        refusal = self.refusal_of(life, event)
        if refusal is not None:
            raise HistoryRefused(refusal)
        self.accept(life, event)

    def accept(self, life: Life, event: Event) -> None:
        """Take an event that refusal_of() has just allowed."""
        if self._doubts:
            self.unjudged.update(self._doubts)
            self._doubts = []
        self.taken += 1
        lives = self._lives(life)
        if lives.is_past(life):
            return
        if isinstance(event, RECOVERIES):
            self._recovered(life, event)
        elif lives.is_reading(life):
            lives.reads(life, event)
        elif isinstance(event, events.Sealed):
            lives.seal(event.position)
        elif isinstance(event, events.Durable):
            lives.became_durable(event.position)
        elif isinstance(event, events.Written):
            lives.became_written(event.position)
        else:
            lives.take(event)

    def finish(self) -> None:
        """Note the end of the history: nothing may be half done.

        Raises:
            HistoryRefused: a marker has no end.
        """
        for lives in self._brokers.values():
            marker = lives.memory.marker
            if marker is not None and lives.life is not None:
                text = f"the end of {marker.txn_id} comes with its marker"
                raise HistoryRefused(Refusal(lives.life, marker, "invariant 4", text))

    # Finding.

    def _lives(self, life: Life) -> Lives[Any]:
        if life.server.kind == BROKER:
            return self._broker(life)
        return self._coordinator(life)

    def _broker(self, life: Life) -> Brokers:
        found = self._brokers.get(life.server.number)
        if found is None:
            found = self._brokers[life.server.number] = Lives(BrokerState())
        return found

    def _coordinator(self, life: Life) -> Coordinators:
        found = self._coordinators.get(life.server.number)
        if found is None:
            found = self._coordinators[life.server.number] = Lives(CoordinatorState())
        return found

    def _coordinator_of(self, txn_id: TxnID) -> Coordinators | None:
        found = self._coordinators.get(txn_id.tcid)
        if found is None or found.life is None:
            self._doubt("the coordinator has no history")
            return None
        return found

    def _decided(self, txn_id: TxnID) -> Transaction | None:
        """Return a transaction as it is durable; None: it cannot be judged."""
        lives = self._coordinator_of(txn_id)
        if lives is None:
            return None
        found = lives.rows.find(txn_id) or lives.memory.find(txn_id)
        if found is None:
            self._doubt("the transaction was not opened in this history")
        elif found.is_uncertain:
            self._doubt("the transaction is from before a loss")
            return None
        return found

    def _broker_of(self, name: Participant) -> Brokers | None:
        if not name.topic_id:
            self._doubt("a participant is named without the id of its topic")
            return None
        found = self._brokers.get(shard_of(name.topic_id, name.partition))
        if found is None or found.life is None:
            self._doubt("the broker has no history")
            return None
        return found

    def _doubt(self, reason: str) -> None:
        self._doubts.append(reason)

    # Group commits, and recoveries.

    def _check_sealed(self, life: Life, event: events.Sealed) -> None:
        lives = self._lives(life)
        if not lives.is_past(life) and event.position <= lives.sealed_position:
            raise _No("rule a", f"a group after {lives.sealed_position} is sealed next")

    def _check_durable(self, life: Life, event: events.Durable | events.Written) -> None:
        lives = self._lives(life)
        if lives.is_past(life):
            end = lives.end_of(life)
            if end is not None and event.position > end:
                raise _No("rule a", f"the store has groups up to {end} of this life")
        elif event.position > lives.sealed_position:
            raise _No("rule a", f"groups up to {lives.sealed_position} are sealed")

    def _check_recovered(self, life: Life, event: Any) -> None:
        lives = self._lives(life)
        if lives.is_past(life):
            return
        if life == lives.life:
            raise _No("rule a", "a life recovers once")
        found = self._matching(life, event)
        if isinstance(found, str):
            raise _No("invariant 2", f"the store has what was durable: {found}")
        if isinstance(event, events.CoordinatorRecovered) and found is not None:
            self._check_lost(lives, found[1], event)

    def _check_lost(
        self, lives: Coordinators, kept: CoordinatorState, event: events.CoordinatorRecovered
    ) -> None:
        for txn_id in lost_among(lives.memory.transactions, kept, event.incarnation):
            if not is_lost(event, txn_id) and txn_id.counter < lives.rows.bound:
                raise _No("invariant 8", f"{txn_id} has no record: it is among the lost ones")
        for txn_id, one in kept.transactions.items():
            own = txn_id.incarnation == event.incarnation and one.status is not Status.LOST
            if own and is_lost(event, txn_id):
                raise _No("invariant 2", f"{txn_id} has a record, and is not lost")

    def _matching(self, life: Life, event: Any) -> tuple[int, Any] | str | None:
        """Return the state that a life finds; None: it is uncertain which."""
        lives = self._lives(life)
        if lives.life is None or _losses(event) != lives.losses:
            return None
        if isinstance(event, events.BrokerRecovered):
            found = lives.found(life)
            return lives.matching(lambda state: state.difference(found))
        return lives.matching(lambda state: state.difference(event))

    def _recovered(self, life: Life, event: Any) -> None:
        lives = self._lives(life)
        matching = self._matching(life, event)
        assert not isinstance(matching, str)
        if matching is None and lives.life is not None:
            self.unjudged["a server went on after an accepted loss"] += 1
        position, known = matching if matching is not None else (lives.sealed_position, lives.rows)
        if isinstance(event, events.BrokerRecovered):
            state: Any = BrokerState.found(lives.found(life), known)
        else:
            state = known.copy()
            if matching is not None:
                lost = lost_among(lives.memory.transactions, known, event.incarnation)
                state.transactions.update(lost)
            state.recovered(event, is_uncertain=matching is None)
        if lives.life is None:
            lives.began_with_rows = bool(lives.found(life)) or _has_transactions(event)
        lives.recovered(life, state, kept_position=position)
        lives.losses = _losses(event)

    # Coordinators.

    def _check_opened(self, life: Life, event: events.Opened) -> None:
        state, txn_id = self._present(life), event.txn_id
        if state is None:
            return
        if (txn_id.tcid, txn_id.incarnation) != (life.server.number, state.incarnation):
            raise _No("invariant 8", f"a TxnID of incarnation {state.incarnation} is issued")
        if txn_id.counter < state.next_counter:
            raise _No("invariant 8", f"the next counter is {state.next_counter} at least")
        if txn_id.counter >= state.bound:
            raise _No("invariant 8", f"counters below {state.bound} are reserved")

    def _present(self, life: Life) -> CoordinatorState | None:
        """Return the memory of a coordinator; None: this life has lost its store."""
        lives = self._coordinator(life)
        return None if lives.is_past(life) else lives.memory

    def _of_coordinator(self, life: Life, txn_id: TxnID) -> Transaction | None:
        """Return a transaction in a coordinator's memory; None: its life is over."""
        state = self._present(life)
        if state is None:
            return None
        found = state.find(txn_id)
        if found is None:
            raise _No("invariant 7", f"{txn_id} was opened")
        return found

    def _check_added(self, life: Life, event: events.ParticipantsAdded) -> None:
        one = self._of_coordinator(life, event.txn_id)
        if one is not None and one.status is not Status.OPEN:
            raise _No("invariant 9", f"{event.txn_id} is {one.status.value}, and takes nothing")

    def _check_decided(self, life: Life, event: events.Decided) -> None:
        one = self._of_coordinator(life, event.txn_id)
        if one is None:
            return
        if one.status is not Status.OPEN:
            raise _No("invariant 7", f"{event.txn_id} is {one.status.value}: it is decided once")
        for participant, writers in event.counts or ():
            if participant not in one.participants and any(count for _, count in writers):
                raise _No("rule g", f"{participant} takes part in {event.txn_id}, and is counted")

    def _check_loss_accepted(self, life: Life, event: events.LossAccepted) -> None:
        one = self._of_coordinator(life, event.txn_id)
        if one is not None and one.status is not Status.COMMITTING:
            raise _No("rule g", f"{event.txn_id} is {one.status.value}: there is no loss")

    def _check_finished(self, life: Life, event: events.Finished) -> None:
        one = self._of_coordinator(life, event.txn_id)
        if one is None:
            return
        wanted = Status.COMMITTING if event.is_commit else Status.ABORTING
        if one.status is not wanted:
            raise _No("invariant 7", f"{event.txn_id} is {one.status.value}")
        if one.is_uncertain:
            self._doubt("the transaction is from before a loss")
            return
        if one.participants:
            durable = self._coordinator(life).rows.find(event.txn_id)
            if durable is None or durable.outcome is not event.is_commit:
                raise _No("rule a", f"the decision of {event.txn_id} is durable before it is told")
        for participant in one.participants:
            self._check_ended_at(participant, event.txn_id, event.is_commit, one)

    def _check_ended_at(
        self, participant: Participant, txn_id: TxnID, is_commit: bool, one: Transaction
    ) -> None:
        lives = self._broker_of(participant)
        if lives is None or lives.rows.has_ended(participant, txn_id, is_commit):
            return
        if not lives.memory.at(participant).exists:
            self._doubt("a participant is gone")
        elif lives.losses:
            self._doubt("a broker has lost data")
        else:
            raise _No("invariant 7", f"{participant} has durably ended {txn_id}, as decided")

    def _check_txn_told(self, life: Life, event: events.TxnTold) -> None:
        lives, txn_id = self._coordinator(life), event.txn_id
        if txn_id.incarnation != lives.rows.incarnation:
            return
        if txn_id.counter >= lives.rows.bound:
            raise _No("rule a", f"counters below {lives.rows.bound} are durably reserved")
        if lives.memory.find(txn_id) is None:
            raise _No("invariant 8", f"{txn_id} was opened")

    def _check_confirmed(self, life: Life, event: events.ParticipantsConfirmed) -> None:
        one = self._coordinator(life).rows.find(event.txn_id)
        if one is None:
            raise _No("rule a", f"the record of {event.txn_id} is durable before it is relied on")
        if one.is_uncertain:
            self._doubt("the transaction is from before a loss")
            return
        for participant in event.participants:
            if not one.has(participant):
                raise _No("rule a", f"{participant} is durably a participant of {event.txn_id}")

    def _check_outcome_told(self, life: Life, event: events.OutcomeTold) -> None:
        lives = self._coordinator(life)
        one = lives.rows.find(event.txn_id)
        if one is None and lives.memory.find(event.txn_id) is None:
            self._doubt("the transaction was not opened in this history")
        elif one is None or one.outcome is None:
            raise _No("rule a", f"the decision of {event.txn_id} is durable before it is told")
        elif one.is_uncertain:
            self._doubt("the transaction is from before a loss")
        elif one.outcome is not event.is_commit:
            raise _No("invariant 7", f"{event.txn_id} is {one.status.value}")

    def _check_announced(self, life: Life, event: events.WatermarkAnnounced) -> None:
        lives = self._coordinator(life)
        coverage = Coverage(event.incarnation, event.low_watermark, event.live)
        self._check_covers_ended(lives, coverage)
        is_own = event.incarnation == lives.rows.incarnation
        if is_own and not lives.is_past(life) and event.next_counter > lives.rows.bound:
            raise _No("invariant 8", f"counters below {lives.rows.bound} are durably reserved")

    def _check_covers_ended(self, lives: Coordinators, coverage: Coverage) -> None:
        opened = [one.txn_id for one in lives.unwritten() if isinstance(one, events.Opened)]
        for txn_id in (*lives.rows.unfinished, *lives.memory.unfinished, *opened):
            if coverage.covers(txn_id):
                raise _No("rule c", f"{txn_id} has not durably ended, and is not covered")

    # Participants.

    def _memory(self, life: Life) -> BrokerState | None:
        """Return the memory of a broker; None: this life has lost its store.

        A marker and its end are one step.
        """
        lives = self._broker(life)
        return None if lives.is_past(life) else lives.memory

    def _held(self, life: Life, name: Participant) -> tuple[BrokerState, ParticipantState] | None:
        state = self._memory(life)
        if state is None:
            return None
        if state.marker is not None:
            raise _No("invariant 4", f"the end of {state.marker.txn_id} comes with its marker")
        return state, state.at(name)

    def _existing(
        self, life: Life, name: Participant
    ) -> tuple[BrokerState, ParticipantState] | None:
        found = self._held(life, name)
        if found is not None and not found[1].exists:
            raise _No("rule j", f"{name} exists")
        return found

    def _check_created(self, life: Life, event: events.ParticipantCreated) -> None:
        found = self._held(life, event.participant)
        if found is not None and found[1].exists:
            raise _No("rule j", f"{event.participant} exists already")

    def _check_deleted(self, life: Life, event: events.ParticipantDeleted) -> None:
        found = self._existing(life, event.participant)
        for txn_id in found[1].open if found is not None else ():
            raise _No("rule j", f"{txn_id} has ended at {event.participant}")

    def _check_wrote(self, life: Life, event: events.Wrote) -> None:
        found = self._existing(life, event.participant)
        if found is None:
            return
        (state, one), txn_id = found, event.txn_id
        if txn_id in one.fates:
            raise _No(
                "invariant 9", f"{txn_id} has ended at {event.participant}, and takes nothing"
            )
        if state.covers(txn_id):
            raise _No("invariant 9", f"{txn_id} has ended, as the watermark says")
        lives = self._coordinator_of(txn_id)
        own = lives is not None and lives.rows.incarnation == txn_id.incarnation
        if lives is not None and own and txn_id.counter >= lives.rows.bound:
            raise _No("rule f", f"{txn_id} was issued")
        held = one.held_of(txn_id).get(event.writer_id, 0)
        if event.first_index != held:
            raise _No("invariant 4", f"the next write of {event.writer_id} has index {held}")
        for followed in event.follows:
            if event.first_index or not one.is_unsettled(followed):
                raise _No(
                    "rule k", f"{txn_id} follows what is not settled, from its first write on"
                )

    def _check_write_confirmed(self, life: Life, event: events.WriteConfirmed) -> None:
        one = self._broker(life).rows.at(event.participant)
        held = one.held_of(event.txn_id).get(event.writer_id, 0)
        if held >= event.end_index or event.txn_id in one.fates:
            return
        if not one.exists:
            self._doubt("a participant is gone")
        elif self._broker(life).losses:
            self._doubt("a broker has lost data")
        else:
            raise _No("rule a", f"{held} writes of {event.writer_id} are durable")

    def _check_sent(self, life: Life, event: events.PlainSent) -> None:
        found = self._existing(life, event.participant)
        if found is None:
            return
        one = found[1]
        if event.offset != one.end_offset:
            raise _No("invariant 4", f"{event.participant} ends at {one.end_offset}")
        sequence = one.producers.get(event.producer_id, 0)
        if event.sequence_id == sequence:
            return
        if self._broker(life).losses or self._broker(life).began_with_rows:
            self._doubt("a producer is from before the history, or before a loss")
            return
        raise _No("invariant 4", f"the next sequence of {event.producer_id} is {sequence}")

    def _check_plain_confirmed(self, life: Life, event: events.PlainConfirmed) -> None:
        lives = self._broker(life)
        # An answer that may leave before the sync rests on what outlives the process.
        one = (lives.written if event.is_late else lives.rows).at(event.participant)
        if not one.exists:
            self._doubt("a participant is gone")
        elif event.offset < 0:
            if one.producers.get(event.producer_id, 0) < event.sequence_id + event.messages:
                self._doubt("a producer is forgotten")
        elif one.end_offset < event.offset + event.messages:
            raise _No("rule a", f"{event.participant} durably ends at {one.end_offset}")
        else:
            place = one.places.get(event.producer_id, {}).get(event.sequence_id)
            if place is None:
                self._doubt("the place of a producer's messages is forgotten")
            elif place != event.offset:
                raise _No("invariant 4", f"they are at {place}")

    def _check_marker(self, life: Life, event: events.MarkerWritten) -> None:
        found = self._existing(life, event.participant)
        if found is None:
            return
        one = found[1]
        if event.offset != one.end_offset:
            raise _No("invariant 4", f"{event.participant} ends at {one.end_offset}")
        if event.txn_id in one.fates:
            raise _No("invariant 4", f"{event.txn_id} has ended at {event.participant} before")

    def _check_end(self, life: Life, event: events.EndApplied) -> None:
        state = self._memory(life)
        if state is None:
            return
        one, txn_id = state.at(event.participant), event.txn_id
        if event.is_dropped:
            return
        if txn_id in one.fates:
            raise _No("invariant 7", f"{txn_id} has ended at {event.participant}, and ends once")
        held = one.held_of(txn_id)
        if dict(event.held) != held:
            raise _No("invariant 2", f"{event.participant} holds {held} of {txn_id}")
        self._check_end_marker(state, event)
        if event.is_commit:
            self._check_commit(life, one, event)
        else:
            self._check_abort(event)
        self._check_passed_on(one, event)

    def _check_end_marker(self, state: BrokerState, event: events.EndApplied) -> None:
        total = 0
        if isinstance(event.participant, PartitionName):
            total = sum(count for _, count in event.kept)
        marker, place = state.marker, (event.participant, event.txn_id)
        if marker is None:
            if total:
                raise _No("invariant 1", f"a marker shows the {total} messages of {event.txn_id}")
        elif (marker.participant, marker.txn_id, marker.messages) != (*place, total):
            raise _No("invariant 4", f"the end of {marker.txn_id} comes with its marker")

    def _check_passed_on(self, one: ParticipantState, event: events.EndApplied) -> None:
        left = {one_id for one_id in one.follows_of(event.txn_id) if one.is_unsettled(one_id)}
        if set(event.passes_on) != left:
            raise _No("rule k", f"{event.txn_id} passes on {_names(left)}")

    def _check_commit(self, life: Life, one: ParticipantState, event: events.EndApplied) -> None:
        txn_id, name = event.txn_id, event.participant
        decided = self._decided(txn_id)
        if decided is None:
            return
        lives = self._coordinators[txn_id.tcid]
        durable = lives.rows.find(txn_id)
        if durable is None or durable.outcome is not True:
            raise _No("invariant 3", f"{txn_id} is durably committed before it commits here")
        if not durable.has(name):
            raise _No("rule f", f"{name} takes part in {txn_id}")
        for writer_id, kept in event.kept:
            follows = one.open[txn_id][writer_id].follows if kept else ()
            for followed in follows:
                if one.is_unsettled(followed):
                    raise _No("rule k", f"{txn_id} waits here until {followed} is settled")
        self._check_kept(one, event, durable)
        if isinstance(name, SubscriptionName):
            self._check_partitions_ended(life, txn_id, durable)

    def _check_kept(
        self, one: ParticipantState, event: events.EndApplied, decided: Transaction
    ) -> None:
        counts = decided.counts_of(event.participant)
        if event.is_counted is not (counts is not None):
            raise _No("rule g", f"the counts of {event.txn_id} come with its end")
        if event.is_selected is not (decided.selection is not None):
            raise _No("rule h", f"the selection of {event.txn_id} comes with its end")
        if event.loss_accepted and not decided.loss_accepted:
            raise _No("rule g", f"the loss of {event.txn_id} is durably accepted")
        if counts is None:
            self._doubt("a commit without counts")
        held, selection = dict(event.held), decided.selection
        expected: dict[int, int] = {}
        for writer_id, writes in held.items():
            is_out = selection is not None and writer_id not in selection
            limit = writes if counts is None else counts.get(writer_id, 0)
            expected[writer_id] = 0 if is_out else min(limit, writes)
        if dict(event.kept) != expected:
            raise _No("rule g", f"{event.participant} keeps {expected} of {event.txn_id}")
        for writer_id, confirmed in (counts or {}).items():
            is_out = selection is not None and writer_id not in selection
            if is_out or held.get(writer_id, 0) >= confirmed:
                continue
            if not one.exists:
                self._doubt("a participant is gone")
            elif not event.loss_accepted:
                raise _No(
                    "rule g", f"{confirmed} writes of {writer_id} are here, or a loss is accepted"
                )

    def _check_partitions_ended(self, life: Life, txn_id: TxnID, decided: Transaction) -> None:
        """Check the order of ends: the next owner of a group's partition writes afterwards."""
        for participant in decided.participants:
            if isinstance(participant, SubscriptionName):
                continue
            lives = self._broker_of(participant)
            if lives is None:
                continue
            # A broker that ends it at all of them keeps the order itself.
            state = lives.memory if lives.life == life else lives.rows
            if state.has_ended(participant, txn_id, True):
                continue
            if not lives.memory.at(participant).exists:
                self._doubt("a participant is gone")
            elif lives.losses:
                self._doubt("a broker has lost data")
            else:
                raise _No("rule p", f"{participant} ends {txn_id} before its subscriptions")

    def _check_abort(self, event: events.EndApplied) -> None:
        txn_id = event.txn_id
        decided = self._decided(txn_id)
        if decided is None:
            return
        durable = self._coordinators[txn_id.tcid].rows.find(txn_id)
        if durable is None or durable.outcome is None:
            raise _No("rule f", f"{txn_id} is durably decided before it is aborted here")
        if decided.outcome and decided.has(event.participant):
            raise _No("invariant 7", f"{txn_id} is {decided.status.value}")

    def _check_forgotten(self, life: Life, event: events.EndsForgotten) -> None:
        found = self._held(life, event.participant)
        if found is None:
            return
        state, one = found
        for txn_id in event.txn_ids:
            if not state.covers(txn_id):
                raise _No("rule c", f"the watermark covers {txn_id}")
            if any(one.is_unsettled(followed) for followed in one.follows_of(txn_id)):
                raise _No("rule k", f"{txn_id} passes others on, and is kept")

    def _check_taken(self, life: Life, event: events.WatermarkTaken) -> None:
        state = self._memory(life)
        if state is None:
            return
        coverage = Coverage(event.incarnation, event.low_watermark, event.live)
        known = state.watermarks.get(event.tcid)
        if known is not None:
            if event.incarnation < known.incarnation:
                raise _No("rule n", f"incarnation {known.incarnation} is known")
            lost = known.takes_back(coverage)
            if lost is not None:
                raise _No("rule c", f"counter {lost} is covered, and stays so")
        lives = self._coordinators.get(event.tcid)
        if lives is None or lives.life is None:
            self._doubt("the coordinator has no history")
        else:
            self._check_covers_ended(lives, coverage)

    # Cursors.

    def _check_acks_pending(self, life: Life, event: events.AcksPending) -> None:
        found = self._existing(life, event.participant)
        if found is None:
            return
        cursor = found[1].cursor
        for first, last in event.ranges:
            if cursor.acked.within(first, last):
                raise _No("rule i", f"{first} to {last} are not acknowledged yet")
            other = cursor.pending_of_others(event.txn_id, first, last)
            if other is not None:
                raise _No("rule i", f"{first} to {last} are pending for {other}")

    def _check_acked(self, life: Life, event: events.Acked) -> None:
        found = self._existing(life, event.participant)
        if found is None:
            return
        cursor = found[1].cursor
        for first, last in event.ranges:
            other = cursor.pending_of_others(None, first, last)
            if other is not None:
                raise _No("rule i", f"{first} to {last} are pending for {other}")

    def _check_moved(self, life: Life, event: events.CursorMoved) -> None:
        found = self._existing(life, event.participant)
        for txn_id in found[1].open if found is not None else ():
            raise _No("rule j", f"{txn_id} has ended at {event.participant}")


def _losses(event: Any) -> int:
    losses: int = event.losses if isinstance(event, events.BrokerRecovered) else event.incarnation
    return losses


def _has_transactions(event: Any) -> bool:
    return isinstance(event, events.CoordinatorRecovered) and event.next_counter > 0


def _names(txn_ids: Iterable[TxnID]) -> str:
    return ", ".join(map(str, sorted(txn_ids))) or "nothing"


_CHECKS: dict[type[Event], Callable[[Follower, Life, Any], None]] = {
    events.Sealed: Follower._check_sealed,
    events.Written: Follower._check_durable,
    events.Durable: Follower._check_durable,
    events.CoordinatorRecovered: Follower._check_recovered,
    events.BrokerRecovered: Follower._check_recovered,
    events.Opened: Follower._check_opened,
    events.ParticipantsAdded: Follower._check_added,
    events.Decided: Follower._check_decided,
    events.LossAccepted: Follower._check_loss_accepted,
    events.Finished: Follower._check_finished,
    events.TxnTold: Follower._check_txn_told,
    events.ParticipantsConfirmed: Follower._check_confirmed,
    events.OutcomeTold: Follower._check_outcome_told,
    events.WatermarkAnnounced: Follower._check_announced,
    events.ParticipantCreated: Follower._check_created,
    events.ParticipantDeleted: Follower._check_deleted,
    events.Wrote: Follower._check_wrote,
    events.WriteConfirmed: Follower._check_write_confirmed,
    events.PlainSent: Follower._check_sent,
    events.PlainConfirmed: Follower._check_plain_confirmed,
    events.MarkerWritten: Follower._check_marker,
    events.EndApplied: Follower._check_end,
    events.EndsForgotten: Follower._check_forgotten,
    events.WatermarkTaken: Follower._check_taken,
    events.AcksPending: Follower._check_acks_pending,
    events.Acked: Follower._check_acked,
    events.CursorMoved: Follower._check_moved,
}
