"""Changes of recorded histories: mistakes that servers could have made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from tests.spec.recording import INPUT, Noted, Recorded

from magnetar_core.history import events
from magnetar_core.history.events import COORDINATOR, Counts, Event
from magnetar_core.ids import PartitionName, TxnID


class Changed(NamedTuple):
    """A history in which one thing is changed.

    Attributes:
        place: of the event that is changed, comes too early or once more, or that is missing.
    """

    place: int
    recorded: Recorded


Change = Callable[[Recorded], Iterator[Changed]]


def _with(recorded: Recorded, noted: list[Noted], place: int) -> Changed:
    return Changed(place, recorded._replace(noted=tuple(noted)))


def _candidates(recorded: Recorded, kind: type[Event]) -> Iterator[tuple[int, Noted]]:
    """Yield the events that may be changed: of servers that serve, when transactions have begun."""
    recoveries = (events.BrokerRecovered, events.CoordinatorRecovered)
    recovered = {
        life: place
        for place, (life, event) in enumerate(recorded.noted)
        if isinstance(event, recoveries)
    }
    begun = False
    for place, noted in enumerate(recorded.noted):
        life, event = noted
        begun |= isinstance(event, events.Opened | events.CounterReserved)
        # The model has no partition of inputs.
        name = getattr(event, "participant", None)
        if isinstance(name, PartitionName) and name.topic == INPUT:
            continue
        is_found = isinstance(event, (*recoveries, events.ParticipantFound))
        if begun and isinstance(event, kind) and (is_found or recovered.get(life, -1) <= place):
            yield place, noted


def dropped(kind: type[Event]) -> Change:
    """An event is missing."""

    def changes(recorded: Recorded) -> Iterator[Changed]:
        for place, _ in _candidates(recorded, kind):
            noted = list(recorded.noted)
            del noted[place]
            yield _with(recorded, noted, place)

    return changes


def doubled(kind: type[Event]) -> Change:
    """An event comes twice."""

    def changes(recorded: Recorded) -> Iterator[Changed]:
        for place, one in _candidates(recorded, kind):
            noted = list(recorded.noted)
            noted.insert(place, one)
            yield _with(recorded, noted, place + 1)

    return changes


def altered(kind: type[Event], alter: Callable[[Any], Event | None]) -> Change:
    """An event says something else. Args: alter: returns None where it does not apply."""

    def changes(recorded: Recorded) -> Iterator[Changed]:
        for place, (life, event) in _candidates(recorded, kind):
            other = alter(event)
            if other is not None and other != event:
                noted = list(recorded.noted)
                noted[place] = Noted(life, other)
                yield _with(recorded, noted, place)

    return changes


def hurried(kind: type[Event], ahead_of: type[Event], *, of: str = "") -> Change:
    """An event comes before the last event of another kind that came before it.

    Args:
        of: whose other event it is, a kind of server; "": of any.
    """

    def changes(recorded: Recorded) -> Iterator[Changed]:
        for place, _ in _candidates(recorded, kind):
            for before in range(place - 1, -1, -1):
                life, other = recorded.noted[before]
                if isinstance(other, ahead_of) and of in ("", life.server.kind):
                    noted = list(recorded.noted)
                    noted.insert(before, noted.pop(place))
                    yield _with(recorded, noted, before)
                    break

    return changes


def fewer(field: str, by: int = 1) -> Callable[[Any], Event | None]:
    """Return an alteration that makes a number smaller."""
    return lambda event: event._replace(**{field: getattr(event, field) - by})


def other_outcome(event: Any) -> Event | None:
    return event._replace(is_commit=not event.is_commit)  # type: ignore[no-any-return]


def opposite_decision(event: events.Decided) -> Event | None:
    """A commit becomes an abort."""
    return event._replace(is_commit=False, counts=None) if event.is_commit else None


def _counted(counts: Counts | None, by: int) -> Counts | None:
    if not counts:
        return None
    (name, writers), *others = counts
    return ((name, tuple((writer, count + by) for writer, count in writers)), *others)


def counted(by: int) -> Callable[[events.Decided], Event | None]:
    """Return an alteration of the count of a commit's first participant."""

    def alter(event: events.Decided) -> Event | None:
        counts = _counted(event.counts, by)
        return None if counts is None else event._replace(counts=counts)

    return alter


def keeps_nothing(event: events.EndApplied) -> Event | None:
    """A commit drops what it holds."""
    return event._replace(kept=tuple((writer, 0) for writer, _ in event.kept))


def holds_nothing(event: events.EndApplied) -> Event | None:
    """An end finds nothing, and keeps nothing."""
    return event._replace(held=(), kept=())


def at_another_partition(event: Any) -> Event | None:
    """An event of a partition is one of the other partition."""
    name = event.participant
    if not isinstance(name, PartitionName):
        return None
    return event._replace(participant=name._replace(partition=1 - name.partition))  # type: ignore[no-any-return]


def of_another(event: Any) -> Event | None:
    """An event of a transaction is one of another transaction."""
    most_bits, counter = event.txn_id
    return event._replace(txn_id=TxnID(most_bits, counter - 1 if counter else 1))  # type: ignore[no-any-return]


def follows_nothing(event: events.Wrote) -> Event | None:
    return event._replace(follows=())


def passes_on_nothing(event: events.EndApplied) -> Event | None:
    return event._replace(passes_on=())


