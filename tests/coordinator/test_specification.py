"""PIP-31, Transaction Coordinator, sentence by sentence, and the rules that this project adds.

Each test names its section. They speak with the pure shard: a command in, records or an error out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.configs import coordinator_config
from tests.coordinator.fakes import P0, P1, S0, counted

from magnetar_coordinator.metadata.records import (
    LossAccepted,
    ParticipantsAdded,
    StatusChanged,
    TxnEnded,
    TxnOpened,
)
from magnetar_coordinator.metadata.transaction import (
    TRANSITIONS,
    TxnAction,
    TxnEvent,
    TxnStatus,
)
from magnetar_coordinator.transactions.decision import (
    Decision,
    EndTxnRequest,
    OutcomeMissing,
    repeat_end,
)
from magnetar_coordinator.transactions.shard import Shard
from magnetar_core.errors import (
    InvalidArgument,
    InvalidTxnState,
    MagnetarError,
    QuotaExceeded,
    TxnNotFound,
)
from magnetar_core.ids import TxnID
from magnetar_core.selections import digest_of_selection

COMMIT, ABORT = TxnAction.COMMIT, TxnAction.ABORT
OPEN, COMMITTING, COMMITTED = TxnStatus.OPEN, TxnStatus.COMMITTING, TxnStatus.COMMITTED
ABORTING, ABORTED = TxnStatus.ABORTING, TxnStatus.ABORTED

TCID, INCARNATION = 3, 2
NOW_MS, WALL_MS = 5_000, 1_700_000_000_000
FIRST = TxnID.of(TCID, INCARNATION, 10)
SECOND = TxnID.of(TCID, INCARNATION, 11)

Command = Callable[[Shard], Decision]


class Playbook:
    """A command in (>>), the records and the status that it leads to out (<<)."""

    def __init__(self, **settings: Any) -> None:
        config = coordinator_config(**settings)
        self.shard = Shard(config, tcid=TCID, incarnation=INCARNATION, next_counter=10)
        self._decision: Decision | None = None
        self._error: Exception | None = None
        self._left: list[object] = []

    def __rshift__(self, given: Command) -> Playbook:
        self.done()
        self._decision = self._error = None
        try:
            self._decision = given(self.shard)
        except (MagnetarError, OutcomeMissing) as error:
            self._error = error
        else:
            record = self._decision.record
            self._left = [] if record is None else [record]
            if record is not None:
                self.shard.apply(record)
        self.shard.check()
        return self

    def __lshift__(self, expected: object) -> Playbook:
        if isinstance(expected, type):
            assert isinstance(self._error, expected), self._error or self._decision
            self._error = None
        elif isinstance(expected, TxnStatus):
            assert self._decision is not None, self._error
            assert self._decision.status is expected
        else:
            assert self._left, f"nothing, instead of {expected}"
            assert without_stamp(self._left.pop(0)) == without_stamp(expected)
        return self

    def done(self) -> None:
        if self._error is not None:
            raise self._error
        assert not self._left, f"unexpected {self._left}"


def without_stamp(record: object) -> object:
    """Stamps are test_stamps.py's."""
    if isinstance(record, StatusChanged | TxnEnded):
        return record._replace(stamp=0)
    return record


@pytest.fixture
def play() -> Playbook:
    return Playbook()


def new(timeout_ms: int = 0, *participants: Any) -> Command:
    return lambda shard: shard.new_txn(
        timeout_ms, participants, run_time_ms=NOW_MS, time_ms=WALL_MS
    )


def add(*participants: Any, txn_id: TxnID = FIRST) -> Command:
    return lambda shard: shard.add_participants(txn_id, participants, time_ms=WALL_MS)


def end(
    action: TxnAction,
    counts: Any = None,
    selection: tuple[int, ...] | None = None,
    txn_id: TxnID = FIRST,
) -> Command:
    given = EndTxnRequest(txn_id, action, counts, selection)
    return lambda shard: shard.end(given, time_ms=WALL_MS)


def expire(txn_id: TxnID = FIRST) -> Command:
    return lambda shard: shard.expire(txn_id, time_ms=WALL_MS)


def accept_loss(txn_id: TxnID = FIRST) -> Command:
    return lambda shard: shard.accept_loss(txn_id, time_ms=WALL_MS)


def all_ended(txn_id: TxnID = FIRST) -> Command:
    def command(shard: Shard) -> Decision:
        shard.live[txn_id].unfinished.clear()
        return shard.participants_ended(txn_id, run_time_ms=NOW_MS, time_ms=WALL_MS)

    return command


