"""Rules for participants and watermarks, but for ends: writes, plain messages, acks. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from magnetar_cli.histories.broker_state import Coverage
from magnetar_cli.histories.cluster import Cluster, No
from magnetar_core.history import events
from magnetar_core.history.events import Event, Life


def _check_created(cluster: Cluster, life: Life, event: events.ParticipantCreated) -> None:
    found = cluster.held(life, event.participant)
    if found is not None and found[1].exists:
        raise No("rule j", f"{event.participant} exists already")


def _check_deleted(cluster: Cluster, life: Life, event: events.ParticipantDeleted) -> None:
    found = cluster.existing(life, event.participant)
    for txn_id in found[1].open if found is not None else ():
        raise No("rule j", f"{txn_id} has ended at {event.participant}")


def _check_wrote(cluster: Cluster, life: Life, event: events.Wrote) -> None:
    found = cluster.existing(life, event.participant)
    if found is None:
        return
    (state, one), txn_id = found, event.txn_id
    if txn_id in one.fates:
        raise No("invariant 9", f"{txn_id} has ended at {event.participant}, and takes nothing")
    if state.covers(txn_id):
        raise No("invariant 9", f"{txn_id} has ended, as the watermark says")
    lives = cluster.coordinator_of(txn_id)
    own = lives is not None and lives.rows.incarnation == txn_id.incarnation
    if lives is not None and own and txn_id.counter >= lives.rows.bound:
        raise No("rule f", f"{txn_id} was issued")
    held = one.held_of(txn_id).get(event.writer_id, 0)
    if event.first_index != held:
        raise No("invariant 4", f"the next write of {event.writer_id} has index {held}")
    for followed in event.follows:
        if event.first_index or not one.is_unsettled(followed):
            raise No("rule k", f"{txn_id} follows what is not settled, from its first write on")


def _check_write_confirmed(cluster: Cluster, life: Life, event: events.WriteConfirmed) -> None:
    one = cluster.broker(life).rows.at(event.participant)
    held = one.held_of(event.txn_id).get(event.writer_id, 0)
    if held >= event.end_index or event.txn_id in one.fates:
        return
    if not one.exists:
        cluster.doubt("a participant is gone")
    elif cluster.broker(life).losses:
        cluster.doubt("a broker has lost data")
    else:
        raise No("rule a", f"{held} writes of {event.writer_id} are durable")


def _check_sent(cluster: Cluster, life: Life, event: events.PlainSent) -> None:
    found = cluster.existing(life, event.participant)
    if found is None:
        return
    one = found[1]
    if event.offset != one.end_offset:
        raise No("invariant 4", f"{event.participant} ends at {one.end_offset}")
    sequence = one.producers.get(event.producer_id, 0)
    if event.sequence_id == sequence or event.producer_id == events.NO_PRODUCER:
        return
    if cluster.broker(life).losses or cluster.broker(life).began_with_rows:
        cluster.doubt("a producer is from before the history, or before a loss")
        return
    raise No("invariant 4", f"the next sequence of {event.producer_id} is {sequence}")


def _check_plain_confirmed(cluster: Cluster, life: Life, event: events.PlainConfirmed) -> None:
    lives = cluster.broker(life)
    # An answer that may leave before the sync rests on what outlives the process.
    one = (lives.written if event.is_late else lives.rows).at(event.participant)
    if not one.exists:
        cluster.doubt("a participant is gone")
    elif event.offset < 0:
        if one.producers.get(event.producer_id, 0) < event.sequence_id + event.messages:
            cluster.doubt("a producer is forgotten")
    elif one.end_offset < event.offset + event.messages:
        raise No("rule a", f"{event.participant} durably ends at {one.end_offset}")
    else:
        place = one.places.get(event.producer_id, {}).get(event.sequence_id)
        if place is None:
            cluster.doubt("the place of a producer's messages is forgotten")
        elif place != event.offset:
            raise No("invariant 4", f"they are at {place}")


def _check_forgotten(cluster: Cluster, life: Life, event: events.EndsForgotten) -> None:
    found = cluster.held(life, event.participant)
    if found is None:
        return
    state, one = found
    for txn_id in event.txn_ids:
        if not state.covers(txn_id):
            raise No("rule c", f"the watermark covers {txn_id}")
        if any(one.is_unsettled(followed) for followed in one.follows_of(txn_id)):
            raise No("rule k", f"{txn_id} passes others on, and is kept")


def _check_taken(cluster: Cluster, life: Life, event: events.WatermarkTaken) -> None:
    state = cluster.memory(life)
    if state is None:
        return
    coverage = Coverage(event.incarnation, event.low_watermark, event.live)
    known = state.watermarks.get(event.tcid)
    if known is not None:
        if event.incarnation < known.incarnation:
            raise No("rule n", f"incarnation {known.incarnation} is known")
        lost = known.takes_back(coverage)
        if lost is not None:
            raise No("rule c", f"counter {lost} is covered, and stays so")
    lives = cluster.coordinators.get(event.tcid)
    if lives is None or lives.life is None:
        cluster.doubt("the coordinator has no history")
        return
    issued = lives.memory
    if event.incarnation == issued.incarnation and event.low_watermark > issued.next_counter:
        raise No("rule c", f"counters from {issued.next_counter} on were not issued")
    cluster.check_covers_ended(lives, coverage)


def _check_acks_pending(cluster: Cluster, life: Life, event: events.AcksPending) -> None:
    found = cluster.existing(life, event.participant)
    if found is None:
        return
    cursor = found[1].cursor
    for first, last in event.ranges:
        if cursor.acked.within(first, last):
            raise No("rule i", f"{first} to {last} are not acknowledged yet")
        other = cursor.pending_of_others(event.txn_id, first, last)
        if other is not None:
            raise No("rule i", f"{first} to {last} are pending for {other}")


def _check_acked(cluster: Cluster, life: Life, event: events.Acked) -> None:
    found = cluster.existing(life, event.participant)
    if found is None:
        return
    cursor = found[1].cursor
    for first, last in event.ranges:
        other = cursor.pending_of_others(None, first, last)
        if other is not None:
            raise No("rule i", f"{first} to {last} are pending for {other}")


def _check_moved(cluster: Cluster, life: Life, event: events.CursorMoved) -> None:
    found = cluster.existing(life, event.participant)
    for txn_id in found[1].open if found is not None else ():
        raise No("rule j", f"{txn_id} has ended at {event.participant}")


CHECKS: Mapping[type[Event], Callable[[Cluster, Life, Any], None]] = {
    events.ParticipantCreated: _check_created,
    events.ParticipantDeleted: _check_deleted,
    events.Wrote: _check_wrote,
    events.WriteConfirmed: _check_write_confirmed,
    events.PlainSent: _check_sent,
    events.PlainConfirmed: _check_plain_confirmed,
    events.EndsForgotten: _check_forgotten,
    events.WatermarkTaken: _check_taken,
    events.AcksPending: _check_acks_pending,
    events.Acked: _check_acked,
    events.CursorMoved: _check_moved,
}
