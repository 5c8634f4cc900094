"""Records of the start of a server that had a life before. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.spec.terms import OUTCOMES, NotInTheModel, Terms, server_name
from tests.spec.values import Record, Value, frozen

from magnetar_core.history import events
from magnetar_core.history.events import Event, Life
from magnetar_core.ids import PartitionName


@dataclass(slots=True)
class Found:
    """The events that a server has read from its store before it told that it has started.

    Attributes:
        read: events that tell of it.
        positions: where the last group is, by the kind of event.
    """

    read: list[Event] = field(default_factory=list)
    positions: dict[type[Event], int] = field(default_factory=dict)


def recovery(terms: Terms, life: Life, event: Event, found: Found) -> Record:
    """Return the record of a start after an earlier life.

    Args:
        event: BrokerRecovered or CoordinatorRecovered.
    Raises:
        NotInTheModel: a broker has lost data.
    """
    record: Record = {
        "server": server_name(life),
        "sealed": found.positions.get(events.Sealed, 0),
        "durable": found.positions.get(events.Durable, 0),
    }
    if isinstance(event, events.CoordinatorRecovered):
        live = frozenset(_live(terms, one) for one in event.live)
        lost = terms.numbers.within(event.lost)
        next_number = terms.numbers.of(event.next_counter)
        return {**record, "kind": "recovered", "live": live, "next": next_number, "lost": lost}
    assert isinstance(event, events.BrokerRecovered)
    if event.losses:
        raise NotInTheModel("a broker that has lost data")
    return {**record, "kind": "restarted", "found": _all_found(terms, life, found.read)}


def _live(terms: Terms, one: events.LiveTransaction) -> Value:
    return frozen(
        {
            "txn": terms.txn(one.txn_id),
            "at": frozenset(known for name in one.participants for known in terms.at(name)),
            "outcome": OUTCOMES[one.outcome],
            "counts": terms.counts(one.counts),
        }
    )


def _all_found(terms: Terms, life: Life, read: Iterable[Event]) -> Record:
    found: dict[str, Record] = {}
    coverage: Record = {"mark": 0, "live": frozenset()}
    for event in read:
        if isinstance(event, events.WatermarkFound):
            coverage = terms.coverage(event.low_watermark, event.live)
    for known, broker in terms.broker_of.items():
        if broker == server_name(life):
            found[known] = {"held": frozenset(), "ended": frozenset(), "end": 0, **coverage}
    for event in read:
        if isinstance(event, events.ParticipantFound):
            for known in terms.at(event.participant):
                found[known] |= _found_at(terms, event)
        elif isinstance(event, events.CursorFound):
            for known in terms.at(event.participant):
                found[known]["end"] = 1 if event.floor or event.deleted else 0
    return found


def _found_at(terms: Terms, event: events.ParticipantFound) -> Record:
    held = frozenset(
        frozen(
            {
                "txn": terms.txn(one.txn_id),
                "writes": sum(writer.writes for writer in one.writers),
                "follows": terms.txns(txn for writer in one.writers for txn in writer.follows),
            }
        )
        for one in event.held
    )
    ended = frozenset(
        frozen({**terms.outcome("end", one), "follows": terms.txns(one.follows)})
        for one in event.ended
    )
    record: Record = {"held": held, "ended": ended}
    if isinstance(event.participant, PartitionName):
        record["end"] = event.end_offset
    return record