OPENED = TxnOpened(FIRST, 60_000, NOW_MS, WALL_MS)


def changed(expected: TxnStatus, new_status: TxnStatus, **fields: Any) -> StatusChanged:
    return StatusChanged(FIRST, expected, new_status, WALL_MS, **fields)


def ended(status: TxnStatus, digest: bytes = b"") -> TxnEnded:
    return TxnEnded(FIRST, status, NOW_MS, WALL_MS, digest, WALL_MS)


def test_the_only_transitions() -> None:
    """Concepts, TxnStatus: OPEN, then COMMITTING or ABORTING, then COMMITTED or ABORTED."""
    assert {(before, after) for (before, _), after in TRANSITIONS.items()} == {
        (OPEN, COMMITTING),
        (OPEN, ABORTING),
        (COMMITTING, COMMITTED),
        (ABORTING, ABORTED),
    }
    assert {event for _, event in TRANSITIONS} == set(TxnEvent)


def test_new_txn_increments_the_local_id_and_logs_open(play: Playbook) -> None:
    """TC Request Processing, CommandNewTxn."""
    play >> new() << OPENED << OPEN
    play >> new() << TxnOpened(SECOND, 60_000, NOW_MS, WALL_MS)
    play.done()


def test_the_txn_id_is_made_of_the_tcid_and_the_local_id(play: Playbook) -> None:
    """CommandNewTxn: a 128-bits TxnID by combining TCID and local transaction id."""
    play >> new() << OPENED
    assert (FIRST.tcid, FIRST.incarnation, FIRST.counter) == (TCID, INCARNATION, 10)


def test_new_txn_may_name_its_first_participants(play: Playbook) -> None:
    play >> new(0, P0, S0, P0) << TxnOpened(FIRST, 60_000, NOW_MS, WALL_MS, (P0, S0))
    play >> add(P0) << OPEN
    play.done()


def test_a_timeout_beyond_the_maximum_is_refused(play: Playbook) -> None:
    play >> new(15 * 60_000) << TxnOpened(FIRST, 15 * 60_000, NOW_MS, WALL_MS)
    play >> new(15 * 60_000 + 1) << InvalidArgument
    play.done()


def test_open_transactions_and_participants_have_a_quota() -> None:
    play = Playbook(live_txns_max=1, participants_max=2)
    play >> new(0, P0, P1, S0) << QuotaExceeded
    play >> new() << OPENED
    play >> new() << QuotaExceeded
    play >> add(P0, P1) << ParticipantsAdded(FIRST, (P0, P1), WALL_MS)
    play >> add(S0) << QuotaExceeded
    play >> add(P1) << OPEN
    play.done()


def test_add_partition_appends_the_new_ones(play: Playbook) -> None:
    """CommandAddPartitionToTxn; adding again writes nothing."""
    play >> new() << OPENED
    play >> add(P0) << ParticipantsAdded(FIRST, (P0,), WALL_MS)
    play >> add(P0, P1, P1) << ParticipantsAdded(FIRST, (P1,), WALL_MS) << OPEN
    play >> add(P1, P0) << OPEN
    play.done()


def test_add_subscription_appends_the_new_ones(play: Playbook) -> None:
    """CommandAddSubscriptionToTxn."""
    play >> new() << OPENED
    play >> add(S0) << ParticipantsAdded(FIRST, (S0,), WALL_MS)
    play >> add(S0) << OPEN
    play.done()


@pytest.mark.parametrize("command", [add(P0), add(S0), end(COMMIT), end(ABORT), accept_loss()])
def test_an_unknown_txn_id_is_not_found(play: Playbook, command: Command) -> None:
    """CommandAdd... and CommandEndTxn: TxnNotFound if it does not exist."""
    play >> command << TxnNotFound
    play.done()


@pytest.mark.parametrize(
    ("txn_id", "issued"),
    [
        (TxnID.of(TCID, INCARNATION, 9), True),
        (TxnID.of(TCID, INCARNATION, 10), False),
        (TxnID.of(TCID, INCARNATION + 1, 0), False),
        (TxnID.of(TCID, INCARNATION - 1, 99), True),
        (TxnID.of(TCID, 0, 0), False),
        (TxnID.of(TCID + 1, INCARNATION, 0), False),
    ],
)
def test_not_found_means_never_issued_here(play: Playbook, txn_id: TxnID, issued: bool) -> None:
    """What was issued and is neither live nor remembered has ended: its outcome is looked up."""
    assert play.shard.is_issued(txn_id) is issued
    play >> end(COMMIT, txn_id=txn_id) << (OutcomeMissing if issued else TxnNotFound)
    play.done()


