"""State of a cluster as a history tells it, and what the rules look up in it. Pure."""

from __future__ import annotations

from typing import Any, TypeAlias

from magnetar_cli.histories.broker_state import BrokerState, Coverage
from magnetar_cli.histories.coordinator_state import CoordinatorState, Transaction
from magnetar_cli.histories.lives import Lives
from magnetar_cli.histories.participant_state import ParticipantState
from magnetar_core.history import events
from magnetar_core.history.events import BROKER, Life, Participant
from magnetar_core.ids import TxnID
from magnetar_core.membership.placement import shard_of

Brokers: TypeAlias = Lives[BrokerState]
Coordinators: TypeAlias = Lives[CoordinatorState]


class No(Exception):
    """The event cannot be next. Args: the rule or invariant, and what was expected."""


class Cluster:
    """Servers, by shard and by TCID.

    Attributes:
        doubts: why something about the present event could not be judged.
    """

    def __init__(self) -> None:
        self.brokers: dict[int, Brokers] = {}
        self.coordinators: dict[int, Coordinators] = {}
        self.doubts: list[str] = []

    def lives(self, life: Life) -> Lives[Any]:
        """Return the lives of a server."""
        if life.server.kind == BROKER:
            return self.broker(life)
        return self.coordinator(life)

    def broker(self, life: Life) -> Brokers:
        """Return the lives of a broker."""
        found = self.brokers.get(life.server.number)
        if found is None:
            found = self.brokers[life.server.number] = Lives(BrokerState())
        return found

    def coordinator(self, life: Life) -> Coordinators:
        """Return the lives of a coordinator."""
        found = self.coordinators.get(life.server.number)
        if found is None:
            found = self.coordinators[life.server.number] = Lives(CoordinatorState())
        return found

    def coordinator_of(self, txn_id: TxnID) -> Coordinators | None:
        """Return the coordinator of a transaction; None: it has no history."""
        found = self.coordinators.get(txn_id.tcid)
        if found is None or found.life is None:
            self.doubt("the coordinator has no history")
            return None
        return found

    def decided(self, txn_id: TxnID) -> Transaction | None:
        """Return a transaction as it is durable; None: it cannot be judged."""
        lives = self.coordinator_of(txn_id)
        if lives is None:
            return None
        found = lives.rows.find(txn_id) or lives.memory.find(txn_id)
        if found is None:
            self.doubt("the transaction was not opened in this history")
        elif found.is_uncertain:
            self.doubt("the transaction is from before a loss")
            return None
        return found

    def broker_of(self, name: Participant) -> Brokers | None:
        """Return the broker of a participant; None: it has no history."""
        if not name.topic_id:
            self.doubt("a participant is named without the id of its topic")
            return None
        found = self.brokers.get(shard_of(name.topic_id, name.partition))
        if found is None or found.life is None:
            self.doubt("the broker has no history")
            return None
        return found

    def doubt(self, reason: str) -> None:
        """Note that something could not be judged."""
        self.doubts.append(reason)

    def present(self, life: Life) -> CoordinatorState | None:
        """Return the memory of a coordinator; None: this life has lost its store."""
        lives = self.coordinator(life)
        return None if lives.is_past(life) else lives.memory

    def transaction_of(self, life: Life, txn_id: TxnID) -> Transaction | None:
        """Return a transaction in a coordinator's memory; None: its life is over."""
        state = self.present(life)
        if state is None:
            return None
        found = state.find(txn_id)
        if found is None:
            raise No("invariant 7", f"{txn_id} was opened")
        return found

    def memory(self, life: Life) -> BrokerState | None:
        """Return the memory of a broker; None: this life has lost its store.

        A marker and its end are one step.
        """
        lives = self.broker(life)
        return None if lives.is_past(life) else lives.memory

    def held(self, life: Life, name: Participant) -> tuple[BrokerState, ParticipantState] | None:
        """Return a broker and its participant; None: this life has lost its store."""
        state = self.memory(life)
        if state is None:
            return None
        if state.marker is not None:
            raise No("invariant 4", f"the end of {state.marker.txn_id} comes with its marker")
        return state, state.at(name)

    def existing(
        self, life: Life, name: Participant
    ) -> tuple[BrokerState, ParticipantState] | None:
        """Return the same; the participant has to exist."""
        found = self.held(life, name)
        if found is not None and not found[1].exists:
            raise No("rule j", f"{name} exists")
        return found

    def check_covers_ended(self, lives: Coordinators, coverage: Coverage) -> None:
        """Check that a watermark covers what has durably ended only. Rule c."""
        opened = [one.txn_id for one in lives.unwritten() if isinstance(one, events.Opened)]
        for txn_id in (*lives.rows.unfinished, *lives.memory.unfinished, *opened):
            if coverage.covers(txn_id):
                raise No("rule c", f"{txn_id} has not durably ended, and is not covered")
