"""State of a broker as a history tells it: its participants, and the watermarks that it has. Pure.

Source: spec/Commit.tla, participants and markRows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from magnetar.messaging.interval_set import IntervalSet
from magnetar_cli.histories.participant_state import ParticipantState
from magnetar_core.history import events
from magnetar_core.history.events import Event, Participant, Range
from magnetar_core.ids import PartitionName, SubscriptionName, TxnID


class Coverage(NamedTuple):
    """Watermark of a coordinator: it says which transactions have ended. Rule c."""

    incarnation: int
    low_watermark: int
    live: tuple[Range, ...]

    def covers(self, txn_id: TxnID) -> bool:
        """Return whether the watermark says that a transaction has ended."""
        if txn_id.incarnation != self.incarnation or txn_id.counter >= self.low_watermark:
            return False
        return not any(first <= txn_id.counter <= last for first, last in self.live)

    def takes_back(self, later: Coverage) -> int | None:
        """Return a counter that this watermark covers, and a later one does not; None: none."""
        if later.incarnation != self.incarnation:
            return None
        if later.low_watermark < self.low_watermark:
            return later.low_watermark
        mine = IntervalSet(self.live)
        for first, last in later.live:
            news = IntervalSet([(first, last)])
            news.remove_all(mine)
            for one, _ in news:
                if one < self.low_watermark:
                    return one
        return None


class BrokerState:
    """Participants and watermarks of a broker.

    Attributes:
        watermarks: of each coordinator, by TCID.
        former: the last ones of former incarnations, by TCID and incarnation.
        marker: a marker whose end has not come yet.
    """

    def __init__(self) -> None:
        self.participants: dict[Participant, ParticipantState] = {}
        self.watermarks: dict[int, Coverage] = {}
        self.former: dict[tuple[int, int], Coverage] = {}
        self.marker: events.MarkerWritten | None = None

    def copy(self) -> BrokerState:
        """Return a copy that does not change with this one."""
        other = BrokerState()
        other.participants = {name: one.copy() for name, one in self.participants.items()}
        other.watermarks = dict(self.watermarks)
        other.former = dict(self.former)
        return other

    def at(self, name: Participant) -> ParticipantState:
        """Return a participant; one that does not exist, if it is unknown."""
        return self.participants.get(name) or ParticipantState()

    def covers(self, txn_id: TxnID) -> bool:
        """Return whether a watermark says that a transaction has ended."""
        coverage = self.watermarks.get(txn_id.tcid)
        if coverage is not None and txn_id.incarnation < coverage.incarnation:
            coverage = self.former.get((txn_id.tcid, txn_id.incarnation))
        return coverage is not None and coverage.covers(txn_id)

    def has_ended(self, name: Participant, txn_id: TxnID, is_commit: bool) -> bool:
        """Return whether a transaction has ended with an outcome at a participant."""
        one = self.at(name)
        if txn_id in one.fates:
            return one.fates[txn_id] is is_commit
        return txn_id not in one.open and self.covers(txn_id)

    # Changing.

    def apply(self, event: Event) -> None:
        """Change as an event says; events that change nothing here are passed over."""
        change = _CHANGES.get(type(event))
        if change is not None:
            change(self, event)

    def _of(self, name: Participant) -> ParticipantState:
        found = self.participants.get(name)
        if found is None:
            found = self.participants[name] = ParticipantState()
        return found

    def _created(self, event: events.ParticipantCreated) -> None:
        one = self._of(event.participant)
        one.exists = True
        if isinstance(event.participant, SubscriptionName):
            one.cursor_moved(events.CursorMoved(event.participant, event.offset))
        else:
            one.end_offset = event.offset

    def _deleted(self, event: events.ParticipantDeleted) -> None:
        name = event.participant
        if isinstance(name, SubscriptionName):
            self._of(name).exists = False
            return
        for one in self._inside(name):
            self.participants[one].exists = False
            self.participants[one].ended.clear()

    def _inside(self, partition: PartitionName) -> Iterator[Participant]:
        for name in self.participants:
            if name[:3] == tuple(partition):
                yield name

    def _forgotten(self, event: events.EndsForgotten) -> None:
        one = self._of(event.participant)
        for txn_id in event.txn_ids:
            one.ended.pop(txn_id, None)

    def _taken(self, event: events.WatermarkTaken | events.WatermarkFound) -> None:
        before = self.watermarks.get(event.tcid)
        if before is not None and before.incarnation < event.incarnation and before.low_watermark:
            self.former[event.tcid, before.incarnation] = before
        self.watermarks[event.tcid] = Coverage(event.incarnation, event.low_watermark, event.live)

    def _marked(self, event: events.MarkerWritten) -> None:
        self.marker = event
        self._of(event.participant).end_offset = event.offset + event.messages

    def _applied(self, event: events.EndApplied) -> None:
        self.marker = None
        self._of(event.participant).ended_here(event)

    def _producers_forgotten(self, event: events.ProducersForgotten) -> None:
        one = self._of(event.participant)
        for producer_id in event.producer_ids:
            one.producers.pop(producer_id, None)
            one.places.pop(producer_id, None)

    # Recovering.

    def difference(self, found: Iterable[Event]) -> str | None:
        """Say how a state differs from what a broker has found in its store; None: it does not."""
        other = BrokerState.found(found, None)
        if other.watermarks != self.watermarks:
            return f"the watermarks are {other.watermarks}, not {self.watermarks}"
        # A broker does not keep all of them for ever.
        if not other.former.items() <= self.former.items():
            return f"the former watermarks are {other.former}, not {self.former}"
        for name in [*self.participants, *other.participants]:
            text = self._difference_at(name, other.at(name))
            if text is not None:
                return f"{name}: {text}"
        return None

    def _difference_at(self, name: Participant, found: ParticipantState) -> str | None:
        mine = self.at(name)
        if found.exists is not mine.exists:
            return "it is found" if found.exists else "it is not found"
        if found.open != mine.open:
            return f"{_held(found)} is open, not {_held(mine)}"
        kept = {one for one in mine.ended if not self.covers(one)}
        for txn_id in kept - found.ended.keys():
            return f"the end of {txn_id} is not found"
        for txn_id, end in found.ended.items():
            if mine.ended.get(txn_id) != end:
                return f"{txn_id} has ended as {end}, not as {mine.ended.get(txn_id)}"
        if mine.exists and found.end_offset != mine.end_offset:
            return f"it ends at {found.end_offset}, not at {mine.end_offset}"
        if mine.exists and isinstance(name, SubscriptionName):
            acked, known = list(found.cursor.acked), list(mine.cursor.acked)
            if acked != known:
                return f"{acked} is acknowledged, not {known}"
            if _pending(found) != _pending(mine):
                return f"acks are pending for {_pending(found)}, not {_pending(mine)}"
        return None

    @classmethod
    def found(cls, found: Iterable[Event], known: BrokerState | None) -> BrokerState:
        """Return the state that a broker has found in its store.

        Args:
            known: the same state as the history tells it: it knows more, as producers and fates.
        """
        state = cls()
        first_offsets: dict[PartitionName, int] = {}
        for event in found:
            if isinstance(event, events.WatermarkFound):
                state._taken(event)
            elif isinstance(event, events.ParticipantFound):
                name = event.participant
                one = state.participants[name] = ParticipantState.found(event)
                if isinstance(name, PartitionName):
                    first_offsets[name] = event.first_offset
                if known is not None and name in known.participants:
                    before = known.participants[name].copy()
                    one.fates = before.fates | one.fates
                    one.producers, one.places = before.producers, before.places
                    one.cursor.acks = before.cursor.acks
            elif isinstance(event, events.CursorFound):
                removed_end = first_offsets.get(event.participant.partition_name, 0)
                state.participants[event.participant].cursor_found(event, removed_end)
        for name, before in known.participants.items() if known is not None else ():
            # What was deleted keeps its fates.
            if name not in state.participants:
                state.participants[name] = ParticipantState(fates=dict(before.fates))
        return state


def _held(one: ParticipantState) -> dict[str, dict[int, int]]:
    return {str(txn_id): one.held_of(txn_id) for txn_id in one.open}


def _pending(one: ParticipantState) -> dict[str, list[Range]]:
    return {
        str(txn_id): list(IntervalSet(part for ranges in acks.values() for part in ranges))
        for txn_id, acks in one.cursor.acks.items()
    }


def _at_participant(name: str) -> Callable[[BrokerState, Any], None]:
    def change(state: BrokerState, event: Any) -> None:
        getattr(state._of(event.participant), name)(event)

    return change


_CHANGES: dict[type[Event], Callable[[BrokerState, Any], None]] = {
    events.ParticipantCreated: BrokerState._created,
    events.ParticipantDeleted: BrokerState._deleted,
    events.EndsForgotten: BrokerState._forgotten,
    events.WatermarkTaken: BrokerState._taken,
    events.MarkerWritten: BrokerState._marked,
    events.EndApplied: BrokerState._applied,
    events.ProducersForgotten: BrokerState._producers_forgotten,
    events.Wrote: _at_participant("wrote"),
    events.PlainSent: _at_participant("sent"),
    events.AcksPending: _at_participant("acks_pending"),
    events.Acked: _at_participant("acked"),
    events.MessagesRemoved: _at_participant("removed"),
    events.CursorMoved: _at_participant("cursor_moved"),
}
