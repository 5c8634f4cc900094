"""A run: a cluster, its clients, the faults, and the judgement, all from a seed."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, TextIO
from zlib import crc32

from tests.simulation.asked_wiretap import AskedWiretap
from tests.simulation.client_wiretap import ClientWiretaps
from tests.simulation.cluster_wiretap import ClusterWiretap
from tests.simulation.durable_wiretap import DurableWiretap, is_lost
from tests.simulation.ending_wiretap import EndingWiretap
from tests.simulation.ends_alone import EndsAlone
from tests.simulation.follow_wiretap import FollowWiretap
from tests.simulation.history import Cursor, History, Place
from tests.simulation.identity_wiretap import IdentityWiretap
from tests.simulation.judgement import Judgement
from tests.simulation.key_order import KeyOrder
from tests.simulation.listeners import Listeners
from tests.simulation.network import Network
from tests.simulation.nodes import ClientNode, Environment, Node, ServerNode
from tests.simulation.open_wiretap import OpenWiretap
from tests.simulation.owners.of_world import owners_of
from tests.simulation.owners.plan import OwnersPlan
from tests.simulation.owners.seats import AnyServer
from tests.simulation.poison import Poisoned
from tests.simulation.protocol_wiretap import ProtocolWiretap
from tests.simulation.raw_unit import raw_client
from tests.simulation.release_wiretap import ReleaseWiretap
from tests.simulation.sending_wiretap import SendingWiretap
from tests.simulation.servers import (
    broker_names,
    coordinator_names,
    make_broker,
    make_coordinator,
)
from tests.simulation.short.actors import Actor
from tests.simulation.short.calm import EVERYBODY, Calm
from tests.simulation.short.faults import SYNC_SECONDS, Striker
from tests.simulation.short.power import Power
from tests.simulation.short.script import Script, Step
from tests.simulation.situations import Situations
from tests.simulation.trace import Trace
from tests.simulation.wiretaps import Wiretaps
from tests.virtual_loop import VirtualLoop

import magnetar
from magnetar.testing.lives import CURRENT, Incarnation, UnhandledException
from magnetar_broker.subscriptions.subscription import Subscription
from magnetar_cluster.directory import view as cluster_view
from magnetar_core.errors import ChecksumMismatch, InternalError, InvalidArgument, TopicExists
from magnetar_core.ids import TxnID
from magnetar_core.membership.placement import shard_of
from magnetar_core.wire import topic_pb2
from magnetar_storage.memory.engine import MemoryDisk, MemoryStore

if TYPE_CHECKING:
    from tests.simulation.identities import Database, InitCall, Job, Takeover
    from tests.simulation.short.derived import Tally
    from tests.simulation.short.members import Instance
    from tests.simulation.surveys import SeenCut

Verb = Callable[..., Coroutine[Any, Any, None]]

# A send that may take so long is not given up while an abort waits for it.
SEND_TIMEOUT_MS_MIN = 1_000
# Less patient than an application's: virtual time is dear, as every repeat costs steps.
CLIENT_SETTINGS: dict[str, Any] = {
    "connect_timeout_ms": 500,
    "request_timeout_ms": 800,
    "operation_timeout_ms": 4_000,
    "send_timeout_ms": 5_000,
    "commit_timeout_ms": 2_000,
    "abort_timeout_ms": 1_000,
    "abort_drain_ms": 300,
    "close_timeout_ms": 300,
    "backoff_ms_min": 10,
    "backoff_ms_max": 300,
}
# Frames do not travel for longer than a broker remembers an idle producer.
FRAME_AGE_SECONDS_MAX = 1.2

# Clients here say nothing wrong, but for those who expect to be told so.
NEVER_EXCUSED = (InvalidArgument, InternalError, ChecksumMismatch)


class World:
    """Args:
    verbs: what steps mean, by name.
    out: where a readable trace goes.
    """

    def __init__(
        self, script: Script, verbs: Mapping[str, Verb] | None = None, *, out: TextIO | None = None
    ) -> None:
        self.script = script
        self.verbs = verbs or {}
        settings = script.settings
        seed = f"short {script.profile} {script.seed}"
        self.random = Random(f"{seed}/world")
        self.loop = VirtualLoop(deadline=3_000.0)
        self.trace = Trace(self.loop.time, out)
        self.network = Network(self.loop, Random(f"{seed}/network"), self.trace)
        self._delays: dict[tuple[str, str], Random] = {}
        self.network.delays_between = self._delay_random
        self.environment = Environment(self.loop, self.network, self.trace, seed)
        self.history = History(self.loop.time, self.loop.fail)
        self.protocol = ProtocolWiretap(self.history.violation, self.loop.fail)
        self.broker_names = broker_names(script.broker_count)
        self.listeners = Listeners(self)
        # By the names that clients are told of them.
        self.cluster_wiretap = ClusterWiretap(
            self.broker_names, self.history.violation, self._broker_at
        )
        self.taps = Wiretaps(
            self.listeners.taps,
            OpenWiretap(self.loop.time, self.history.violation, self._is_lost),
            IdentityWiretap(self.history.violation),
            EndingWiretap(self.loop.time, self.history.violation),
            self.cluster_wiretap,
            DurableWiretap(
                self._disk_at, lambda name: self.node_of(name).disk, self.history.violation
            ),
        )
        self.network.wiretap = EndsAlone(self.taps)
        sending = SendingWiretap(self.loop.time, self.history.violation)
        self.asked_wiretap = AskedWiretap(
            sending,
            self._drain_seconds,
            self.history.violation,
        )
        self.follow_wiretap = FollowWiretap(sending, self.history.violation)
        self.network.client_wiretap = ClientWiretaps(
            self.loop.time,
            sending,
            self.follow_wiretap,
            self.asked_wiretap,
            ReleaseWiretap(self.loop.time, self.history.violation),
        )
        self.key_order = KeyOrder(
            self._subscriptions, self.history.place_of, self.history.violation
        )
        # How often which situations came about.
        self.provoked: Counter[str] = Counter()
        self.network.watch = Situations(self.provoked).watch
        self.places: list[Place] = [
            (topic, number)
            for topic, partition_count in script.topics.items()
            for number in range(partition_count)
        ]
        # Whether the servers' own assertions are asked, too.
        self.checks_servers = True
        # What clients keep elsewhere.
        self.databases: dict[str, Database] = {}
        self.takeovers: dict[str, Takeover] = {}
        self.init_calls: dict[str, list[InitCall]] = {}
        self.jobs: dict[str, Job] = {}
        # Transactional ids that an administrator terminates, each of one client.
        self.victims: dict[str, None] = {}
        self.cuts: list[SeenCut] = []
        # Of the script's topics.
        self.topic_ids: dict[str, int] = {}
        self.writer_count = 0
        self.temporary_count = 0
        self.orphans = 0
        self.client_config = magnetar.ClientConfig(**{**CLIENT_SETTINGS, **settings["client"]})
        self.calm = Calm(self.loop.time)
        self.owners = (
            owners_of(self, OwnersPlan(**script.flags["owners"]))
            if "owners" in script.flags
            else None
        )
        # By shard; the first one keeps the directory.
        self.brokers: list[AnyServer] = self._seats(cluster_view.BROKER) or [
            self._server(name, make_broker, settings["broker"]) for name in self.broker_names
        ]
        self.broker = self.brokers[0]
        for broker in self.brokers:
            broker.on_crash = partial(self.listeners.taps.on_crash, broker.name)
        # By TCID.
        self.coordinators: list[AnyServer] = self._seats(cluster_view.COORDINATOR) or [
            self._server(name, make_coordinator, settings["coordinator"])
            for name in coordinator_names(script.coordinator_count)
        ]
        self.coordinator = self.coordinators[0]
        self.server_names = [one.name for one in self.servers]
        self.network.server_names = frozenset(self.server_names)
        if self.owners is not None:
            self.network.dialer = self.owners.dialer
            self.network.machine_of = self.owners.machine_of
        self.striker = Striker(
            self, script.faults, [one.number for one in script.steps if not one.closing]
        )
        self.network.delay_seconds_max = FRAME_AGE_SECONDS_MAX
        # Where it is to forget soon, nobody can expect it to know.
        for answers in self.listeners.answers.values():
            answers.remembers_attempts = (
                "magnetar_broker.subscriptions.delivery:PAST_CONSUMERS_MAX"
                not in settings["constants"]
            )
        self.network.on_half_open = lambda link, seconds: self.calm.trouble(
            [link.client_node, link.server_node], seconds
        )
        self.power = Power(self._server_at)
        self.taps.add(self.power)
        for server in self.servers:
            server.on_ready = lambda name=server.name: self.calm.over(name)  # type: ignore[misc]
            server.reads.seconds_max = script.flags.get("read_seconds_max", 0.0)
        if self.owners is not None:
            self.owners.on_trouble = self.calm.trouble
        by_client: dict[str, list[Step]] = {}
        for step in script.steps:
            by_client.setdefault(step.client, []).append(step)
        self.actors = {name: Actor(self, name, steps) for name, steps in by_client.items()}
        self._present = {one.number for one in script.steps}
        self._done: dict[int, None] = {}
        self._on_done: asyncio.Event | None = None
        # Cursors whose inputs are processed to the end, and whether outputs keep their order.
        self.processed: dict[Cursor, bool] = {}
        # While an administrator looks at what is damaged, nothing else gets damaged.
        self.skips_under_way = 0
        # How many administrators have asked, and not heard yet, that damage be given up.
        self.skips_asked: Counter[Place] = Counter()
        # What it is known for certain that it was given up.
        self.skips_answered: dict[Place, set[int]] = {}
        # Instances of each transactional id, oldest first; sequences of each name that may have
        # been committed, and whether that is certain.
        self.instances: dict[str, list[Instance]] = {}
        self.sequences: dict[str, dict[int, bool]] = {}
        # Of members by hand: whose each transaction is.
        self.hand_transactions: dict[TxnID, str] = {}
        # Brokers that were seen to serve, and those that were seen to know all coordinators.
        self.brokers_serving: set[str] = set()
        self.brokers_told: set[str] = set()
        # Of topics that the history does not know message by message; of dead letters, by the
        # subscription that they come from, too.
        self.tallies: dict[tuple[str, str | None], Tally] = {}
        # Asked when everything has been read; each fails the run by itself.
        # Told whether retention has removed something.
        self.final_checks: list[Callable[[bool], None]] = []

    def _server(self, name: str, make: Any, settings: dict[str, Any]) -> ServerNode:
        def make_one(
            node: ServerNode, store: MemoryStore, incarnation: Incarnation
        ) -> tuple[Any, dict[str, Any]]:
            made: tuple[Any, dict[str, Any]] = make(self, node, store, incarnation, settings)
            return made

        late_syncs = settings.get("durability") == "os"
        return ServerNode(
            self.environment,
            name,
            make_one,
            make.families(),
            late_syncs=late_syncs,
            stays_powered=late_syncs and not self.script.flags.get("loses_plain"),
        )

    def _seats(self, kind: str) -> list[AnyServer]:
        """The shards of a kind, where they have owners that change."""
        if self.owners is None:
            return []
        return [one for one in self.owners.seats.values() if one.shard.kind == kind]

    def _broker_at(self, address: str) -> str:
        """The broker that an address names."""
        if self.owners is None:
            return address
        return self.owners.server_at(address)

    def any_broker(self, client: str) -> str:
        """The broker that a client asks what every broker answers."""
        return _begun_by(client, self.broker_names)[0]

    def bootstrap(self, client: str) -> list[str]:
        """Addresses at which a client finds the cluster: not everybody begins with the first."""
        if self.owners is not None:
            return _begun_by(client, self.owners.broker_members())
        return _begun_by(client, self.broker_names)

    def keeper_of(self, topic_id: int, partition: int) -> AnyServer:
        """The broker that keeps a partition."""
        return self.brokers[shard_of(topic_id, partition)]

    def node_of(self, name: str) -> AnyServer:
        return next(server for server in self.servers if server.name == name)

    def _is_lost(self, txn: tuple[int, int]) -> bool:
        """Whether its coordinator lost a transaction that no disk had when it was told."""
        txn_id = TxnID(*txn)
        names = coordinator_names(self.script.coordinator_count)
        return txn_id.tcid < len(names) and is_lost(self.node_of(names[txn_id.tcid]).disk, txn_id)

    def _server_at(self, link_number: int) -> str | None:
        for one in self.network.links():
            if one.number == link_number:
                return one.server_node
        return None

    def _disk_at(self, link_number: int) -> MemoryDisk | None:
        server = self._server_at(link_number)
        return None if server is None else self.node_of(server).disk

    def _delay_random(self, first: str, second: str) -> Random:
        """Chance of its own for both ends of a link: other links do not disturb this one."""
        found = self._delays.get((first, second))
        if found is None:
            found = self._delays[first, second] = self.environment.random(f"{first}>{second}")
        return found

    def _drain_seconds(self) -> float:
        """For how long an abort waits for what is under way, as far as it can be told."""
        config = self.client_config
        # What was given up is not under way, and nobody hears when its time began.
        gives_up_soon = config.send_timeout_ms < SEND_TIMEOUT_MS_MIN
        return 0.0 if gives_up_soon else config.abort_drain_ms / 1000

    def _subscriptions(self) -> Iterator[Subscription]:
        for broker in self.brokers:
            # One that is down, or has not recovered yet, has none.
            if broker.ready.is_set():
                for partition in broker.server.topics.partitions():
                    yield from partition.subscriptions

    # For actors.

    def saw(self, message: magnetar.Message) -> None:
        """An SDK consumer got a message."""
        self.history.saw(
            message.topic, message.partition, message.offset, message.value, message.txn_id
        )

    def note_client_failure(self, node: Node, error: BaseException) -> None:
        """A client gave something up. Raises: Violation for what no fault brings about."""
        if isinstance(error, NEVER_EXCUSED):
            self.history.violation("end", f"{node.name} was told {error!r}")
        self.history.counts["client failures"] += 1
        self.trace.event("failure", f"{node.name}: {type(error).__name__}: {error}")

    def check_description(self, wire: topic_pb2.CommandDescribeTopicResponse) -> None:
        for partition in wire.partitions:
            for one in partition.subscriptions:
                cursor = (wire.topic, partition.partition, one.subscription)
                self.history.mark_delete(
                    cursor, one.mark_delete_offset, first_offset=partition.first_offset
                )

    # Names.

    def server(self, name: str) -> AnyServer | None:
        for one in self.servers:
            if one.name == name:
                return one
        return None

    def actor_node(self, name: str) -> ClientNode | None:
        actor = self.actors.get(name)
        return actor.node if actor is not None else None

    def node_names(self) -> list[str]:
        return [*self.actors, *(server.name for server in self.servers)]

    # Trouble.

    def excuse_cut_off(self, names: Collection[str], seconds: float) -> None:
        """These nodes are about to be cut off from others.

        Where shards move, their machines are, on which other shards are or come.
        """
        self.calm.trouble(names if self.owners is None else [EVERYBODY], seconds)

    # Steps.

    def begins(self, step: Step) -> None:
        self.trace.event("step", str(step).strip())
        if not step.closing:
            self.striker.step_begins(step.number)

    def done(self, step: Step) -> None:
        self._done[step.number] = None
        if self._on_done is not None:
            self._on_done.set()
            self._on_done = None

    def has_done(self, step: Step) -> bool:
        return step.number in self._done

    async def wait_for(self, numbers: tuple[int, ...]) -> None:
        """Until others have done these steps, as far as they are in the script."""
        while any(number in self._present and number not in self._done for number in numbers):
            if self._on_done is None:
                self._on_done = asyncio.Event()
            await self._on_done.wait()

    # The run.

    def run(self) -> None:
        """Raises: SimulationFailure, or whatever else went wrong."""
        handler = _ErrorsFail(self.loop)
        log = logging.getLogger()
        log.addHandler(handler)
        try:
            with self.key_order.watching():
                self.loop.run_until_complete(self._main())
            self.protocol.finish()
            self.loop.check_tasks()
            self._count_situations()
        finally:
            log.removeHandler(handler)
            self.loop.bury()

    def _count_situations(self) -> None:
        if self.owners is not None:
            self.provoked.update(self.owners.counts)
            self.provoked.update(self.owners.watch.counts)
            fenced = sum(one.disk.fenced_count for one in self.owners.seats.values())
            self.provoked["fenced"] += fenced
        self.provoked["a lost groups"] += sum(server.lost_batch_count for server in self.servers)
        for kind, servers in (("broker", self.brokers), ("coordinator", self.coordinators)):
            self.provoked[f"b {kind} ended"] += sum(server.fatal_count for server in servers)
        for group in self.listeners.groups.values():
            self.provoked["p refused by a broker"] += group.counts["refused"]
        for name in ("moves of keys", "beside a pending ack"):
            self.provoked[f"q {name}"] += self.key_order.counts[name]

    @property
    def servers(self) -> list[AnyServer]:
        """Servers, or the shards that stand for them: see owners/seats.py."""
        return [*self.brokers, *self.coordinators]

    async def _main(self) -> None:
        await self.set_up()
        for actor in self.actors.values():
            actor.node.start()
        judgement = Judgement(self)
        await judgement.come_to_rest()
        await self.run_program("verifier", judgement.verify)
        self.check_servers()

    def end_faults(self) -> None:
        """Nothing goes wrong from now on, and what is down comes up."""
        self.network.heal()
        if self.owners is not None:
            self.owners.end_faults()
        for server in self.servers:
            server.free_disk()
            server.disk.sync_seconds = SYNC_SECONDS
            server.damage.repair()
            server.disk._fail_next_write = server.disk._fail_next_sync = False
            if not server.alive:
                server.start()

    async def set_up(self) -> None:
        """Start the servers and make the topics."""
        if self.owners is not None:
            self.owners.start()
            await self.owners.settled("the cluster was started")
        for server in self.servers:
            server.start()
        await self.run_program("setup", self._set_up)

    async def run_program(
        self, name: str, work: Callable[[ClientNode], Coroutine[Any, Any, None]]
    ) -> None:
        """Run something to its end in a process of its own."""
        node = ClientNode(self.environment, name, work)
        node.start()
        assert node.main is not None
        await asyncio.wait([node.main])
        node.main.result()

    async def _set_up(self, node: ClientNode) -> None:
        client = raw_client(self, node)
        for topic, partition_count in self.script.topics.items():
            try:
                self.topic_ids[topic] = await client.create_topic(
                    topic, partition_count, **self.script.settings["topic"]
                )
            except TopicExists:
                # A shard moved between the creation and its answer.
                self.topic_ids[topic] = await client.lookup(topic)

    @property
    def repeats_requests(self) -> bool:
        """Whether copies of requests may arrive at any time."""
        return any(fault.kind == "copies" for fault in self.script.faults)

    @property
    def ends_without_counts(self) -> bool:
        """Whether transactions may end without counts."""
        return any("end without counts" in step.arguments.values() for step in self.script.steps)

    def check_servers(self) -> None:
        """The servers' own invariants."""
        if not self.checks_servers:
            return
        for broker in self.brokers:
            if broker.ready.is_set():
                broker.server.check()
        for coordinator in self.coordinators:
            if coordinator.ready.is_set():
                coordinator.server.shard.check()


def _begun_by(client: str, names: list[str]) -> list[str]:
    """The names in the order of one client."""
    at = crc32(client.encode()) % len(names)
    return names[at:] + names[:at]


class _ErrorsFail(logging.Handler):
    """An exception in a log is a failure of the run: nobody may overlook it."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__(logging.ERROR)
        self._loop = loop

    def emit(self, record: logging.LogRecord) -> None:
        incarnation = CURRENT.get()
        if incarnation is not None and (incarnation.failing or not incarnation.alive):
            return
        # Critical: a server says farewell; whether it may is judged where it falls. Without an
        # exception: an alarm for an administrator.
        if record.levelno >= logging.CRITICAL or not record.exc_info:
            return
        if not record.name.startswith("magnetar"):
            return
        name = incarnation.name if incarnation is not None else "simulation"
        cause = record.exc_info[1]
        if isinstance(cause, Poisoned):
            return
        failure = UnhandledException(f"{name} logged an error: {record.getMessage()} {cause!r}")
        failure.__cause__ = cause
        self._loop.fail(failure)
