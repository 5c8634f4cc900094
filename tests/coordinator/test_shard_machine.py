"""The shard against a tiny model: statuses, repeated ends, and replay that equals what is live."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
)
from tests.configs import coordinator_config
from tests.coordinator.fakes import P0, P1, S0

from magnetar_coordinator.metadata.records import (
    TxnEnded,
)
from magnetar_coordinator.metadata.transaction import Participant, TxnAction, TxnStatus
from magnetar_coordinator.metadata.transaction_rows import (
    decode_metadata,
    decode_outcome,
    encode_metadata,
    encode_outcome,
)
from magnetar_coordinator.transactions.decision import (
    Decision,
    EndTxnRequest,
    OutcomeMissing,
    repeat_end,
)
from magnetar_coordinator.transactions.shard import Shard
from magnetar_core.errors import InvalidTxnState, TxnNotFound
from magnetar_core.ids import TxnID

OPEN, COMMITTING, COMMITTED = TxnStatus.OPEN, TxnStatus.COMMITTING, TxnStatus.COMMITTED
ABORTING, ABORTED = TxnStatus.ABORTING, TxnStatus.ABORTED
ENDS = {
    TxnAction.COMMIT: (COMMITTING, COMMITTED),
    TxnAction.ABORT: (ABORTING, ABORTED),
}
FINAL = {COMMITTING: COMMITTED, ABORTING: ABORTED}
CONFIG = coordinator_config(recent_outcomes_max=1)

selections = st.none() | st.lists(st.integers(0, 3), max_size=3).map(tuple)


@dataclass
class Expected:
    """What the model knows of a transaction."""

    status: TxnStatus = OPEN
    selection: frozenset[int] | None = None


class ShardMachine(RuleBasedStateMachine):
    """Carries commands out as the runtime does; rows stand for the store."""

    txns = Bundle("txns")

    @initialize()
    def begin(self) -> None:
        self.shard = Shard(CONFIG, tcid=0, incarnation=1, next_counter=0)
        self.model: dict[TxnID, Expected] = {}
        self.metadata: dict[TxnID, list[bytes]] = {}
        self.outcomes: dict[TxnID, bytes] = {}
        self.undurable: list[TxnID] = []
        self.run_time_ms = 0

    def carry_out(self, decision: Decision) -> None:
        record = decision.record
        if record is None:
            return
        if isinstance(record, TxnEnded):
            del self.metadata[record.txn_id]
            self.outcomes[record.txn_id] = encode_outcome(record)
            self.undurable.append(record.txn_id)
        else:
            self.metadata.setdefault(record.txn_id, []).append(encode_metadata(record))
        self.shard.apply(record)

    def _end(self, end: EndTxnRequest) -> Decision:
        try:
            return self.shard.end(end, time_ms=0)
        except OutcomeMissing:
            outcome = decode_outcome(end.txn_id, self.outcomes[end.txn_id])
            return repeat_end(end, outcome.status, outcome.selection_digest)

    @rule(target=txns, participants=st.lists(st.sampled_from([P0, P1, S0]), max_size=3))
    def open(self, participants: list[Participant]) -> TxnID:
        decision = self.shard.new_txn(1_000, participants, run_time_ms=self.run_time_ms, time_ms=0)
        assert decision.record is not None
        txn_id = decision.record.txn_id
        assert txn_id not in self.model
        self.carry_out(decision)
        self.model[txn_id] = Expected()
        return txn_id

    @rule(txn_id=txns, participant=st.sampled_from([P0, P1, S0]))
    def add(self, txn_id: TxnID, participant: Participant) -> None:
        if self.model[txn_id].status is OPEN:
            self.carry_out(self.shard.add_participants(txn_id, [participant], time_ms=0))
            assert participant in self.shard.live[txn_id].participants
        else:
            with pytest.raises((InvalidTxnState, OutcomeMissing)):
                self.shard.add_participants(txn_id, [participant], time_ms=0)

    @rule(txn_id=txns, action=st.sampled_from(TxnAction), selection=selections)
    def end(self, txn_id: TxnID, action: TxnAction, selection: tuple[int, ...] | None) -> None:
        expected = self.model[txn_id]
        wanted = None if selection is None else frozenset(selection)
        fixed = expected.status is not OPEN
        contradicts = fixed and (
            expected.status not in ENDS[action]
            or (action is TxnAction.COMMIT and wanted is not None and wanted != expected.selection)
        )
        end = EndTxnRequest(txn_id, action, None, selection)
        if contradicts:
            with pytest.raises(InvalidTxnState):
                self._end(end)
            return
        decision = self._end(end)
        assert (decision.record is None) is fixed
        self.carry_out(decision)
        if not fixed:
            expected.status = ENDS[action][0]
            expected.selection = wanted if action is TxnAction.COMMIT else None
        assert decision.status is expected.status

    @rule(txn_id=txns)
    def participant_ends(self, txn_id: TxnID) -> None:
        if self.model[txn_id].status not in FINAL:
            return
        unfinished = self.shard.live[txn_id].unfinished
        if unfinished:
            unfinished.popitem()
        if not unfinished:
            self.carry_out(
                self.shard.participants_ended(txn_id, run_time_ms=self.run_time_ms, time_ms=0)
            )
            self.model[txn_id].status = FINAL[self.model[txn_id].status]

    @rule(elapsed_ms=st.integers(1, 700))
    def time_passes(self, elapsed_ms: int) -> None:
        self.run_time_ms += elapsed_ms
        for txn_id in self.shard.expiry.expired(self.run_time_ms, count_max=100):
            assert self.model[txn_id].status is OPEN
            self.carry_out(self.shard.expire(txn_id, time_ms=0))
            self.model[txn_id].status = ABORTING

    @rule()
    def outcomes_become_durable(self) -> None:
        for txn_id in self.undurable:
            self.shard.outcome_durable(txn_id)
        self.undurable.clear()

    @rule()
    def never_issued(self) -> None:
        with pytest.raises(TxnNotFound):
            self.shard.find(TxnID.of(0, 1, self.shard.next_counter))

    @rule()
    def restart(self) -> None:
        """Go on with what a replay makes of the rows."""
        self.outcomes_become_durable()
        self.shard = self.replayed()

    def replayed(self) -> Shard:
        shard = Shard(CONFIG, tcid=0, incarnation=1, next_counter=self.shard.next_counter)
        for txn_id in sorted(self.metadata):
            for row in self.metadata[txn_id]:
                shard.apply(decode_metadata(txn_id, row))
        return shard

    @invariant()
    def replay_equals_live(self) -> None:
        if not hasattr(self, "shard"):
            return
        self.shard.check()
        again = self.replayed()
        again.check()
        assert again.next_counter == self.shard.next_counter
        assert again.status_counts == self.shard.status_counts
        assert list(again.live) == list(self.shard.live)
        for txn_id, transaction in self.shard.live.items():
            # Who has answered is not stored: all are asked again.
            all_unfinished = dict.fromkeys(
                transaction.participants if transaction.status is not OPEN else ()
            )
            stored = dataclasses.replace(transaction, unfinished=all_unfinished)
            assert again.live[txn_id] == stored

    @invariant()
    def statuses_are_the_models(self) -> None:
        for txn_id, expected in getattr(self, "model", {}).items():
            if expected.status in (COMMITTED, ABORTED):
                assert decode_outcome(txn_id, self.outcomes[txn_id]).status is expected.status
                assert txn_id not in self.shard.live
            else:
                assert self.shard.live[txn_id].status is expected.status

    @invariant()
    def the_watermark_covers_only_what_has_durably_ended(self) -> None:
        if not hasattr(self, "shard"):
            return
        watermark = self.shard.watermark.advance(self.run_time_ms)
        for txn_id in (*self.shard.live, *self.undurable):
            assert not watermark.covers(txn_id.counter)


TestShardMachine = ShardMachine.TestCase
TestShardMachine.settings = settings(max_examples=60, stateful_step_count=40)
