"""Rules for group commits and recoveries: a store keeps what was durable. Pure.

Source: docs/protocol/rules.md, rule a, invariants 2 and 8.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from magnetar_cli.histories.broker_state import BrokerState
from magnetar_cli.histories.cluster import Cluster, Coordinators, No
from magnetar_cli.histories.coordinator_state import (
    CoordinatorState,
    Status,
    is_lost,
    lost_among,
)
from magnetar_core.history import events
from magnetar_core.history.events import BROKER, Event, Life
from magnetar_core.invariants import BrokenInvariant


def _check_sealed(cluster: Cluster, life: Life, event: events.Sealed) -> None:
    lives = cluster.lives(life)
    if lives.is_past(life):
        return
    if event.position <= lives.sealed_position:
        raise No("rule a", f"a group after {lives.sealed_position} is sealed next")
    marker = lives.memory.marker if life.server.kind == BROKER else None
    if marker is not None:
        raise No("invariant 4", f"the end of {marker.txn_id} is in the group of its marker")


def _check_durable(cluster: Cluster, life: Life, event: events.Durable | events.Written) -> None:
    lives = cluster.lives(life)
    if lives.is_past(life):
        end = lives.end_of(life)
        if end is not None and event.position > end:
            raise No("rule a", f"the store has groups up to {end} of this life")
    elif event.position > lives.sealed_position:
        raise No("rule a", f"groups up to {lives.sealed_position} are sealed")
    elif event.position <= lives.durable_position:
        raise No("rule a", f"groups up to {lives.durable_position} are durable already")


def _check_recovered(cluster: Cluster, life: Life, event: Any) -> None:
    lives = cluster.lives(life)
    if lives.is_past(life):
        return
    if life == lives.life:
        raise No("rule a", "a life recovers once")
    found = _matching(cluster, life, event)
    if isinstance(found, str):
        raise No("invariant 2", f"the store has what was durable: {found}")
    if isinstance(event, events.CoordinatorRecovered) and found is not None:
        _check_lost(lives, found[1], event)


def _check_lost(
    lives: Coordinators, kept: CoordinatorState, event: events.CoordinatorRecovered
) -> None:
    for txn_id in lost_among(lives.memory.transactions, kept, event.incarnation):
        if not is_lost(event, txn_id) and txn_id.counter < lives.rows.bound:
            raise No("invariant 8", f"{txn_id} has no record: it is among the lost ones")
    for txn_id, one in kept.transactions.items():
        own = txn_id.incarnation == event.incarnation and one.status is not Status.LOST
        if own and is_lost(event, txn_id):
            raise No("invariant 2", f"{txn_id} has a record, and is not lost")


def _matching(cluster: Cluster, life: Life, event: Any) -> tuple[int, Any] | str | None:
    """Return the state that a life finds; None: it is uncertain which."""
    lives = cluster.lives(life)
    if lives.life is None or _losses(event) != lives.losses:
        return None
    if isinstance(event, events.BrokerRecovered):
        found = lives.found(life)
        return lives.matching(lambda state: state.difference(found))
    return lives.matching(lambda state: state.difference(event))


def recovered(cluster: Cluster, life: Life, event: Any) -> bool:
    """Begin a life. Returns whether it went on after an accepted loss."""
    lives = cluster.lives(life)
    matching = _matching(cluster, life, event)
    if isinstance(matching, str):
        raise BrokenInvariant("a recovery is taken that was not checked")
    is_after_loss = matching is None and lives.life is not None
    position, known = matching if matching is not None else (lives.sealed_position, lives.rows)
    if isinstance(event, events.BrokerRecovered):
        state: Any = BrokerState.found(lives.found(life), known)
    else:
        state = known.copy()
        if matching is not None:
            lost = lost_among(lives.memory.transactions, known, event.incarnation)
            state.transactions.update(lost)
        state.recovered(event, is_uncertain=matching is None)
    if lives.life is None:
        lives.began_with_rows = bool(lives.found(life)) or _has_transactions(event)
    lives.recovered(life, state, kept_position=position)
    lives.losses = _losses(event)
    return is_after_loss


def _losses(event: Any) -> int:
    losses: int = event.losses if isinstance(event, events.BrokerRecovered) else event.incarnation
    return losses


def _has_transactions(event: Any) -> bool:
    return isinstance(event, events.CoordinatorRecovered) and event.next_counter > 0


CHECKS: Mapping[type[Event], Callable[[Cluster, Life, Any], None]] = {
    events.Sealed: _check_sealed,
    events.Written: _check_durable,
    events.Durable: _check_durable,
    events.CoordinatorRecovered: _check_recovered,
    events.BrokerRecovered: _check_recovered,
}
