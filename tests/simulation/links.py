"""Links between nodes: what is under way in either direction, and how a link ends.

A link keeps order and loses nothing, until it breaks; then a tail of what is under way in either
direction is lost, and both ends are told at times of their own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Protocol

from tests.simulation.wiretaps import Named

from magnetar.testing.envelope import Together, singles
from magnetar.testing.lives import Incarnation, SimulationFailure
from magnetar_core.server.commands import Acceptor, CommandSession, Conversation
from magnetar_core.transport.columns.kinds import COLUMNS
from magnetar_core.wire import service_pb2 as pb

if TYPE_CHECKING:
    from tests.simulation.network import Network

# Commands of which a second copy may turn up later: a client may repeat them on a new link while
# the first still travels.
COPIED = frozenset(
    {
        "abort_expelled",
        "abort_hanging_txn",
        "accept_txn_loss",
        "ack",
        "add_partition_to_txn",
        "add_subscription_to_txn",
        "close_consumer",
        "close_cut",
        "create_topic",
        "delete_group",
        "delete_topic",
        "describe_topic",
        "describe_txn",
        "end_txn",
        "end_txn_on_participants",
        "end_txn_on_partition",
        "end_txn_on_subscription",
        "flow",
        "follow_directory",
        "get_cluster_info",
        "group_heartbeat",
        "init_producer",
        "join_group",
        "leave_group",
        "list_offsets",
        "list_txns",
        "lookup",
        "low_watermark",
        "nack",
        "new_txn",
        "publish",
        "read",
        "remove_name",
        "seek",
        "send",
        "skip_damaged",
        "subscribe",
        "take_incarnation",
        "txns_issued",
        "unsubscribe",
    }
)
# Frames of one direction never arrive at the same instant: their order must be theirs.
TICK = 1e-7

# Request ids of late copies on a newer link; nobody waits for their replies.
# Commands that may change places in a frame, since they leave in columns.
GATHERED = {one.name for one in COLUMNS.values()}
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
        arrival = network.arrival(*self.link.machines)
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


class Part(Protocol):
    """A part of a process that has conversations in a name of its own: a shard, in one epoch."""

    @property
    def name(self) -> str: ...

    @property
    def is_current(self) -> bool:
        """Whether nobody else has the shard."""
        ...

    def speaks(self, link: SimulatedLink, frame: pb.Frame) -> None:
        """A frame of this part leaves its process."""
        ...


class SimulatedLink:
    """Both ends of one conversation. The client's end implements `Link` of the transport.

    The server's end is a visit of magnetar_core.server.doors, where there are doors.
    """

    def __init__(
        self,
        network: Network,
        number: int,
        client: Incarnation,
        server: Incarnation,
        acceptor: Acceptor,
        on_frame: Callable[[pb.Frame], None],
        on_closed: Callable[[], None],
        *,
        client_part: Part | None = None,
        server_part: Part | None = None,
    ) -> None:
        self.network = network
        self.number = number
        self.client = client
        self.server = server
        self.client_part = client_part
        self.server_part = server_part
        self.client_node = client.name if client_part is None else client_part.name
        self.server_node = server.name if server_part is None else server_part.name
        # The processes that the link lies between, for delays and partitions.
        self.machines = client.name, server.name
        # Told when the server's end is over.
        self.on_left: Callable[[], None] = lambda: None
        self.broken = False
        self.half_open = False
        # One end has hung up, and the other one cannot hear of it.
        self._left_in_silence = False
        self._client_told = False
        self._copy_count = 0
        self._server_told = False
        # Of what the client has written.
        self._newest_request_id = 0
        # Of what the client has written in columns.
        self._together: Together = {}
        self._on_frame = on_frame
        self._on_closed = on_closed
        self.to_server = Pipe(self)
        self.to_client = Pipe(self)
        # Newest request frames, of which copies may turn up again.
        # With the time at which they were written.
        self.recent: deque[tuple[float, bytes]] = deque(maxlen=8)
        conversation = Conversation(write=self._server_write, end=self.end)
        self.session: CommandSession = server.context.copy().run(acceptor.accept, conversation)

    # The client's end.

    def write(self, data: bytes) -> None:
        if self._client_told or not self.client.alive:
            return
        frame = singles(pb.Frame.FromString(data), self._together)
        self._check_order(frame)
        if self.client_part is not None:
            self.client_part.speaks(self, frame)
        if self.network.wiretap is not None and self.client_node in self.network.server_names:
            if self._is_current(self.server_part):
                speaker: Named = self.client_part or self.client
                self.network.wiretap.on_said(self.number, speaker, frame)
        elif self.network.client_wiretap is not None:
            self.network.client_wiretap.on_written(self.number, self.client, frame)
        self.recent.append((self.network.loop.time(), data))
        self.to_server.write(data)

    def _check_order(self, frame: pb.Frame) -> None:
        """The SDK numbers its requests as it makes them, and so they leave, each kind by itself."""
        if self.client_node in self.network.server_names:
            return
        newest: dict[str | None, int] = {}
        for command in frame.commands:
            if command.request_id:
                name = command.WhichOneof("body")
                before = newest.get(name if name in GATHERED else None, self._newest_request_id)
                if command.request_id <= before:
                    text = f"{self.client_node} sends {name} before its turn"
                    self.network.loop.fail(SimulationFailure(text))
                newest[name if name in GATHERED else None] = command.request_id
        self._newest_request_id = max([self._newest_request_id, *newest.values()])

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
            arrival = self.network.arrival(*self.machines)
            self._tell_server(max(arrival, self.to_server.last_arrival + TICK))
        else:
            self._left_in_silence = True
            self._tell_server(now + self.network.random.uniform(5.0, 40.0))

    # The server's end.

    def _server_write(self, data: bytes) -> None:
        if self._server_told or not self.server.alive:
            return
        frame = singles(pb.Frame.FromString(data), self._together)
        if self.server_part is not None:
            self.server_part.speaks(self, frame)
        if self.network.wiretap is not None:
            self.network.wiretap.on_reply(self.number, frame)
        self.to_client.write(data)

    def finish(self) -> None:
        """The server hangs up; what it has written still arrives."""
        self._hang_up(lost=False)

    def end(self) -> None:
        """The server hangs up at once; what it has written lately may be lost."""
        self._hang_up(lost=True)

    def _hang_up(self, *, lost: bool) -> None:
        if self._server_told:
            return
        self._server_told = True
        self.network.loop.call_soon(self._server_over, context=self.server.context)
        if self.broken:
            return
        self.broken = True
        self.network.forget(self)
        self.to_server.open = False
        random = self.network.random
        until = self.to_client.cut(random) if lost else self.to_client.last_arrival
        self.to_client.open = False
        if self.half_open:
            self._left_in_silence = True
            self._tell_client(self.network.loop.time() + random.uniform(5.0, 40.0))
        else:
            self._tell_client(max(until + TICK, self.network.arrival(*self.machines)))

    def _is_current(self, part: Part | None) -> bool:
        """Whether checkers believe it: not one who has lost a shard and has not noticed."""
        return part is None or part.is_current

    # Arrivals.

    def receiver_context(self, pipe: Pipe) -> object:
        incarnation = self.server if pipe is self.to_server else self.client
        return incarnation.context

    def receive(self, pipe: Pipe, data: bytes) -> None:
        trace = self.network.trace
        if pipe is self.to_server:
            if self._server_told:
                return
            trace.frame(self.number, ">", self.client_node, self.server_node, data, self._together)
            frame = pb.Frame.FromString(data)
            shown = singles(frame, self._together)
            if self.network.watch is not None:
                self.network.watch(shown)
            if self.network.wiretap is not None:
                if self._is_current(self.server_part):
                    self.network.wiretap.on_request(self.number, shown)
                else:
                    self.network.wiretap.on_doubtful_request(self.number, shown)
            self.session.on_frame(frame)
        else:
            if self._client_told:
                return
            trace.frame(self.number, "<", self.client_node, self.server_node, data, self._together)
            frame = pb.Frame.FromString(data)
            shown = singles(frame, self._together)
            if self.network.watch is not None:
                self.network.watch(shown)
            if self.network.client_wiretap is not None:
                self.network.client_wiretap.on_heard(self.number, shown)
            self._on_frame(frame)

    # Faults.

    def break_off(self, *, late: bool = False) -> None:
        """The link breaks. With late, the client hears at once; what it wrote arrives later.

        The silence of a half-open link ends with it: who has not heard that the other end has
        hung up hears of it now.
        """
        if self.broken:
            if self._left_in_silence:
                self._tell_both()
            return
        self.broken = True
        self.network.forget(self)
        random = self.network.random
        now = self.network.loop.time()
        server_delay = random.uniform(0.05, 2.0) if late else 0.0
        to_server_until = self.to_server.cut(random, delay=server_delay)
        self.network.arriving_until = max(self.network.arriving_until, to_server_until)
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
        frame = singles(pb.Frame.FromString(data))
        commands = [command for command in frame.commands if command.WhichOneof("body") in COPIED]
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

    def _tell_both(self) -> None:
        """Both ends hear that the link is over, behind what still arrives."""
        now = self.network.loop.time()
        self._tell_client(max(now, self.to_client.last_arrival + TICK))
        self._tell_server(max(now, self.to_server.last_arrival + TICK))

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
            self._server_over()

    def _server_over(self) -> None:
        self.network.trace.event("closed", f"#{self.number} {self.server_node}")
        if self.network.wiretap is not None:
            self.network.wiretap.on_closed(self.number)
        self.session.on_closed()
        self.on_left()
