"""The follower takes what the protocol allows, and refuses each thing that a rule forbids."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cli.histories.play import (
    B0,
    B1,
    BOUND,
    TC,
    TOPIC,
    WRITER,
    P,
    Play,
    Q,
    S,
    T,
    U,
    end,
    txn,
)

from magnetar_cli.histories.follower import HistoryRefused
from magnetar_core.history.events import (
    BROKER,
    COORDINATOR,
    Acked,
    AcksPending,
    BrokerRecovered,
    CoordinatorRecovered,
    CounterReserved,
    CursorFound,
    CursorMoved,
    Decided,
    Durable,
    EndedTransaction,
    EndsForgotten,
    Event,
    Finished,
    HeldTransaction,
    HeldWriter,
    Life,
    LiveTransaction,
    LossAccepted,
    MarkerWritten,
    MessagesRemoved,
    Opened,
    OutcomeTold,
    ParticipantCreated,
    ParticipantDeleted,
    ParticipantFound,
    ParticipantsAdded,
    ParticipantsConfirmed,
    PlainConfirmed,
    PlainSent,
    ProducersForgotten,
    Sealed,
    Server,
    TxnTold,
    WatermarkAnnounced,
    WatermarkFound,
    WatermarkTaken,
    WriteConfirmed,
    Written,
    Wrote,
)
from magnetar_core.ids import PartitionName, SubscriptionName, TxnID

LATER_TC = Life(TC.server, 2)
LATER_B0 = Life(B0.server, 2)


@pytest.fixture
def play() -> Play:
    return Play()


def acks(*offsets: int, txn_id: TxnID = T, sequence: int = 0) -> list[Event]:
    """A transaction acknowledges messages, with a command."""
    ranges = tuple((one, one) for one in offsets)
    return [
        Wrote(S, txn_id, WRITER, sequence, 1, ()),
        AcksPending(S, txn_id, WRITER, sequence, ranges),
    ]


# What is allowed.


def test_a_transaction_commits_at_two_brokers_and_is_forgotten(play: Play) -> None:
    play.note(TC, Opened(T, ()))
    play.note(TC, TxnTold(T, True), ParticipantsAdded(T, (P, S)), ParticipantsAdded(T, (Q,)))
    play.note(B0, Wrote(P, T, WRITER, 0, 2, ()), *acks(0))
    play.note(B1, Wrote(Q, T, WRITER, 0, 1, ()), Wrote(Q, T, WRITER, 1, 3, ()))
    play.commit()
    play.note(TC, ParticipantsConfirmed(T, (P,)))
    play.note(B1, WriteConfirmed(Q, T, WRITER, 4))
    counts = ((P, ((WRITER, 2),)), (Q, ((WRITER, 3),)), (S, ((WRITER, 1),)))
    play.note(TC, Decided(T, True, counts, None))
    play.commit()
    play.note(TC, OutcomeTold(T, True))
    play.note(B1, MarkerWritten(Q, T, 0, 3), end(Q, held=4, kept=3))
    play.note(B0, MarkerWritten(P, T, 0, 2), end(P))
    play.commit()
    play.note(B0, end(S, held=1))
    play.commit()
    play.note(TC, Finished(T, True))
    play.commit()
    play.note(TC, WatermarkAnnounced(1, 1, (), 1))
    play.note(B0, WatermarkTaken(0, 1, 1, ()), EndsForgotten(P, (T,)), EndsForgotten(S, (T,)))
    play.follower.finish()
    assert not play.follower.unjudged


def test_an_event_that_is_tried_changes_nothing(play: Play) -> None:
    for _ in range(2):
        assert play.follower.refusal_of(TC, Opened(T, ())) is None
        play.refuses(TC, Decided(T, True, (), None), "invariant 7", "was opened")
    with pytest.raises(HistoryRefused, match="was opened"):
        play.follower.take(TC, Decided(T, True, (), None))
    play.note(TC, Opened(T, ()))


def test_an_aborted_transaction_passes_on_what_it_followed(play: Play) -> None:
    play.written(P)
    play.written(P, txn_id=U, follows=(T,))
    play.note(TC, Decided(U, False, None, None))
    play.commit()
    play.note(B0, end(P, U, is_commit=False, passes_on=(T,)))
    play.decided(P, txn_id=txn(2), follows=(U,))
    play.refuses(B0, MarkerWritten(P, txn(2), 1, 2), "invariant 4", "ends at 0")
    play.note(B0, MarkerWritten(P, txn(2), 0, 2))
    play.refuses(B0, end(P, txn(2)), "rule k", f"waits here until {U} is settled")


def test_what_a_participant_does_not_take_part_in_is_aborted(play: Play) -> None:
    """An orphan: its client never added the participant. Rule f."""
    play.note(B0, Wrote(P, T, WRITER, 0, 1, ()))
    play.decided(Q, txn_id=T)
    play.note(B0, end(P, held=1, is_commit=False))


# Group commits.


def test_groups_are_sealed_and_become_durable_in_order(play: Play) -> None:
    play.refuses(B0, Sealed(1), "rule a", "a group after 1")
    play.refuses(B0, Durable(2), "rule a", "groups up to 1 are sealed")
    play.refuses(B0, Written(2), "rule a", "groups up to 1 are sealed")
    play.seal(B0)
    play.note(B0, Durable(2))
    play.refuses(B0, Durable(2), "rule a", "groups up to 2 are durable already")
    play.refuses(B0, Durable(1), "rule a", "groups up to 2 are durable already")


# Coordinators.


def test_no_txn_id_is_issued_twice(play: Play) -> None:
    play.note(TC, Opened(U, ()))
    play.refuses(TC, Opened(U, ()), "invariant 8", "the next counter is 2")
    play.refuses(TC, Opened(T, ()), "invariant 8", "the next counter is 2")
    play.refuses(TC, Opened(txn(BOUND), ()), "invariant 8", "reserved")
    play.refuses(TC, Opened(txn(3, 2), ()), "invariant 8", "incarnation 1")


def test_a_txn_id_is_told_when_its_reservation_is_durable(play: Play) -> None:
    play.note(TC, CounterReserved(2 * BOUND), Opened(txn(BOUND), ()))
    play.refuses(TC, TxnTold(txn(BOUND), True), "rule a", "durably reserved")
    play.refuses(TC, TxnTold(T, True), "invariant 8", "was opened")
    play.commit()
    play.note(TC, Opened(txn(BOUND + 1), ()))
    play.note(TC, TxnTold(txn(BOUND + 1), True))
    play.refuses(TC, TxnTold(txn(BOUND + 1), False), "rule a", "the record of")
    play.note(TC, TxnTold(txn(BOUND), True))


def test_participants_are_confirmed_when_they_are_durable(play: Play) -> None:
    play.note(TC, Opened(T, ()))
    play.refuses(TC, ParticipantsConfirmed(T, (P,)), "rule a", "is durable before")
    play.commit()
    play.note(TC, ParticipantsAdded(T, (P,)))
    play.refuses(TC, ParticipantsConfirmed(T, (P,)), "rule a", "is durably a participant")
    play.commit()
    play.note(TC, ParticipantsConfirmed(T, (P._replace(topic_id=TOPIC),)))


def test_a_decided_transaction_takes_nothing_and_is_decided_once(play: Play) -> None:
    play.decided(P)
    play.refuses(TC, ParticipantsAdded(T, (Q,)), "invariant 9", "is committing")
    play.refuses(TC, Decided(T, False, None, None), "invariant 7", "is decided once")


def test_only_participants_are_counted(play: Play) -> None:
    play.written(P)
    counts = ((Q, ((WRITER, 1),)),)
    play.refuses(TC, Decided(T, True, counts, None), "rule g", "takes part")
    play.note(TC, Decided(T, True, ((Q, ((WRITER, 0),)),), None))


def test_a_loss_is_accepted_of_a_commit(play: Play) -> None:
    play.written(P)
    play.refuses(TC, LossAccepted(T), "rule g", "is open")


def test_a_transaction_has_ended_when_every_participant_has_durably(play: Play) -> None:
    play.decided(P, Q)
    play.ended(P)
    play.refuses(TC, Finished(T, False), "invariant 7", "is committing")
    play.refuses(TC, Finished(T, True), "invariant 7", "t-partition-1 has durably ended")
    play.note(B1, MarkerWritten(Q, T, 0, 2), end(Q))
    play.refuses(TC, Finished(T, True), "invariant 7", "t-partition-1 has durably ended")
    play.commit(B1)
    play.note(TC, Finished(T, True))


def test_a_decision_is_told_to_participants_when_it_is_durable(play: Play) -> None:
    play.written(P)
    play.note(TC, Decided(T, True, ((P, ((WRITER, 2),)),), None))
    play.refuses(TC, Finished(T, True), "rule a", "is durable before it is told")
    play.note(B0, MarkerWritten(P, T, 0, 2))
    play.refuses(B0, end(P), "invariant 3", "durably committed")


def test_an_outcome_is_told_when_it_is_durable_and_as_it_is(play: Play) -> None:
    play.written(P)
    play.note(TC, Decided(T, True, ((P, ((WRITER, 2),)),), None))
    play.refuses(TC, OutcomeTold(T, True), "rule a", "is durable before it is told")
    play.commit()
    play.refuses(TC, OutcomeTold(T, False), "invariant 7", "is committing")
    play.note(TC, OutcomeTold(T, True))


def test_a_watermark_covers_what_has_durably_ended(play: Play) -> None:
    play.decided(P)
    play.note(TC, Opened(U, ()), Decided(U, False, None, None), Finished(U, False))
    everything = WatermarkAnnounced(1, 2, (), 2)
    play.refuses(TC, everything, "rule c", f"{T} has not durably ended")
    listed = WatermarkAnnounced(1, 2, ((0, 0),), 2)
    play.refuses(TC, listed, "rule c", f"{U} has not durably ended")
    play.commit()
    play.note(TC, listed)
    play.refuses(B0, WatermarkTaken(0, 1, 2, ()), "rule c", f"{T} has not durably ended")
    beyond = WatermarkAnnounced(1, 2, ((0, 0),), BOUND + 1)
    play.refuses(TC, beyond, "invariant 8", "durably reserved")


def test_a_watermark_covers_only_what_was_issued(play: Play) -> None:
    play.note(TC, Opened(T, ()), Decided(T, False, None, None), Finished(T, False))
    play.commit()
    play.refuses(TC, WatermarkAnnounced(1, 2, (), 1), "rule c", "counters from 1 on")
    play.refuses(B0, WatermarkTaken(0, 1, 2, ()), "rule c", "counters from 1 on")
    # One that a client had invented is passed over.
    play.note(TC, WatermarkAnnounced(1, 2, (), 2))
    play.note(B0, WatermarkTaken(0, 1, 2, ()))


def recovered(*live: LiveTransaction, **other: Any) -> CoordinatorRecovered:
    values = {"incarnation": 1, "next_counter": BOUND, "lost": (), **other}
    return CoordinatorRecovered(live=live, **values)


def committing(txn_id: TxnID = T, counts: int = 2) -> LiveTransaction:
    return LiveTransaction(txn_id, (P,), True, ((P, ((WRITER, counts),)),), None, False)


def test_a_coordinator_finds_what_was_durable(play: Play) -> None:
    play.decided(P)
    found = committing()
    wrong = [
        (recovered(), "is not found"),
        (recovered(found._replace(outcome=None)), "is found as"),
        (recovered(found._replace(participants=(P, Q))), "is found as"),
        (recovered(committing(counts=1)), "is found as"),
        (recovered(found._replace(selection=(WRITER,))), "is found as"),
        (recovered(found._replace(loss_accepted=True)), "is found as"),
        (recovered(found, committing(U)), "never opened"),
        (recovered(found, next_counter=3), "may have been told"),
        (recovered(found, lost=((0, 9),)), "is not lost"),
    ]
    for event, text in wrong:
        play.refuses(LATER_TC, event, "invariant 2", text)
    play.note(LATER_TC, recovered(found))
    play.refuses(LATER_TC, recovered(found), "rule a", "recovers once")


def test_a_coordinator_may_find_what_was_being_written(play: Play) -> None:
    """A group that is sealed may survive; one that is open does not."""
    play.note(TC, Opened(T, ()))
    play.seal(TC)
    play.note(TC, Opened(U, ()))
    lost = ((1, BOUND - 1),)
    both = [LiveTransaction(one, (), None, None, None, False) for one in (T, U)]
    play.refuses(LATER_TC, recovered(*both, lost=lost), "invariant 2", "none fits")
    play.note(LATER_TC, recovered(both[0], lost=lost))
    play.refuses(LATER_TC, OutcomeTold(U, True), "invariant 7", "is lost")
    play.note(LATER_TC, OutcomeTold(U, False))


def test_what_has_no_record_is_lost(play: Play) -> None:
    play.note(TC, Opened(T, ()), TxnTold(T, True))
    play.refuses(LATER_TC, recovered(), "invariant 8", "among the lost ones")
    play.note(LATER_TC, recovered(lost=((0, BOUND - 1),)))


def test_an_ended_transaction_is_not_found_live(play: Play) -> None:
    play.finished(P)
    play.refuses(LATER_TC, recovered(committing()), "invariant 2", "is found live")
    play.note(LATER_TC, recovered())


def test_after_an_accepted_loss_little_is_judged(play: Play) -> None:
    play.written(P)
    found = LiveTransaction(T, (), None, None, None, False)
    play.note(LATER_TC, recovered(found, incarnation=2, next_counter=0))
    play.note(LATER_TC, Decided(T, True, None, None))
    play.commit(LATER_TC)
    play.note(B0, MarkerWritten(P, T, 0, 2), end(P, is_counted=False))
    assert play.follower.unjudged == {
        "a server went on after an accepted loss": 1,
        "the transaction is from before a loss": 1,
    }


# Participants.


def test_participants_are_created_once_and_deleted_when_nothing_is_open(play: Play) -> None:
    play.refuses(B0, ParticipantCreated(P, 0), "rule j", "exists already")
    play.written(P)
    play.refuses(B0, ParticipantDeleted(P), "rule j", f"{T} has ended")
    play.note(B0, end(P, is_commit=False, is_dropped=True), ParticipantDeleted(P))
    play.refuses(B0, ParticipantDeleted(P), "rule j", "exists")
    play.refuses(B0, ParticipantDeleted(S), "rule j", "exists")
    play.refuses(B0, PlainSent(P, 1, 0, 1, 0), "rule j", "exists")


def test_what_is_gone_counts_as_done_and_is_told(play: Play) -> None:
    play.decided(P)
    play.note(B0, end(P, is_commit=False, is_dropped=True), ParticipantDeleted(P))
    play.note(TC, Finished(T, True))
    assert play.follower.unjudged == {"a participant is gone": 1}


def test_an_ended_transaction_takes_nothing(play: Play) -> None:
    play.finished(P)
    late = Wrote(P, T, WRITER, 0, 1, ())
    play.refuses(B0, late, "invariant 9", "takes nothing")
    play.note(B0, WatermarkTaken(0, 1, 1, ()), EndsForgotten(P, (T,)))
    play.refuses(B0, late, "invariant 9", "takes nothing")
    play.refuses(B0, Wrote(S, T, WRITER, 0, 1, ()), "invariant 9", "as the watermark says")


def test_a_txn_id_that_was_not_issued_is_refused(play: Play) -> None:
    play.refuses(B0, Wrote(P, txn(BOUND), WRITER, 0, 1, ()), "rule f", "was issued")


def test_the_writes_of_a_writer_have_no_gap_and_no_repeat(play: Play) -> None:
    play.written(P)
    for index in (0, 1, 3):
        play.refuses(B0, Wrote(P, T, WRITER, index, 1, ()), "invariant 4", "index 2")
    play.note(B0, Wrote(P, T, WRITER, 2, 1, ()), Wrote(P, T, 8, 0, 1, ()))


def test_a_transaction_follows_what_is_unsettled(play: Play) -> None:
    play.written(P)
    play.note(TC, Opened(U, (P,)))
    play.refuses(B0, Wrote(P, U, WRITER, 0, 1, (txn(5),)), "rule k", "not settled")
    play.note(B0, Wrote(P, U, WRITER, 0, 1, (T,)))
    play.refuses(B0, Wrote(P, U, WRITER, 1, 1, (T,)), "rule k", "from its first write")


def test_a_write_is_confirmed_when_it_is_durable(play: Play) -> None:
    play.written(P)
    play.note(B0, Wrote(P, T, WRITER, 2, 1, ()))
    play.note(B0, WriteConfirmed(P, T, WRITER, 2))
    play.refuses(B0, WriteConfirmed(P, T, WRITER, 3), "rule a", "2 writes of 7 are durable")
    play.commit(B0)
    play.note(B0, WriteConfirmed(P, T, WRITER, 3))


def test_plain_messages_have_dense_offsets_and_sequences(play: Play) -> None:
    play.note(B0, PlainSent(P, 1, 0, 3, 0))
    for offset in (2, 4):
        play.refuses(B0, PlainSent(P, 1, 3, 1, offset), "invariant 4", "ends at 3")
    for sequence in (0, 2, 4):
        play.refuses(B0, PlainSent(P, 1, sequence, 1, 3), "invariant 4", "sequence of 1 is 3")
    play.note(B0, PlainSent(P, 1, 3, 1, 3), ProducersForgotten(P, (1,)), PlainSent(P, 1, 0, 1, 4))


def test_plain_messages_are_confirmed_when_durable_and_where_they_are(play: Play) -> None:
    play.note(B0, PlainSent(P, 1, 0, 3, 0))
    told = PlainConfirmed(P, 1, 0, 3, 0, True)
    play.refuses(B0, told, "rule a", "durably ends at 0")
    play.seal(B0)
    play.refuses(B0, told, "rule a", "durably ends at 0")
    play.note(B0, Written(2), told)
    play.refuses(B0, told._replace(is_late=False), "rule a", "durably ends at 0")
    play.note(B0, Durable(2), told._replace(is_late=False))
    play.note(B0, PlainSent(P, 1, 3, 3, 3))
    play.commit(B0)
    play.refuses(B0, told._replace(offset=2), "invariant 4", "they are at 0")


def test_a_marker_has_its_place_and_comes_with_its_end(play: Play) -> None:
    play.decided(P)
    play.refuses(B0, MarkerWritten(P, T, 1, 2), "invariant 4", "ends at 0")
    play.refuses(B0, end(P), "invariant 1", "a marker shows the 2 messages")
    play.note(B0, MarkerWritten(P, T, 0, 2))
    play.refuses(B0, end(P, U), "invariant 2", "holds {}")
    play.refuses(B0, PlainSent(P, 1, 0, 1, 2), "invariant 4", "comes with its marker")
    play.refuses(B0, Sealed(4), "invariant 4", "is in the group of its marker")
    with pytest.raises(HistoryRefused, match="comes with its marker"):
        play.follower.finish()
    play.note(B0, end(P))
    play.refuses(B0, MarkerWritten(P, T, 2, 2), "invariant 4", "has ended at")


def test_a_marker_shows_what_its_end_keeps(play: Play) -> None:
    play.decided(P)
    play.note(B0, MarkerWritten(P, T, 0, 1))
    play.refuses(B0, end(P), "invariant 4", "comes with its marker")


def test_a_transaction_ends_once_with_all_that_it_holds(play: Play) -> None:
    play.decided(P)
    play.refuses(B0, end(P, held=1, kept=0), "invariant 2", "holds {7: 2}")
    play.ended(P)
    play.refuses(B0, end(P, held=0), "invariant 7", "ends once")


def test_an_end_passes_on_what_is_unsettled(play: Play) -> None:
    play.written(P)
    play.decided(P, txn_id=U, follows=(T,), is_commit=False)
    play.refuses(B0, end(P, U, is_commit=False), "rule k", f"passes on {T}")
    play.decided(Q, txn_id=txn(2))
    play.note(B1, MarkerWritten(Q, txn(2), 0, 2))
    play.refuses(B1, end(Q, txn(2), passes_on=(T,)), "rule k", "passes on nothing")


def test_a_commit_needs_its_decision_and_its_participant(play: Play) -> None:
    play.decided(P)
    play.refuses(B1, end(Q, held=0), "rule f", "takes part")
    play.decided(P, txn_id=U, is_commit=False)
    play.note(B0, MarkerWritten(P, U, 0, 2))
    play.refuses(B0, end(P, U), "invariant 3", "durably committed")


def test_a_commit_keeps_what_was_counted(play: Play) -> None:
    play.decided(P, counts={P: 1})
    play.note(B0, MarkerWritten(P, T, 0, 2))
    play.refuses(B0, end(P), "rule g", "keeps {7: 1}")


def test_a_commit_does_not_go_on_without_what_was_counted(play: Play) -> None:
    play.decided(P, Q, counts={P: 2, Q: 3})
    play.refuses(B1, end(Q, kept=0, is_counted=False), "rule g", "the counts of")
    play.note(B1, MarkerWritten(Q, T, 0, 2))
    play.refuses(B1, end(Q), "rule g", "or a loss is accepted")
    play.refuses(B1, end(Q, loss_accepted=True), "rule g", "is durably accepted")
    play.note(TC, LossAccepted(T))
    play.commit(TC)
    play.note(B1, end(Q, loss_accepted=True))


def test_a_selection_says_which_writers_count(play: Play) -> None:
    play.written(P)
    play.note(TC, Decided(T, True, None, (8,)))
    play.commit()
    play.refuses(B0, end(P, kept=0, is_counted=False), "rule h", "the selection of")
    play.note(B0, end(P, kept=0, is_counted=False, is_selected=True))
    assert play.follower.unjudged == {"a commit without counts": 1}


def test_partitions_end_before_subscriptions(play: Play) -> None:
    play.note(TC, Opened(T, (Q, S)))
    play.note(B0, *acks(0))
    play.commit()
    play.note(TC, Decided(T, True, ((S, ((WRITER, 1),)),), None))
    play.commit()
    play.refuses(B0, end(S, held=1), "rule p", "ends 0:1:0 before its subscriptions")
    play.note(B1, end(Q, held=0))
    play.refuses(B0, end(S, held=1), "rule p", "before its subscriptions")
    play.commit()
    play.note(B0, end(S, held=1))


def test_a_broker_aborts_nothing_by_itself(play: Play) -> None:
    play.written(P)
    abort = end(P, is_commit=False)
    play.refuses(B0, abort, "rule f", "is durably decided")
    play.note(TC, Decided(T, True, ((P, ((WRITER, 2),)),), None))
    play.commit()
    play.refuses(B0, abort, "invariant 7", "is committing")


def test_ends_are_kept_until_they_are_covered_and_settled(play: Play) -> None:
    play.written(P)
    play.decided(P, txn_id=U, follows=(T,), is_commit=False)
    play.note(B0, end(P, U, is_commit=False, passes_on=(T,)))
    forgotten = EndsForgotten(P, (U,))
    play.refuses(B0, forgotten, "rule c", "the watermark covers")
    play.commit()
    play.note(TC, Finished(U, False))
    play.commit()
    play.note(B0, WatermarkTaken(0, 1, 2, ((0, 0),)))
    play.refuses(B0, forgotten, "rule k", "is kept")


def test_a_watermark_takes_nothing_back(play: Play) -> None:
    for one in map(txn, range(6)):
        play.note(TC, Opened(one, ()), Decided(one, False, None, None), Finished(one, False))
    play.commit()
    play.note(B0, WatermarkTaken(0, 1, 4, ((2, 2),)))
    play.refuses(B0, WatermarkTaken(0, 1, 3, ()), "rule c", "counter 3 is covered")
    play.refuses(B0, WatermarkTaken(0, 1, 5, ((1, 2),)), "rule c", "counter 1 is covered")
    play.refuses(B0, WatermarkTaken(0, 0, 5, ()), "rule n", "incarnation 1 is known")
    play.note(B0, WatermarkTaken(0, 1, 6, ((2, 2), (5, 5))), WatermarkTaken(0, 2, 0, ()))


# Acknowledgements.


def test_a_message_is_acknowledged_in_one_transaction(play: Play) -> None:
    play.note(TC, Opened(T, (S,)), Opened(U, (S,)))
    play.note(B0, Acked(S, ((0, 1),)), *acks(3))
    play.note(B0, Wrote(S, U, WRITER, 0, 1, ()))
    play.refuses(B0, AcksPending(S, U, WRITER, 0, ((1, 2),)), "rule i", "not acknowledged yet")
    play.refuses(B0, AcksPending(S, U, WRITER, 0, ((2, 4),)), "rule i", f"pending for {T}")
    play.refuses(B0, Acked(S, ((2, 4),)), "rule i", f"pending for {T}")
    play.note(B0, *acks(3, sequence=1), AcksPending(S, U, WRITER, 0, ((2, 2),)))


@pytest.mark.parametrize(("is_commit", "taken"), [(True, False), (False, True)])
def test_a_commit_acknowledges_and_an_abort_gives_back(
    play: Play, is_commit: bool, taken: bool
) -> None:
    play.note(B0, *acks(3), *acks(4, sequence=1))
    play.note(TC, Opened(T, (S,)), Opened(U, (S,)))
    counts = ((S, ((WRITER, 1),)),) if is_commit else None
    play.note(TC, Decided(T, is_commit, counts, None))
    play.commit()
    play.note(B0, end(S, kept=1, is_commit=is_commit), Wrote(S, U, WRITER, 0, 1, ()))
    again = AcksPending(S, U, WRITER, 0, ((3, 3),))
    assert (play.follower.refusal_of(B0, again) is None) is taken
    play.note(B0, AcksPending(S, U, WRITER, 0, ((4, 4),)))


def test_a_cursor_moves_when_nothing_is_pending(play: Play) -> None:
    play.note(TC, Opened(T, (S,)))
    play.note(B0, Acked(S, ((0, 5),)), CursorMoved(S, 2), *acks(3))
    play.refuses(B0, CursorMoved(S, 0), "rule j", f"{T} has ended")


def test_what_retention_removed_counts_as_acknowledged(play: Play) -> None:
    play.note(TC, Opened(T, (S,)))
    play.note(B0, MessagesRemoved(S, 3), Wrote(S, T, WRITER, 0, 1, ()))
    play.refuses(B0, AcksPending(S, T, WRITER, 0, ((2, 3),)), "rule i", "not acknowledged yet")


# Crashes of brokers.


def found(
    name: PartitionName | SubscriptionName = P,
    *,
    end_offset: int = 0,
    held: tuple[HeldTransaction, ...] = (),
    ended: tuple[EndedTransaction, ...] = (),
    exists: bool = True,
) -> ParticipantFound:
    return ParticipantFound(name, exists, 0, end_offset, held, ended)


HOLDS_T = HeldTransaction(T, (HeldWriter(WRITER, 2, ()),))
CURSOR = CursorFound(S, 0, (), ())
RECOVERED = BrokerRecovered(0)


@pytest.mark.parametrize(
    ("finds", "text"),
    [
        ((found(S), CURSOR), "it is not found"),
        ((found(held=(HOLDS_T,)), found(S, exists=False), CURSOR), "it is not found"),
        ((found(), found(S), CURSOR), "is open, not"),
        ((found(held=(HOLDS_T,), end_offset=1), found(S), CURSOR), "ends at 1, not at 0"),
        (
            (found(ended=(EndedTransaction(T, True, ()),)), found(S), CURSOR),
            "is open, not",
        ),
        (
            (
                found(held=(HOLDS_T,), ended=(EndedTransaction(U, True, ()),)),
                found(S),
                CURSOR,
            ),
            "not as None",
        ),
        ((found(held=(HOLDS_T,)), found(S), CursorFound(S, 1, (), ())), "is acknowledged, not"),
        (
            (found(held=(HOLDS_T,)), found(S), CursorFound(S, 0, (), ((T, ((1, 1),)),))),
            "acks are pending",
        ),
        (
            (WatermarkFound(0, 1, 1, ()), found(held=(HOLDS_T,)), found(S), CURSOR),
            "the watermarks are",
        ),
        ((found(held=(HOLDS_T,)), found(S), CURSOR, found(Q)), "it is found"),
    ],
)
def test_a_broker_finds_what_was_durable(play: Play, finds: tuple[Event, ...], text: str) -> None:
    play.written(P)
    play.note(LATER_B0, *finds)
    play.refuses(LATER_B0, RECOVERED, "invariant 2", text)


def test_a_broker_forgets_no_end(play: Play) -> None:
    play.finished(P)
    play.note(LATER_B0, found(end_offset=2), found(S), CURSOR)
    play.refuses(LATER_B0, RECOVERED, "invariant 2", f"the end of {T} is not found")


def test_a_broker_may_find_what_was_being_written(play: Play) -> None:
    play.note(B0, PlainSent(P, 1, 0, 3, 0))
    play.seal(B0)
    play.note(B0, PlainSent(P, 1, 3, 1, 3))
    later = Life(B0.server, 3)
    play.note(later, found(end_offset=4), found(S), CURSOR)
    play.refuses(later, RECOVERED, "invariant 2", "of 2 groups that the store may have, none fits")
    play.note(LATER_B0, found(end_offset=3), found(S), CURSOR, RECOVERED)
    play.note(LATER_B0, PlainSent(P, 1, 3, 1, 3))


def test_what_lost_its_store_has_no_effect(play: Play) -> None:
    """An owner that does not know yet that it is none. Source: 0009, Owners that change."""
    play.note(B0, PlainSent(P, 1, 0, 3, 0))
    play.seal(B0)
    play.note(LATER_B0, found(), found(S), CURSOR, RECOVERED)
    play.note(B0, PlainSent(P, 1, 3, 3, 3), MarkerWritten(P, T, 9, 1), end(P, held=1))
    play.note(B0, CursorMoved(S, 3), ParticipantDeleted(P), RECOVERED)
    play.refuses(B0, Durable(2), "rule a", "the store has groups up to 1 of this life")
    play.note(LATER_B0, PlainSent(P, 1, 0, 3, 0))


def test_an_owner_that_lost_its_store_may_answer_late(play: Play) -> None:
    """A frozen coordinator wakes up, and gives a TxnID that the next owner has never seen."""
    play.note(LATER_TC, recovered())
    play.note(TC, Opened(T, ()), TxnTold(T, True))
    play.refuses(LATER_TC, TxnTold(T, True), "invariant 8", "was opened")


def test_what_became_durable_may_be_told_after_the_store_has_moved(play: Play) -> None:
    play.note(B0, PlainSent(P, 1, 0, 3, 0))
    play.seal(B0)
    play.note(LATER_B0, found(end_offset=3), found(S), CURSOR, RECOVERED)
    play.note(B0, Durable(2), PlainConfirmed(P, 1, 0, 3, 0, False))


def test_a_broker_that_lost_data_is_judged_less(play: Play) -> None:
    play.decided(P)
    play.ended(P)
    play.note(LATER_B0, found(), found(S), CURSOR, BrokerRecovered(1))
    play.note(TC, Finished(T, True))
    assert play.follower.unjudged["a server went on after an accepted loss"] == 1


def test_servers_without_a_history_are_not_judged() -> None:
    """Logs may be of some servers only."""
    play = Play()
    name = PartitionName("u", 1, TOPIC + 1)
    other = Life(Server(COORDINATOR, 1), 1)
    third = Life(Server(BROKER, 2), 1)
    play.note(other, CoordinatorRecovered(1, 0, (), ()), CounterReserved(9))
    far = name._replace(topic_id=2 << 51 | 2 << 40 | 3, partition=0)
    txn_id = TxnID.of(1, 1, 0)
    play.note(other, Opened(txn_id, (far, name._replace(topic_id=0))))
    play.note(other, Decided(txn_id, True, None, None))
    play.commit(other)
    play.note(other, Finished(txn_id, True))
    unknown = TxnID.of(5, 1, 0)
    play.note(third, BrokerRecovered(0), ParticipantCreated(far, 0))
    play.note(third, Wrote(far, unknown, WRITER, 0, 1, ()), WatermarkTaken(5, 1, 1, ()))
    assert play.follower.unjudged == {
        "the broker has no history": 1,
        "a participant is named without the id of its topic": 1,
        "the coordinator has no history": 2,
    }