@pytest.mark.parametrize("action", [COMMIT, ABORT])
def test_nothing_is_added_unless_open(play: Playbook, action: TxnAction) -> None:
    """CommandAddPartitionToTxn: otherwise TxnMetaStoreError; ours is InvalidTxnState."""
    play >> _ignore(new(0, P0)) >> _ignore(end(action)) >> add(P0) << InvalidTxnState
    play >> add(S0) << InvalidTxnState
    play >> _ignore(all_ended()) >> add(P0) << InvalidTxnState
    play.done()


def test_commit_goes_to_committing_then_committed(play: Playbook) -> None:
    """CommandEndTxn, steps 3 to 5; TC Startup, committing, step 3."""
    play >> new(0, P0) << TxnOpened(FIRST, 60_000, NOW_MS, WALL_MS, (P0,))
    play >> end(COMMIT) << changed(OPEN, COMMITTING) << COMMITTING
    assert play.shard.live[FIRST].unfinished == {P0: None}
    play >> all_ended() << ended(COMMITTED) << COMMITTED
    assert not play.shard.live
    play.done()


def test_abort_goes_to_aborting_then_aborted(play: Playbook) -> None:
    """CommandEndTxn, steps 3 to 5; TC Startup, aborting, step 3."""
    play >> new(0, P0, S0) << TxnOpened(FIRST, 60_000, NOW_MS, WALL_MS, (P0, S0))
    play >> end(ABORT) << changed(OPEN, ABORTING) << ABORTING
    play >> all_ended() << ended(ABORTED) << ABORTED
    play.done()


@pytest.mark.parametrize(
    ("action", "middle", "last"), [(COMMIT, COMMITTING, COMMITTED), (ABORT, ABORTING, ABORTED)]
)
def test_repeating_an_end_succeeds(
    play: Playbook, action: TxnAction, middle: TxnStatus, last: TxnStatus
) -> None:
    """CommandEndTxn, steps 2.2 and 2.3; 2.4 for the opposite."""
    opposite = ABORT if action is COMMIT else COMMIT
    play >> new() << OPENED
    play >> end(action) << changed(OPEN, middle)
    play >> end(action) << middle
    play >> end(opposite) << InvalidTxnState
    play >> all_ended() << ended(last)
    play >> end(action) << last
    play >> end(opposite) << InvalidTxnState
    play.done()


def test_a_repeat_is_judged_by_the_outcome_alone() -> None:
    """CommandEndTxn, step 2, when the outcome had to be looked up."""
    digest = digest_of_selection((1, 2))
    assert repeat_end(EndTxnRequest(FIRST, COMMIT), COMMITTED, digest).status is COMMITTED
    assert (
        repeat_end(EndTxnRequest(FIRST, COMMIT, None, (2, 1)), COMMITTED, digest).status
        is COMMITTED
    )
    with pytest.raises(InvalidTxnState):
        repeat_end(EndTxnRequest(FIRST, COMMIT, None, (1,)), COMMITTED, digest)
    with pytest.raises(InvalidTxnState):
        repeat_end(EndTxnRequest(FIRST, ABORT), COMMITTED, digest)


def test_outcomes_leave_memory_only_when_durable() -> None:
    """Rule a: until its outcome is durable, a lookup in the store would not find it."""
    play = Playbook(recent_outcomes_max=0)
    play >> new() << OPENED
    play >> end(COMMIT) << changed(OPEN, COMMITTING)
    play >> all_ended() << ended(COMMITTED)
    play >> end(COMMIT) << COMMITTED
    play.shard.outcome_durable(FIRST)
    play >> end(COMMIT) << OutcomeMissing
    play.done()


def test_a_repeat_needs_the_same_selection(play: Playbook) -> None:
    """Rule e. What is omitted is not compared; order and repetition mean nothing."""
    play >> new() << OPENED
    play >> end(COMMIT, selection=(9, 4, 9)) << changed(OPEN, COMMITTING, selection=(4, 9))
    play >> end(COMMIT, selection=(4, 9)) << COMMITTING
    play >> end(COMMIT) << COMMITTING
    play >> end(COMMIT, selection=(4,)) << InvalidTxnState
    play >> end(COMMIT, selection=()) << InvalidTxnState
    play >> all_ended() << ended(COMMITTED, digest_of_selection((4, 9)))
    play >> end(COMMIT, selection=(9, 4)) << COMMITTED
    play >> end(COMMIT, selection=(9,)) << InvalidTxnState
    play.done()


