"""Records small histories of the real servers and the real client, in the simulation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextvars import Context
from random import Random
from typing import Any, NamedTuple

from tests.simulation.nodes import ClientNode
from tests.simulation.owners.seats import AnyServer
from tests.simulation.protocol_wiretap import ProtocolWiretap
from tests.simulation.short.catalogue import VERBS
from tests.simulation.short.script import Script
from tests.simulation.world import World
from tests.virtual_time import time_passes

import magnetar
from magnetar_core.history.events import Event, Life
from magnetar_core.ids import TxnID

# A topic of two partitions, and a subscription on a message of another one.
TOPIC = "out"
INPUT = "in"
SUBSCRIPTION = "s"
# Virtual time until everything that goes on by itself has come to an end.
REST_SECONDS = 3.0
# No watermark comes by itself, but for those after a start.
NEVER_MS = 100_000_000
CLIENT = "client"


class Noted(NamedTuple):
    """An event of a life."""

    life: Life
    event: Event


class Recorded(NamedTuple):
    """A history.

    Attributes:
        noted: what the servers noted, in the order in which it happened.
        clients: the number of the client that has begun each transaction. No server notes that.
    """

    noted: tuple[Noted, ...]
    clients: Mapping[TxnID, int]


class _Noting(ProtocolWiretap):
    """Keeps all events that the follower takes, and acts on some of them."""

    def __init__(self, world: World) -> None:
        super().__init__(world.history.violation, world.loop.fail)
        self.noted: list[Noted] = []
        self.waiting: list[tuple[Callable[[Event], bool], Callable[[], None]]] = []
        self._loop = world.loop

    def _take(self, life: Life, event: Event) -> None:
        self.noted.append(Noted(life, event))
        super()._take(life, event)
        due = [one for one in self.waiting if one[0](event)]
        self.waiting = [one for one in self.waiting if one not in due]
        for _, act in due:
            # In no server's name: the server that notes may be the victim.
            self._loop.call_soon(act, context=Context())


class Stage(World):
    """A cluster with one coordinator, two partitions for output, and one for input.

    Args:
        play: what clients do. The history ends some time after it.
        coordinator: settings that differ from the ordinary.
    """

    def __init__(
        self,
        play: Play,
        *,
        broker_count: int = 1,
        coordinator: Mapping[str, Any] | None = None,
    ) -> None:
        settings: dict[str, dict[str, Any]] = {
            kind: {} for kind in ("broker", "client", "topic", "constants")
        }
        settings["coordinator"] = {"watermark_interval_ms": NEVER_MS, **(coordinator or {})}
        script = Script(
            seed="0",
            profile="trace",
            scenarios=(),
            topics={INPUT: 1, TOPIC: 2},
            coordinator_count=1,
            settings=settings,
            steps=(),
            faults=(),
            broker_count=broker_count,
        )
        super().__init__(script, VERBS)
        self._play = play
        self._noting = self.protocol = _Noting(self)
        self._clients: dict[TxnID, int] = {}
        self._hands: list[Hand] = []

    def recorded(self) -> Recorded:
        """Run the play, and return its history."""
        self.run()
        return Recorded(tuple(self._noting.noted), dict(self._clients))

    async def _main(self) -> None:
        await self.set_up()
        await self.run_program(CLIENT, self._perform)
        await time_passes(REST_SECONDS)
        self.check_servers()

    async def _perform(self, node: ClientNode) -> None:
        self._node = node
        await self._play(self)
        for hand in self._hands:
            await hand.client.close()

    # For plays.

    async def hand(self) -> Hand:
        """Return the next client; the first has number 1."""
        number = len(self._hands) + 1
        client = await magnetar.connect(
            self.bootstrap(CLIENT),
            transport=self._node.transport(),
            clock=self._node.clock,
            random=Random(number),
            config=self.client_config,
        )
        hand = Hand(number, client, await client.create_producer(TOPIC), self._clients)
        self._hands.append(hand)
        return hand

    async def input(self, hand: Hand) -> tuple[magnetar.Consumer, magnetar.Message]:
        """Send the message, and return it with its consumer."""
        consumer = await hand.client.subscribe(INPUT, SUBSCRIPTION)
        producer = await hand.client.create_producer(INPUT)
        await producer.send(b"input", partition=0)
        return consumer, await consumer.receive()

    def when(self, is_it: Callable[[Event], bool], act: Callable[[], None]) -> None:
        """Do something at once after the next event that is the one."""
        self._noting.waiting.append((is_it, act))

    async def until(self, is_it: Callable[[Event], bool]) -> None:
        """Wait for the next event that is the one."""
        done = asyncio.Event()
        self.when(is_it, done.set)
        await done.wait()

    def crash(self, server: AnyServer, *, power_loss: bool = False) -> Callable[[], None]:
        """Return a function that ends a server; it comes back after a moment."""
        return lambda: server.crash(power_loss=power_loss)

    def hang_up(self, server: AnyServer) -> None:
        """Break the links of clients to a server; what is under way on them is lost."""
        for link in list(self.network.links()):
            if link.client_node == CLIENT and link.server_node == server.name:
                link.break_off()


class Hand:
    """A client of the SDK with a producer. Its transactions are known to be its own."""

    def __init__(
        self,
        number: int,
        client: magnetar.Client,
        producer: magnetar.Producer,
        clients: dict[TxnID, int],
    ) -> None:
        self.client = client
        self.producer = producer
        self._number = number
        self._clients = clients
        self._sent = 0

    async def begin(self, timeout_s: float = 60.0) -> magnetar.Transaction:
        """Begin a transaction."""
        txn = await self.client.begin_transaction(timeout_s)
        self._clients[txn.txn_id] = self._number
        return txn

    async def send(self, partition: int, txn: magnetar.Transaction | None = None) -> None:
        """Send a message, and wait until it is confirmed."""
        self._sent += 1
        value = f"{self._number}: {self._sent}".encode()
        await self.producer.send(value, partition=partition, txn=txn)


Play = Callable[[Stage], Awaitable[None]]
