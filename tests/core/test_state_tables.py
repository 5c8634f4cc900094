"""Tables of states: every pair of state and event, in every table."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import states_page
from states_page import MACHINES, Machine

import magnetar
import magnetar_cluster
import magnetar_coordinator
from magnetar.enums import TransactionStatus
from magnetar.groups import holding, member_phase
from magnetar.transactions import producer_state, transaction_state
from magnetar.transactions.producer_state import CALLS, ProducerState, require_call
from magnetar.transactions.transaction_state import (
    DECIDED_ABORT,
    DECIDED_COMMIT,
    STATUS_OF,
    TransactionEvent,
    TransactionPhase,
)
from magnetar_cluster.hosting import shard_phase
from magnetar_coordinator.ending import end_state
from magnetar_coordinator.metadata import transaction
from magnetar_coordinator.transactions import shard
from magnetar_core.errors import InvalidTxnState

NEXT: dict[Any, Callable[[Any, Any], Any]] = {
    transaction: shard.next_status,
    end_state: end_state.MACHINE.next,
    transaction_state: lambda state, event: transaction_state.MACHINE.next(state, event, "it"),
    member_phase: member_phase.MACHINE.next,
    holding: holding.MACHINE.next,
    shard_phase: shard_phase.MACHINE.next,
    producer_state: lambda state, event: producer_state.MACHINE.next(state, event, "it"),
}
PAIRS = [
    pytest.param(machine, state, event, id=f"{machine.title}-{state.name}-{event.name}")
    for machine in MACHINES
    for state, event in itertools.product(machine.states, machine.events)
]
machines = pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.title)


@pytest.mark.parametrize(("machine", "state", "event"), PAIRS)
def test_every_pair_is_a_transition_or_refused(machine: Machine, state: Any, event: Any) -> None:
    target = machine.transitions.get((state, event))
    if target is not None:
        assert isinstance(target, machine.states)
        assert NEXT[machine.module](state, event) is target
    else:
        with pytest.raises(InvalidTxnState, match=event.name) as refused:
            NEXT[machine.module](state, event)
        assert state.name in str(refused.value)


@machines
def test_every_state_is_reached_and_leads_to_an_end(machine: Machine) -> None:
    edges = set(machine.edges())
    assert _closure(machine.beginnings, edges) == set(machine.states)
    backwards = {(target, source) for source, target in edges}
    assert _closure(machine.finals, backwards) == set(machine.states)


@machines
def test_nothing_leaves_a_final_state(machine: Machine) -> None:
    for source, target in machine.edges():
        assert source not in machine.finals or target is source


@machines
def test_every_event_moves_something(machine: Machine) -> None:
    assert {event for _, event in machine.transitions} == set(machine.events)


@machines
def test_the_drawing_has_every_transition(machine: Machine) -> None:
    drawn = states_page.section(machine)
    for (source, event), target in machine.transitions.items():
        (line,) = [
            line for line in drawn.splitlines() if f" {source.name} --> {target.name}:" in line
        ]
        assert event.name in line.split(": ")[1].split(", ")


@machines
def test_one_method_stores_the_state(machine: Machine) -> None:
    """Beside its beginning. A state that is assigned in many places has no owner."""
    functions = {
        name
        for package in (magnetar, magnetar_cluster, magnetar_coordinator)
        for name in _assigning(Path(package.__file__ or "").parent, machine)
    }
    functions.discard("__init__")
    assert len(functions) == 1


# What the tables mean.


def test_no_transaction_changes_its_mind() -> None:
    for (source, event), target in transaction_state.TRANSITIONS.items():
        assert not (source in DECIDED_COMMIT and target not in DECIDED_COMMIT), event
        assert not (source in DECIDED_ABORT and target not in DECIDED_ABORT), event


def test_what_the_coordinator_says_is_believed_unless_it_contradicts_itself() -> None:
    for status, event in transaction_state.HEARD.items():
        commits = status in (TransactionStatus.COMMITTING, TransactionStatus.COMMITTED)
        believed = {
            state for state in TransactionPhase if (state, event) in transaction_state.TRANSITIONS
        }
        unbelieved = {
            TransactionPhase.LEFT,
            TransactionPhase.WITHDRAWN,
            *(DECIDED_ABORT if commits else DECIDED_COMMIT),
        }
        if status in (TransactionStatus.COMMITTING, TransactionStatus.ABORTING):
            # A broker decides about a transaction in a single batch, and carries it out, at once.
            unbelieved.add(TransactionPhase.BATCH_ASKED)
        assert set(TransactionPhase) - believed == unbelieved
        for state in believed - DECIDED_COMMIT - DECIDED_ABORT:
            assert STATUS_OF[transaction_state.TRANSITIONS[state, event]] is status


def test_an_abort_that_was_asked_for_is_never_followed_by_a_commit() -> None:
    assert (
        TransactionPhase.ABORT_ASKED,
        TransactionEvent.COMMIT_REQUESTED,
    ) not in transaction_state.TRANSITIONS


def test_what_may_be_committed_is_not_said_to_be_aborted() -> None:
    transitions = transaction_state.TRANSITIONS
    # Nothing aborts a batch that was sent.
    assert (TransactionPhase.BATCH_ASKED, TransactionEvent.ABORT_REQUESTED) not in transitions
    for state in transaction_state.COMMIT_WAS_ASKED - {TransactionPhase.BATCH_ASKED}:
        after = transitions[state, TransactionEvent.ABORT_REQUESTED]
        assert after in transaction_state.COMMIT_WAS_ASKED
        assert STATUS_OF[after] is TransactionStatus.OPEN


@pytest.mark.parametrize("state", ProducerState)
def test_a_refusal_names_what_may_be_called(state: ProducerState) -> None:
    allowed = {call for call, states in CALLS.items() if state in states}
    # It may always be called, and is named where there is nothing better.
    named = {call for call in CALLS if call in state.value.replace(":", ",").split(", ")}
    assert named | {"init_transactions"} == allowed | {"init_transactions"}
    for call in CALLS:
        if call in allowed:
            require_call(state, call, "it")
        else:
            with pytest.raises(InvalidTxnState, match="allowed: "):
                require_call(state, call, "it")


def _closure(beginnings: Any, edges: set[tuple[Any, Any]]) -> set[Any]:
    reached: set[Any] = set()
    found = set(beginnings)
    while found:
        reached |= found
        found = {target for source, target in edges if source in found} - reached
    return reached


def _assigning(folder: Path, machine: Machine) -> Iterator[str]:
    """Functions that assign the state, in files that know its states."""
    for path in sorted(folder.rglob("*.py")):
        tree = ast.parse(path.read_text())
        if path != Path(machine.module.__file__) and not _reads(tree, machine):
            continue
        for node in ast.walk(tree):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if any(_is_state(target, machine) for target in _targets(node)):
                yield node.name


def _targets(function: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            yield from node.targets
        elif isinstance(node, ast.AnnAssign | ast.AugAssign):
            yield node.target


def _reads(tree: ast.Module, machine: Machine) -> bool:
    """Whether a file imports the table's states."""
    return any(
        isinstance(node, ast.ImportFrom)
        and node.module == machine.module.__name__
        and any(name.name == machine.states.__name__ for name in node.names)
        for node in ast.walk(tree)
    )


def _is_state(target: ast.expr, machine: Machine) -> bool:
    return isinstance(target, ast.Attribute) and target.attr == machine.attribute
