"""Rules of a transactional id: who may act in its name, and how its epochs are raised.

A pair is a producer id with an epoch. Every end raises the epoch (KIP-890), and so does every
takeover of the id, so that an earlier owner differs from the present owner. A client of Kafka from
before KIP-890 keeps its pair when it ends a transaction itself; any other end raises it. Before an
epoch overflows, a new producer id takes its place.

    EMPTY --begin--> ONGOING --fix--> PREPARE_COMMIT or PREPARE_ABORT --complete--> COMPLETE_...

From EMPTY and COMPLETE_... the next transaction begins; `take_over` leads back to EMPTY. Pure.
Source: KIP-939, Persisted Data Format Changes, with both of its worked examples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple

from magnetar_coordinator.metadata.transaction import TxnAction
from magnetar_core.errors import ConcurrentTransactions, InvalidTxnState, ProducerFenced
from magnetar_core.ids import TxnID
from magnetar_core.invariants import BrokenInvariant

NONE = -1


class Pair(NamedTuple):
    """A producer id and its epoch; both are -1 if there is none."""

    producer_id: int = NONE
    epoch: int = NONE


NO_PAIR = Pair()

# How many earlier calls of InitProducer are remembered, to recognise their late copies.
PAST_CALLS_MAX = 8


class InitCall(NamedTuple):
    """A call of InitProducer.

    Attributes:
        token: token of this call and its copies; 0: none.
        named: the pair that the client says it has; none: it takes the id from any owner.
        given: the pair in the answer.
    """

    token: int = 0
    named: Pair = NO_PAIR
    given: Pair = NO_PAIR


class TransactionalIdState(IntEnum):
    """Kafka's names of the states, with the numbers of the wire."""

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
    """State of a transactional id, as it is stored.

    Attributes:
        producer: ONGOING: the pair that began the transaction. PREPARE_...: the same, raised for
            the markers. Otherwise the pair that may begin.
        prev: the pair that asked for the last end, so that a repeat is recognised.
        next: the pair of the instance that took an ONGOING transaction over, or the pair that may
            begin once a PREPARE_... is complete, if it is not `producer`.
        timeout_ms: timeout of its transactions; -1 with two-phase commit: they never expire.
        txn_id: the latest transaction.
        last_init: the call that took the id over last; None until one is noted.
        past_call_tokens: tokens of earlier calls, the newest last.
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
        """Whether its transactions take part in two-phase commit, and so never expire."""
        return self.timeout_ms == NONE

    @property
    def current(self) -> Pair:
        """The pair that may act, or may begin when the last transaction is complete."""
        return self.producer if self.next == NO_PAIR else self.next

    def is_previous(self, pair: Pair) -> bool:
        """Whether the end of the latest transaction has replaced this pair, and nothing since."""
        return pair == self.prev != NO_PAIR

    @property
    def is_kept(self) -> bool:
        """Whether a new instance took an ongoing transaction over, to complete it."""
        return self.state is TransactionalIdState.ONGOING and self.next != NO_PAIR

    def check(self) -> None:
        """Check the invariants."""
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
    """Rules for raising pairs.

    Args:
        epoch_max: the highest epoch. It is reserved for markers, and for instances that only
            complete a transaction that others began.
        new_producer_id: returns a producer id that was never used.
    """

    def __init__(self, epoch_max: int, new_producer_id: Callable[[], int]) -> None:
        self._epoch_max = epoch_max
        self._new_producer_id = new_producer_id

    def first(self) -> Pair:
        """Return the first pair of a new transactional id."""
        return Pair(self._new_producer_id(), 0)

    def raised(self, pair: Pair) -> Pair:
        """Return the next pair for an instance that may begin transactions.

        The marker of each transaction needs an epoch more.
        """
        return self._raised(pair, self._epoch_max - 1)

    def raised_to_complete(self, pair: Pair) -> Pair:
        """Return the next pair for an instance that may only complete a transaction.

        The markers of that transaction carry this pair.
        """
        return self._raised(pair, self._epoch_max)

    def _raised(self, pair: Pair, epoch_max: int) -> Pair:
        if pair.epoch < epoch_max:
            return Pair(pair.producer_id, pair.epoch + 1)
        return self.first()


class EndVerdict(IntEnum):
    """The meaning of a request to end with a pair."""

    # End the ongoing transaction.
    END = 0
    # The end has happened: give the same answer again.
    REPEAT = 1
    # Nothing is open: an abort still raises the epoch.
    RAISE = 2


def is_repeated_init(identity: TransactionalIdMetadata, call: InitCall) -> bool:
    """Return whether a call of InitProducer is a copy, which gets the first answer again.

    Raises:
        ProducerFenced: it is a copy, and other calls came after it; or it names the pair of an
            instance that lost the id to another instance. No effect.
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
    if identity.is_previous(call.named):
        # The instance's own end has raised the epoch, and the answer was lost.
        return False
    raise _fenced(identity, call.named)


