"""A crew of workers that share a topic, what is done to them, and what comes out in the end."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tests.fork_server import ForkedProcess
from tests.freezing import freeze, thaw
from tests.system.group_worker import GROUP, INPUT, OUTPUT, READY_MADE, SESSION_TIMEOUT_S
from tests.system.processes import BROKER, Servers
from tests.waiting import pace, until

from magnetar import Client, Producer

PARTITIONS = 16
KEYS = 997
WORKERS = 8
WORKERS_MAX = 10
# Longer than the session: others have taken over when it goes on.
PAUSE_S = 2 * SESSION_TIMEOUT_S
CATCHES_MAX = 200
FAULTS = ("kill", "pause", "add", "remove", "broker")


@dataclass
class Pause:
    """When a worker stood still, and which log says what it was at."""

    log: Path
    from_s: float
    to_s: float = 0.0


@dataclass
class Worker:
    process: ForkedProcess
    log: Path
    instance_id: str


@dataclass
class Outcome:
    """What happened to the zombies."""

    refused: int = 0
    # They had nothing under way, or had asked for their commit before the pause.
    idle: int = 0
    committed: list[Pause] = field(default_factory=list)


class Crew:
    """Workers as processes.

    Args:
        directory: for their logs.
    """

    def __init__(self, servers: Servers, directory: Path, random: Random) -> None:
        self._servers = servers
        self._directory = directory
        self._random = random
        self._workers: list[Worker] = []
        self._count = 0
        self.pauses: list[Pause] = []
        self.faults: Counter[str] = Counter()

    def hire(self, instance_id: str = "") -> None:
        self._count += 1
        log = self._directory / f"worker-{self._count}.log"
        with (self._directory / f"worker-{self._count}.err").open("wb") as errors:
            process = ForkedProcess(
                *(self._servers.address, str(log), instance_id),
                module="tests.system.group_worker",
                stderr=errors,
            )
        self._workers.append(Worker(process, log, instance_id))

    async def strike(self, fault: str) -> None:
        """One fault; returns when whoever it hit goes on, or somebody has its place."""
        self.faults[fault] += 1
        candidates = self._workers
        if fault == "pause":
            # Only of these it can be told what they were at.
            candidates = [
                candidate
                for candidate in candidates
                if not candidate.instance_id.endswith(READY_MADE)
            ]
        worker = self._random.choice(candidates)
        if fault == "kill":
            self._workers.remove(worker)
            worker.process.kill()
            worker.process.wait()
            self.hire(worker.instance_id)
        elif fault == "pause":
            await self._catch(worker)
            pause = Pause(worker.log, time.monotonic())
            await pace(PAUSE_S)
            pause.to_s = time.monotonic()
            thaw(worker.process.pid)
            self.pauses.append(pause)
        elif fault == "add" and len(self._workers) < WORKERS_MAX:
            self.hire()
        elif fault in ("add", "remove"):
            self._workers.remove(worker)
            await _dismiss(worker)
            if len(self._workers) < WORKERS - 1:
                self.hire()
        else:
            self._servers.kill(BROKER)
            await pace(self._random.uniform(0.0, 0.5))
            self._servers.start(BROKER)

    async def _catch(self, worker: Worker) -> None:
        """Stop a worker in the middle of a batch, before it has asked for its commit."""
        for _ in range(CATCHES_MAX):
            freeze(worker.process.pid)
            lines = worker.log.read_text().splitlines() if worker.log.exists() else []
            if lines and json.loads(lines[-1])["what"] == "begin":
                return
            thaw(worker.process.pid)
            await pace(self._random.uniform(0.001, 0.02))
        freeze(worker.process.pid)

    async def dismiss_all(self) -> None:
        """Every worker stops in order."""
        workers, self._workers = self._workers, []
        await asyncio.gather(*(_dismiss(worker) for worker in workers))

    def kill_all(self) -> None:
        for worker in self._workers:
            worker.process.kill()
            worker.process.wait()

    def zombies(self) -> Outcome:
        """What became of the batches that were under way when their workers were paused."""
        outcome = Outcome()
        for pause in self.pauses:
            lines = [json.loads(line) for line in pause.log.read_text().splitlines()]
            before = [line for line in lines if line["at_s"] < pause.from_s]
            after = [line for line in lines if line["at_s"] > pause.to_s]
            if not before or before[-1]["what"] != "begin" or not after:
                outcome.idle += 1
                continue
            ends = [one["what"] for one in after if one["what"] in ("refused", "committed")]
            if ends[:1] == ["refused"]:
                outcome.refused += 1
            elif ends:
                outcome.committed.append(pause)
        return outcome


def instance_id_of(number: int) -> str:
    """Every other one is static; two of those use the ready-made loop."""
    if number % 2 == 0:
        return ""
    return f"worker-{number}" + (READY_MADE if number > 4 else "")


async def _dismiss(worker: Worker) -> None:
    worker.process.send_signal(signal.SIGTERM)
    await until(lambda: worker.process.poll() is not None)
    errors = worker.log.with_suffix(".err").read_text()
    # Before it has a log it has no handler either.
    statuses = (0,) if worker.log.exists() else (0, -signal.SIGTERM)
    assert worker.process.returncode in statuses, (worker.process.returncode, errors)


class Orders:
    """The input: numbered messages of many keys, and the numbers that each key was given."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self.count = 0

    async def send(self, count: int) -> None:
        for number in range(self.count, self.count + count):
            key = number % KEYS
            await self._producer.enqueue(f"{key}:{number // KEYS}".encode(), f"key-{key}".encode())
        await self._producer.flush()
        self.count += count