def covers_more(event: Any) -> Event | None:
    """A watermark covers a further transaction."""
    return event._replace(low_watermark=event.low_watermark + 1)  # type: ignore[no-any-return]


def lists_nothing(event: Any) -> Event | None:
    """A watermark covers what is live."""
    return event._replace(live=())  # type: ignore[no-any-return]


def finds_nothing_live(event: events.CoordinatorRecovered) -> Event | None:
    return event._replace(live=())


def finds_no_writes(event: events.ParticipantFound) -> Event | None:
    return event._replace(held=())


def finds_no_ends(event: events.ParticipantFound) -> Event | None:
    return event._replace(ended=())


def goes_back(event: events.CoordinatorRecovered) -> Event | None:
    """A coordinator issues counters again."""
    return event._replace(next_counter=1, lost=()) if event.next_counter else None


E = events
CHANGES: Mapping[str, Change] = {
    "a commit is decided as an abort": altered(E.Decided, opposite_decision),
    "a count is one too low": altered(E.Decided, counted(-1)),
    "a count is one too high": altered(E.Decided, counted(1)),
    "a decision is missing": dropped(E.Decided),
    "a decision comes twice": doubled(E.Decided),
    "a decision of another transaction": altered(E.Decided, of_another),
    "a decision before the participants": hurried(E.Decided, E.ParticipantsAdded),
    "an end with the other outcome": altered(E.EndApplied, other_outcome),
    "an end keeps nothing": altered(E.EndApplied, keeps_nothing),
    "an end finds nothing": altered(E.EndApplied, holds_nothing),
    "an end is missing": dropped(E.EndApplied),
    "an end comes twice": doubled(E.EndApplied),
    "an end of another transaction": altered(E.EndApplied, of_another),
    "an end at another partition": altered(E.EndApplied, at_another_partition),
    "an end before its decision": hurried(E.EndApplied, E.Decided),
    "an end before its decision is durable": hurried(E.EndApplied, E.Durable, of=COORDINATOR),
    "an end passes nothing on": altered(E.EndApplied, passes_on_nothing),
    "a marker is missing": dropped(E.MarkerWritten),
    "a marker comes twice": doubled(E.MarkerWritten),
    "a marker at a place before": altered(E.MarkerWritten, fewer("offset")),
    "a marker with fewer messages": altered(E.MarkerWritten, fewer("messages")),
    "a marker of another transaction": altered(E.MarkerWritten, of_another),
    "a write is missing": dropped(E.Wrote),
    "a write comes twice": doubled(E.Wrote),
    "a write at a further index": altered(E.Wrote, fewer("first_index", -1)),
    "a write of another transaction": altered(E.Wrote, of_another),
    "a write at another partition": altered(E.Wrote, at_another_partition),
    "a write that follows nothing": altered(E.Wrote, follows_nothing),
    "a write is confirmed too early": hurried(E.WriteConfirmed, E.Durable),
    "a confirmation of another transaction": altered(E.WriteConfirmed, of_another),
    "a confirmation of more": altered(E.WriteConfirmed, fewer("end_index", -1)),
    "a transaction is told too early": hurried(E.TxnTold, E.Opened),
    "a TxnID twice": doubled(E.Opened),
    "a transaction was not opened": dropped(E.Opened),
    "a participant is not added": dropped(E.ParticipantsAdded),
    "a participant is confirmed too early": hurried(E.ParticipantsConfirmed, E.Durable),
    "an outcome is told too early": hurried(E.OutcomeTold, E.Durable, of=COORDINATOR),
    "the other outcome is told": altered(E.OutcomeTold, other_outcome),
    "another outcome is told": altered(E.OutcomeTold, of_another),
    "finished with the other outcome": altered(E.Finished, other_outcome),
    "finished before an end": hurried(E.Finished, E.EndApplied),
    "finished before an end is durable": hurried(E.Finished, E.Durable),
    "finished twice": doubled(E.Finished),
    "a group is not sealed": dropped(E.Sealed),
    "a group is sealed twice": doubled(E.Sealed),
    "a group is not durable": dropped(E.Durable),
    "a group is durable twice": doubled(E.Durable),
    "a later group is durable": altered(E.Durable, fewer("position", -1)),
    "counters are not reserved": dropped(E.CounterReserved),
    "a watermark covers more": altered(E.WatermarkAnnounced, covers_more),
    "a watermark lists nothing": altered(E.WatermarkAnnounced, lists_nothing),
    "a broker takes more than was told": altered(E.WatermarkTaken, covers_more),
    "a broker takes a watermark without its list": altered(E.WatermarkTaken, lists_nothing),
    "a watermark is not taken": dropped(E.WatermarkTaken),
    "ends are forgotten too early": hurried(E.EndsForgotten, E.WatermarkTaken),
    "a plain message is missing": dropped(E.PlainSent),
    "a plain message comes twice": doubled(E.PlainSent),
    "a plain message at a place before": altered(E.PlainSent, fewer("offset")),
    "a plain message before an end": hurried(E.PlainSent, E.MarkerWritten),
    "a plain message is confirmed too early": hurried(E.PlainConfirmed, E.Durable),
    "a coordinator finds nothing live": altered(E.CoordinatorRecovered, finds_nothing_live),
    "a coordinator issues counters again": altered(E.CoordinatorRecovered, goes_back),
    "a broker finds no writes": altered(E.ParticipantFound, finds_no_writes),
    "a broker finds no ends": altered(E.ParticipantFound, finds_no_ends),
}
