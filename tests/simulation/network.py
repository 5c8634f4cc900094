"""An in-memory network between named nodes, with faults: a `Transport` of the core.

Frames are serialised and parsed as on a wire; see links.py. All chance comes from one Random.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from math import inf
from random import Random
from typing import Protocol

from tests.simulation.client_wiretap import ClientWiretaps
from tests.simulation.ends_alone import EndsAlone
from tests.simulation.links import Part, SimulatedLink
from tests.simulation.trace import Trace
from tests.virtual_loop import VirtualLoop

from magnetar.testing.lives import Incarnation
from magnetar_core.server.commands import Acceptor
from magnetar_core.transport.transport import LinkClosed
from magnetar_core.wire import service_pb2 as pb


class Dialer(Protocol):
    """Finds the process that has a shard, and asks it to open the door."""

    def knows(self, address: str) -> bool: ...

    async def dial(
        self,
        client: Incarnation,
        part: Part | None,
        address: str,
        service: str,
        on_frame: Callable[[pb.Frame], None],
        on_closed: Callable[[], None],
    ) -> SimulatedLink:
        """Raises: LinkClosed."""
        ...


class Network:
    """Who listens where, which links exist, and what is wrong with them at the moment.

    Attributes:
        faults: how often each kind of fault struck.
        delay_factor: 1, but for a delay spike.
    """

    def __init__(self, loop: VirtualLoop, random: Random, trace: Trace) -> None:
        self.loop = loop
        self.random = random
        self.trace = trace
        self.faults: Counter[str] = Counter()
        self.delay_factor = 1.0
        # Of one frame, in a spike too.
        self.delay_seconds_max = inf
        # From now on nothing goes wrong any more.
        self.quiet = False
        # When the last frame that was written to a server on a broken link arrives.
        self.arriving_until = 0.0
        # Sees every frame that arrives: for those who must know whether a situation occurred.
        self.watch: Callable[[pb.Frame], None] | None = None
        self.wiretap: EndsAlone | None = None
        # Listens where frames leave and enter clients.
        self.client_wiretap: ClientWiretaps | None = None
        # Told of links that are silent for so many seconds.
        self.on_half_open: Callable[[SimulatedLink, float], None] = lambda link, seconds: None
        # Copies of requests that came.
        self.arrived_again: list[pb.Frame] = []
        self.server_names: frozenset[str] = frozenset()
        # Streams of chance by both ends of a link, where one link must not disturb another.
        self.delays_between: Callable[[str, str], Random] | None = None
        # Processes whose shards have doors: who is behind an address, when somebody connects.
        self.dialer: Dialer | None = None
        # On which machine somebody is.
        self.machine_of: Callable[[str], str] = lambda name: name
        self._listeners: dict[tuple[str, str], tuple[Incarnation, Acceptor]] = {}
        self._links: dict[SimulatedLink, None] = {}
        self._link_count = 0
        # Pairs of nodes that cannot reach each other, and until when.
        self._partitions: dict[frozenset[str], float] = {}
        self._graveyard: deque[SimulatedLink] = deque(maxlen=16)

    def listen(
        self, address: str, service: str, incarnation: Incarnation, acceptor: Acceptor
    ) -> None:
        self._listeners[address, service] = (incarnation, acceptor)

    def transport(self, incarnation: Incarnation, part: Part | None = None) -> SimulatedTransport:
        return SimulatedTransport(self, incarnation, part)

    def arrival(self, first: str, second: str) -> float:
        """When a frame that leaves now arrives."""
        random = self.random
        if self.delays_between is not None:
            random = self.delays_between(first, second)
        now = self.loop.time()
        delay = 0.0002 + 0.0015 * random.random()
        if random.random() < 0.01:
            delay += random.uniform(0.0, 0.1)
        if self._partitions:
            healed = self._partitions.get(frozenset((first, second)))
            if healed is not None and healed > now:
                return healed + delay  # Sent again and again until it comes through.
        return now + min(delay * self.delay_factor, self.delay_seconds_max)

    def is_cut(self, first: str, second: str) -> bool:
        return self._partitions.get(self._between(first, second), 0.0) > self.loop.time()

    def _between(self, first: str, second: str) -> frozenset[str]:
        return frozenset((self.machine_of(first), self.machine_of(second)))

    def links(self, node: str | None = None) -> list[SimulatedLink]:
        """Links that work, oldest first; of one node, or all."""
        return [
            link
            for link in self._links
            if node is None or node in (link.client_node, link.server_node)
        ]

    def forget(self, link: SimulatedLink) -> None:
        if self._links.pop(link, 0) is None:
            self._graveyard.append(link)

    # Faults.

    def break_link(self, link: SimulatedLink) -> None:
        late = self.random.random() < 0.4
        self.faults["late frames" if late else "link break"] += 1
        self.trace.event("fault", f"break #{link.number} late={late}")
        link.break_off(late=late)

    def half_open(self, link: SimulatedLink) -> None:
        """Nobody is told, until keep-alives would have noticed, or until the faults end."""
        self.faults["half-open link"] += 1
        self.trace.event("fault", f"half-open #{link.number}")
        link.go_half_open(both=self.random.random() < 0.7)
        seconds = self.random.uniform(5.0, 40.0) if self.random.random() < 0.8 else inf
        if seconds < inf:
            self.loop.call_later(seconds, link.break_off)
        self.on_half_open(link, seconds)

    def duplicate(self) -> None:
        """An earlier request arrives a second time."""
        links = [link for link in self._links if not link.half_open]
        if not links:
            return
        target = self.random.choice(links)
        source = target
        for dead in self._graveyard:
            same = dead.client is target.client and dead.server_node == target.server_node
            if same and self.random.random() < 0.5:
                source = dead
        if source.copy_request(self.random, target):
            kind = "duplicate" if source is target else "late duplicate"
            self.faults[kind] += 1
            self.trace.event("fault", f"{kind} #{source.number} on #{target.number}")

    def partition(self, first: str, second: str, seconds: float) -> None:
        """They cannot reach each other. Two shards on the same machine always can."""
        ends = self._between(first, second)
        if len(ends) == 1:
            return
        self.faults["partition"] += 1
        self.trace.event("fault", f"partition {first} {second} {seconds:.2f} s")
        self._cut(ends, seconds)
        for link in self.links():
            if frozenset(link.machines) == ends and self.random.random() < 0.5:
                link.go_half_open(both=True)
                self.loop.call_later(seconds, link.break_off)

    def hold_up(self, first: str, second: str, seconds: float) -> None:
        """What leaves meanwhile arrives afterwards; links stay. On a machine nothing is held up."""
        ends = self._between(first, second)
        if len(ends) == 1:
            return
        self.faults["hold-up"] += 1
        self.trace.event("fault", f"hold-up between {first} and {second} for {seconds:.2f} s")
        self._cut(ends, seconds)

    def _cut(self, ends: frozenset[str], seconds: float) -> None:
        """The longer one of two cuts counts."""
        now = self.loop.time()
        self._partitions[ends] = max(self._partitions.get(ends, now), now + seconds)

    def delay_spike(self, factor: float, seconds: float) -> None:
        self.faults["delay spike"] += 1
        self.trace.event("fault", f"delays times {factor:.0f} for {seconds:.2f} s")
        self.delay_factor = factor
        self.loop.call_later(seconds, self._end_spike)

    def _end_spike(self) -> None:
        self.delay_factor = 1.0

    def crash(self, incarnation: Incarnation) -> None:
        """A node died: its peers hear of it after a while, or only when the faults end."""
        for key, (listener, _) in list(self._listeners.items()):
            if listener is incarnation:
                del self._listeners[key]
        for link in self.links():
            if incarnation in (link.client, link.server):
                if not self.quiet and self.random.random() < 0.1:
                    self.half_open(link)
                else:
                    link.break_off(late=link.client is incarnation and self.random.random() < 0.3)

    def heal(self) -> None:
        """All faults end: links that do not work are noticed, and nothing is held up any more."""
        self.quiet = True
        self._partitions.clear()
        self.delay_factor = 1.0
        for link in self.links():
            if link.half_open:
                link.break_off()
            else:
                link.to_server.hasten()
                link.to_client.hasten()

    async def connect(
        self,
        client: Incarnation,
        address: str,
        service: str,
        on_frame: Callable[[pb.Frame], None],
        on_closed: Callable[[], None],
        part: Part | None = None,
    ) -> SimulatedLink:
        if self.dialer is not None and self.dialer.knows(address):
            return await self.dialer.dial(client, part, address, service, on_frame, on_closed)
        await asyncio.sleep(self.arrival(client.name, address) - self.loop.time())
        if self.is_cut(client.name, address):
            await asyncio.sleep(self.random.uniform(0.5, 2.0))
            raise LinkClosed(f"no answer from {address}")
        found = self._listeners.get((address, service))
        if found is None:
            self.faults["connection refused"] += 1
            raise LinkClosed(f"nobody listens at {address}")
        server, acceptor = found
        return self.link(client, server, acceptor, on_frame, on_closed)

    def link(
        self,
        client: Incarnation,
        server: Incarnation,
        acceptor: Acceptor,
        on_frame: Callable[[pb.Frame], None],
        on_closed: Callable[[], None],
        *,
        client_part: Part | None = None,
        server_part: Part | None = None,
    ) -> SimulatedLink:
        """Begin a conversation. Raises: what the server says instead."""
        self._link_count += 1
        name = server.name if server_part is None else server_part.name
        if self.wiretap is not None:
            self.wiretap.on_connected(self._link_count, name)
        link = SimulatedLink(
            self,
            self._link_count,
            client,
            server,
            acceptor,
            on_frame,
            on_closed,
            client_part=client_part,
            server_part=server_part,
        )
        self._links[link] = None
        self.trace.event("connect", f"#{link.number} {link.client_node} {name}")
        return link


class SimulatedTransport:
    """What one life of a node reaches the others with: a `Transport` of the core."""

    def __init__(self, network: Network, incarnation: Incarnation, part: Part | None) -> None:
        self._network = network
        self._incarnation = incarnation
        self._part = part

    async def connect(
        self,
        address: str,
        service: str,
        on_frame: Callable[[pb.Frame], None],
        on_closed: Callable[[], None],
    ) -> SimulatedLink:
        return await self._network.connect(
            self._incarnation, address, service, on_frame, on_closed, self._part
        )

    async def close(self) -> None:
        for link in self._network.links():
            if link.client is self._incarnation and link.client_part is self._part:
                link.close()
