"""Kills processes while transactions are open, and measures how long the recovery takes.

A seed decides who is killed when. It is not left to chance that transactions are open then: the
killer asks the coordinator, and waits until it names some.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

import click

from magnetar import Client, MagnetarError, TransactionDescription, TransactionStatus
from magnetar_flights.demo.journal import Journal
from magnetar_flights.demo.processes import Crew, send
from magnetar_flights.demo.servers import Servers

WORKER, BROKER, COORDINATOR = "worker", "broker", "coordinator"
# By the part of the demo that starts it.
DRIVER = "Spark driver"
KILLS = (WORKER, WORKER, BROKER, COORDINATOR)
# Where the servers are not the demo's own.
KILLS_ATTACHED = (WORKER, WORKER)
# Of all messages, when the first kill comes; how far apart they are; and by how much that varies.
SHARE_FIRST, SHARE_STEP, SHARE_JITTER = 0.08, 0.16, 0.08
# For the coordinator's answer while a process is stopped.
ASK_S_MAX = 2.0
RETRY_S = 0.01
RECOVERY_S_MAX = 60.0


@dataclass(frozen=True, slots=True)
class Planned:
    """A planned kill, at a share of the messages."""

    kind: str
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """A kill that happened.

    Attributes:
        open_count: how many open transactions the coordinator named that had written something.
        recovery_s: how long until a transaction that began later was committed, in seconds; for a
            worker, by the worker that replaced it.
        joined: the server that joined afterwards, where killed servers stay dead.
    """

    kind: str
    pid: int
    at_s: float
    open_count: int
    recovery_s: float
    joined: str = ""


def plan(random: Random, kills: Sequence[str] = KILLS) -> list[Planned]:
    """Return the kills in any order. If servers are among them, a server comes last.

    After the last kill there must be work left: without a server it waits, without a worker it
        ends.
    """
    kinds = list(kills)
    while True:
        random.shuffle(kinds)
        if kinds[-1] != WORKER or set(kinds) == {WORKER}:
            break
    return [
        Planned(kind, SHARE_FIRST + place * SHARE_STEP + random.random() * SHARE_JITTER)
        for place, kind in enumerate(kinds)
    ]


class Killer:
    """Carries out the plan."""

    def __init__(
        self, client: Client, servers: Servers | None, crew: Crew, journal: Journal, random: Random
    ) -> None:
        self._client = client
        self._servers = servers
        self._crew = crew
        self._journal = journal
        self._random = random
        self._plan = plan(random, KILLS if servers is not None else KILLS_ATTACHED)

    @property
    def count(self) -> int:
        """The number of planned kills."""
        return len(self._plan)

    async def run(self, message_count: int, on_kill: Callable[[Kill], None]) -> None:
        """Kill as planned, and report each kill."""
        for planned in self._plan:
            await self._journal.until_messages(int(planned.share * message_count))
            if planned.kind == WORKER:
                on_kill(await self._kill_worker())
            else:
                on_kill(await self._kill_server(planned.kind))

    async def _kill_worker(self) -> Kill:
        """Stop a worker, check that its transaction is open, and kill it."""
        # A worker that is still starting would stay stopped for ever if the demo died meanwhile.
        ready = [pid for pid in self._crew.pids if pid in self._journal.ready]
        victim = self._random.choice(ready)
        while True:
            send(victim, signal.SIGSTOP)
            await asyncio.sleep(RETRY_S)  # for what it told last
            txn_id = self._journal.undecided_of(victim)
            open_now = await self._open_now() if txn_id is not None else []
            if any(one.txn_id == txn_id and one.subscriptions for one in open_now):
                break
            send(victim, signal.SIGCONT)
            await asyncio.sleep(self._random.random() * RETRY_S)
        at_s = time.monotonic()
        await self._crew.kill(victim)
        successor = await self._crew.add()
        recovery_s = await self._recovery("worker", at_s, successor)
        return Kill(
            kind=WORKER, pid=victim, at_s=at_s, open_count=len(open_now), recovery_s=recovery_s
        )

    async def _kill_server(self, kind: str) -> Kill:
        """Kill a server while transactions are open.

        Its supervisor starts it again. Where owners of shards change, others take its shards.

        A broker is stopped while the coordinator is asked. A stopped coordinator cannot answer: it
        is killed as soon as it has answered.
        """
        assert self._servers is not None
        pids = self._servers.pids(kind)
        pid = self._random.choice(pids) if len(pids) > 1 else pids[0]
        while True:
            if kind == BROKER:
                send(pid, signal.SIGSTOP)
            open_now = await self._open_now()
            if open_now:
                break
            send(pid, signal.SIGCONT)
            await asyncio.sleep(self._random.random() * RETRY_S)
        at_s = time.monotonic()
        send(pid, signal.SIGKILL)
        recovery_s = await self._recovery(kind, at_s, None)
        joined = await self._servers.replace(kind)
        return Kill(
            kind=kind,
            pid=pid,
            at_s=at_s,
            open_count=len(open_now),
            recovery_s=recovery_s,
            joined=joined,
        )

    async def _open_now(self) -> list[TransactionDescription]:
        """Open transactions that have written or acknowledged something."""
        try:
            async with asyncio.timeout(ASK_S_MAX):
                listed = await self._client.admin.transactions.list([TransactionStatus.OPEN])
        except (MagnetarError, TimeoutError):
            return []
        return [one for one in listed if one.partitions or one.subscriptions]

    async def _recovery(self, kind: str, since_s: float, worker: int | None) -> float:
        try:
            async with asyncio.timeout(RECOVERY_S_MAX):
                return await self._journal.first_commit(since_s, worker) - since_s
        except TimeoutError:
            raise click.ClickException(
                f"nothing was committed for {RECOVERY_S_MAX:.0f} s after the {kind} was killed"
            ) from None
