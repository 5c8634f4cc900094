"""Follower of a history: is what servers did a behaviour of the protocol? Pure.

It is the server half of spec/Commit.tla: each event is an action, which has to be enabled in the
state that the events before have made. Beyond the model it knows answers, offsets, crashes of
brokers, shards that move, selections, accepted losses, and what was deleted.

It takes one event after the other. Events of a life come in their order; events of several servers
in any order in which each comes after its reasons: `refusal_of` says whether an event may be
next.
Source: docs/design/0022-model.md, Histories; docs/protocol/rules.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from magnetar_cli.histories import (
    coordinator_rules,
    end_rules,
    participant_rules,
    recovery_rules,
)
from magnetar_cli.histories.cluster import Cluster, No
from magnetar_cli.histories.lives import RECOVERIES
from magnetar_core.history import events
from magnetar_core.history.events import Event, Life

_CHECKS: Mapping[type[Event], Callable[[Cluster, Life, Any], None]] = {
    **recovery_rules.CHECKS,
    **coordinator_rules.CHECKS,
    **participant_rules.CHECKS,
    **end_rules.CHECKS,
}


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
    """The protocol does not allow the history."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


class Follower:
    """State of a cluster, as far as its history tells it.

    Attributes:
        taken: how many events were taken.
        unjudged: how often something could not be judged, by reason.
    """

    def __init__(self) -> None:
        self.taken = 0
        self.unjudged: Counter[str] = Counter()
        self._cluster = Cluster()

    def refusal_of(self, life: Life, event: Event) -> Refusal | None:
        """Return why an event cannot be next; None: it can. Changes nothing."""
        self._cluster.doubts = []
        check = _CHECKS.get(type(event))
        try:
            if check is not None:
                lives = self._cluster.lives(life)
                if not lives.is_reading(life) or isinstance(event, RECOVERIES):
                    check(self._cluster, life, event)
        except No as refused:
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
        if self._cluster.doubts:
            self.unjudged.update(self._cluster.doubts)
            self._cluster.doubts = []
        self.taken += 1
        lives = self._cluster.lives(life)
        if lives.is_past(life):
            return
        if isinstance(event, RECOVERIES):
            if recovery_rules.recovered(self._cluster, life, event):
                self.unjudged["a server went on after an accepted loss"] += 1
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
        for lives in self._cluster.brokers.values():
            marker = lives.memory.marker
            if marker is not None and lives.life is not None:
                text = f"the end of {marker.txn_id} comes with its marker"
                raise HistoryRefused(Refusal(lives.life, marker, "invariant 4", text))
