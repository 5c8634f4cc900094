"""The end of a short history: faults end, what was said for the end is done, and all is judged."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.simulation import checks
from tests.simulation.history import Cursor
from tests.simulation.judgement import Judgement
from tests.simulation.nodes import ClientNode

if TYPE_CHECKING:
    from tests.simulation.short.world import ShortWorld

# Of a store's read, once all is quiet.
READ_SECONDS_MAX = 0.002


class ShortJudgement(Judgement):
    """Of one short world."""

    def __init__(self, world: ShortWorld) -> None:
        super().__init__(world)
        self._short = world

    async def come_to_rest(self) -> None:
        world = self._short
        await self._until(self._nothing_more_to_do, "steps to be done")
        world.hurry = True
        world.trace.event("quiet", "the faults are over")
        world.chaos.end()
        for server in world.servers:
            server.restarts = True
        if world.owners is not None:
            await world.owners.settled("the faults were over")
        # Servers look only so often whether their disks have room again.
        await asyncio.sleep(0.2)
        for actor in world.actors.values():
            actor.node.stopping = True
        await self._until(self._all_stopped, "clients to stop")
        await world.run_program("recoverer", self._recover)
        await world.run_program("janitor", self._wait_for_ends)
        for server in world.servers:
            # Row by row, all that there is would take longer than an operation may.
            server.reads.seconds_max = min(server.reads.seconds_max, READ_SECONDS_MAX)
        for actor in world.actors.values():
            await actor.close_down()
        for server in world.servers:
            # What nobody gave up is looked at as well.
            server.damage.repair_all()
        await self._wait_for_arrivals()
        await world.run_program("janitor", self._wait_for_ends)

    def _nothing_more_to_do(self) -> bool:
        return all(actor.finished for actor in self._short.actors.values())

    def _all_stopped(self) -> bool:
        return all(
            actor.node.finished or not actor.node.alive for actor in self._short.actors.values()
        )

    async def _recover(self, node: ClientNode) -> None:
        if self._short.databases or self._short.script.flags.get("victim"):
            await super()._recover(node)

    async def _probe_freedom(self, client: object) -> None:
        if self._short.script.flags.get("probe"):
            await super()._probe_freedom(client)  # type: ignore[arg-type]

    async def _probe_settling(self, node: ClientNode) -> None:
        if self._short.script.flags.get("probe"):
            await super()._probe_settling(node)

    def _check_processed(self, trimmed: bool) -> None:
        in_order: list[Cursor] = []
        for cursor, ordered in self._short.processed.items():
            checks.check_processed_once(self._history, [cursor], complete=not trimmed)
            if ordered:
                in_order.append(cursor)
        checks.check_processed_in_order(self._history, in_order)
        for check in self._short.final_checks:
            check(trimmed)
