"""docs/protocol/states.md, drawn from the tables of states that the code itself reads."""

from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple

from magnetar.groups import holding, member_phase
from magnetar.transactions import producer_state, transaction_state
from magnetar_cluster import shard_phase
from magnetar_coordinator import end_state, transaction

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


_Status = transaction.TxnStatus
_Phase = transaction_state.Phase
_Producer = producer_state.ProducerState
_End = end_state.EndState
_Member = member_phase.Phase
_Holding = holding.Holding
_Shard = shard_phase.Phase

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
        (_End.ANSWERED, _End.DIVIDED),
    ),
    Machine(
        "A transaction at its client",
        transaction_state,
        "Transaction",
        "_phase",
        transaction_state.Phase,
        transaction_state.Event,
        transaction_state.TRANSITIONS,
        (_Phase.OPEN,),
        (_Phase.COMMITTED, _Phase.ABORTED, _Phase.LEFT),
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
        member_phase.Phase,
        member_phase.PhaseEvent,
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
        shard_phase.Phase,
        shard_phase.PhaseEvent,
        shard_phase.TRANSITIONS,
        (_Shard.CLAIMING, _Shard.RELEASING),
        (_Shard.GONE,),
    ),
)


def page() -> str:
    return "".join([HEAD, *(section(machine) for machine in MACHINES)])


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
        if all(isinstance(one.value, str) for one in members):
            lines += [f"\n| {title} | meaning |", "|---|---|"]
            lines += [f"| {one.name} | {one.value} |" for one in members]
    return "\n".join(lines) + "\n"
