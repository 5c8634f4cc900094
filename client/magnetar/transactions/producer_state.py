"""The states of a transactional producer, and the calls allowed in each state. Pure.

Only `MACHINE` reads the table of transitions, and only `TransactionalProducer._move` stores the
result. The drawing is docs/protocol/states.md.
Source: KIP-939, KafkaProducer API Changes; KIP-447; docs/design/0002-two-phase-commit.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, unique
from typing import Final

from magnetar_core.errors import InvalidTxnState
from magnetar_core.transitions import Machine


@unique
class ProducerState(Enum):
    """The state of a transactional producer, with the calls that are allowed."""

    NEW = "init, init_transactions"
    READY = "begin, init"
    OPEN = "send, acknowledge, send_offsets_to_transaction, prepare, commit, abort"
    PREPARED = "commit, abort, complete"
    IN_DOUBT = "commit, abort: they tell how it has ended"
    FENCED = "init_transactions: another instance has taken over"
    CLOSED = "nothing: it is closed"


_State = ProducerState


@unique
class ProducerEvent(Enum):
    """An event that changes the state of a transactional producer."""

    RESTARTED = "init_transactions begins, and gives up what is open"
    INITIALISED = "the transactional id is taken over, or there is none"
    KEPT = "the transactional id is taken over, and what was prepared is kept"
    BEGUN = "a transaction is open"
    PREPARED = "prepare has flushed it"
    UNANSWERED = "its end was asked for, and no answer has told the outcome"
    ENDED = (
        "it is committed or aborted, or its outcome is forgotten, or nothing was to be completed"
    )
    FENCED = "the coordinator says that another instance has taken over"
    CLOSED = "close"


_Event = ProducerEvent

TRANSITIONS: Final[Mapping[tuple[ProducerState, ProducerEvent], ProducerState]] = {
    (_State.NEW, _Event.INITIALISED): _State.READY,
    (_State.NEW, _Event.KEPT): _State.PREPARED,
    (_State.READY, _Event.INITIALISED): _State.READY,
    (_State.READY, _Event.KEPT): _State.PREPARED,
    (_State.READY, _Event.BEGUN): _State.OPEN,
    (_State.OPEN, _Event.PREPARED): _State.PREPARED,
    (_State.OPEN, _Event.ENDED): _State.READY,
    (_State.PREPARED, _Event.ENDED): _State.READY,
    (_State.OPEN, _Event.UNANSWERED): _State.IN_DOUBT,
    (_State.IN_DOUBT, _Event.UNANSWERED): _State.IN_DOUBT,
    # complete() may be called again.
    (_State.PREPARED, _Event.UNANSWERED): _State.PREPARED,
    (_State.IN_DOUBT, _Event.ENDED): _State.READY,
    (_State.NEW, _Event.RESTARTED): _State.NEW,
    (_State.READY, _Event.RESTARTED): _State.NEW,
    (_State.OPEN, _Event.RESTARTED): _State.NEW,
    (_State.PREPARED, _Event.RESTARTED): _State.NEW,
    (_State.IN_DOUBT, _Event.RESTARTED): _State.NEW,
    (_State.FENCED, _Event.RESTARTED): _State.NEW,
    (_State.READY, _Event.FENCED): _State.FENCED,
    (_State.OPEN, _Event.FENCED): _State.FENCED,
    (_State.PREPARED, _Event.FENCED): _State.FENCED,
    (_State.IN_DOUBT, _Event.FENCED): _State.FENCED,
    (_State.NEW, _Event.CLOSED): _State.CLOSED,
    (_State.READY, _Event.CLOSED): _State.CLOSED,
    (_State.OPEN, _Event.CLOSED): _State.CLOSED,
    (_State.PREPARED, _Event.CLOSED): _State.CLOSED,
    (_State.IN_DOUBT, _Event.CLOSED): _State.CLOSED,
    (_State.FENCED, _Event.CLOSED): _State.CLOSED,
    (_State.CLOSED, _Event.CLOSED): _State.CLOSED,
    # What a call brings that was under way when the producer was closed, or fenced by another call.
    (_State.CLOSED, _Event.PREPARED): _State.CLOSED,
    (_State.CLOSED, _Event.UNANSWERED): _State.CLOSED,
    (_State.CLOSED, _Event.ENDED): _State.CLOSED,
    (_State.CLOSED, _Event.FENCED): _State.CLOSED,
    (_State.FENCED, _Event.FENCED): _State.FENCED,
}

_IN_TRANSACTION: Final = frozenset({_State.OPEN})
_BEFORE_OUTCOME: Final = frozenset({_State.OPEN, _State.PREPARED, _State.IN_DOUBT})
# In which states a method may be called.
CALLS: Final[Mapping[str, frozenset[ProducerState]]] = {
    "init": frozenset({_State.NEW, _State.READY}),
    "init_transactions": frozenset(_State) - {_State.CLOSED},
    "begin": frozenset({_State.READY}),
    "send": _IN_TRANSACTION,
    "acknowledge": _IN_TRANSACTION,
    "send_offsets_to_transaction": _IN_TRANSACTION,
    "prepare": _IN_TRANSACTION,
    "commit": _BEFORE_OUTCOME,
    "abort": _BEFORE_OUTCOME,
    "complete": frozenset({_State.PREPARED}),
}


def require_call(state: ProducerState, call: str, name: str) -> None:
    """Check that a method may be called now.

    Args:
        state: the producer's state.
        call: the name of the method.
        name: the producer's name in messages for people.
    Raises:
        InvalidTxnState: the method may not be called in this state.
    """
    if state not in CALLS[call]:
        raise InvalidTxnState(
            f"{call}() is not possible while {name} is {state.name}; allowed: {state.value}"
        )


MACHINE: Final = Machine(TRANSITIONS, "a producer")
