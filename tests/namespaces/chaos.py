"""Carries out a plan of faults, and undoes all of them in the end."""

from __future__ import annotations

import asyncio
from collections import Counter

from tests.namespaces import faults
from tests.namespaces.faults import Fault
from tests.namespaces.machines import STOPPED_S, Machines
from tests.namespaces.records import Recorder
from tests.waiting import pace

WATCH_S = 0.5


class Chaos:
    """The faults of a run.

    Attributes:
        counts: of faults, by their kind.
        restarted: how often a server had ended by itself, and was started again.
    """

    def __init__(self, machines: Machines, plan: list[Fault], recorder: Recorder) -> None:
        self._machines = machines
        self._plan = plan
        self._loop = asyncio.get_running_loop()
        # Who was struck gets well before it is struck again, however long its start takes here.
        self._well = {name: asyncio.Lock() for name in machines.services}
        self._recorder = recorder
        self.counts: Counter[str] = Counter()
        self.restarted = 0

    async def run(self) -> None:
        """Let everything happen at its time; afterwards nothing is wrong any more."""
        began_s = self._loop.time()
        watch = asyncio.create_task(self._watch())
        try:
            async with asyncio.TaskGroup() as group:
                for fault in self._plan:
                    await pace(max(0.0, began_s + fault.at_s - self._loop.time()))
                    group.create_task(self._strike_when_well(fault))
            for name in self._machines.of_kind("broker", "coordinator"):
                self._machines.jump(name, 0)
        finally:
            watch.cancel()
        self._restart_ended()
        self._note("all faults are over")
        await asyncio.to_thread(self._machines.await_healthy, self._machines.services)
        self._note("everything is back")

    async def _watch(self) -> None:
        """A server that ended by itself is started again, as the file says."""
        while True:
            await pace(WATCH_S)
            self._restart_ended()

    def _restart_ended(self) -> None:
        for name in self._machines.restart_ended():
            self.restarted += 1
            self._note("had ended, is started again", targets=[name])

    def _note(self, what: str, **more: object) -> None:
        at = self._recorder.note("fault", what=what, **more)
        print(f"{at:.3f} {what} {more or ''}", flush=True)

    async def _strike_when_well(self, fault: Fault) -> None:
        async with self._well[fault.targets[0]]:
            await self._strike(fault)

    async def _strike(self, fault: Fault) -> None:
        machines, (target, *others) = self._machines, fault.targets
        self.counts[fault.kind] += 1
        self._note(fault.kind, targets=fault.targets, lasts_s=fault.lasts_s, jump_ms=fault.jump_ms)
        match fault.kind:
            case faults.JUMP:
                machines.jump(target, fault.jump_ms)
                return
            case faults.KILL | faults.NO_OBJECTS | faults.NO_ETCD:
                machines.kill(target)
                await pace(fault.lasts_s)
                machines.start(target)
                await asyncio.to_thread(machines.await_healthy, [target])
            case faults.RESTART:
                leaving = machines.tell_to_stop(target)
                status = await asyncio.to_thread(leaving.wait, STOPPED_S)
                self._note("has stopped", targets=[target], status=status)
                machines.start(target)
                await asyncio.to_thread(machines.await_healthy, [target])
            case faults.PAUSE | faults.SLOW_OBJECTS:
                machines.pause(target)
                await pace(fault.lasts_s)
                machines.resume(target)
            case _:
                machines.network.cut(
                    target,
                    hears=fault.kind == faults.MUTE,
                    says=fault.kind in (faults.DEAF, faults.HALF_PARTED),
                    others=others,
                )
                await pace(fault.lasts_s)
                machines.network.heal(target)
        self._note(f"over: {fault.kind}", targets=fault.targets)
