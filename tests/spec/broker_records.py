"""Records of the events of a broker. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from tests.spec.terms import NotInTheModel, Terms, server_name, summed
from tests.spec.values import Record

from magnetar_core.history import events
from magnetar_core.history.events import Event, Life


def _wrote(terms: Terms, life: Life, event: events.Wrote) -> Iterator[Record]:
    for known in terms.at(event.participant):
        yield {
            "kind": "wrote",
            "at": known,
            "txn": terms.txn(event.txn_id),
            "index": event.first_index,
            "writes": event.writes,
            "follows": terms.txns(event.follows),
        }


def _write_confirmed(terms: Terms, life: Life, event: events.WriteConfirmed) -> Iterator[Record]:
    for known in terms.at(event.participant):
        yield {
            "kind": "confirmed",
            "at": known,
            "txn": terms.txn(event.txn_id),
            "writes": event.end_index,
        }


def _plain(
    terms: Terms, life: Life, event: events.PlainSent | events.PlainConfirmed
) -> Iterator[Record]:
    for known in terms.at(event.participant):
        client = terms.producers.get(event.producer_id)
        if client is None or event.messages != 1:
            raise NotInTheModel("a plain send that follows no transaction, or of a batch")
        yield {
            "kind": "plain" if isinstance(event, events.PlainSent) else "plain confirmed",
            "at": known,
            "client": client,
            "sequence": event.sequence_id,
            "offset": event.offset,
        }


def _marker(terms: Terms, life: Life, event: events.MarkerWritten) -> Iterator[Record]:
    for known in terms.at(event.participant):
        yield {
            "kind": "marker",
            "at": known,
            "txn": terms.txn(event.txn_id),
            "offset": event.offset,
            "messages": event.messages,
        }


def _ended(terms: Terms, life: Life, event: events.EndApplied) -> Iterator[Record]:
    if event.loss_accepted or event.is_dropped or event.is_selected:
        raise NotInTheModel("an accepted loss, a participant that is deleted, or a selection")
    for known in terms.at(event.participant):
        yield {
            **terms.outcome("ended", event),
            "at": known,
            "held": summed(event.held),
            "kept": summed(event.kept),
            "follows": terms.txns(event.passes_on),
        }


def _forgot(terms: Terms, life: Life, event: events.EndsForgotten) -> Iterator[Record]:
    for known in terms.at(event.participant):
        yield {"kind": "forgot", "at": known, "txns": terms.txns(event.txn_ids)}


def _watermark(terms: Terms, life: Life, event: events.WatermarkTaken) -> Iterator[Record]:
    for known, broker in sorted(terms.broker_of.items()):
        if broker == server_name(life):
            coverage = terms.coverage(event.low_watermark, event.live)
            yield {"kind": "watermark", "at": known, **coverage}


RECORDS: Final[Mapping[type[Event], Callable[[Terms, Life, Any], Iterator[Record]]]] = {
    events.Wrote: _wrote,
    events.WriteConfirmed: _write_confirmed,
    events.PlainSent: _plain,
    events.PlainConfirmed: _plain,
    events.MarkerWritten: _marker,
    events.EndApplied: _ended,
    events.EndsForgotten: _forgot,
    events.WatermarkTaken: _watermark,
}
