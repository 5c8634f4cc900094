"""Pairs that stay when their producer ends its transaction: Kafka's clients of before KIP-890."""

from __future__ import annotations

import itertools

import pytest

from magnetar_coordinator.metadata import transactional_id as rules
from magnetar_coordinator.metadata.transaction import TxnAction
from magnetar_coordinator.metadata.transactional_id import (
    EndVerdict,
    Epochs,
    Pair,
    TransactionalIdMetadata,
)
from magnetar_core.errors import ConcurrentTransactions, InvalidTxnState, ProducerFenced
from magnetar_core.ids import TxnID

FIRST = Pair(7, 0)
TXN = TxnID.of(0, 1, 5)
COMMIT, ABORT = TxnAction.COMMIT, TxnAction.ABORT


def epochs() -> Epochs:
    ids = itertools.count(8)
    return Epochs(100, lambda: next(ids))


def ongoing() -> TransactionalIdMetadata:
    identity = TransactionalIdMetadata(transactional_id="a", producer=FIRST, timeout_ms=1_000)
    return rules.begin(identity, TXN, run_time_ms=1)


def fixed(action: TxnAction, *, keep_epoch: bool) -> TransactionalIdMetadata:
    found = rules.fix(ongoing(), action, epochs(), run_time_ms=2, keep_epoch=keep_epoch)
    found.check()
    return found


@pytest.mark.parametrize("action", [COMMIT, ABORT])
def test_a_pair_stays_over_its_own_end(action: TxnAction) -> None:
    ending = fixed(action, keep_epoch=True)
    assert ending.current == FIRST
    other = ABORT if action is COMMIT else COMMIT
    for identity in (ending, rules.complete(ending)):
        identity.check()
        assert rules.judge_end(identity, FIRST, action, keep_epoch=True) is EndVerdict.REPEAT
        with pytest.raises(InvalidTxnState) as caught:
            rules.judge_end(identity, FIRST, other, keep_epoch=True)
        assert "producer_id" not in caught.value.details
        rules.require_current(identity, FIRST)
    with pytest.raises(ConcurrentTransactions):
        rules.check_begin(ending, FIRST)
    begun = rules.begin(rules.complete(ending), TxnID.of(0, 1, 6), run_time_ms=3)
    assert rules.judge_end(begun, FIRST, other, keep_epoch=True) is EndVerdict.END


def test_any_other_end_fences_it() -> None:
    for identity in (
        fixed(ABORT, keep_epoch=False),
        rules.complete(fixed(ABORT, keep_epoch=False)),
    ):
        assert identity.current == Pair(7, 1)
        for attempt in (rules.require_current, rules.check_begin):
            with pytest.raises(InvalidTxnState) as caught:
                attempt(identity, FIRST)
            assert caught.value.details["producer_epoch"] == "1"
        with pytest.raises(InvalidTxnState):
            rules.judge_end(identity, FIRST, COMMIT, keep_epoch=True)
        assert rules.judge_end(identity, FIRST, ABORT, keep_epoch=True) is EndVerdict.REPEAT


def test_a_takeover_fences_it() -> None:
    complete = rules.complete(fixed(COMMIT, keep_epoch=True))
    taken = rules.take_over(complete, epochs(), timeout_ms=1_000, run_time_ms=4)
    assert taken.producer == Pair(7, 1)
    with pytest.raises(ProducerFenced):
        rules.require_current(taken, FIRST)
    with pytest.raises(ProducerFenced):
        rules.judge_end(taken, FIRST, COMMIT, keep_epoch=True)


def test_an_abort_of_nothing_raises_no_pair_that_stays() -> None:
    identity = TransactionalIdMetadata(transactional_id="a", producer=FIRST, timeout_ms=1_000)
    with pytest.raises(InvalidTxnState):
        rules.judge_end(identity, FIRST, ABORT, keep_epoch=True)
    assert rules.judge_end(identity, FIRST, ABORT) is EndVerdict.RAISE


def test_a_kept_transaction_ends_with_the_pair_that_took_it_over() -> None:
    kept = rules.keep(ongoing(), epochs(), timeout_ms=1_000, run_time_ms=2)
    second = kept.current
    assert second == Pair(7, 1)
    ended = rules.fix(kept, COMMIT, epochs(), run_time_ms=3, keep_epoch=True)
    ended.check()
    assert rules.complete(ended).current == second
    assert rules.judge_end(ended, second, COMMIT, keep_epoch=True) is EndVerdict.REPEAT
