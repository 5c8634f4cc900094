"""A run: a cluster, its clients, the faults, and the judgement, all from a seed."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, TextIO
from zlib import crc32

from tests.simulation import (
    cut_programs,
    group_programs,
    identity_programs,
    raw_programs,
    sdk_programs,
)
from tests.simulation.asked_wiretap import AskedWiretap
from tests.simulation.chaos import Chaos
from tests.simulation.client_wiretap import ClientWiretaps
from tests.simulation.cluster_wiretap import ClusterWiretap
from tests.simulation.durable_wiretap import DurableWiretap, is_lost
from tests.simulation.ending_wiretap import EndingWiretap
from tests.simulation.ends_alone import EndsAlone
from tests.simulation.follow_wiretap import FollowWiretap
from tests.simulation.history import History, Place
from tests.simulation.identity_wiretap import IdentityWiretap
from tests.simulation.judgement import Judgement
from tests.simulation.key_order import KeyOrder
from tests.simulation.listeners import Listeners
from tests.simulation.network import Network
from tests.simulation.nodes import ClientNode, Environment, Node, ServerNode
from tests.simulation.open_wiretap import OpenWiretap
from tests.simulation.owners.of_world import owners_of
from tests.simulation.owners.seats import AnyServer
from tests.simulation.plan import Plan
from tests.simulation.raw_unit import raw_client
from tests.simulation.release_wiretap import ReleaseWiretap
from tests.simulation.sending_wiretap import SendingWiretap
from tests.simulation.servers import (
    broker_names,
    coordinator_names,
    make_broker,
    make_coordinator,
)
from tests.simulation.trace import Trace
from tests.simulation.wiretaps import Wiretaps
from tests.virtual_loop import (
    CURRENT,
    Incarnation,
    UnhandledException,
    VirtualLoop,
)

import magnetar
from magnetar_broker.subscriptions.subscription import Subscription
from magnetar_cluster import view as cluster_view
from magnetar_core.errors import ChecksumMismatch, InternalError, InvalidArgument, TopicExists
from magnetar_core.ids import TxnID
from magnetar_core.membership.placement import shard_of
from magnetar_core.wire import topic_pb2
from magnetar_storage.memory.engine import MemoryDisk, MemoryStore

PROGRAMS: dict[str, Callable[[World, ClientNode], Coroutine[Any, Any, None]]] = {
    "atomic": sdk_programs.atomic_producer,
    "plain": sdk_programs.plain_producer,
    "worker": sdk_programs.worker,
    "dual": identity_programs.dual_writer,
    "job": identity_programs.job,
    "terminator": identity_programs.terminator,
    "member": group_programs.member,
    "consumer": sdk_programs.plain_consumer,
    "surveyor": cut_programs.surveyor,
    "sloppy": raw_programs.sloppy,
    "observer": raw_programs.observer,
    "inspector": raw_programs.inspector,
}

# A send that may take so long is not given up while an abort waits for it.
SEND_TIMEOUT_MS_MIN = 1_000
# Less patient than an application's: virtual time is dear, as every repeat costs steps.
CLIENT_SETTINGS: dict[str, Any] = {
    "connect_timeout_ms": 1_000,
    "request_timeout_ms": 1_500,
    "operation_timeout_ms": 6_000,
    "send_timeout_ms": 8_000,
    "commit_timeout_ms": 5_000,
    "abort_timeout_ms": 3_000,
    "abort_drain_ms": 1_000,
    "close_timeout_ms": 500,
    "backoff_ms_min": 10,
    "backoff_ms_max": 300,
}


# Clients here say nothing wrong, but for those who expect to be told so.
NEVER_EXCUSED = (InvalidArgument, InternalError, ChecksumMismatch)


@dataclass(frozen=True)
class Result:
    """What a run amounted to."""

    digest: str
    virtual_seconds: float
    steps: int
    counts: Counter[str]
    faults: Counter[str]
    provoked: Counter[str]


class World:
    """Args:
    seed: decides everything.
    plan: instead of the seed's own.
    out: where a readable trace goes.
    """

    def __init__(self, seed: int | str, *, plan: Plan | None = None, out: TextIO | None = None):
        self.random = Random(f"{seed}/world")
        self.plan = plan or Plan.of_seed(Random(f"{seed}/plan"))
        self.loop = VirtualLoop(deadline=3_000.0)
        self.trace = Trace(self.loop.time, out)
        self.network = Network(self.loop, Random(f"{seed}/network"), self.trace)
        self._delays: dict[tuple[str, str], Random] = {}
        self.network.delays_between = self._delay_random
        self.environment = Environment(self.loop, self.network, self.trace, str(seed))
        self.history = History(self.loop.time, self.loop.fail)
        self.broker_names = broker_names(self.plan.broker_count)
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
        self.provoked: Counter[str] = Counter()
        # Whether what this run is about has come about: until then it goes on.
        self.occurred: Callable[[], bool] = lambda: True
        self.places: list[Place] = [
            (topic, number)
            for topic, partition_count in self.plan.topics.items()
            for number in range(partition_count)
        ]
        self.worker_type = self.plan.worker_type
        self.tricks = self.plan.tricks
        # The faults are over: nobody dawdles any more.
        self.hurry = False
        # Whether the servers' own assertions are asked, too.
        self.checks_servers = True
        # What clients keep elsewhere.
        self.databases: dict[str, identity_programs.Database] = {}
        self.takeovers: dict[str, identity_programs.Takeover] = {}
        self.init_calls: dict[str, list[identity_programs.InitCall]] = {}
        self.jobs: dict[str, identity_programs.Job] = {}
        self.cuts: list[cut_programs.SeenCut] = []
        # Of the plan's topics.
        self.topic_ids: dict[str, int] = {}
        self.writer_count = 0
        self.temporary_count = 0
        self.orphans = 0
        self.client_config = magnetar.ClientConfig(
            **{**CLIENT_SETTINGS, **self.plan.client_settings}
        )
        self.owners = owners_of(self, self.plan.owners) if self.plan.owners else None
        # By shard; the first one keeps the directory.
        self.brokers: list[AnyServer] = self._seats(cluster_view.BROKER) or [
            self._server(name, make_broker, self.plan.broker_settings) for name in self.broker_names
        ]
        self.broker = self.brokers[0]
        for broker in self.brokers:
            broker.on_crash = partial(self.listeners.taps.on_crash, broker.name)
        # By TCID.
        self.coordinators: list[AnyServer] = self._seats(cluster_view.COORDINATOR) or [
            self._server(name, make_coordinator, self.plan.coordinator_settings)
            for name in coordinator_names(self.plan.coordinator_count)
        ]
        self.coordinator = self.coordinators[0]
        self.server_names = [one.name for one in self.servers]
        self.network.server_names = frozenset(self.server_names)
        if self.owners is not None:
            self.network.dialer = self.owners.dialer
            self.network.machine_of = self.owners.machine_of
        self.clients: dict[str, list[ClientNode]] = {}
        self.client_crash_count = 0
        self.chaos = Chaos(self)

    def _server(self, name: str, make: Any, settings: dict[str, Any]) -> ServerNode:
        def make_one(
            node: ServerNode, store: MemoryStore, incarnation: Incarnation
        ) -> tuple[Any, dict[str, Any]]:
            made: tuple[Any, dict[str, Any]] = make(self, node, store, incarnation, settings)
            return made

        late_syncs = settings.get("durability") == "os"
        return ServerNode(self.environment, name, make_one, make.families(), late_syncs=late_syncs)

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
        return next(one for one in self.servers if one.name == name)

    def _is_lost(self, txn: tuple[int, int]) -> bool:
        """Whether its coordinator lost a transaction that no disk had when it was told."""
        txn_id = TxnID(*txn)
        names = coordinator_names(self.plan.coordinator_count)
        return txn_id.tcid < len(names) and is_lost(self.node_of(names[txn_id.tcid]).disk, txn_id)

    def _disk_at(self, link_number: int) -> MemoryDisk | None:
        for one in self.network.links():
            if one.number == link_number:
                return self.node_of(one.server_node).disk
        return None

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

    # For programs.

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

    # The run.

    def run(self) -> Result:
        """Raises: SimulationFailure, or whatever else went wrong."""
        handler = _ErrorsFail(self.loop)
        log = logging.getLogger()
        log.addHandler(handler)
        try:
            with self.key_order.watching():
                self.loop.run_until_complete(self._main())
            self.loop.check_tasks()
            return self._result()
        finally:
            log.removeHandler(handler)
            self.loop.bury()

    def _result(self) -> Result:
        counts = Counter(self.history.counts)
        counts["server crashes"] = sum(one.crash_count for one in self.servers)
        counts["fatal errors"] = sum(one.fatal_count for one in self.servers)
        counts["client crashes"] = self.client_crash_count
        counts["lost groups"] = sum(one.lost_batch_count for one in self.servers)
        return Result(
            self.trace.digest(),
            self.loop.time(),
            self.loop.step_count,
            counts,
            self.network.faults,
            self.provoked,
        )

    @property
    def crash_count(self) -> int:
        return sum(one.crash_count for one in self.servers) + self.client_crash_count

    @property
    def servers(self) -> list[AnyServer]:
        """Servers, or the shards that stand for them: see owners/seats.py."""
        return [*self.brokers, *self.coordinators]

    async def _main(self) -> None:
        await self.set_up()
        for kind, count in self.plan.programs.items():
            program = PROGRAMS[kind]
            self.clients[kind] = [
                ClientNode(
                    self.environment,
                    f"{kind}-{number}",
                    partial(program, self),
                )
                for number in range(count)
                if f"{kind}-{number}" not in self.plan.absent
            ]
            for node in self.clients[kind]:
                node.start()
        await self.chaos.run()
        judgement = Judgement(self)
        await judgement.come_to_rest()
        await self.run_program("verifier", judgement.verify)
        self.check_servers()

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
        for topic, partition_count in self.plan.topics.items():
            try:
                self.topic_ids[topic] = await client.create_topic(
                    topic, partition_count, **self.plan.topic_settings
                )
            except TopicExists:
                # A shard moved between the creation and its answer.
                self.topic_ids[topic] = await client.lookup(topic)

    @property
    def repeats_requests(self) -> bool:
        """Whether copies of requests may arrive at any time."""
        return self.plan.fault_weights.get("duplicate", 0.0) > 0.0

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
        failure = UnhandledException(f"{name} logged an error: {record.getMessage()} {cause!r}")
        failure.__cause__ = cause
        self._loop.fail(failure)
