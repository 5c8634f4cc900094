"""What short histories find out about dead letters: each subscription moves each of them once."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from tests.simulation.planting import replaced
from tests.simulation.short.derived import dead_letters
from tests.simulation.short.draft import Draft
from tests.simulation.short.runner import run_script
from tests.simulation.short.script import Script

from magnetar import Transaction
from magnetar.message import MessageColumns
from magnetar.messaging.consuming.dead_letters import AckIn, DeadLetters

pytestmark = pytest.mark.sim

GiveBack = Callable[[], None]
Move = Callable[[DeadLetters, MessageColumns, AckIn, GiveBack], None]
MOVE = DeadLetters.move


def two_subscriptions() -> Script:
    """Both consume the same messages, and share a topic for dead letters."""
    draft = Draft(Random("two subscriptions"))
    dead_letters(draft)
    dead_letters(draft)
    return draft.finish("two subscriptions", "dead letters", ("dead letters",))


REJECTING = [step.arguments for step in two_subscriptions().steps if step.verb == "reject"]
FIRST: str = REJECTING[0]["settings"]["subscription"]


async def acknowledge_nothing(txn: Transaction) -> None:
    pass


def copied_without_ack(
    self: DeadLetters, columns: MessageColumns, acknowledge: AckIn, give_back: GiveBack
) -> None:
    MOVE(self, columns, acknowledge_nothing, give_back)
    MOVE(self, columns, acknowledge, give_back)


def acked_without_copy(
    self: DeadLetters, columns: MessageColumns, acknowledge: AckIn, give_back: GiveBack
) -> None:
    MOVE(self, MessageColumns(columns.batch, columns.start, columns.start), acknowledge, give_back)


def moved_for_a_stranger(
    self: DeadLetters, columns: MessageColumns, acknowledge: AckIn, give_back: GiveBack
) -> None:
    self._subscription = "stranger"
    MOVE(self, columns, acknowledge, give_back)


@pytest.mark.parametrize(
    ("move_of_first", "finding"),
    [
        (MOVE, None),
        (copied_without_ack, "invariant 4: letters: "),
        (acked_without_copy, f"is no dead letter of {FIRST} in letters"),
        (moved_for_a_stranger, "comes from nowhere: stranger"),
    ],
)
def test_each_subscription_moves_each_dead_letter_once(
    move_of_first: Move, finding: str | None
) -> None:
    """Short seed 26075: what one of them moves does not stand for what the other one moves."""

    def move(
        self: DeadLetters, columns: MessageColumns, acknowledge: AckIn, give_back: GiveBack
    ) -> None:
        chosen = move_of_first if self._subscription == FIRST else MOVE
        chosen(self, columns, acknowledge, give_back)

    with replaced(DeadLetters, "move", move):
        outcome = run_script(two_subscriptions())
    if finding is None:
        assert outcome.failure is None, f"{outcome.failure}\n{outcome.traceback}"
        assert outcome.active["dead letters"] >= 4
    else:
        assert outcome.failure is not None
        assert finding in outcome.failure
