"""docs/protocol/states.md, drawn from the tables of states that the code itself reads."""

from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple

from magnetar.groups import holding, member_phase
from magnetar.transactions import producer_state, transaction_state
from magnetar_cluster.hosting import shard_phase
from magnetar_coordinator.ending import end_state
from magnetar_coordinator.metadata import transaction

HEAD = """\
# States

Each of these has a table in the code, and one method that stores what the table says. What is not drawn is refused.
The drawings are made from the tables: `make docs`.
"""


class Machine(NamedTuple):
    """A table of states.

    Attributes:
        owner: the class that stores the state.
        attribute: in which it stores it.
        beginnings: where it begins.
        finals: those that nothing leaves.
    """

    title: str
    module: Any
    owner: str
    attribute: str
    states: type[Enum]
    events: type[Enum]
    transitions: Mapping[tuple[Any, Any], Any]
    beginnings: tuple[Any, ...]
    finals: tuple[Any, ...]

    def edges(self) -> dict[tuple[Any, Any], list[Any]]:
        """The events that lead from one state to another, in the order of their definition."""
        found: dict[tuple[Any, Any], list[Any]] = {}
        for source in self.states:
            for event in self.events:
                target = self.transitions.get((source, event))
                if target is not None:
                    found.setdefault((source, target), []).append(event)
        return found


class Ending(NamedTuple):
    """A way in which a transactional producer learns that its transaction has ended, or may have.

    Attributes:
        name: the function of tests/client/transactions/test_ends_learned.py that takes this way.
        way: the way, for people.
        says: what the last call returns or raises.
        events: what the producer takes from it.
    """

    name: str
    way: str
    says: str
    events: tuple[producer_state.ProducerEvent, ...]

    def state_from(self, start: producer_state.ProducerState) -> producer_state.ProducerState:
        """The state after this way."""
        for event in self.events:
            start = producer_state.MACHINE.next(start, event, "it")
        return start


_Status = transaction.TxnStatus
_Phase = transaction_state.TransactionPhase
_Producer = producer_state.ProducerState
_End = end_state.EndState
_Member = member_phase.MemberPhase
_Holding = holding.Holding
_Shard = shard_phase.ShardPhase

MACHINES = (
    Machine(
        "A transaction at its coordinator",
        transaction,
        "Transaction",
        "status",
        transaction.TxnStatus,
        transaction.TxnEvent,
        transaction.TRANSITIONS,
        (_Status.OPEN,),
        (_Status.COMMITTED, _Status.ABORTED),
    ),
    Machine(
        "An end that a participant has to be told",
        end_state,
        "PendingEnd",
        "state",
        end_state.EndState,
        end_state.EndEvent,
        end_state.TRANSITIONS,
        (_End.AWAY,),
        (_End.ANSWERED,),
    ),
    Machine(
        "A transaction at its client",
        transaction_state,
        "Transaction",
        "_phase",
        transaction_state.TransactionPhase,
        transaction_state.TransactionEvent,
        transaction_state.TRANSITIONS,
        (_Phase.OPEN,),
        (_Phase.COMMITTED, _Phase.ABORTED, _Phase.LEFT, _Phase.WITHDRAWN),
    ),
    Machine(
        "A transactional producer",
        producer_state,
        "TransactionalProducer",
        "_state",
        producer_state.ProducerState,
        producer_state.ProducerEvent,
        producer_state.TRANSITIONS,
        (_Producer.NEW, _Producer.READY),
        (_Producer.CLOSED,),
    ),
    Machine(
        "A member of a group",
        member_phase,
        "MemberState",
        "phase",
        member_phase.MemberPhase,
        member_phase.MemberEvent,
        member_phase.TRANSITIONS,
        (_Member.JOINING,),
        (_Member.ENDED,),
    ),
    Machine(
        "A partition that a member of a group holds",
        holding,
        "Held",
        "state",
        holding.Holding,
        holding.HoldingEvent,
        holding.TRANSITIONS,
        (_Holding.HELD,),
        (_Holding.GONE,),
    ),
    Machine(
        "A shard that a member of the cluster has or asks for",
        shard_phase,
        "HeldShard",
        "phase",
        shard_phase.ShardPhase,
        shard_phase.ShardEvent,
        shard_phase.TRANSITIONS,
        (_Shard.CLAIMING, _Shard.RELEASING),
        (_Shard.GONE,),
    ),
)


