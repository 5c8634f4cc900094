"""One transactional id: who may act in its name, and what becomes of the pairs.

A pair is a producer id with an epoch. Every end raises the epoch (KIP-890), and so does everybody
who takes the id over, so that whoever had it before is told from whoever has it now. An epoch that
is about to overflow makes place for a new producer id.

    EMPTY --begin--> ONGOING --fix--> PREPARE_COMMIT or PREPARE_ABORT --complete--> COMPLETE_...

From EMPTY and COMPLETE_... the next one begins; `take_over` leads back to EMPTY. Pure.
Source: KIP-939, Persisted Data Format Changes, with both of its worked examples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple

from magnetar_coordinator.transaction import TxnAction
from magnetar_core.errors import ConcurrentTransactions, InvalidTxnState, ProducerFenced
from magnetar_core.ids import TxnID
from magnetar_core.invariants import BrokenInvariant

NONE = -1


class Pair(NamedTuple):
    """A producer id and its epoch; both are -1 where there is none."""

    producer_id: int = NONE
    epoch: int = NONE


NO_PAIR = Pair()

# Calls of InitProducer, before the last one, of which a late copy is still recognised.
PAST_CALLS_MAX = 8


class InitCall(NamedTuple):
    """A call of InitProducer.

    Attributes:
        token: of this call and its copies; 0: it has none.
        named: the pair that it says it has; none: it takes the id from whoever has it.
        given: its answer.
    """

    token: int = 0
    named: Pair = NO_PAIR
    given: Pair = NO_PAIR


class TransactionalIdState(IntEnum):
    """Kafka's names; numbered as on the wire."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5


