"""Names in events: which servers and participants they speak of. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from magnetar_core.history.events import (
    BROKER,
    COORDINATOR,
    CoordinatorRecovered,
    Event,
    Life,
    Opened,
    Participant,
    ParticipantCreated,
    ParticipantFound,
    ParticipantsAdded,
    Server,
)
from magnetar_core.ids import PartitionName, SubscriptionName, TxnID

Name: TypeAlias = TxnID | Participant


class Mentions:
    """Collects what servers speak of, so that those are found of which there are no lines."""

    def __init__(self) -> None:
        self._servers: set[Server] = set()
        self._coordinators: set[int] = set()
        # Partitions, for subscriptions are where these are.
        self._used: set[tuple[str, int, int]] = set()
        self._hosted: set[tuple[str, int, int]] = set()

    def note(self, life: Life, event: Event) -> None:
        """Note an event."""
        self._servers.add(life.server)
        txn_id = getattr(event, "txn_id", None)
        if txn_id is not None:
            self._coordinators.add(txn_id.tcid)
        if isinstance(event, ParticipantCreated | ParticipantFound):
            self._hosted.add(_partition(event.participant))
        elif isinstance(event, Opened | ParticipantsAdded):
            self._used.update(_partition(one) for one in event.participants)
        elif isinstance(event, CoordinatorRecovered):
            for one in event.live:
                self._used.update(_partition(participant) for participant in one.participants)

    def missing(self) -> list[str]:
        """Return the servers and participants that others mention, and that have no lines."""
        known = {server.number for server in self._servers if server.kind == COORDINATOR}
        found = [f"coordinator {tcid}" for tcid in sorted(self._coordinators - known)]
        if not any(server.kind == BROKER for server in self._servers):
            return [*found, "all brokers"]
        without = sorted(PartitionName(*one) for one in self._used - self._hosted)
        return [*found, *(f"the broker of {one} (topic id {one.topic_id})" for one in without)]


def names_in(value: Any) -> Iterator[Name]:
    """Return the transactions and participants in an event."""
    if isinstance(value, TxnID | PartitionName | SubscriptionName):
        yield value
    elif isinstance(value, tuple):
        for one in value:
            yield from names_in(one)


def _partition(participant: Participant) -> tuple[str, int, int]:
    return (participant.topic, participant.partition, participant.topic_id)
