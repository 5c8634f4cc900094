"""What an abort brings back comes in the order that its subscription keeps."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from random import Random

import pytest
from tests.simulation.network import Network
from tests.simulation.planting import replaced
from tests.simulation.short.consumers import filled, subscription
from tests.simulation.short.draft import Draft
from tests.simulation.short.runner import run_script

from magnetar.messaging.acknowledging.acks_in_transactions import AcksInTransactions
from magnetar_broker.dispatch.dispatch import Dispatcher

COUNT = 3


def nothing_is_waited_for() -> AbstractContextManager[None]:
    """A consumer attaches again, and does not say which ends come before its messages."""
    return replaced(AcksInTransactions, "_note_after", lambda self, acks: None)


def newest_first() -> AbstractContextManager[None]:
    """What comes again is handed out from its end."""
    original = Dispatcher.next_offset

    def next_offset(self: Dispatcher, end_offset: int) -> int | None:
        offset = original(self, end_offset)
        if offset is None:
            return None
        return max(last for _, last in self.replay.ranges()) if offset in self.replay else offset

    return replaced(Dispatcher, "next_offset", next_offset)


def ends_arrive_late() -> AbstractContextManager[None]:
    """What the coordinator and the broker say to each other takes its time."""
    original = Network.arrival

    def arrival(self: Network, first: str, second: str) -> float:
        late_s = 0.05 if {first, second} == {"coordinator", "broker"} else 0.0
        return original(self, first, second) + late_s

    return replaced(Network, "arrival", arrival)


def failure_of(type: str, waits_for: int) -> str | None:
    """A consumer acknowledges three messages in a transaction, and aborts it at once.

    Args:
        waits_for: of so many messages the acks are confirmed before.
    """
    draft = Draft(Random(0))
    topic = draft.topic("mix", 1)
    settings = subscription(draft, topic, "again", type=type)
    settings.update(receiver_queue_messages=64, ack_linger_ms=0.0)
    draft.settings["constants"]["magnetar.messaging.acknowledging.acks:RANGES_PER_COMMAND_MAX"] = 1
    before = filled(draft, topic, COUNT)
    draft.steps[-1].arguments["settings"]["batch_messages_max"] = 1
    draft.step(
        draft.client("consumer"),
        "take hastily",
        consumer="c",
        settings=settings,
        count=COUNT,
        waits_for=waits_for,
        end="abort",
        after=(before,),
    )
    with ends_arrive_late():
        return run_script(draft.finish("0", "any", ("hasty",)), checks_servers=False).failure


@pytest.mark.parametrize("type", ["exclusive", "failover"])
@pytest.mark.parametrize("waits_for", range(COUNT + 1))
def test_what_the_broker_never_had_may_come_first_on_failover(type: str, waits_for: int) -> None:
    """With one ack confirmed, a failover consumer got 1 and 2, and then 0.

    It had aborted, attached again for what the broker had never seen acknowledged, and got that at
    once. Of 0 the broker heard later that the transaction had ended. Only a consumer that has its
    partition alone waits for that.
    """
    assert failure_of(type, waits_for) is None


@pytest.mark.parametrize(
    ("plant", "type", "waits_for"),
    [
        (nothing_is_waited_for, "exclusive", 1),
        (newest_first, "failover", COUNT),
        (newest_first, "failover", COUNT - 1),
        (newest_first, "failover", 0),
    ],
)
def test_another_order_is_found(
    plant: Callable[[], AbstractContextManager[None]], type: str, waits_for: int
) -> None:
    with plant():
        assert "invariant order" in (failure_of(type, waits_for) or "")