async def story(
    client: Client, crew: Crew, *, messages: int, faults: int, random: Random
) -> dict[str, Any]:
    """Workers process all that comes, while something happens to them again and again.

    Returns:
        What there is to tell: how long it took, what hit, what became of zombies.
    """
    await client.admin.topics.create(INPUT, partitions=PARTITIONS)
    await client.admin.topics.create(OUTPUT, partitions=PARTITIONS)
    orders = Orders(await client.create_producer(INPUT))
    # So that nothing is missed: the group begins before the first message.
    for number in range(WORKERS):
        crew.hire(instance_id_of(number))
    began_s = time.monotonic()
    portion = messages // (faults + 1)
    await orders.send(messages - portion * faults)
    plan = [FAULTS[number % len(FAULTS)] for number in range(faults)]
    random.shuffle(plan)
    for fault in plan:
        await pace(random.uniform(0.2, 0.8))
        await asyncio.gather(orders.send(portion), crew.strike(fault))
    await _consumed(client)
    seconds = time.monotonic() - began_s
    await crew.dismiss_all()
    await _verify(client, orders.count)
    zombies = crew.zombies()
    assert not zombies.committed, f"a zombie's commit counted: {zombies.committed}"
    return {
        "seconds": seconds,
        "messages": orders.count,
        "faults": dict(crew.faults),
        "zombies refused": zombies.refused,
        "zombies idle": zombies.idle,
    }


async def _consumed(client: Client, timeout_s: float = 120.0) -> None:
    """Until the group has nothing left to do."""

    async def is_consumed() -> bool:
        return not (await client.admin.groups.describe(GROUP)).summary.lag

    await until(is_consumed, timeout_s)


async def _verify(client: Client, count: int) -> None:
    """Each input exactly once, and the numbers of each key in their order."""
    inputs: Counter[bytes] = Counter()
    newest: dict[str, int] = {}
    for partition in range(PARTITIONS):
        async for columns in client.read_columns(OUTPUT, partition):
            for message in columns:
                source, offset, key, number = message.value.decode().split(":")
                inputs[f"{source}:{offset}".encode()] += 1
                before = newest.get(key, -1)
                assert int(number) > before, f"key {key}: {number} comes after {before}"
                newest[key] = int(number)
    twice = [place for place, times in inputs.items() if times > 1]
    assert not twice, f"{len(twice)} inputs were processed twice, as {twice[:5]}"
    assert len(inputs) == count, f"{count - len(inputs)} inputs were never processed"