def require_open(identity: TransactionalIdMetadata, txn_id: TxnID) -> None:
    """Check that a takeover which names a transaction would abort or keep no other transaction.

    An aborted transaction passes, too: a copy of the takeover that aborts it may be in this place.

    Raises:
        InvalidTxnState: it was committed, or is not the latest of the id. No effect.
    """
    if identity.txn_id == txn_id and ACTION_OF_STATE.get(identity.state) is not TxnAction.COMMIT:
        return
    found = "no transaction" if identity.txn_id is None else str(identity.txn_id)
    raise InvalidTxnState(
        f"{identity.transactional_id!r} has {found} by now, which is {identity.state.name}, and not"
        f" {txn_id} open: nothing was done. Look again, and name the transaction that you find",
        state=identity.state.name,
    )


def initialised(identity: TransactionalIdMetadata, call: InitCall) -> TransactionalIdMetadata:
    """Note that a call has taken the id over, and is answered with the current pair."""
    past = identity.past_call_tokens
    if identity.last_init is not None and identity.last_init.token:
        past = (*past, identity.last_init.token)[-PAST_CALLS_MAX:]
    return replace(identity, last_init=call._replace(given=identity.current), past_call_tokens=past)


def take_over(
    identity: TransactionalIdMetadata, epochs: Epochs, *, timeout_ms: int, run_time_ms: int
) -> TransactionalIdMetadata:
    """Let a new instance begin without an open transaction; nothing may be ongoing.

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
    """Let a new instance take the ongoing transaction over, to complete it.

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
    """Check that a pair may begin, or has begun, a transaction.

    Raises:
        ProducerFenced, InvalidTxnState: as require_current.
        InvalidTxnState: the transaction that the instance took over must be completed first.
        ConcurrentTransactions: the last transaction is still ending.
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
    """Note that a transaction has begun."""
    return replace(
        identity,
        state=TransactionalIdState.ONGOING,
        prev=NO_PAIR,
        txn_id=txn_id,
        last_used_run_time_ms=run_time_ms,
    )


def judge_end(
    identity: TransactionalIdMetadata, pair: Pair, action: TxnAction, *, keep_epoch: bool = False
) -> EndVerdict:
    """Return the verdict on a request to end with a pair in the present state; changes nothing.

    Args:
        keep_epoch: the producer keeps its pair, so that an abort of nothing cannot raise it.
    Raises:
        ProducerFenced: another instance has taken over.
        InvalidTxnState: the transaction of this pair has the other outcome, or there is none to
            commit.
        ConcurrentTransactions: the last transaction is still ending.
    Source: KIP-890; but for the other outcome, which KIP-588 tells apart from a takeover.
    """
    state = identity.state
    if identity.is_previous(pair):
        if action is ACTION_OF_STATE[state]:
            return EndVerdict.REPEAT
        raise _ended(identity)
    if pair != identity.current:
        raise _fenced(identity, pair)
    if state is TransactionalIdState.ONGOING:
        return EndVerdict.END
    if state in COMPLETED:
        raise ConcurrentTransactions(
            f"the last transaction of {identity.transactional_id!r} is still ending"
        )
    if action is TxnAction.ABORT and not keep_epoch:
        return EndVerdict.RAISE
    raise InvalidTxnState(
        f"{identity.transactional_id!r} has no transaction to end: it is {state.name}",
        state=state.name,
    )


def raise_epoch(
    identity: TransactionalIdMetadata, epochs: Epochs, *, run_time_ms: int
) -> TransactionalIdMetadata:
    """Raise the epoch for an abort of nothing: KIP-890, states EMPTY and COMPLETE_..."""
    return replace(
        identity,
        state=TransactionalIdState.COMPLETE_ABORT,
        producer=epochs.raised(identity.current),
        prev=identity.current,
        last_used_run_time_ms=run_time_ms,
    )


def fix(
    identity: TransactionalIdMetadata,
    action: TxnAction,
    epochs: Epochs,
    *,
    run_time_ms: int,
    keep_epoch: bool = False,
) -> TransactionalIdMetadata:
    """Fix the outcome of the ongoing transaction, for its producer, by expiry, or by a takeover.

    Args:
        keep_epoch: its producer ends it, and goes on with the same pair. Then the previous pair is
            the present one, until the next transaction begins.
    """
    if identity.state is not TransactionalIdState.ONGOING:
        raise BrokenInvariant(f"a transactional id with nothing ongoing: {identity.state.name}")
    latest = identity.current
    producer = Pair(identity.producer.producer_id, identity.producer.epoch + 1)
    following = latest if keep_epoch else epochs.raised(latest)
    return replace(
        identity,
        state=PREPARED[action],
        producer=producer,
        prev=latest,
        next=NO_PAIR if following == producer else following,
        last_used_run_time_ms=run_time_ms,
    )


def forget(
    identity: TransactionalIdMetadata, epochs: Epochs, *, run_time_ms: int
) -> TransactionalIdMetadata:
    """Note that the ongoing transaction has ended, and its outcome is forgotten.

    The pair is the one that the end has given to its client.
    """
    if identity.state is not TransactionalIdState.ONGOING:
        raise BrokenInvariant(f"a transactional id with nothing ongoing: {identity.state.name}")
    return replace(
        identity,
        state=TransactionalIdState.EMPTY,
        producer=epochs.raised(identity.current),
        next=NO_PAIR,
        last_used_run_time_ms=run_time_ms,
    )


def complete(identity: TransactionalIdMetadata) -> TransactionalIdMetadata:
    """Note that every participant has ended the transaction."""
    return replace(
        identity,
        state=COMPLETED[identity.state],
        producer=identity.current,
        next=NO_PAIR,
    )


def require_current(identity: TransactionalIdMetadata, pair: Pair) -> None:
    """Check that a pair is the newest.

    Raises:
        ProducerFenced: another instance has taken over.
        InvalidTxnState: the transaction of this pair has ended. The details have the next pair.
    """
    if pair == identity.current:
        return
    if identity.is_previous(pair):
        raise _ended(identity)
    raise _fenced(identity, pair)


def _ended(identity: TransactionalIdMetadata) -> InvalidTxnState:
    """Return the refusal of the previous pair, whose instance may begin with the next pair.

    A takeover erases the previous pair. So only the newest instance is told this. There is no next
    pair for an instance that keeps its own.
    Source: KIP-588, for transactions that timed out.
    """
    producer_id, epoch = identity.current
    is_committed = ACTION_OF_STATE[identity.state] is TxnAction.COMMIT
    outcome = "committed" if is_committed else "aborted"
    text = f"the last transaction of {identity.transactional_id!r} has ended: it is {outcome}"
    if identity.current == identity.prev:
        return InvalidTxnState(text, state=identity.state.name)
    return InvalidTxnState(
        text, state=identity.state.name, producer_id=producer_id, producer_epoch=epoch
    )


def _fenced(identity: TransactionalIdMetadata, pair: Pair) -> ProducerFenced:
    return ProducerFenced(
        f"{identity.transactional_id!r} with producer id {pair.producer_id} and epoch {pair.epoch}"
        " was taken over since: this instance must stop",
        transactional_id=identity.transactional_id,
    )
