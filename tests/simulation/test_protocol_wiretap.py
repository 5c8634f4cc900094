"""The follower hears of everything that servers can note, and of nothing that they must not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.simulation.protocol_wiretap import ProtocolWiretap
from tests.simulation.short.runner import run_history

from magnetar_core.history.events import EVENTS, Event, Life
from magnetar_core.ids import PartitionName, SubscriptionName

# One syncs late, one moves cursors, one loses messages, and one removes them.
HISTORIES = (("any", 8), ("seeks", 0), ("rule g", 0), ("rule m", 0))


def _values(value: Any) -> Iterator[Any]:
    """What is in an event, but for the names of participants."""
    if isinstance(value, tuple) and not isinstance(value, PartitionName | SubscriptionName):
        for one in value:
            yield from _values(one)
    elif not isinstance(value, tuple):
        yield value


@pytest.mark.sim
def test_all_events_come_and_none_has_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[Event] = []
    take = ProtocolWiretap._take

    def note_and_take(self: ProtocolWiretap, life: Life, event: Event) -> None:
        noted.append(event)
        take(self, life, event)

    monkeypatch.setattr(ProtocolWiretap, "_take", note_and_take)
    for profile, seed in HISTORIES:
        assert run_history(seed, profile).failure is None
    assert {type(event) for event in noted} == set(EVENTS)
    # No text and no bytes: no payload, no key, no token.
    assert {type(one) for event in noted for one in _values(event)} <= {int, bool, type(None)}
