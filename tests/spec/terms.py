"""Names of participants, servers, transactions and counts, as the model has them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from tests.spec.recording import INPUT, SUBSCRIPTION, TOPIC, Recorded
from tests.spec.txn_numbers import TxnNumbers
from tests.spec.values import Record

from magnetar_core.history import events
from magnetar_core.history.events import BROKER, Event, Life, Participant, Range
from magnetar_core.ids import PartitionName, SubscriptionName, TxnID

OUTCOMES: Final = {True: "commit", False: "abort", None: "none"}
COORDINATOR: Final = "coordinator"
# Names of participants in the module.
SUBSCRIPTION_NAME: Final = "s"


class NotInTheModel(ValueError):
    """An event stands for something that `spec/Commit.tla` does not have; its text says what."""


class Terms:
    """Names and numbers of a history.

    Args:
        original: the history of which this one is a changed copy: numbers are as there.

    Attributes:
        clients: the client of a transaction, where it is known.
        broker_of: the broker of each participant, by its name in the module.
        producers: the client that a producer belongs to.
    """

    def __init__(self, recorded: Recorded, original: Recorded) -> None:
        self.numbers = TxnNumbers(original.noted)
        self.clients = recorded.clients
        self.broker_of: dict[str, str] = {}
        self.producers: dict[int, int] = {}
        self._names: dict[Participant, str] = {}
        for life, event in original.noted:
            self._look(life, event)

    def _look(self, life: Life, event: Event) -> None:
        """Learn who is where, and whose a producer is."""
        for name in participants_in(event):
            known = name_of(name)
            if known is not None:
                self._names[name] = known
                if life.server.kind == BROKER:
                    self.broker_of[known] = server_name(life)
        if isinstance(event, events.Wrote):
            client = self.clients.get(event.txn_id, 1)
            self.producers.setdefault(event.writer_id, client)

    def at(self, name: Participant) -> Iterator[str]:
        """Yield the name of a participant in the module, if it has one."""
        known = self._names.get(name) or name_of(name)
        if known is not None:
            yield known

    def txn(self, txn_id: TxnID) -> int:
        return self.numbers.of(txn_id.counter)

    def txns(self, txn_ids: Iterable[TxnID]) -> frozenset[int]:
        return frozenset(map(self.txn, txn_ids))

    def counts(self, counts: events.Counts | None) -> Record:
        each = dict.fromkeys(("p0", "p1", SUBSCRIPTION_NAME), 0)
        for name, writers in counts or ():
            for known in self.at(name):
                each[known] += summed(writers)
        return each

    def outcome(self, kind: str, event: Any) -> Record:
        return {
            "kind": kind,
            "txn": self.txn(event.txn_id),
            "outcome": OUTCOMES[event.is_commit],
        }

    def coverage(self, low_watermark: int, live: Iterable[Range]) -> Record:
        return {"mark": self.numbers.of(low_watermark), "live": self.numbers.within(live)}


def participants_in(event: Event) -> Iterator[Participant]:
    for value in event:
        if isinstance(value, PartitionName | SubscriptionName):
            yield value


def name_of(name: Participant) -> str | None:
    if isinstance(name, PartitionName):
        return f"p{name.partition}" if name.topic == TOPIC else None
    is_input = name.topic == INPUT and name.subscription == SUBSCRIPTION
    return SUBSCRIPTION_NAME if is_input else None


def server_name(life: Life) -> str:
    return str(life.server) if life.server.kind == BROKER else COORDINATOR


def summed(counts: events.WriterCounts) -> int:
    return sum(count for _, count in counts)