_Heard = producer_state.ProducerEvent
_ENDED = (_Heard.ENDED,)
_UNANSWERED = (_Heard.UNANSWERED,)
_LATER = (_Heard.UNANSWERED, _Heard.ENDED)
_FENCED = (_Heard.FENCED,)
_TWICE = (_Heard.UNANSWERED, _Heard.UNANSWERED, _Heard.ENDED)
_RETURNS, _IS_OTHER = "returns", "InvalidTxnState: the outcome is the other one"
ENDINGS = (
    Ending("commit_answered", "commit() is answered", _RETURNS, _ENDED),
    Ending("abort_answered", "abort() is answered", _RETURNS, _ENDED),
    Ending(
        "answer_lost",
        "the answer to commit() is lost, and the SDK repeats EndTxn",
        _RETURNS,
        _ENDED,
    ),
    Ending(
        "send_failed",
        "a send had failed: commit() aborts",
        "CommitRefused",
        _ENDED,
    ),
    Ending("commit_unanswered", "commit() has no answer in time", "OutcomeUnknown", _UNANSWERED),
    Ending("abort_unanswered", "abort() has no answer in time", "OutcomeUnknown", _UNANSWERED),
    Ending(
        "commit_cancelled",
        "commit() is cancelled, as by asyncio.wait_for()",
        "CancelledError",
        _UNANSWERED,
    ),
    Ending(
        "flush_cancelled",
        "commit() is cancelled while it waits for sends, before it asks for the end",
        "CancelledError",
        (),
    ),
    Ending("commit_again", "commit() has no answer; commit() again", _RETURNS, _LATER),
    Ending("abort_again", "abort() has no answer; abort() again", _RETURNS, _LATER),
    Ending(
        "commit_inquired",
        "commit() has no answer; the SDK asks for the outcome (DescribeTxn); commit() again",
        _RETURNS,
        _LATER,
    ),
    Ending(
        "abort_inquired",
        "abort() has no answer; the SDK asks for the outcome; abort() again",
        _RETURNS,
        _LATER,
    ),
    Ending(
        "cancelled_and_inquired",
        "commit() is cancelled; the SDK asks for the outcome; commit() again",
        _RETURNS,
        _LATER,
    ),
    Ending(
        "committed_then_abort",
        "commit() has no answer, and has taken effect; abort()",
        _IS_OTHER,
        _LATER,
    ),
    Ending(
        "committed_inquired_then_abort",
        "commit() has no answer; the SDK asks for the outcome; abort()",
        _IS_OTHER,
        _LATER,
    ),
    Ending(
        "lost_commit_then_abort",
        "commit() does not reach the coordinator in time; abort() is the first to arrive",
        _RETURNS,
        _LATER,
    ),
    Ending(
        "both_unanswered_then_commit",
        "neither commit() nor the abort() after it has an answer; commit() again",
        _RETURNS + ", or " + _IS_OTHER,
        _TWICE,
    ),
    Ending(
        "both_unanswered_then_abort",
        "neither commit() nor the abort() after it has an answer; abort() again",
        _RETURNS + ", or " + _IS_OTHER,
        _TWICE,
    ),
    Ending(
        "abort_unanswered_then_commit",
        "abort() has no answer; commit(), which is refused; abort() again",
        _RETURNS,
        _TWICE,
    ),
    Ending("timed_out_then_commit", "its timeout has aborted it; commit()", _IS_OTHER, _ENDED),
    Ending("timed_out_then_abort", "its timeout has aborted it; abort()", _RETURNS, _ENDED),
    Ending(
        "timed_out_unnoticed_then_commit",
        "its timeout has aborted it a moment ago; commit(), before the SDK has asked",
        _IS_OTHER,
        _ENDED,
    ),
    Ending(
        "timed_out_then_send",
        "its timeout has aborted it; a send to another partition is refused; commit()",
        "CommitRefused, or " + _IS_OTHER,
        _ENDED,
    ),
    Ending(
        "begin_unanswered",
        "begin() has no answer, and the timeout aborts what it has begun; begin() again",
        _RETURNS,
        (_Heard.ENDED, _Heard.BEGUN),
    ),
    Ending(
        "coordinator_restarted",
        "the coordinator restarts before it answers commit()",
        _RETURNS,
        _ENDED,
    ),
    Ending(
        "coordinator_restarted_in_doubt",
        "commit() has no answer; the coordinator restarts; the SDK asks; commit() again",
        _RETURNS,
        _LATER,
    ),
    Ending(
        "aborted_by_administrator_then_commit",
        "an administrator has aborted it by its TxnID; commit()",
        _IS_OTHER,
        _ENDED,
    ),
    Ending(
        "aborted_by_administrator_then_abort",
        "an administrator has aborted it by its TxnID; abort()",
        _RETURNS,
        _ENDED,
    ),
    Ending(
        "forgotten",
        "it ended longer ago than outcomes are kept; commit()",
        "TxnForgotten, TxnNotFound",
        _ENDED,
    ),
    Ending(
        "terminated_by_administrator",
        "an administrator has terminated the transactional id by force; commit()",
        "ProducerFenced",
        _FENCED,
    ),
    Ending("taken_over", "another instance has called init(); commit()", "ProducerFenced", _FENCED),
    Ending(
        "taken_over_in_doubt",
        "commit() has no answer; another instance calls init(); commit() again",
        "ProducerFenced",
        (_Heard.UNANSWERED, _Heard.FENCED),
    ),
)
ENDINGS_HEAD = """
### Ways in which its transaction ends

Every end raises the epoch of the transactional id, and the answer to EndTxn tells the producer its next pair. A producer that learns
of the end in another way begins with the pair that it has. The coordinator refuses that, and tells it the next pair, unless another
instance has taken over ([0002](../design/0002-two-phase-commit.md)). So after each known end the producer can begin again.
`tests/client/transactions/test_ends_learned.py` takes each of these ways, against real servers.

| way | what the last call does | state | what works then |
|---|---|---|---|
"""


