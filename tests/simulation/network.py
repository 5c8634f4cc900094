"""An in-memory network between named nodes: implements magnetar_core.transport, with faults.

Frames are serialised and parsed as on a wire. A link keeps order and loses nothing, until it
breaks; then a tail of what is under way in either direction is lost, and both ends are told at
times of their own. All chance comes from one Random.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from math import inf
from random import Random

from tests.simulation.client_wiretap import ClientWiretaps
from tests.simulation.trace import Trace
from tests.simulation.wiretaps import Wiretaps
from tests.virtual_loop import Incarnation, SimulationFailure, VirtualLoop

from magnetar_core.transport import Acceptor, LinkClosed, Session
from magnetar_core.wire import service_pb2 as pb

# Frames of one direction never arrive at the same instant: their order must be theirs.
TICK = 1e-7

# Commands of which a second copy may turn up later: a client may repeat them on a new link while
# the first still travels. All but flow control, which belongs to its link.
REPEATABLE = frozenset(
    {
        "abort_expelled",
        "abort_hanging_txn",
        "accept_txn_loss",
        "ack",
        "add_partition_to_txn",
        "add_subscription_to_txn",
        "close_consumer",
        "create_topic",
        "delete_group",
        "delete_topic",
        "end_txn",
        "end_txn_on_partition",
        "end_txn_on_subscription",
        "follow_directory",
        "group_heartbeat",
        "init_producer",
        "join_group",
        "leave_group",
        "low_watermark",
        "nack",
        "new_txn",
        "read",
        "remove_name",
        "seek",
        "send",
        "subscribe",
        "take_incarnation",
        "txns_issued",
        "unsubscribe",
    }
)
# Request ids of late copies on a newer link; nobody waits for their replies.
COPY_REQUEST_ID = 1 << 62


class Pipe:
    """One direction of a link."""

    __slots__ = ("blackhole", "last_arrival", "link", "open", "travelling")

    def __init__(self, link: SimulatedLink) -> None:
        self.link = link
        self.open = True
        # Frames written from now on vanish, and nobody is told.
        self.blackhole = False
        self.last_arrival = 0.0
        self.travelling: deque[tuple[asyncio.TimerHandle, bytes]] = deque()

    def write(self, data: bytes) -> None:
        if not self.open or self.blackhole:
            return
        network = self.link.network
        arrival = network.arrival(self.link.client_node, self.link.server_node)
        self._schedule(data, max(arrival, self.last_arrival + TICK))

    def _schedule(self, data: bytes, arrival: float) -> None:
        self.last_arrival = arrival
        timer = self.link.network.loop.call_at(
            arrival, self._arrive, context=self.link.receiver_context(self)
        )
        self.travelling.append((timer, data))

    def _arrive(self) -> None:
        data = self.travelling.popleft()[1]
        self.link.receive(self, data)

    def hasten(self) -> None:
        """What is held up arrives now, in its order."""
        now = self.link.network.loop.time()
        held = [data for _, data in self.travelling]
        for timer, _ in self.travelling:
            timer.cancel()
        self.travelling.clear()
        self.last_arrival = now
        for data in held:
            self._schedule(data, self.last_arrival + TICK)

    def cut(self, random: Random, *, delay: float = 0.0) -> float:
        """Lose a random tail; the rest arrives, `delay` later. Returns when the last of it does."""
        self.open = False
        kept_count = random.randint(0, len(self.travelling))
        kept = [data for _, data in self.travelling][:kept_count]
        if delay == 0.0:
            while len(self.travelling) > kept_count:
                self.travelling.pop()[0].cancel()
            return self.last_arrival
        for timer, _ in self.travelling:
            timer.cancel()
        self.travelling.clear()
        arrival = self.link.network.loop.time() + delay
        for data in kept:
            self._schedule(data, max(arrival, self.last_arrival + TICK))
            arrival += random.uniform(0.0, 0.01)
        return self.last_arrival


class SimulatedLink:
    """Both ends of one conversation. The client's end implements magnetar_core.transport.Link."""

    def __init__(
        self,
        network: Network,
        number: int,
        client: Incarnation,
        server: Incarnation,
        acceptor: Acceptor,
        on_frame: Callable[[pb.Frame], None],
        on_closed: Callable[[], None],
    ) -> None:
        self.network = network
        self.number = number
        self.client = client
        self.server = server
        self.client_node = client.name
        self.server_node = server.name
        self.broken = False
        self.half_open = False
        self._client_told = False
        self._copy_count = 0
        self._server_told = False
        # Of what the client has written.
        self._newest_request_id = 0
        self._on_frame = on_frame
        self._on_closed = on_closed
        self.to_server = Pipe(self)
        self.to_client = Pipe(self)
        # Newest request frames, of which copies may turn up again.
        # With the time at which they were written.
        self.recent: deque[tuple[float, bytes]] = deque(maxlen=8)
        self.session: Session = server.context.copy().run(acceptor.accept, self._server_write)

    # The client's end.

    def write(self, frame: pb.Frame) -> None:
        if self._client_told or not self.client.alive:
            return
        self._check_order(frame)
        if self.network.wiretap is not None and self.client_node in self.network.server_names:
            self.network.wiretap.on_said(self.number, self.client, frame)
        elif self.network.client_wiretap is not None:
            self.network.client_wiretap.on_written(self.number, self.client, frame)
        data = frame.SerializeToString(deterministic=True)
        self.recent.append((self.network.loop.time(), data))
        self.to_server.write(data)

    def _check_order(self, frame: pb.Frame) -> None:
        """The SDK numbers its requests as it makes them, and so they leave."""
        if self.client_node in self.network.server_names:
            return
        for one in frame.commands:
            if one.request_id:
                if one.request_id <= self._newest_request_id:
                    text = f"{self.client_node} sends {one.WhichOneof('body')} before its turn"
                    self.network.loop.fail(SimulationFailure(text))
                self._newest_request_id = one.request_id

    async def drain(self) -> None:
        return

    def close(self) -> None:
        """The client hangs up: what it wrote still arrives, then the server is told."""
        if self.network.client_wiretap is not None:
            # Also of a link that has broken, and whose client has not been told yet.
            self.network.client_wiretap.on_lost(self.number)
        if self.broken:
            return
        self.broken = True
        self.network.forget(self)
        self.to_server.open = False
        self.to_client.cut(self.network.random)
        for timer, _ in self.to_client.travelling:
            timer.cancel()
        self.to_client.travelling.clear()
        now = self.network.loop.time()
        self._tell_client(now)
        if not self.half_open:
            arrival = self.network.arrival(self.client_node, self.server_node)
            self._tell_server(max(arrival, self.to_server.last_arrival + TICK))
        else:
            self._tell_server(now + self.network.random.uniform(5.0, 40.0))

    # The server's end.

    def _server_write(self, frame: pb.Frame) -> None:
        if self._server_told or not self.server.alive:
            return
        if self.network.wiretap is not None:
            self.network.wiretap.on_reply(self.number, frame)
        self.to_client.write(frame.SerializeToString(deterministic=True))

    # Arrivals.

    def receiver_context(self, pipe: Pipe) -> object:
        incarnation = self.server if pipe is self.to_server else self.client
        return incarnation.context

    def receive(self, pipe: Pipe, data: bytes) -> None:
        trace = self.network.trace
        if pipe is self.to_server:
            if self._server_told:
                return
            trace.frame(self.number, ">", self.client_node, self.server_node, data)
            frame = pb.Frame.FromString(data)
            if self.network.watch is not None:
                self.network.watch(frame)
            if self.network.wiretap is not None:
                self.network.wiretap.on_request(self.number, frame)
            self.session.on_frame(frame)
        else:
            if self._client_told:
                return
            trace.frame(self.number, "<", self.client_node, self.server_node, data)
            frame = pb.Frame.FromString(data)
            if self.network.watch is not None:
                self.network.watch(frame)
            if self.network.client_wiretap is not None:
                self.network.client_wiretap.on_heard(self.number, frame)
            self._on_frame(frame)

    # Faults.

    def break_off(self, *, late: bool = False) -> None:
        """The link breaks. With late, the client hears at once; what it wrote arrives later."""
        if self.broken:
            return
        self.broken = True
        self.network.forget(self)
        random = self.network.random
        now = self.network.loop.time()
        server_delay = random.uniform(0.05, 2.0) if late else 0.0
        to_server_until = self.to_server.cut(random, delay=server_delay)
        to_client_until = self.to_client.cut(random)
        client_delay = 0.0 if late else random.choice((0.0, 0.01, 0.5))
        self._tell_client(max(to_client_until + TICK, now + client_delay))
        told_server = now + server_delay + random.choice((0.0, 0.01, 1.0))
        self._tell_server(max(to_server_until + TICK, told_server))

    def go_half_open(self, *, both: bool) -> None:
        """From now on frames vanish silently, one way or both."""
        if self.broken:
            return
        self.half_open = True
        if both:
            self.to_server.blackhole = self.to_client.blackhole = True
        else:
            pipe = self.network.random.choice((self.to_server, self.to_client))
            pipe.blackhole = True

    def congest(self, seconds: float) -> None:
        """The server is told that much is unread, and after a while that there is room again."""

        def tell(writable: bool) -> None:
            if not self._server_told and self.server.alive:
                self.session.on_writable(writable)

        loop, context = self.network.loop, self.server.context
        loop.call_soon(tell, False, context=context)
        loop.call_later(seconds, tell, True, context=context)

    def copy_request(self, random: Random, onto: SimulatedLink) -> bool:
        """A copy of an earlier request arrives again, on this link or on a newer one."""
        if not self.recent or onto.broken or not onto.server.alive:
            return False
        return onto.arrive_again(random.choice(self.recent)[1], same=onto is self)

    def arrive_again(self, data: bytes, *, same: bool) -> bool:
        """A copy of a request arrives here. Args: same: it was written on this link."""
        frame = pb.Frame.FromString(data)
        copied = self.network.copied
        commands = [one for one in frame.commands if one.WhichOneof("body") in copied]
        if not commands:
            return False
        if not same:
            # Answers are told apart by their numbers, copies' too: checkers read them.
            for one in commands:
                one.request_id = COPY_REQUEST_ID + self._copy_count
                self._copy_count += 1
        again = pb.Frame(commands=commands)
        self.network.arrived_again.append(again)
        self.to_server.write(again.SerializeToString(deterministic=True))
        return True

    def _tell_client(self, when: float) -> None:
        self.network.loop.call_at(when, self._client_closed, context=self.client.context)

    def _client_closed(self) -> None:
        if not self._client_told:
            self._client_told = True
            if self.network.client_wiretap is not None:
                self.network.client_wiretap.on_lost(self.number)
            self.network.trace.event("closed", f"#{self.number} {self.client_node}")
            self._on_closed()

    def _tell_server(self, when: float) -> None:
        self.network.loop.call_at(when, self._server_closed, context=self.server.context)

    def _server_closed(self) -> None:
        if not self._server_told:
            self._server_told = True
            self.network.trace.event("closed", f"#{self.number} {self.server_node}")
            if self.network.wiretap is not None:
                self.network.wiretap.on_closed(self.number)
            self.session.on_closed()


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
        # Sees every frame that arrives: for those who must know whether a situation occurred.
        self.watch: Callable[[pb.Frame], None] | None = None
        self.wiretap: Wiretaps | None = None
        # Listens where frames leave and enter clients.
        self.client_wiretap: ClientWiretaps | None = None
        # Told of links that are silent for so many seconds.
        self.on_half_open: Callable[[SimulatedLink, float], None] = lambda link, seconds: None
        # Commands of which copies may turn up.
        self.copied = REPEATABLE
        # The copies that did.
        self.arrived_again: list[pb.Frame] = []
        self.server_names: frozenset[str] = frozenset()
        # Streams of chance by both ends of a link, where one link must not disturb another.
        self.delays_between: Callable[[str, str], Random] | None = None
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

    def transport(self, incarnation: Incarnation) -> SimulatedTransport:
        return SimulatedTransport(self, incarnation)

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
        return self._partitions.get(frozenset((first, second)), 0.0) > self.loop.time()

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

    def congest(self, link: SimulatedLink, seconds: float) -> None:
        self.faults["congestion"] += 1
        self.trace.event("fault", f"congestion of #{link.number} for {seconds:.2f} s")
        link.congest(seconds)

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
        self.faults["partition"] += 1
        self.trace.event("fault", f"partition {first} {second} {seconds:.2f} s")
        self._partitions[frozenset((first, second))] = self.loop.time() + seconds
        for link in self.links():
            between = {link.client_node, link.server_node} == {first, second}
            if between and self.random.random() < 0.5:
                link.go_half_open(both=True)
                self.loop.call_later(seconds, link.break_off)

    def hold_up(self, first: str, second: str, seconds: float) -> None:
        """What leaves meanwhile arrives afterwards; links stay."""
        self.faults["hold-up"] += 1
        self.trace.event("fault", f"hold-up between {first} and {second} for {seconds:.2f} s")
        self._partitions[frozenset((first, second))] = self.loop.time() + seconds

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
    ) -> SimulatedLink:
        await asyncio.sleep(self.arrival(client.name, address) - self.loop.time())
        if self.is_cut(client.name, address):
            await asyncio.sleep(self.random.uniform(0.5, 2.0))
            raise LinkClosed(f"no answer from {address}")
        found = self._listeners.get((address, service))
        if found is None:
            self.faults["connection refused"] += 1
            raise LinkClosed(f"nobody listens at {address}")
        server, acceptor = found
        self._link_count += 1
        if self.wiretap is not None:
            self.wiretap.on_connected(self._link_count, address)
        link = SimulatedLink(self, self._link_count, client, server, acceptor, on_frame, on_closed)
        self._links[link] = None
        self.trace.event("connect", f"#{link.number} {client.name} {address} {service}")
        return link


class SimulatedTransport:
    """What one life of a node reaches the others with: magnetar_core.transport.Transport."""

    def __init__(self, network: Network, incarnation: Incarnation) -> None:
        self._network = network
        self._incarnation = incarnation

    async def connect(
        self,
        address: str,
        service: str,
        on_frame: Callable[[pb.Frame], None],
        on_closed: Callable[[], None],
    ) -> SimulatedLink:
        return await self._network.connect(self._incarnation, address, service, on_frame, on_closed)

    async def close(self) -> None:
        for link in self._network.links():
            if link.client is self._incarnation:
                link.close()
