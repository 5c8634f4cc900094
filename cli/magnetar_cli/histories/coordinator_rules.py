"""Rules for coordinators: ids, decisions, outcomes, and the answers that tell them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from magnetar_cli.histories.broker_state import Coverage
from magnetar_cli.histories.cluster import Cluster, No
from magnetar_cli.histories.coordinator_state import (
    Status,
    Transaction,
)
from magnetar_core.history import events
from magnetar_core.history.events import Event, Life, Participant
from magnetar_core.ids import TxnID


def _check_opened(cluster: Cluster, life: Life, event: events.Opened) -> None:
    state, txn_id = cluster.present(life), event.txn_id
    if state is None:
        return
    if (txn_id.tcid, txn_id.incarnation) != (life.server.number, state.incarnation):
        raise No("invariant 8", f"a TxnID of incarnation {state.incarnation} is issued")
    if txn_id.counter < state.next_counter:
        raise No("invariant 8", f"the next counter is {state.next_counter} at least")
    if txn_id.counter >= state.bound:
        raise No("invariant 8", f"counters below {state.bound} are reserved")


def _check_added(cluster: Cluster, life: Life, event: events.ParticipantsAdded) -> None:
    one = cluster.transaction_of(life, event.txn_id)
    if one is not None and one.status is not Status.OPEN:
        raise No("invariant 9", f"{event.txn_id} is {one.status.value}, and takes nothing")


def _check_decided(cluster: Cluster, life: Life, event: events.Decided) -> None:
    one = cluster.transaction_of(life, event.txn_id)
    if one is None:
        return
    if one.status is not Status.OPEN:
        raise No("invariant 7", f"{event.txn_id} is {one.status.value}: it is decided once")
    for participant, writers in event.counts or ():
        if participant not in one.participants and any(count for _, count in writers):
            raise No("rule g", f"{participant} takes part in {event.txn_id}, and is counted")


def _check_loss_accepted(cluster: Cluster, life: Life, event: events.LossAccepted) -> None:
    one = cluster.transaction_of(life, event.txn_id)
    if one is not None and one.status is not Status.COMMITTING:
        raise No("rule g", f"{event.txn_id} is {one.status.value}: there is no loss")


def _check_finished(cluster: Cluster, life: Life, event: events.Finished) -> None:
    one = cluster.transaction_of(life, event.txn_id)
    if one is None:
        return
    wanted = Status.COMMITTING if event.is_commit else Status.ABORTING
    if one.status is not wanted:
        raise No("invariant 7", f"{event.txn_id} is {one.status.value}")
    if one.is_uncertain:
        cluster.doubt("the transaction is from before a loss")
        return
    if one.participants:
        durable = cluster.coordinator(life).rows.find(event.txn_id)
        if durable is None or durable.outcome is not event.is_commit:
            raise No("rule a", f"the decision of {event.txn_id} is durable before it is told")
    for participant in one.participants:
        _check_ended_at(cluster, participant, event.txn_id, event.is_commit, one)


def _check_ended_at(
    cluster: Cluster, participant: Participant, txn_id: TxnID, is_commit: bool, one: Transaction
) -> None:
    lives = cluster.broker_of(participant)
    if lives is None or lives.rows.has_ended(participant, txn_id, is_commit):
        return
    if not lives.memory.at(participant).exists:
        cluster.doubt("a participant is gone")
    elif lives.losses:
        cluster.doubt("a broker has lost data")
    else:
        raise No("invariant 7", f"{participant} has durably ended {txn_id}, as decided")


def _check_txn_told(cluster: Cluster, life: Life, event: events.TxnTold) -> None:
    lives, txn_id = cluster.coordinator(life), event.txn_id
    # An owner that has lost the store may wake up and answer; its lease keeps the answer back.
    if lives.is_past(life) or txn_id.incarnation != lives.rows.incarnation:
        return
    if txn_id.counter >= lives.rows.bound:
        raise No("rule a", f"counters below {lives.rows.bound} are durably reserved")
    if lives.memory.find(txn_id) is None:
        raise No("invariant 8", f"{txn_id} was opened")
    if not event.is_early and lives.rows.find(txn_id) is None:
        raise No("rule a", f"the record of {txn_id} is durable before it is told")


def _check_confirmed(cluster: Cluster, life: Life, event: events.ParticipantsConfirmed) -> None:
    one = cluster.coordinator(life).rows.find(event.txn_id)
    if one is None:
        raise No("rule a", f"the record of {event.txn_id} is durable before it is relied on")
    if one.is_uncertain:
        cluster.doubt("the transaction is from before a loss")
        return
    for participant in event.participants:
        if not one.has(participant):
            raise No("rule a", f"{participant} is durably a participant of {event.txn_id}")


def _check_outcome_told(cluster: Cluster, life: Life, event: events.OutcomeTold) -> None:
    lives = cluster.coordinator(life)
    one = lives.rows.find(event.txn_id)
    if one is None and lives.memory.find(event.txn_id) is None:
        cluster.doubt("the transaction was not opened in this history")
    elif one is None or one.outcome is None:
        raise No("rule a", f"the decision of {event.txn_id} is durable before it is told")
    elif one.is_uncertain:
        cluster.doubt("the transaction is from before a loss")
    elif one.outcome is not event.is_commit:
        raise No("invariant 7", f"{event.txn_id} is {one.status.value}")


def _check_announced(cluster: Cluster, life: Life, event: events.WatermarkAnnounced) -> None:
    lives = cluster.coordinator(life)
    coverage = Coverage(event.incarnation, event.low_watermark, event.live)
    if event.low_watermark > event.next_counter:
        raise No("rule c", f"counters from {event.next_counter} on were not issued")
    cluster.check_covers_ended(lives, coverage)
    is_own = event.incarnation == lives.rows.incarnation
    if is_own and not lives.is_past(life) and event.next_counter > lives.rows.bound:
        raise No("invariant 8", f"counters below {lives.rows.bound} are durably reserved")


CHECKS: Mapping[type[Event], Callable[[Cluster, Life, Any], None]] = {
    events.Opened: _check_opened,
    events.ParticipantsAdded: _check_added,
    events.Decided: _check_decided,
    events.LossAccepted: _check_loss_accepted,
    events.Finished: _check_finished,
    events.TxnTold: _check_txn_told,
    events.ParticipantsConfirmed: _check_confirmed,
    events.OutcomeTold: _check_outcome_told,
    events.WatermarkAnnounced: _check_announced,
}