PREPARED = {
    TxnAction.COMMIT: TransactionalIdState.PREPARE_COMMIT,
    TxnAction.ABORT: TransactionalIdState.PREPARE_ABORT,
}
COMPLETED = {
    TransactionalIdState.PREPARE_COMMIT: TransactionalIdState.COMPLETE_COMMIT,
    TransactionalIdState.PREPARE_ABORT: TransactionalIdState.COMPLETE_ABORT,
}
ACTION_OF_STATE = {
    TransactionalIdState.PREPARE_COMMIT: TxnAction.COMMIT,
    TransactionalIdState.COMPLETE_COMMIT: TxnAction.COMMIT,
    TransactionalIdState.PREPARE_ABORT: TxnAction.ABORT,
    TransactionalIdState.COMPLETE_ABORT: TxnAction.ABORT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionalIdMetadata:
    """As it is stored.

    Attributes:
        producer: ONGOING: with which the transaction began. PREPARE_...: that, raised for the
            markers. Otherwise the one that may begin.
        prev: with which the last end was asked for, so that its repeat is recognised.
        next: of whoever took an ONGOING transaction over, or the one that may begin once a
            PREPARE_... is complete, where that is not `producer`.
        timeout_ms: of its transactions; -1 with two-phase commit: they never expire.
        txn_id: the latest transaction.
        last_init: the call that took the id over last; None in rows of earlier versions.
        past_call_tokens: of those before it, the newest last.
    """

    transactional_id: str
    state: TransactionalIdState = TransactionalIdState.EMPTY
    producer: Pair
    prev: Pair = NO_PAIR
    next: Pair = NO_PAIR
    timeout_ms: int
    txn_id: TxnID | None = None
    last_used_run_time_ms: int = 0
    last_init: InitCall | None = None
    past_call_tokens: tuple[int, ...] = ()

    @property
    def two_phase_commit(self) -> bool:
        return self.timeout_ms == NONE

    @property
    def current(self) -> Pair:
        """Who may act, or may begin as soon as the last transaction is complete."""
        return self.producer if self.next == NO_PAIR else self.next

    @property
    def is_kept(self) -> bool:
        """Somebody took an ongoing transaction over, to complete it."""
        return self.state is TransactionalIdState.ONGOING and self.next != NO_PAIR

    def check(self) -> None:
        """Our bugs assert; clients' mistakes raise."""
        assert self.producer != NO_PAIR
        if self.state is TransactionalIdState.EMPTY:
            assert self.prev == self.next == NO_PAIR
        if self.state in (
            TransactionalIdState.COMPLETE_COMMIT,
            TransactionalIdState.COMPLETE_ABORT,
        ):
            assert self.next == NO_PAIR
        if self.state in COMPLETED:
            assert self.prev != NO_PAIR
        if self.state in (TransactionalIdState.ONGOING, *COMPLETED):
            assert self.txn_id is not None


class Epochs:
    """How pairs are raised.

    Args:
        epoch_max: the highest epoch that there is. It is left to markers, and to those that only
            complete what others began.
        new_producer_id: one that was never given out.
    """

    def __init__(self, epoch_max: int, new_producer_id: Callable[[], int]) -> None:
        self._epoch_max = epoch_max
        self._new_producer_id = new_producer_id

    def first(self) -> Pair:
        return Pair(self._new_producer_id(), 0)

    def raised(self, pair: Pair) -> Pair:
        """For who may begin transactions: the marker of each needs one epoch more."""
        return self._raised(pair, self._epoch_max - 1)

    def raised_to_complete(self, pair: Pair) -> Pair:
        """For who may only complete one, whose markers carry its own pair."""
        return self._raised(pair, self._epoch_max)

    def _raised(self, pair: Pair, epoch_max: int) -> Pair:
        if pair.epoch < epoch_max:
            return Pair(pair.producer_id, pair.epoch + 1)
        return self.first()


class EndVerdict(IntEnum):
    """What an end with a pair means."""

    # Of the ongoing transaction.
    END = 0
    # It has happened: answer as then.
    REPEAT = 1
    # Nothing is open: an abort raises the epoch all the same.
    RAISE = 2


def is_repeated_init(identity: TransactionalIdMetadata, call: InitCall) -> bool:
    """Whether a call of InitProducer is a copy, to be answered as the first one was.

    Raises:
        ProducerFenced: it is a copy, and others came after it; or it names a pair of an instance
            from which another one has taken the id over. No effect.
    Source: KIP-939, InitProducerId; KIP-360, for the retry with a pair.
    """
    last = identity.last_init
    is_latest = last is not None and last.given == identity.current
    if last is not None and call.token and call.token == last.token:
        if is_latest:
            return True
        raise _fenced(identity, last.given)
    if call.token and call.token in identity.past_call_tokens:
        raise ProducerFenced(
            f"{identity.transactional_id!r} was taken over since this call was answered: this"
            " instance must stop",
            transactional_id=identity.transactional_id,
        )
    if call.named == NO_PAIR or call.named == identity.current:
        return False
    if last is not None and is_latest and call.named == last.named:
        return True
    if call.named == identity.prev:
        # Its own end has raised the epoch, and it has not heard of it.
        return False
    raise _fenced(identity, call.named)


def initialised(identity: TransactionalIdMetadata, call: InitCall) -> TransactionalIdMetadata:
    """A call has taken the id over, and is answered with the current pair."""
    past = identity.past_call_tokens
    if identity.last_init is not None and identity.last_init.token:
        past = (*past, identity.last_init.token)[-PAST_CALLS_MAX:]
    return replace(identity, last_init=call._replace(given=identity.current), past_call_tokens=past)


def take_over(
    identity: TransactionalIdMetadata, epochs: Epochs, *, timeout_ms: int, run_time_ms: int
) -> TransactionalIdMetadata:
    """A new instance begins with a clean slate; nothing may be ongoing.

    Source: KIP-939, InitProducerId without KeepPreparedTxn.
    """
    if identity.state in (TransactionalIdState.ONGOING, *COMPLETED):
        raise BrokenInvariant(f"a transactional id is taken over that is {identity.state.name}")
    return TransactionalIdMetadata(
        transactional_id=identity.transactional_id,
        producer=epochs.raised(identity.current),
        timeout_ms=timeout_ms,
        last_used_run_time_ms=run_time_ms,
        last_init=identity.last_init,
        past_call_tokens=identity.past_call_tokens,
    )


def keep(
    identity: TransactionalIdMetadata, epochs: Epochs, *, timeout_ms: int, run_time_ms: int
) -> TransactionalIdMetadata:
    """A new instance takes the ongoing transaction over, to complete it.

    Source: KIP-939, InitProducerId with KeepPreparedTxn, steps 4 to 8 of the second example.
    """
    if identity.state is not TransactionalIdState.ONGOING:
        raise BrokenInvariant(f"a transactional id with nothing ongoing: {identity.state.name}")
    if identity.next == NO_PAIR:
        raised = epochs.raised(identity.producer)
    else:
        raised = epochs.raised_to_complete(identity.next)
    return replace(identity, next=raised, timeout_ms=timeout_ms, last_used_run_time_ms=run_time_ms)


def check_begin(identity: TransactionalIdMetadata, pair: Pair) -> None:
    """Whether a pair may begin, or has begun, a transaction.

    Raises:
        ProducerFenced: another instance has taken over.
        InvalidTxnState: what it took over is to be completed first.
        ConcurrentTransactions: the last one is still ending.
    """
    require_current(identity, pair)
    if identity.is_kept:
        raise InvalidTxnState(
            f"{identity.transactional_id!r} has kept a prepared transaction: complete, commit or"
            " abort it first"
        )
    if identity.state in COMPLETED:
        raise ConcurrentTransactions(
            f"the last transaction of {identity.transactional_id!r} is still ending"
        )


def begin(
    identity: TransactionalIdMetadata, txn_id: TxnID, *, run_time_ms: int
) -> TransactionalIdMetadata:
    """A transaction has begun."""
    return replace(
        identity,
        state=TransactionalIdState.ONGOING,
        prev=NO_PAIR,
        txn_id=txn_id,
        last_used_run_time_ms=run_time_ms,
    )


def judge_end(identity: TransactionalIdMetadata, pair: Pair, action: TxnAction) -> EndVerdict:
    """What an end with a pair means in each state; changes nothing.

    Raises:
        ProducerFenced, InvalidTxnState, ConcurrentTransactions: as KIP-890 has it.
    """
    state = identity.state
    is_current, is_previous = pair == identity.current, pair == identity.prev != NO_PAIR
    if not (is_current or is_previous):
        raise _fenced(identity, pair)
    if state in COMPLETED:
        if is_previous and action is ACTION_OF_STATE[state]:
            return EndVerdict.REPEAT
        raise ConcurrentTransactions(
            f"the last transaction of {identity.transactional_id!r} is still ending"
        )
    if is_current:
        if state is TransactionalIdState.ONGOING:
            return EndVerdict.END
        if action is TxnAction.ABORT:
            return EndVerdict.RAISE
        raise InvalidTxnState(
            f"{identity.transactional_id!r} has no transaction to commit: it is {state.name}",
            state=state.name,
        )
    if action is ACTION_OF_STATE.get(state):
        return EndVerdict.REPEAT
    if state is TransactionalIdState.COMPLETE_COMMIT:
        raise InvalidTxnState(
            f"the last transaction of {identity.transactional_id!r} is committed", state=state.name
        )
    raise _fenced(identity, pair)


def raise_epoch(
    identity: TransactionalIdMetadata, epochs: Epochs, *, run_time_ms: int
) -> TransactionalIdMetadata:
    """An abort of nothing: KIP-890, TransactionState EMPTY and COMPLETE_..."""
    return replace(
        identity,
        state=TransactionalIdState.COMPLETE_ABORT,
        producer=epochs.raised(identity.current),
        prev=identity.current,
        last_used_run_time_ms=run_time_ms,
    )


def fix(
    identity: TransactionalIdMetadata, action: TxnAction, epochs: Epochs, *, run_time_ms: int
) -> TransactionalIdMetadata:
    """The outcome of what is ongoing is fixed: by its producer, by expiry, or by a takeover."""
    if identity.state is not TransactionalIdState.ONGOING:
        raise BrokenInvariant(f"a transactional id with nothing ongoing: {identity.state.name}")
    latest = identity.current
    producer = Pair(identity.producer.producer_id, identity.producer.epoch + 1)
    following = epochs.raised(latest)
    return replace(
        identity,
        state=PREPARED[action],
        producer=producer,
        prev=latest,
        next=NO_PAIR if following == producer else following,
        last_used_run_time_ms=run_time_ms,
    )


def complete(identity: TransactionalIdMetadata) -> TransactionalIdMetadata:
    """Every participant has ended the transaction."""
    return replace(
        identity,
        state=COMPLETED[identity.state],
        producer=identity.current,
        next=NO_PAIR,
    )


def require_current(identity: TransactionalIdMetadata, pair: Pair) -> None:
    """Raises: ProducerFenced, unless the pair is the newest."""
    if pair != identity.current:
        raise _fenced(identity, pair)


def _fenced(identity: TransactionalIdMetadata, pair: Pair) -> ProducerFenced:
    return ProducerFenced(
        f"{identity.transactional_id!r} with producer id {pair.producer_id} and epoch {pair.epoch}"
        " was taken over, or its transaction ended, since: this instance must stop",
        transactional_id=identity.transactional_id,
    )
