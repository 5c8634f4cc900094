"""The checkers that listen to each server of a world."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tests.simulation.answer_wiretap import AnswerWiretap, Given
from tests.simulation.flow_wiretap import FlowWiretap
from tests.simulation.group_wiretap import GroupWiretap
from tests.simulation.hold_wiretap import HoldWiretap
from tests.simulation.key_wiretap import KeyWiretap
from tests.simulation.repeat_wiretap import RepeatWiretap
from tests.simulation.servers import coordinator_names
from tests.simulation.wiretap import Wiretap
from tests.simulation.wiretaps import ServerWiretaps, Wiretaps

from magnetar_broker.config import BrokerConfig

if TYPE_CHECKING:
    from tests.simulation.world import World

# As a broker has it that is told nothing else.
IDLE_MS_MAX = BrokerConfig().producer_idle_ms_max


class Listeners:
    """
    Attributes:
        groups: by broker; each is the coordinator of groups for its own partitions.
        answers: by server.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.groups: dict[str, GroupWiretap] = {}
        self.answers: dict[str, AnswerWiretap] = {}
        given = Given()
        coordinators = coordinator_names(world.script.coordinator_count)
        for name in (*world.broker_names, *coordinators):
            self.answers[name] = AnswerWiretap(
                partial(self._full_seconds, name), world.history.violation, given
            )
        taps = {name: Wiretaps(self.answers[name]) for name in coordinators}
        taps |= {name: self._of_broker(name) for name in world.broker_names}
        self.taps = ServerWiretaps(taps)

    def _of_broker(self, name: str) -> Wiretaps:
        time, violation = self._world.loop.time, self._world.history.violation
        idle_ms_max = self._world.script.settings["broker"].get("producer_idle_ms_max", IDLE_MS_MAX)
        self.groups[name] = GroupWiretap(violation)
        return Wiretaps(
            Wiretap(time, violation),
            RepeatWiretap(time, idle_ms_max / 1_000, violation),
            FlowWiretap(violation),
            HoldWiretap(violation),
            self.groups[name],
            KeyWiretap(time, partial(self._delivery_lag, name), violation),
            self.answers[name],
        )

    def _full_seconds(self, server: str) -> float:
        return self._world.node_of(server).full_seconds

    def _delivery_lag(self, broker: str) -> float:
        """From a decision to deliver until it leaves: a sync, or a read, may lie between."""
        node = self._world.node_of(broker)
        return 0.02 + 2 * node.sync_seconds_max + 4 * node.reads.seconds_max
