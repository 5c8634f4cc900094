"""The plan carried out: one system at a time, all of them in turn, as often as the plan says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Timer
from typing import IO, Any

from benchmarks.peers.fetch import ROOT
from benchmarks.peers.figures import Figure, parsed
from benchmarks.peers.plan import Plan
from benchmarks.peers.rows import PARTITIONS, ROWS, Row, Task
from benchmarks.peers.sampler import Sampled, Sampler
from benchmarks.peers.system import Running, System

# A client that says nothing for so long beyond its own times hangs.
PATIENCE_S = 600.0
FILLED_BY = {"magnetar": "python", "kafka": "java", "pulsar": "java"}
FILL_CALL = "batch call"


class ClientFailed(Exception):
    """A client ended with an error, which it has printed, or took too long."""


def measure(
    plan: Plan, systems: Sequence[System], rows: Sequence[str]
) -> Iterator[Figure | ClientFailed]:
    """Yield what each round of each client measured, and what failed instead."""
    together = [ROWS[name] for name in rows if not ROWS[name].alone]
    groups = [together, *([ROWS[name]] for name in rows if ROWS[name].alone)]
    for _ in range(plan.repeat):
        for system in systems:
            for group in groups:
                if group:
                    yield from _measure_system(plan, system, group)


def _measure_system(
    plan: Plan, system: System, rows: Sequence[Row]
) -> Iterator[Figure | ClientFailed]:
    with (
        TemporaryDirectory(prefix=f"magnetar-peers-{system.name}-", dir=plan.data_dir) as directory,
        system.start(Path(directory)) as running,
    ):
        number = 0
        for row in rows:
            for task in row.tasks(plan):
                for language, call in task.ways[system.name]:
                    number += 1
                    try:
                        yield from _measure_task(
                            plan, system, running, task, f"{row.name}-{number}", language, call
                        )
                    except ClientFailed as failure:
                        yield failure


def _measure_task(
    plan: Plan,
    system: System,
    running: Running,
    task: Task,
    topic: str,
    language: str,
    call: str,
) -> Iterator[Figure]:
    settings: dict[str, object] = {
        "topic": topic,
        "partitions": PARTITIONS,
        "rounds": plan.rounds,
        "seconds": plan.seconds,
        "warm_up_seconds": plan.warm_up_seconds,
        "call": call,
        **running.settings(),
        **task.settings,
    }
    way = ", ".join(one for one in (language.capitalize(), call) if one)
    print(f"{system.title}: {task.row}, {task.variant}, {way}", file=sys.stderr)
    if task.fill_messages:
        settings["count"] = task.fill_messages
        filling = {**settings, "work": "fill", "call": FILL_CALL}
        for said, _ in _conversation(system, running, FILLED_BY[system.name], filling):
            if said["arrived"] != task.fill_messages:
                raise ClientFailed(f"{system.title}: {said['arrived']} messages were stored")
    for said, sampled in _conversation(system, running, language, {**settings, "work": task.work}):
        yield parsed(
            said,
            system=system.name,
            durability=system.durability,
            row=task.row,
            variant=task.variant,
            way=way,
            scale=task.scale,
            server_cpu_s=sampled.server_cpu_s,
            memory_bytes=sampled.memory_bytes,
            others_cpus=sampled.others_cpus,
        )


def _conversation(
    system: System, running: Running, language: str, settings: dict[str, object]
) -> Iterator[tuple[dict[str, Any], Sampled]]:
    """Run a client; yield what it says at the end of each round, and what was seen meanwhile.

    A client prints an object of JSON in a line for each event: the beginning and the end of a
    round, and its result once it has counted what arrived. "kill" asks for the server's death, and
    is answered by a line; "back" says that the server has confirmed something since.
    """
    command = [*system.client(language), *(f"{name}={text}" for name, text in settings.items())]
    with _client(command) as client:
        sampler: Sampler | None = None
        sampled: Sampled | None = None
        killed_s = back_s = 0.0
        assert client.stdin is not None
        try:
            for said in _lines(client):
                match said["event"]:
                    case "begin":
                        sampler = Sampler(running.pids, (client.pid, os.getpid()))
                    case "end" if sampler is not None:
                        sampled = sampler.end()
                    case "kill":
                        killed_s = time.perf_counter()
                        running.kill()
                        client.stdin.write("killed\n")
                        client.stdin.flush()
                    case "back":
                        back_s = time.perf_counter() - killed_s
                    case "result" if sampled is not None:
                        yield _with_restart(said, back_s), sampled
        finally:
            if sampler is not None:
                sampler.stop()


def _with_restart(said: dict[str, Any], back_s: float) -> dict[str, Any]:
    """What was said, with the time since a kill, which only we know."""
    if not back_s:
        return said
    timed = dict.fromkeys(("p50", "p99", "p99.9"), back_s * 1_000)
    return {**said, "seconds": back_s, "latencies_ms": {"kill to first produce": timed}}


@contextmanager
def _client(command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """A client program that is gone at the end of the block.

    Raises:
        ClientFailed: it ended with an error, or took too long.
    """
    client = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        start_new_session=True,
    )
    patience = Timer(PATIENCE_S, client.kill)
    patience.start()
    try:
        yield client
        if client.wait() != 0:
            raise ClientFailed(f"a client ended with status {client.returncode}: {command[-1]}")
    finally:
        patience.cancel()
        client.kill()
        client.wait()
        for stream in (client.stdin, client.stdout):
            if stream is not None:
                stream.close()


def _lines(client: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    """Each event; other lines, which libraries print, go to standard error."""
    output: IO[str] | None = client.stdout
    assert output is not None
    for line in output:
        if line.startswith('{"event"'):
            yield json.loads(line)
        else:
            print(line, end="", file=sys.stderr)
