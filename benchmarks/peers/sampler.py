"""Processor time and memory of servers during a round, and what other programs used meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import psutil

PERIOD_S = 0.1


@dataclass(frozen=True, slots=True)
class Moment:
    """Counters at one moment, in seconds.

    Attributes:
        busy_s: processor time of the whole machine.
        servers_s: that of the servers.
        own_s: that of this program and of its client.
    """

    at_s: float
    busy_s: float
    servers_s: float
    own_s: float


@dataclass(frozen=True, slots=True)
class Sampled:
    """Resources that a round used.

    Attributes:
        server_cpu_s: processor time of the servers.
        memory_bytes: the most that they had resident together.
        others_cpus: processors that all others used, on average.
    """

    server_cpu_s: float
    memory_bytes: int
    others_cpus: float


def between(before: Moment, after: Moment, memory_bytes: int) -> Sampled:
    """Divide what the machine did between two moments among servers, ourselves and others."""
    elapsed_s = max(after.at_s - before.at_s, 1e-9)
    servers_s = after.servers_s - before.servers_s
    own_s = after.own_s - before.own_s
    others_s = after.busy_s - before.busy_s - servers_s - own_s
    # Counters of processes and of the machine differ by a tick here and there.
    return Sampled(servers_s, memory_bytes, max(others_s / elapsed_s, 0.0))


class ServerTimes:
    """Processor time of servers that may be killed and started again.

    A server that is gone counts with what it had used at the last look.
    """

    def __init__(self) -> None:
        self._began_s: dict[int, float] | None = None
        self._last_s: dict[int, float] = {}

    def look(self, used_s: Mapping[int, float]) -> None:
        """Note the time that each running server has used since its start."""
        if self._began_s is None:
            self._began_s = dict(used_s)
        self._last_s |= used_s

    @property
    def used_s(self) -> float:
        """The time that all servers used since the first look, also those that started later."""
        began_s = self._began_s or {}
        return sum(last_s - began_s.get(pid, 0.0) for pid, last_s in self._last_s.items())


class Sampler:
    """Watches processes from its making to `end`, on a thread of its own."""

    def __init__(self, servers: Callable[[], Sequence[int]], own: Sequence[int]) -> None:
        self._servers = servers
        self._own = own
        self._done = threading.Event()
        self._memory_bytes = 0
        self._times = ServerTimes()
        self._look()
        self._before = self._now()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def end(self) -> Sampled:
        """Stop watching, and tell what was seen."""
        self.stop()
        self._look()
        return between(self._before, self._now(), self._memory_bytes)

    def stop(self) -> None:
        """Stop watching."""
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(PERIOD_S):
            self._look()

    def _look(self) -> None:
        pids = self._servers()
        self._memory_bytes = max(self._memory_bytes, sum(map(_memory_bytes, pids)))
        # A process that has just ended counts as 0 here; its last time above 0 stays.
        self._times.look({pid: used_s for pid in pids if (used_s := _cpu_s(pid)) > 0})

    def _now(self) -> Moment:
        # What waits for a disk is not busy, and guests' time is part of user time already.
        machine = psutil.cpu_times()
        idle_s = machine.idle + getattr(machine, "iowait", 0.0)
        guests_s = getattr(machine, "guest", 0.0) + getattr(machine, "guest_nice", 0.0)
        # Time that the host took away belongs to no process here.
        stolen_s = getattr(machine, "steal", 0.0)
        return Moment(
            time.perf_counter(),
            sum(machine) - idle_s - guests_s - stolen_s,
            self._times.used_s,
            sum(map(_cpu_s, self._own)),
        )


def _cpu_s(pid: int) -> float:
    """User and system time; 0 for a process that has ended."""
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)


def _memory_bytes(pid: int) -> int:
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.NoSuchProcess:
        return 0