def test_a_selection_in_a_repeat_differs_from_none(play: Playbook) -> None:
    """Rule e: everybody counted, so a subset comes too late."""
    play >> new() << OPENED
    play >> end(COMMIT) << changed(OPEN, COMMITTING)
    play >> end(COMMIT, selection=()) << InvalidTxnState
    play.done()


def test_an_abort_knows_no_selection(play: Playbook) -> None:
    play >> new() << OPENED
    play >> end(ABORT, {P1: counted(P1, (1, 1))}, (1,)) << changed(OPEN, ABORTING)
    play >> end(ABORT, selection=(2,)) << ABORTING
    play.done()


def test_committing_keeps_what_the_client_had_confirmed(play: Playbook) -> None:
    """Rule g: COMMIT carries counts, and the COMMITTING record keeps them."""
    counts = {P0: counted(P0, (1, 5), (2, 0)), S0: counted(S0, (8, 3))}
    play >> new(0, P0, S0) << TxnOpened(FIRST, 60_000, NOW_MS, WALL_MS, (P0, S0))
    play >> end(COMMIT, counts) << changed(OPEN, COMMITTING, counts=counts)
    assert play.shard.live[FIRST].counts == counts
    play >> end(COMMIT) << COMMITTING
    play.done()


def test_nothing_may_be_confirmed_at_what_is_no_participant(play: Playbook) -> None:
    """Rule g: to commit without it would lose it silently."""
    play >> new(0, P0) << TxnOpened(FIRST, 60_000, NOW_MS, WALL_MS, (P0,))
    play >> end(COMMIT, {P1: counted(P1, (1, 1))}) << InvalidArgument
    counts = {P1: counted(P1, (1, 0))}
    play >> end(COMMIT, counts) << changed(OPEN, COMMITTING, counts=counts)
    play.done()


def test_expiry_aborts_what_is_open(play: Playbook) -> None:
    """TC Transaction Expiration, step 1; afterwards the client's commit comes too late."""
    play >> new() << OPENED
    assert play.shard.expiry.expired(NOW_MS + 59_999, count_max=9) == []
    assert play.shard.expiry.expired(NOW_MS + 60_000, count_max=9) == [FIRST]
    play >> expire() << changed(OPEN, ABORTING) << ABORTING
    assert play.shard.expiry.expired(NOW_MS + 60_000, count_max=9) == []
    play >> end(COMMIT) << InvalidTxnState
    play >> end(ABORT) << ABORTING
    play.done()


@pytest.mark.parametrize("action", [COMMIT, ABORT])
def test_what_is_being_ended_never_expires(play: Playbook, action: TxnAction) -> None:
    """TC Transaction Expiration, steps 2 and 3."""
    play >> _ignore(new(1)) >> _ignore(end(action))
    assert play.shard.expiry.expired(10**9, count_max=9) == []


def test_a_loss_is_accepted_of_a_commit_only(play: Playbook) -> None:
    """Rule g. Repeating it is harmless, also after the commit is complete."""
    play >> new() << OPENED
    play >> accept_loss() << InvalidTxnState
    play >> end(COMMIT) << changed(OPEN, COMMITTING)
    play >> accept_loss() << LossAccepted(FIRST, WALL_MS) << COMMITTING
    assert play.shard.live[FIRST].loss_accepted
    play >> accept_loss() << COMMITTING
    play >> all_ended() << ended(COMMITTED)
    play >> accept_loss() << COMMITTED
    play.done()


def test_no_loss_is_accepted_of_an_abort(play: Playbook) -> None:
    play >> new() << OPENED
    play >> end(ABORT) << changed(OPEN, ABORTING)
    play >> accept_loss() << InvalidTxnState
    play >> all_ended() << ended(ABORTED)
    play >> accept_loss() << InvalidTxnState
    play.done()


def _ignore(command: Command) -> Command:
    """Carry a command out and expect nothing of it."""

    def apply(shard: Shard) -> Decision:
        decision = command(shard)
        if decision.record is not None:
            shard.apply(decision.record)
        return decision._replace(record=None)

    return apply
