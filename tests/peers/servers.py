"""Systems without servers, and clients that say what a script has them say."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.peers.plan import Plan
from benchmarks.peers.processes import NotRunning
from benchmarks.peers.system import SYNCED, Running, System

# Defines say(), with which a script prints an event, and `told`, the task that it was given.
BEGINNING = """
import json, os, sys, time
told = dict(one.split("=", 1) for one in sys.argv[1:])
def say(event, **others):
    print(json.dumps({"event": event, **others}), flush=True)
def say_result(**others):
    usual = {
        "variant": "", "count": 1, "expected": 1, "arrived": 1, "seconds": 0.5,
        "client_cpu_s": 0.0, "latencies_ms": {},
    }
    say("result", **{**usual, **others})
"""


def client(script: str) -> list[str]:
    """The command of a client that runs a script."""
    return [sys.executable, "-c", BEGINNING + script]


@dataclass
class Servers(Running):
    """Servers that are not there.

    Attributes:
        kills: how often they were killed.
        have_ended: whether check() finds them gone.
    """

    kills: int = 0
    have_ended: bool = False

    def settings(self) -> dict[str, str]:
        return {"address": "nowhere"}

    def pids(self) -> Sequence[int]:
        return [os.getpid()]

    def kill(self) -> None:
        self.kills += 1

    def check(self) -> None:
        if self.have_ended:
            raise NotRunning("it ended")


@dataclass
class Machine:
    """A machine on which systems are started.

    Attributes:
        up: those that run now.
        started: all that were started, in order.
        directories: which each was given.
    """

    up: list[str] = field(default_factory=list)
    started: list[str] = field(default_factory=list)
    directories: list[Path] = field(default_factory=list)

    def system(
        self,
        name: str,
        script: str,
        *,
        servers: Servers | None = None,
        durability: str = SYNCED,
    ) -> System:
        """A system whose clients run a script."""

        @contextmanager
        def start(directory: Path) -> Iterator[Running]:
            assert not self.up
            assert directory.is_dir()
            self.up.append(name)
            self.started.append(name)
            self.directories.append(directory)
            try:
                yield servers or Servers()
            finally:
                self.up.remove(name)

        return System(
            name=name, durability=durability, start=start, client=lambda language: client(script)
        )


def plan(data_dir: Path | None = None, *, repeat: int = 1) -> Plan:
    """The amounts of work that are the defaults of the command line."""
    return Plan(
        seconds=5.0,
        warm_up_seconds=10.0,
        rounds=3,
        repeat=repeat,
        at_once=(1, 256),
        growth_partitions=(1, 1_000),
        growth_producers=(1, 16),
        growth_open=(1, 10_000),
        stream_bytes=200_000_000,
        stored_messages=1_000_000,
        tail_rate=10_000,
        data_dir=data_dir,
    )
