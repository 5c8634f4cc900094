"""Rules for the end of a transaction at a participant. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from magnetar_cli.histories.broker_state import BrokerState
from magnetar_cli.histories.cluster import Cluster, No
from magnetar_cli.histories.coordinator_state import (
    Transaction,
)
from magnetar_cli.histories.participant_state import ParticipantState
from magnetar_core.history import events
from magnetar_core.history.events import Event, Life
from magnetar_core.ids import PartitionName, SubscriptionName, TxnID


def _check_marker(cluster: Cluster, life: Life, event: events.MarkerWritten) -> None:
    found = cluster.existing(life, event.participant)
    if found is None:
        return
    one = found[1]
    if event.offset != one.end_offset:
        raise No("invariant 4", f"{event.participant} ends at {one.end_offset}")
    if event.txn_id in one.fates:
        raise No("invariant 4", f"{event.txn_id} has ended at {event.participant} before")


def _check_end(cluster: Cluster, life: Life, event: events.EndApplied) -> None:
    state = cluster.memory(life)
    if state is None:
        return
    one, txn_id = state.at(event.participant), event.txn_id
    if event.is_dropped:
        return
    if txn_id in one.fates:
        raise No("invariant 7", f"{txn_id} has ended at {event.participant}, and ends once")
    held = one.held_of(txn_id)
    if dict(event.held) != held:
        raise No("invariant 2", f"{event.participant} holds {held} of {txn_id}")
    _check_end_marker(state, event)
    if event.is_commit:
        _check_commit(cluster, life, one, event)
    else:
        _check_abort(cluster, event)
    _check_passed_on(one, event)


def _check_end_marker(state: BrokerState, event: events.EndApplied) -> None:
    total = 0
    if isinstance(event.participant, PartitionName):
        total = sum(count for _, count in event.kept)
    marker, place = state.marker, (event.participant, event.txn_id)
    if marker is None:
        if total:
            raise No("invariant 1", f"a marker shows the {total} messages of {event.txn_id}")
    elif (marker.participant, marker.txn_id, marker.messages) != (*place, total):
        raise No("invariant 4", f"the end of {marker.txn_id} comes with its marker")


def _check_passed_on(one: ParticipantState, event: events.EndApplied) -> None:
    left = {one_id for one_id in one.follows_of(event.txn_id) if one.is_unsettled(one_id)}
    if set(event.passes_on) != left:
        raise No("rule k", f"{event.txn_id} passes on {_names(left)}")


def _check_commit(
    cluster: Cluster, life: Life, one: ParticipantState, event: events.EndApplied
) -> None:
    txn_id, name = event.txn_id, event.participant
    decided = cluster.decided(txn_id)
    if decided is None:
        return
    lives = cluster.coordinators[txn_id.tcid]
    durable = lives.rows.find(txn_id)
    if durable is None or durable.outcome is not True:
        raise No("invariant 3", f"{txn_id} is durably committed before it commits here")
    if not durable.has(name):
        raise No("rule f", f"{name} takes part in {txn_id}")
    for writer_id, kept in event.kept:
        follows = one.open[txn_id][writer_id].follows if kept else ()
        for followed in follows:
            if one.is_unsettled(followed):
                raise No("rule k", f"{txn_id} waits here until {followed} is settled")
    _check_kept(cluster, one, event, durable)
    if isinstance(name, SubscriptionName):
        _check_partitions_ended(cluster, life, txn_id, durable)


def _check_kept(
    cluster: Cluster, one: ParticipantState, event: events.EndApplied, decided: Transaction
) -> None:
    counts = decided.counts_of(event.participant)
    if event.is_counted is not (counts is not None):
        raise No("rule g", f"the counts of {event.txn_id} come with its end")
    if event.is_selected is not (decided.selection is not None):
        raise No("rule h", f"the selection of {event.txn_id} comes with its end")
    if event.loss_accepted and not decided.loss_accepted:
        raise No("rule g", f"the loss of {event.txn_id} is durably accepted")
    if counts is None:
        cluster.doubt("a commit without counts")
    held, selection = dict(event.held), decided.selection
    expected: dict[int, int] = {}
    for writer_id, writes in held.items():
        is_out = selection is not None and writer_id not in selection
        limit = writes if counts is None else counts.get(writer_id, 0)
        expected[writer_id] = 0 if is_out else min(limit, writes)
    if dict(event.kept) != expected:
        raise No("rule g", f"{event.participant} keeps {expected} of {event.txn_id}")
    for writer_id, confirmed in (counts or {}).items():
        is_out = selection is not None and writer_id not in selection
        if is_out or held.get(writer_id, 0) >= confirmed:
            continue
        if not one.exists:
            cluster.doubt("a participant is gone")
        elif not event.loss_accepted:
            raise No("rule g", f"{confirmed} writes of {writer_id} are here, or a loss is accepted")


def _check_partitions_ended(
    cluster: Cluster, life: Life, txn_id: TxnID, decided: Transaction
) -> None:
    """Check the order of ends: the next owner of a group's partition writes afterwards."""
    for participant in decided.participants:
        if isinstance(participant, SubscriptionName):
            continue
        lives = cluster.broker_of(participant)
        if lives is None:
            continue
        # A broker that ends it at all of them keeps the order itcluster.
        state = lives.memory if lives.life == life else lives.rows
        if state.has_ended(participant, txn_id, True):
            continue
        if not lives.memory.at(participant).exists:
            cluster.doubt("a participant is gone")
        elif lives.losses:
            cluster.doubt("a broker has lost data")
        else:
            raise No("rule p", f"{participant} ends {txn_id} before its subscriptions")


def _check_abort(cluster: Cluster, event: events.EndApplied) -> None:
    txn_id = event.txn_id
    decided = cluster.decided(txn_id)
    if decided is None:
        return
    durable = cluster.coordinators[txn_id.tcid].rows.find(txn_id)
    if durable is None or durable.outcome is None:
        raise No("rule f", f"{txn_id} is durably decided before it is aborted here")
    if decided.outcome and decided.has(event.participant):
        raise No("invariant 7", f"{txn_id} is {decided.status.value}")


def _names(txn_ids: Iterable[TxnID]) -> str:
    return ", ".join(map(str, sorted(txn_ids))) or "nothing"


CHECKS: Mapping[type[Event], Callable[[Cluster, Life, Any], None]] = {
    events.MarkerWritten: _check_marker,
    events.EndApplied: _check_end,
}
