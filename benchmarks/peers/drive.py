"""The plan carried out: one system at a time, all of them in turn, as often as the plan says."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.peers.conversation import ClientFailed, conversation
from benchmarks.peers.figures import Figure, parsed
from benchmarks.peers.plan import Plan
from benchmarks.peers.rows import PARTITIONS, ROWS, Task
from benchmarks.peers.sampler import Sampled
from benchmarks.peers.system import Running, System

# Beyond the time of its rounds: for starting, filling, opening, waiting for what arrives.
PATIENCE_S = 900.0
FILLED_BY = {"magnetar": "python", "kafka": "java", "pulsar": "java"}


def measure(
    plan: Plan, systems: Sequence[System], rows: Sequence[str]
) -> Generator[Figure | ClientFailed, None, None]:
    """Yield the figures of each round of each client, or its failure.

    Raises:
        NotRunning: a server did not start, or ended.
    """
    for _ in range(plan.repeat):
        for system in systems:
            for tasks in _groups(plan, [row for row in rows if system.measures(row)]):
                yield from _measure_system(plan, system, tasks)


def _groups(plan: Plan, rows: Sequence[str]) -> Iterator[list[Task]]:
    """Tasks that share a system, one after the other."""
    chosen = [ROWS[name] for name in rows]
    together = [task for row in chosen if not row.alone for task in row.tasks(plan)]
    if together:
        yield together
    for row in chosen:
        if row.alone:
            yield from ([task] for task in row.tasks(plan))


def _measure_system(
    plan: Plan, system: System, tasks: Sequence[Task]
) -> Iterator[Figure | ClientFailed]:
    with (
        TemporaryDirectory(prefix=f"magnetar-peers-{system.name}-", dir=plan.data_dir) as directory,
        system.start(Path(directory)) as running,
    ):
        for number, task in enumerate(tasks):
            yield from _Work(plan, system, running, task, f"{task.row}-{number}").measured()


class _Work:
    """A task on a system that runs."""

    def __init__(
        self, plan: Plan, system: System, running: Running, task: Task, topic: str
    ) -> None:
        self._plan = plan
        self._system = system
        self._running = running
        self._task = task
        self._topic = topic

    def measured(self) -> Iterator[Figure | ClientFailed]:
        """Do it in each way; yield what each round measured, and what failed instead."""
        shares_topic = self._task.fill_messages > 0
        if shares_topic:
            try:
                self._fill()
            except ClientFailed as failure:
                yield self._failed("filling", failure)
                return
        for number, (language, call) in enumerate(self._task.ways[self._system.name]):
            topic = self._topic if shares_topic else f"{self._topic}-{number}"
            way = ", ".join(one for one in (language.capitalize(), call) if one)
            try:
                yield from self._in_one_way(language, call, topic, way)
            except ClientFailed as failure:
                yield self._failed(way, failure)

    def _fill(self) -> None:
        """Store what is read, in the topic that all ways share."""
        print(self._named("filling"), file=sys.stderr)
        expected = self._task.fill_messages
        language = FILLED_BY[self._system.name]
        for said, _ in self._asked(language, self._topic, work="fill", call="batch call"):
            if said["arrived"] != expected:
                raise ClientFailed(f"{said['arrived']:,} of {expected:,} messages were stored")

    def _in_one_way(self, language: str, call: str, topic: str, way: str) -> Iterator[Figure]:
        print(self._named(way), file=sys.stderr)
        for said, sampled in self._asked(language, topic, work=self._task.work, call=call):
            yield parsed(
                said,
                system=self._system.name,
                durability=self._system.durability,
                row=self._task.row,
                variant=self._task.variant,
                way=way,
                scale=self._task.scale,
                server_cpu_s=sampled.server_cpu_s,
                memory_bytes=sampled.memory_bytes,
                others_cpus=sampled.others_cpus,
            )

    def _asked(
        self, language: str, topic: str, *, work: str, call: str
    ) -> Iterator[tuple[dict[str, Any], Sampled]]:
        settings = {
            "topic": topic,
            "partitions": PARTITIONS,
            "rounds": self._plan.rounds,
            "seconds": self._plan.seconds,
            "warm_up_seconds": self._plan.warm_up_seconds,
            "count": self._task.fill_messages,
            **self._running.settings(),
            **self._task.settings,
            "work": work,
            "call": call,
        }
        patience_s = PATIENCE_S + 2 * self._plan.client_s
        yield from conversation(self._system.client(language), self._running, settings, patience_s)

    def _failed(self, way: str, failure: ClientFailed) -> ClientFailed:
        """Return a failure that says where it was; raise NotRunning if it was the servers'."""
        self._running.check()
        return ClientFailed(f"{self._named(way)}: {failure}")

    def _named(self, way: str) -> str:
        named = (self._task.row, self._task.variant, way)
        return f"{self._system.title}: {', '.join(one for one in named if one)}"
