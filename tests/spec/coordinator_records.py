"""Records of the events of a coordinator. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from tests.spec.terms import OUTCOMES, NotInTheModel, Terms
from tests.spec.values import Record

from magnetar_core.history import events
from magnetar_core.history.events import Event, Life, Participant
from magnetar_core.ids import TxnID


def _reserved(terms: Terms, life: Life, event: events.CounterReserved) -> Iterator[Record]:
    yield {"kind": "reserved", "bound": terms.numbers.of(event.bound)}


def _opened(terms: Terms, life: Life, event: events.Opened) -> Iterator[Record]:
    txn, client = terms.txn(event.txn_id), terms.clients.get(event.txn_id, 1)
    yield {"kind": "opened", "txn": txn, "client": client}
    yield from _each(terms, "added", event.txn_id, event.participants)


def _added(terms: Terms, life: Life, event: events.ParticipantsAdded) -> Iterator[Record]:
    yield from _each(terms, "added", event.txn_id, event.participants)


def _confirmed(terms: Terms, life: Life, event: events.ParticipantsConfirmed) -> Iterator[Record]:
    yield from _each(terms, "enrolled", event.txn_id, event.participants)


def _each(
    terms: Terms, kind: str, txn_id: TxnID, participants: Iterable[Participant]
) -> Iterator[Record]:
    for name in participants:
        for known in terms.at(name):
            yield {"kind": kind, "txn": terms.txn(txn_id), "at": known}


def _decided(terms: Terms, life: Life, event: events.Decided) -> Iterator[Record]:
    if event.is_commit and (event.counts is None or event.selection is not None):
        raise NotInTheModel("a commit without counts, or with a selection")
    yield {
        "kind": "decided",
        "txn": terms.txn(event.txn_id),
        "outcome": OUTCOMES[event.is_commit],
        "counts": terms.counts(event.counts),
    }


def _finished(terms: Terms, life: Life, event: events.Finished) -> Iterator[Record]:
    yield terms.outcome("finished", event)


def _answered(terms: Terms, life: Life, event: events.OutcomeTold) -> Iterator[Record]:
    yield terms.outcome("answered", event)


def _told(terms: Terms, life: Life, event: events.TxnTold) -> Iterator[Record]:
    yield {"kind": "told", "txn": terms.txn(event.txn_id), "early": event.is_early}


def _announced(terms: Terms, life: Life, event: events.WatermarkAnnounced) -> Iterator[Record]:
    yield {"kind": "announced", **terms.coverage(event.low_watermark, event.live)}


RECORDS: Final[Mapping[type[Event], Callable[[Terms, Life, Any], Iterator[Record]]]] = {
    events.CounterReserved: _reserved,
    events.Opened: _opened,
    events.ParticipantsAdded: _added,
    events.Decided: _decided,
    events.Finished: _finished,
    events.TxnTold: _told,
    events.ParticipantsConfirmed: _confirmed,
    events.OutcomeTold: _answered,
    events.WatermarkAnnounced: _announced,
}
