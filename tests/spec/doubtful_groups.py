"""Groups of rows that a server may have stored or not when its life ended. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from tests.spec.recording import Noted

from magnetar_core.history import events
from magnetar_core.history.events import Life


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