def endings() -> str:
    """The table of the ways in which a transactional producer learns of an end."""
    rows = []
    for one in ENDINGS:
        state = one.state_from(producer_state.ProducerState.OPEN)
        rows.append(f"| {one.way} | {one.says} | {state.name} | {state.value} |\n")
    return "".join([ENDINGS_HEAD, *rows])


def page() -> str:
    sections = []
    for machine in MACHINES:
        sections.append(section(machine))
        if machine.module is producer_state:
            sections.append(endings())
    return "".join([HEAD, *sections])


def section(machine: Machine) -> str:
    lines = [f"\n## {machine.title}\n", f"The table: `{machine.module.__name__}`.\n"]
    lines += ["```mermaid", "stateDiagram-v2"]
    lines += [f"    [*] --> {one.name}" for one in machine.beginnings]
    for (source, target), events in machine.edges().items():
        names = ", ".join(event.name for event in events)
        lines.append(f"    {source.name} --> {target.name}: {names}")
    lines += [f"    {one.name} --> [*]" for one in machine.finals]
    lines.append("```")
    for title, members in (("state", machine.states), ("event", machine.events)):
        # Some say what they mean, others have a number.
        if all(isinstance(member.value, str) for member in members):
            lines += [f"\n| {title} | meaning |", "|---|---|"]
            lines += [f"| {member.name} | {member.value} |" for member in members]
    return "\n".join(lines) + "\n"
