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

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from tests.spec import broker_records, coordinator_records
from tests.spec.doubtful_groups import doubtful_groups
from tests.spec.recording import Noted, Recorded
from tests.spec.recoveries import Found, recovery
from tests.spec.terms import SUBSCRIPTION_NAME, NotInTheModel, Terms, server_name
from tests.spec.values import Record, Value

from magnetar_core.history import events
from magnetar_core.history.events import BROKER, Life

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


class _Translation:
    def __init__(self, recorded: Recorded, original: Recorded) -> None:
        self._terms = Terms(recorded, original)
        self._recovered_at = {
            life: place
            for place, (life, event) in enumerate(recorded.noted)
            if isinstance(event, RECOVERIES)
        }
        self._groups = doubtful_groups(recorded.noted)
        self._found: dict[Life, Found] = {}
        self._first_lives: dict[object, Life] = {}
        for life, _ in original.noted:
            self._first_lives.setdefault(life.server, life)

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
            "BrokerOf": {
                name: self._terms.broker_of.get(name, "broker 0") for name in ("p0", "p1", "s")
            },
            "Steps": max(1, steps),
            "Transactions": self._terms.numbers.count,
            "Reserved": self._terms.numbers.reserved,
            "Crashes": kinds.count("recovered"),
            "Announcements": kinds.count("announced"),
            "Losses": 0,
        }

    def records_of(self, place: int, noted: Noted) -> Iterator[Record]:
        """Yield the records of an event."""
        life, event = noted
        if isinstance(event, RECOVERIES):
            if life != self._first_lives[life.server]:
                yield recovery(self._terms, life, event, self._found.get(life, Found()))
            return
        if place < self._recovered_at.get(life, place + 1):
            # It is still reading its store.
            found = self._found.setdefault(life, Found())
            found.read.append(event)
            if isinstance(event, events.Sealed | events.Durable):
                found.positions[type(event)] = event.position
            return
        if isinstance(event, LEFT_OUT):
            return
        if isinstance(event, NOT_IN_THE_MODEL):
            raise NotInTheModel(f"{type(event).__name__}: {event}")
        for record in RECORDS[type(event)](self._terms, life, event):
            if life.server.kind == BROKER:
                record["server"] = server_name(life)
            if record["kind"] in _CHANGES:
                record["group"] = self._groups.get(place, 0)
            yield record


def _sealed(terms: Terms, life: Life, event: events.Sealed) -> Iterator[Record]:
    yield {"kind": "sealed", "server": server_name(life), "position": event.position}


def _durable(terms: Terms, life: Life, event: events.Durable) -> Iterator[Record]:
    yield {"kind": "durable", "server": server_name(life), "position": event.position}


RECORDS: Final = {
    events.Sealed: _sealed,
    events.Durable: _durable,
    **coordinator_records.RECORDS,
    **broker_records.RECORDS,
}
# Records of steps of a client.
_STEPS: Final = frozenset({"opened", "plain"})
# Records that a crash may take back.
_CHANGES: Final = frozenset({"wrote", "plain", "marker", "ended", "forgot", "watermark"})
