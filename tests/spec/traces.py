"""Translates recorded histories into records for `spec/Trace.tla`. Pure.

An event becomes a record, several, or none. The model is coarser, so:

- *TxnIDs* become small numbers. The code reserves a million counters at once, the model `Reserved`
  of them: so the n-th counter behind a bound of the code is the n-th behind a bound of the model.
- *Counts* are those of a participant, not those of its writers. A transaction has one message at
  most at each participant.
- *Watermarks* are a broker's in the code, and a participant's in the model: a record for each of
  them. Ranges of live transactions become sets.
- *A broker* starts with a record of all that it has found. Groups of a past life
  that were not seen becoming durable have a number: TLC tries whether they were stored.
- *Nothing is translated* of other participants than two partitions and a subscription, of a
  server that still reads its store, or of what exists, cursors and idle producers.
Source: docs/design/0022-model.md, Recorded histories.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from tests.spec.recording import INPUT, SUBSCRIPTION, TOPIC, Noted, Recorded

from magnetar_core.history import events
from magnetar_core.history.events import BROKER, Event, Life, Participant, Range
from magnetar_core.ids import PartitionName, SubscriptionName, TxnID

# Values of TLA+, and sequences, sets (frozenset) and records of them.
Value = Any
Record = dict[str, Value]

OUTCOMES: Final = {True: "commit", False: "abort", None: "none"}
COORDINATOR: Final = "coordinator"
# A TxnID that was not issued, and is not the next one either.
OUTSIDE: Final = 1_000
# Names of participants in the module.
SUBSCRIPTION_NAME: Final = "s"
RECOVERIES: Final = (events.BrokerRecovered, events.CoordinatorRecovered)
# What they tell is not in the model, or is in the record of the recovery that follows.
LEFT_OUT: Final = (
    events.ParticipantCreated,
    events.ParticipantFound,
    events.CursorFound,
    events.WatermarkFound,
    events.AcksPending,
)
# What the model does not have: these end a translation. So do parts of some others.
NOT_IN_THE_MODEL: Final = (
    events.Written,
    events.LossAccepted,
    events.ParticipantDeleted,
    events.ProducersForgotten,
    events.Acked,
    events.MessagesRemoved,
    events.CursorMoved,
)


class NotInTheModel(ValueError):
    """An event stands for something that `spec/Commit.tla` does not have; its text says what."""


class Translated(NamedTuple):
    """A history for the model.

    Attributes:
        records: what `spec/Trace.tla` takes, one after the other.
        places: for each record, the place of its event in the recorded history.
        constants: values for the constants of the module.
    """

    records: tuple[Record, ...]
    places: tuple[int, ...]
    constants: Mapping[str, Value]


def translate(recorded: Recorded, original: Recorded | None = None) -> Translated:
    """Translate a history.

    Args:
        original: the history of which this one is a changed copy: numbers are as there.
    Raises:
        NotInTheModel: it has something that the model does not have.
    """
    translation = _Translation(recorded, original or recorded)
    records: list[Record] = []
    places: list[int] = []
    for place, noted in enumerate(recorded.noted):
        for record in translation.records_of(place, noted):
            records.append(record)
            places.append(place)
    return Translated(tuple(records), tuple(places), translation.constants(records))


class _Numbers:
    """Numbers of TxnIDs: the bounds of the code are the multiples of `reserved`."""

    def __init__(self, noted: Iterable[Noted]) -> None:
        issued: set[int] = set()
        bounds = {0}
        for _, event in noted:
            if isinstance(event, events.Opened):
                issued.add(event.txn_id.counter)
            elif isinstance(event, events.CounterReserved):
                bounds.add(event.bound)
            elif isinstance(event, events.CoordinatorRecovered):
                bounds.add(event.next_counter)
        self._starts = sorted(bounds)
        behind = [0] * len(self._starts)
        for counter in issued:
            place, distance = self._place(counter)
            behind[place] = max(behind[place], distance + 1)
        # One more than were issued: the next one is told with watermarks.
        self.reserved = max(behind) + 1
        self.count = self.reserved * max(1, len(self._starts) - 1)

    def _place(self, counter: int) -> tuple[int, int]:
        place = bisect_right(self._starts, counter) - 1
        return place, counter - self._starts[place]

    def of(self, counter: int) -> int:
        """Return the number of a counter. A counter that the model has no number for is OUTSIDE."""
        place, distance = self._place(counter)
        return place * self.reserved + distance if distance < self.reserved else OUTSIDE

    def within(self, ranges: Iterable[Range]) -> frozenset[int]:
        """Return the numbers whose counters are in these ranges."""
        ranges = list(ranges)
        return frozenset(
            number
            for number in range(self.count)
            if any(first <= self._counter(number) <= last for first, last in ranges)
        )

    def _counter(self, number: int) -> int:
        place, distance = divmod(number, self.reserved)
        return self._starts[place] + distance


class _Translation:
    def __init__(self, recorded: Recorded, original: Recorded) -> None:
        self._numbers = _Numbers(original.noted)
        self._clients = recorded.clients
        self._names: dict[Participant, str] = {}
        self._broker_of: dict[str, str] = {}
        self._producers: dict[int, int] = {}
        self._recovered_at = {
            life: place
            for place, (life, event) in enumerate(recorded.noted)
            if isinstance(event, RECOVERIES)
        }
        self._groups = doubtful_groups(recorded.noted)
        self._found: dict[Life, list[Event]] = {}
        self._positions: dict[Life, dict[type[Event], int]] = {}
        self._first_lives: dict[object, Life] = {}
        for life, event in original.noted:
            self._first_lives.setdefault(life.server, life)
            self._look(life, event)

    def _look(self, life: Life, event: Event) -> None:
        """Learn who is where, and whose a producer is."""
        for name in _participants(event):
            known = _name_of(name)
            if known is not None:
                self._names[name] = known
                if life.server.kind == BROKER:
                    self._broker_of[known] = _server(life)
        if isinstance(event, events.Wrote):
            client = self._clients.get(event.txn_id, 1)
            self._producers.setdefault(event.writer_id, client)

    def constants(self, records: Sequence[Record]) -> Mapping[str, Value]:
        """Return values for the constants of the module."""
        kinds = [record["kind"] for record in records]
        clients = {record["client"] for record in records if "client" in record} or {1}
        steps = max(
            sum(record["kind"] in _STEPS and record["client"] == one for record in records)
            for one in clients
        )
        return {
            "Clients": frozenset(range(1, max(clients) + 1)),
            "Partitions": frozenset({"p0", "p1"}),
            "Subscription": SUBSCRIPTION_NAME,
            "BrokerOf": {name: self._broker_of.get(name, "broker 0") for name in ("p0", "p1", "s")},
            "Steps": max(1, steps),
            "Transactions": self._numbers.count,
            "Reserved": self._numbers.reserved,
            "Crashes": kinds.count("recovered"),
            "Announcements": kinds.count("announced"),
            "Losses": 0,
        }

    # Records.

    def records_of(self, place: int, noted: Noted) -> Iterator[Record]:
        """Yield the records of an event."""
        life, event = noted
        if isinstance(event, RECOVERIES):
            if life != self._first_lives[life.server]:
                yield self._recovery(life, event)
            return
        if place < self._recovered_at.get(life, place + 1):
            # It is still reading its store.
            self._found.setdefault(life, []).append(event)
            if isinstance(event, events.Sealed | events.Durable):
                self._positions.setdefault(life, {})[type(event)] = event.position
            return
        if isinstance(event, LEFT_OUT):
            return
        if isinstance(event, NOT_IN_THE_MODEL):
            raise NotInTheModel(f"{type(event).__name__}: {event}")
        for record in RECORDS[type(event)](self, life, event):
            if life.server.kind == BROKER:
                record["server"] = _server(life)
            if record["kind"] in _CHANGES:
                record["group"] = self._groups.get(place, 0)
            yield record

    def _at(self, name: Participant) -> Iterator[str]:
        """Yield the name of a participant in the module, if it has one."""
        known = self._names.get(name) or _name_of(name)
        if known is not None:
            yield known

    def _txn(self, txn_id: TxnID) -> int:
        return self._numbers.of(txn_id.counter)

    def _txns(self, txn_ids: Iterable[TxnID]) -> frozenset[int]:
        return frozenset(map(self._txn, txn_ids))

    def _counts(self, counts: events.Counts | None) -> Record:
        summed = dict.fromkeys(("p0", "p1", SUBSCRIPTION_NAME), 0)
        for name, writers in counts or ():
            for known in self._at(name):
                summed[known] += _sum(writers)
        return summed

    # Of a coordinator.

    def _reserved(self, life: Life, event: events.CounterReserved) -> Iterator[Record]:
        yield {"kind": "reserved", "bound": self._numbers.of(event.bound)}

    def _opened(self, life: Life, event: events.Opened) -> Iterator[Record]:
        txn, client = self._txn(event.txn_id), self._clients.get(event.txn_id, 1)
        yield {"kind": "opened", "txn": txn, "client": client}
        yield from self._each("added", event.txn_id, event.participants)

    def _added(self, life: Life, event: events.ParticipantsAdded) -> Iterator[Record]:
        yield from self._each("added", event.txn_id, event.participants)

    def _confirmed(self, life: Life, event: events.ParticipantsConfirmed) -> Iterator[Record]:
        yield from self._each("enrolled", event.txn_id, event.participants)

    def _each(
        self, kind: str, txn_id: TxnID, participants: Iterable[Participant]
    ) -> Iterator[Record]:
        for name in participants:
            for known in self._at(name):
                yield {"kind": kind, "txn": self._txn(txn_id), "at": known}

    def _decided(self, life: Life, event: events.Decided) -> Iterator[Record]:
        if event.is_commit and (event.counts is None or event.selection is not None):
            raise NotInTheModel("a commit without counts, or with a selection")
        yield {
            "kind": "decided",
            "txn": self._txn(event.txn_id),
            "outcome": OUTCOMES[event.is_commit],
            "counts": self._counts(event.counts),
        }

    def _outcome(self, kind: str, event: Any) -> Record:
        return {
            "kind": kind,
            "txn": self._txn(event.txn_id),
            "outcome": OUTCOMES[event.is_commit],
        }

    def _finished(self, life: Life, event: events.Finished) -> Iterator[Record]:
        yield self._outcome("finished", event)

    def _answered(self, life: Life, event: events.OutcomeTold) -> Iterator[Record]:
        yield self._outcome("answered", event)

    def _told(self, life: Life, event: events.TxnTold) -> Iterator[Record]:
        yield {"kind": "told", "txn": self._txn(event.txn_id), "early": event.is_early}

    def _announced(self, life: Life, event: events.WatermarkAnnounced) -> Iterator[Record]:
        yield {"kind": "announced", **self._coverage(event.low_watermark, event.live)}

    def _coverage(self, low_watermark: int, live: Iterable[Range]) -> Record:
        return {"mark": self._numbers.of(low_watermark), "live": self._numbers.within(live)}

    # Of a broker.

    def _wrote(self, life: Life, event: events.Wrote) -> Iterator[Record]:
        for known in self._at(event.participant):
            yield {
                "kind": "wrote",
                "at": known,
                "txn": self._txn(event.txn_id),
                "index": event.first_index,
                "writes": event.writes,
                "follows": self._txns(event.follows),
            }

    def _write_confirmed(self, life: Life, event: events.WriteConfirmed) -> Iterator[Record]:
        for known in self._at(event.participant):
            yield {
                "kind": "confirmed",
                "at": known,
                "txn": self._txn(event.txn_id),
                "writes": event.end_index,
            }

    def _plain(
        self, life: Life, event: events.PlainSent | events.PlainConfirmed
    ) -> Iterator[Record]:
        for known in self._at(event.participant):
            client = self._producers.get(event.producer_id)
            if client is None or event.messages != 1:
                raise NotInTheModel("a plain send that follows no transaction, or of a batch")
            yield {
                "kind": "plain" if isinstance(event, events.PlainSent) else "plain confirmed",
                "at": known,
                "client": client,
                "sequence": event.sequence_id,
                "offset": event.offset,
            }

    def _marker(self, life: Life, event: events.MarkerWritten) -> Iterator[Record]:
        for known in self._at(event.participant):
            yield {
                "kind": "marker",
                "at": known,
                "txn": self._txn(event.txn_id),
                "offset": event.offset,
                "messages": event.messages,
            }

    def _ended(self, life: Life, event: events.EndApplied) -> Iterator[Record]:
        if event.loss_accepted or event.is_dropped or event.is_selected:
            raise NotInTheModel("an accepted loss, a participant that is deleted, or a selection")
        for known in self._at(event.participant):
            yield {
                **self._outcome("ended", event),
                "at": known,
                "held": _sum(event.held),
                "kept": _sum(event.kept),
                "follows": self._txns(event.passes_on),
            }

    def _forgot(self, life: Life, event: events.EndsForgotten) -> Iterator[Record]:
        for known in self._at(event.participant):
            yield {"kind": "forgot", "at": known, "txns": self._txns(event.txn_ids)}

    def _watermark(self, life: Life, event: events.WatermarkTaken) -> Iterator[Record]:
        for known, broker in sorted(self._broker_of.items()):
            if broker == _server(life):
                coverage = self._coverage(event.low_watermark, event.live)
                yield {"kind": "watermark", "at": known, **coverage}

    # Of both.

    def _sealed(self, life: Life, event: events.Sealed) -> Iterator[Record]:
        yield {"kind": "sealed", "server": _server(life), "position": event.position}

    def _durable(self, life: Life, event: events.Durable) -> Iterator[Record]:
        yield {"kind": "durable", "server": _server(life), "position": event.position}

    def _recovery(self, life: Life, event: Event) -> Record:
        positions = self._positions.get(life, {})
        record: Record = {
            "server": _server(life),
            "sealed": positions.get(events.Sealed, 0),
            "durable": positions.get(events.Durable, 0),
        }
        if isinstance(event, events.CoordinatorRecovered):
            live = frozenset(self._live(one) for one in event.live)
            lost = self._numbers.within(event.lost)
            next_number = self._numbers.of(event.next_counter)
            return {**record, "kind": "recovered", "live": live, "next": next_number, "lost": lost}
        assert isinstance(event, events.BrokerRecovered)
        if event.losses:
            raise NotInTheModel("a broker that has lost data")
        return {**record, "kind": "restarted", "found": self._all_found(life)}

    def _live(self, one: events.LiveTransaction) -> Value:
        return frozen(
            {
                "txn": self._txn(one.txn_id),
                "at": frozenset(known for name in one.participants for known in self._at(name)),
                "outcome": OUTCOMES[one.outcome],
                "counts": self._counts(one.counts),
            }
        )

    def _all_found(self, life: Life) -> Record:
        found: dict[str, Record] = {}
        coverage: Record = {"mark": 0, "live": frozenset()}
        for event in self._found.get(life, ()):
            if isinstance(event, events.WatermarkFound):
                coverage = self._coverage(event.low_watermark, event.live)
        for known, broker in self._broker_of.items():
            if broker == _server(life):
                found[known] = {"held": frozenset(), "ended": frozenset(), "end": 0, **coverage}
        for event in self._found.get(life, ()):
            if isinstance(event, events.ParticipantFound):
                for known in self._at(event.participant):
                    found[known] |= self._found_at(event)
            elif isinstance(event, events.CursorFound):
                for known in self._at(event.participant):
                    found[known]["end"] = 1 if event.floor or event.deleted else 0
        return found

    def _found_at(self, event: events.ParticipantFound) -> Record:
        held = frozenset(
            frozen(
                {
                    "txn": self._txn(one.txn_id),
                    "writes": sum(writer.writes for writer in one.writers),
                    "follows": self._txns(txn for writer in one.writers for txn in writer.follows),
                }
            )
            for one in event.held
        )
        ended = frozenset(
            frozen({**self._outcome("end", one), "follows": self._txns(one.follows)})
            for one in event.ended
        )
        record: Record = {"held": held, "ended": ended}
        if isinstance(event.participant, PartitionName):
            record["end"] = event.end_offset
        return record


RECORDS: Mapping[type[Event], Callable[[_Translation, Life, Any], Iterator[Record]]] = {
    events.Sealed: _Translation._sealed,
    events.Durable: _Translation._durable,
    events.CounterReserved: _Translation._reserved,
    events.Opened: _Translation._opened,
    events.ParticipantsAdded: _Translation._added,
    events.Decided: _Translation._decided,
    events.Finished: _Translation._finished,
    events.TxnTold: _Translation._told,
    events.ParticipantsConfirmed: _Translation._confirmed,
    events.OutcomeTold: _Translation._answered,
    events.WatermarkAnnounced: _Translation._announced,
    events.Wrote: _Translation._wrote,
    events.WriteConfirmed: _Translation._write_confirmed,
    events.PlainSent: _Translation._plain,
    events.PlainConfirmed: _Translation._plain,
    events.MarkerWritten: _Translation._marker,
    events.EndApplied: _Translation._ended,
    events.EndsForgotten: _Translation._forgot,
    events.WatermarkTaken: _Translation._watermark,
}
# Records of steps of a client.
_STEPS: Final = frozenset({"opened", "plain"})
# Records that a crash may take back.
_CHANGES: Final = frozenset({"wrote", "plain", "marker", "ended", "forgot", "watermark"})


def doubtful_groups(noted: Sequence[Noted]) -> dict[int, int]:
    """Number the groups of brokers whose life ended before they were seen to be durable.

    Returns:
        The number of the group of an event, by its place.
    """
    durable: dict[Life, int] = {}
    last: dict[object, Life] = {}
    for life, event in noted:
        last[life.server] = max(life, last.get(life.server, life))
        if isinstance(event, events.Durable):
            durable[life] = event.position
    sealed: dict[Life, int] = {}
    numbers: dict[tuple[Life, int], int] = {}
    found: dict[int, int] = {}
    for place, (life, event) in enumerate(noted):
        if isinstance(event, events.Sealed):
            sealed[life] = event.position
        elif life != last[life.server]:
            group = sealed.get(life, 0) + 1
            if group > durable.get(life, 0):
                found[place] = numbers.setdefault((life, group), len(numbers) + 1)
    return found


def _participants(event: Event) -> Iterator[Participant]:
    for value in event:
        if isinstance(value, PartitionName | SubscriptionName):
            yield value


def _name_of(name: Participant) -> str | None:
    if isinstance(name, PartitionName):
        return f"p{name.partition}" if name.topic == TOPIC else None
    is_input = name.topic == INPUT and name.subscription == SUBSCRIPTION
    return SUBSCRIPTION_NAME if is_input else None


def _server(life: Life) -> str:
    return str(life.server) if life.server.kind == BROKER else COORDINATOR


def _sum(counts: events.WriterCounts) -> int:
    return sum(count for _, count in counts)


def frozen(record: Mapping[str, Value]) -> tuple[tuple[str, Value], ...]:
    """Return a record that may be in a set."""
    return tuple(
        (name, frozen(value) if isinstance(value, dict) else value)
        for name, value in record.items()
    )


# The text of TLA+.


def written(value: Value) -> str:
    """Return a value as TLA+ writes it."""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, frozenset):
        return f"{{{', '.join(sorted(map(written, value)))}}}"
    if isinstance(value, dict):
        value = frozen(value)
    if isinstance(value, tuple):
        return f"[{', '.join(f'{name} |-> {written(one)}' for name, one in value)}]"
    return str(value)
