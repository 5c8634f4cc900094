"""The faults of a run, and when they strike."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING

from tests.simulation.nodes import Node
from tests.simulation.owners.seats import AnyServer, Seat
from tests.simulation.owners.striking import OWNER_FAULTS, strike_owners
from tests.simulation.plan import Strike

if TYPE_CHECKING:
    from tests.simulation.world import World

CHAOS_SECONDS_MAX = 120.0
# A server that has just come back is left alone for so long, or nothing would ever get done.
UP_SECONDS_MIN = 0.1


class Chaos:
    """Strikes at a world until enough has happened."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._plan = world.plan
        self._loop = world.loop
        self._network = world.network
        self._brokers = world.brokers
        self._coordinator = world.coordinator
        self._clients = world.clients
        # What has struck so far, and when it was enough.
        self.struck: list[Strike] = []
        self.until_s: float | None = None

    async def run(self) -> None:
        """Let things go wrong until enough has happened, or those that are written down."""
        if self._plan.strikes is not None:
            await self._strike_again(self._plan.strikes)
        else:
            await self._strike_at_random()
        self.until_s = self._loop.time()

    async def _strike_again(self, strikes: Sequence[Strike]) -> None:
        for strike in strikes:
            await self._until(strike.at_s)
            self._strike(strike)
        await self._until(self._plan.chaos_until_s)

    async def _until(self, when: float) -> None:
        """Exactly: a sleep of the difference would be off by a rounding."""
        if when > self._loop.time():
            reached: asyncio.Future[None] = self._loop.create_future()
            self._loop.call_at(when, reached.set_result, None)
            await reached

    async def _strike_at_random(self) -> None:
        random = self._world.environment.random("chaos")
        chances = dict(self._plan.fault_weights)
        if self._world.owners is not None:
            chances |= OWNER_FAULTS
        faults, weights = list(chances), list(chances.values())
        while self._loop.time() < CHAOS_SECONDS_MAX:
            await asyncio.sleep(random.expovariate(1.0 / self._plan.fault_period_s))
            enough = len(self._world.history.transactions) >= self._plan.transactions_min
            if (
                enough
                and self._world.crash_count >= self._plan.crashes_min
                and self._world.occurred()
            ):
                return
            if any(weights):
                kind = random.choices(faults, weights)[0]
                self._strike(Strike(len(self.struck) + 1, self._loop.time(), kind))
            if random.random() < 0.2:
                self._world.check_servers()

    def _strike(self, strike: Strike) -> None:
        self.struck.append(strike)
        # By its number: what is left out before it does not change it.
        random = self._world.environment.random(f"strike/{strike.number}")
        fault = strike.kind
        network = self._network
        links = network.links()
        if fault in OWNER_FAULTS:
            if self._world.owners is not None and strike_owners(self._world.owners, random, fault):
                network.faults[fault] += 1
            return
        server = self._one_broker(random) if random.random() < 0.6 else self._coordinator
        match fault:
            case "broker crash" | "coordinator crash":
                is_broker = fault == "broker crash"
                server = self._one_broker(random) if is_broker else self._coordinator
                if self._loop.time() - server.ready_at < UP_SECONDS_MIN or not server.alive:
                    return
                if random.random() < 0.5:
                    # In the middle of a write, so that something is lost.
                    server.disk.sync_seconds = random.choice((0.01, 0.3))
                    delay = random.uniform(0.0, server.disk.sync_seconds)
                    self._loop.call_later(delay, self._crash_in_write, server)
                else:
                    server.crash(power_loss=random.random() < 0.7)
            case "client crash":
                nodes = [one for group in self._clients.values() for one in group if one.alive]
                if nodes:
                    self._world.client_crash_count += 1
                    random.choice(nodes).crash(restart_after=random.uniform(0.01, 0.5))
                return
            case "link":
                if links:
                    network.break_link(random.choice(links))
                return
            case "half-open":
                if links:
                    network.half_open(random.choice(links))
                return
            case "congestion":
                if links:
                    network.congest(random.choice(links), random.uniform(0.05, 2.0))
                return
            case "duplicate":
                for _ in range(random.randint(1, 5)):
                    network.duplicate()
                return
            case "partition":
                if links:
                    link = random.choice(links)
                    network.partition(link.client_node, link.server_node, random.uniform(0.05, 2.0))
                return
            case "delays":
                network.delay_spike(random.choice((5.0, 50.0)), random.uniform(0.05, 1.0))
                return
            case "disk failure":
                if random.random() < 0.5:
                    server.disk.fail_next_write()
                else:
                    server.disk.fail_next_sync()
            case "disk full":
                server.fill_disk()
                self._loop.call_later(random.uniform(0.05, 0.5), server.free_disk)
            case "disk stall":
                server.disk.sync_seconds = random.choice((0.05, 0.5))
                self._loop.call_later(random.uniform(0.05, 1.0), self._speed_up_disk, server)
            case "clock jump":
                everybody: list[Node | Seat] = [*self._brokers, self._coordinator]
                everybody += [one for group in self._clients.values() for one in group]
                random.choice(everybody).clock.wall_offset_ms += random.randint(-(10**7), 10**7)
        network.faults[fault] += 1
        self._world.trace.event("fault", f"{fault} {server.name}")

    def _one_broker(self, random: Random) -> AnyServer:
        """Any of them; where there is one, nothing is left to chance."""
        return random.choice(self._brokers) if len(self._brokers) > 1 else self._brokers[0]

    def _crash_in_write(self, server: AnyServer) -> None:
        if not self._network.quiet:
            server.crash(power_loss=True)
        self._speed_up_disk(server)

    def end(self) -> None:
        """Nothing goes wrong from now on, and what is down comes up."""
        self._network.heal()
        if self._world.owners is not None:
            self._world.owners.end_faults()
        for server in self._world.servers:
            server.free_disk()
            self._speed_up_disk(server)
            server.damage.repair()
            server.disk._fail_next_write = server.disk._fail_next_sync = False
            if not server.alive:
                server.start()

    def _speed_up_disk(self, server: AnyServer) -> None:
        server.disk.sync_seconds = 0.0004
