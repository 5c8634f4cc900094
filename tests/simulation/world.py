"""One run: a cluster, its clients, what goes wrong, and the judgement. All from a seed."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from random import Random
from typing import Any, TextIO

from tests.simulation import checks, raw_programs, sdk_programs
from tests.simulation.history import Cursor, History, Place
from tests.simulation.loop import (
    CURRENT,
    Incarnation,
    SimulationFailure,
    UnhandledException,
    VirtualLoop,
)
from tests.simulation.network import Network
from tests.simulation.nodes import ClientNode, Environment, Node, ServerNode
from tests.simulation.raw import BROKER, COORDINATOR, RawClient, send_command
from tests.simulation.servers import make_broker, make_coordinator
from tests.simulation.trace import Trace

import magnetar
from magnetar_core.ids import TxnID
from magnetar_core.wire import common_pb2, topic_pb2, transaction_pb2
from magnetar_storage.memory import MemoryStore

TOPICS = ("in", "mix", "out")
PARTITIONS = 2
TRANSACTIONS_MIN = 100
CRASHES_MIN = 5
CHAOS_SECONDS_MAX = 120.0
QUIET_SECONDS_MAX = 120.0
# From the end of a transaction until the watermark has told the broker what it left behind.
ORPHAN_SECONDS_MAX = 30.0
# A server that has just come back is left alone for so long, or nothing would ever get done.
UP_SECONDS_MIN = 0.1

FAULTS = (
    "broker crash",
    "coordinator crash",
    "client crash",
    "link",
    "half-open",
    "duplicate",
    "partition",
    "delays",
    "disk failure",
    "disk full",
    "disk stall",
    "clock jump",
)


@dataclass
class Plan:
    """What a run consists of. A family of seeds is a plan with a bias.

    Attributes:
        programs: how many processes run each program.
        fault_weights: how likely each fault is to be the next.
        fault_period_s: mean time between faults.
        tricks: what sloppy clients do; None: everything.
        topic_settings: of every topic.
    """

    programs: dict[str, int] = field(default_factory=dict)
    fault_weights: dict[str, float] = field(default_factory=dict)
    fault_period_s: float = 0.12
    worker_type: str = "shared"
    tricks: tuple[Any, ...] | None = None
    topic_settings: dict[str, Any] = field(default_factory=dict)
    broker_settings: dict[str, Any] = field(default_factory=dict)
    coordinator_settings: dict[str, Any] = field(default_factory=dict)
    transactions_min: int = TRANSACTIONS_MIN
    crashes_min: int = CRASHES_MIN

    @classmethod
    def of_seed(cls, random: Random) -> Plan:
        """An ordinary run: some of everything, in proportions that differ from seed to seed."""
        weights = {fault: random.random() ** 2 for fault in FAULTS}
        for fault in random.sample(FAULTS, 3):
            weights[fault] = 0.0
        for fault in ("broker crash", "coordinator crash", "client crash"):
            weights[fault] = max(weights[fault], 0.15)
        return cls(
            programs={
                "atomic": random.randint(2, 3),
                "plain": random.randint(0, 2),
                "worker": random.randint(1, 2),
                "consumer": random.randint(1, 2),
                "sloppy": random.randint(1, 2),
                "observer": 1,
                "inspector": 1,
            },
            fault_weights=weights,
            fault_period_s=random.choice((0.05, 0.1, 0.3)),
            worker_type=random.choice(("shared", "shared", "failover", "exclusive")),
        )


PROGRAMS: dict[str, Callable[[World, ClientNode], Coroutine[Any, Any, None]]] = {
    "atomic": sdk_programs.atomic_producer,
    "plain": sdk_programs.plain_producer,
    "worker": sdk_programs.worker,
    "consumer": sdk_programs.plain_consumer,
    "sloppy": raw_programs.sloppy,
    "observer": raw_programs.observer,
    "inspector": raw_programs.inspector,
}
# These go on while the rest has stopped, until nothing is left to consume.
CONSUMING = ("worker", "consumer", "observer", "inspector")


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
        self.environment = Environment(self.loop, self.network, self.trace, str(seed))
        self.history = History(self.loop.time, self.loop.fail)
        self.provoked: Counter[str] = Counter()
        self.places: list[Place] = [
            (topic, number) for topic in TOPICS for number in range(PARTITIONS)
        ]
        self.worker_type = self.plan.worker_type
        self.tricks = self.plan.tricks
        # The faults are over: nobody dawdles any more.
        self.hurry = False
        self.writer_count = 0
        self.temporary_count = 0
        self.orphans = 0
        self.client_config = magnetar.ClientConfig(
            connect_timeout_ms=1_000,
            request_timeout_ms=1_500,
            operation_timeout_ms=6_000,
            send_timeout_ms=8_000,
            commit_timeout_ms=5_000,
            abort_timeout_ms=3_000,
            abort_drain_ms=1_000,
            close_timeout_ms=500,
            backoff_ms_min=10,
            backoff_ms_max=300,
        )
        self.broker = self._server("broker", make_broker, self.plan.broker_settings)
        self.coordinator = self._server(
            "coordinator", make_coordinator, self.plan.coordinator_settings
        )
        self.clients: dict[str, list[ClientNode]] = {}
        self.client_crash_count = 0

    def _server(self, name: str, make: Any, settings: dict[str, Any]) -> ServerNode:
        def make_one(
            node: ServerNode, store: MemoryStore, incarnation: Incarnation
        ) -> tuple[Any, dict[str, Any]]:
            return make(self, node, store, incarnation, settings)

        return ServerNode(self.environment, name, make_one, make.families())

    # For programs.

    def saw(self, message: magnetar.Message) -> None:
        """An SDK consumer got a message."""
        self.history.saw(
            message.topic, message.partition, message.offset, message.value, message.txn_id
        )

    def note_client_failure(self, node: Node, error: BaseException) -> None:
        self.history.counts["client failures"] += 1
        self.trace.event("failure", f"{node.name}: {type(error).__name__}: {error}")

    def check_description(self, wire: topic_pb2.CommandDescribeTopicResponse) -> None:
        for partition in wire.partitions:
            for one in partition.subscriptions:
                cursor = (wire.topic, partition.partition, one.subscription)
                self.history.mark_delete(cursor, one.mark_delete_offset)

    # The run.

    def run(self) -> Result:
        """Raises: SimulationFailure, or whatever else went wrong."""
        handler = _ErrorsFail(self.loop)
        log = logging.getLogger()
        log.addHandler(handler)
        try:
            self.loop.run_until_complete(self._main())
            self.loop.check_tasks()
            return self._result()
        finally:
            log.removeHandler(handler)
            self.loop.bury()

    def _result(self) -> Result:
        counts = Counter(self.history.counts)
        counts["server crashes"] = self.broker.crash_count + self.coordinator.crash_count
        counts["fatal errors"] = self.broker.fatal_count + self.coordinator.fatal_count
        counts["client crashes"] = self.client_crash_count
        counts["lost groups"] = self.broker.lost_batch_count + self.coordinator.lost_batch_count
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
        return self.broker.crash_count + self.coordinator.crash_count + self.client_crash_count

    async def _main(self) -> None:
        self.broker.start()
        self.coordinator.start()
        await self._run_program("setup", self._set_up)
        for kind, count in self.plan.programs.items():
            program = PROGRAMS[kind]
            self.clients[kind] = [
                ClientNode(
                    self.environment,
                    f"{kind}-{number}",
                    lambda node, program=program: program(self, node),
                )
                for number in range(count)
            ]
            for node in self.clients[kind]:
                node.start()
        await self._chaos()
        await self._come_to_rest()
        await self._run_program("verifier", self._verify)

    async def _run_program(
        self, name: str, work: Callable[[ClientNode], Coroutine[Any, Any, None]]
    ) -> None:
        """Run something to its end in a process of its own."""
        node = ClientNode(self.environment, name, work)
        node.start()
        assert node.main is not None
        await asyncio.wait([node.main])
        node.main.result()

    async def _set_up(self, node: ClientNode) -> None:
        client = raw_programs.raw_client(self, node)
        for topic in TOPICS:
            await client.create_topic(topic, PARTITIONS, **self.plan.topic_settings)

    # Faults.

    async def _chaos(self) -> None:
        """Let things go wrong until enough has happened."""
        random = self.environment.random("chaos")
        faults = list(self.plan.fault_weights)
        weights = [self.plan.fault_weights[fault] for fault in faults]
        while self.loop.time() < CHAOS_SECONDS_MAX:
            await asyncio.sleep(random.expovariate(1.0 / self.plan.fault_period_s))
            enough = len(self.history.transactions) >= self.plan.transactions_min
            if enough and self.crash_count >= self.plan.crashes_min:
                return
            if any(weights):
                self._strike(random.choices(faults, weights)[0], random)

    def _strike(self, fault: str, random: Random) -> None:
        network = self.network
        links = network.links()
        server = self.broker if random.random() < 0.6 else self.coordinator
        match fault:
            case "broker crash" | "coordinator crash":
                server = self.broker if fault == "broker crash" else self.coordinator
                if self.loop.time() - server.ready_at < UP_SECONDS_MIN or not server.alive:
                    return
                if random.random() < 0.5:
                    # In the middle of a write, so that something is lost.
                    server.disk.sync_seconds = random.uniform(0.005, 0.05)
                    delay = random.uniform(0.0, 0.06)
                    self.loop.call_later(delay, self._crash_in_write, server)
                else:
                    server.crash(power_loss=random.random() < 0.7)
            case "client crash":
                nodes = [one for group in self.clients.values() for one in group if one.alive]
                if nodes:
                    self.client_crash_count += 1
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
                server.disk.free_bytes = 1 << 20
                self.loop.call_later(random.uniform(0.05, 0.5), self._free_disk, server)
            case "disk stall":
                server.disk.sync_seconds = random.choice((0.05, 0.5))
                self.loop.call_later(random.uniform(0.05, 1.0), self._speed_up_disk, server)
            case "clock jump":
                everybody: list[Node] = [self.broker, self.coordinator]
                everybody += [one for group in self.clients.values() for one in group]
                random.choice(everybody).clock.wall_offset_ms += random.randint(-(10**7), 10**7)
        network.faults[fault] += 1
        self.trace.event("fault", f"{fault} {server.name}")

    def _crash_in_write(self, server: ServerNode) -> None:
        server.crash(power_loss=True)
        self._speed_up_disk(server)

    def _free_disk(self, server: ServerNode) -> None:
        server.disk.free_bytes = 1 << 40

    def _speed_up_disk(self, server: ServerNode) -> None:
        server.disk.sync_seconds = 0.0004

    async def _come_to_rest(self) -> None:
        """All faults end, producers stop, what is consumed is consumed to the end."""
        self.hurry = True
        self.trace.event("quiet", "the faults are over")
        self.network.heal()
        for server in (self.broker, self.coordinator):
            self._free_disk(server)
            self._speed_up_disk(server)
            if not server.alive:
                server.start()
        for kind, group in self.clients.items():
            for node in group:
                node.stopping = kind not in CONSUMING
        await self._until(
            lambda: all(
                node.finished or not node.alive
                for kind, group in self.clients.items()
                for node in group
                if kind not in CONSUMING
            ),
            "producers to stop",
        )
        await self._run_program("janitor", self._wait_for_ends)
        for kind in ("worker", "consumer"):
            for node in self.clients.get(kind, ()):
                if not node.alive:
                    node.start()
        await self._run_program("auditor", self._wait_for_consumers)
        for group in self.clients.values():
            for node in group:
                node.stopping = True
        await self._until(
            lambda: all(
                node.finished or not node.alive for group in self.clients.values() for node in group
            ),
            "clients to stop",
        )
        await self._run_program("janitor", self._wait_for_ends)

    async def _until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = self.loop.time() + QUIET_SECONDS_MAX
        while not condition():
            if self.loop.time() > deadline:
                raise SimulationFailure(
                    f"waited {QUIET_SECONDS_MAX} s for {what}\n" + self.loop.describe_tasks()
                )
            await asyncio.sleep(0.1)

    async def _wait_for_ends(self, node: ClientNode) -> None:
        """Until no transaction is live; losses are accepted on the way."""
        client = raw_programs.raw_client(self, node)
        deadline = self.loop.time() + QUIET_SECONDS_MAX
        while True:
            reply = await client.insist(COORDINATOR, transaction_pb2.CommandListTxns())
            if not reply.transactions:
                return
            if self.loop.time() > deadline:
                raise SimulationFailure(f"these transactions do not end: {reply}")
            for one in reply.transactions:
                if not any("TXN_INCOMPLETE" in part.last_error for part in one.unfinished):
                    continue
                known = self.history.transactions.get(TxnID.from_wire(one.txn_id))
                if known is None or not known.inexact:
                    self.history.violation("2", f"a participant lost what it confirmed: {one}")
                await client.insist(
                    COORDINATOR, transaction_pb2.CommandAcceptTxnLoss(txn_id=one.txn_id)
                )
            await asyncio.sleep(0.3)

    def worker_cursors(self) -> list[Cursor]:
        if not self.clients.get("worker"):
            return []
        return [("in", number, "work") for number in range(PARTITIONS)]

    async def _wait_for_consumers(self, node: ClientNode) -> None:
        """Until both subscriptions have nothing left."""
        client = raw_programs.raw_client(self, node)
        deadline = self.loop.time() + QUIET_SECONDS_MAX
        wanted = {("in", "work"): "worker", ("mix", "audit"): "consumer"}
        for (topic, subscription), kind in wanted.items():
            if not self.clients.get(kind):
                continue
            while True:
                description = await client.describe_topic(topic)
                self.check_description(description)
                left = [
                    one
                    for partition in description.partitions
                    for one in partition.subscriptions
                    if one.subscription == subscription and (one.backlog or one.pending_ack_count)
                ]
                if not left:
                    break
                if self.loop.time() > deadline:
                    raise SimulationFailure(
                        f"{subscription} does not come to its end: {left}\n"
                        + self.loop.describe_tasks()
                    )
                await asyncio.sleep(0.2)

    # Judgement.

    async def _verify(self, node: ClientNode) -> None:
        client = raw_programs.raw_client(self, node)
        await self._wait_for_orphans(client)
        await self._probe_freedom(client)
        first_offsets: dict[Place, int] = {}
        end_offsets: dict[Place, int] = {}
        for topic in TOPICS:
            description = await client.describe_topic(topic)
            self.check_description(description)
            for partition in description.partitions:
                place = (topic, partition.partition)
                first_offsets[place] = partition.first_offset
                end_offsets[place] = partition.end_offset
                offset = partition.first_offset
                while offset < partition.end_offset:
                    following = await raw_programs.read_new(self, client, *place, offset)
                    if following <= offset:
                        self.history.violation(
                            "2", f"{place} cannot be read past {offset} of {partition.end_offset}"
                        )
                    offset = following
        outcomes = {
            txn_id: await raw_programs.ask_status(self, client, txn)
            for txn_id, txn in self.history.transactions.items()
        }
        checks.check_all(self.history, outcomes, first_offsets, end_offsets)
        checks.check_processed_once(self.history, self.worker_cursors())

    async def _wait_for_orphans(self, client: RawClient) -> None:
        """Rule f: what the coordinator ended does not stay open at the broker."""
        deadline = self.loop.time() + ORPHAN_SECONDS_MAX
        for topic in TOPICS:
            while True:
                description = await client.describe_topic(topic)
                left = [one for part in description.partitions for one in part.open_txns]
                if not left:
                    break
                if self.loop.time() > deadline:
                    self.history.violation("f", f"{topic} keeps ended transactions open: {left}")
                await asyncio.sleep(0.5)

    async def _probe_freedom(self, client: RawClient) -> None:
        """Invariant 10: an open transaction delays no other reader or writer."""
        history = self.history
        random = self.environment.random("probe")
        idle = raw_programs.RawUnit(self, client, random, "probe-idle")
        await idle.begin(60_000)
        await idle.send(1, "mix", 0)
        await idle.send(1, "mix", 1)
        started_at = self.loop.time()
        busy = raw_programs.RawUnit(self, client, random, "probe-busy")
        await busy.begin(60_000)
        sent = await busy.send(2, "mix", 0) + await busy.send(2, "mix", 1)
        history.ask_commit(busy.record, expected=sent)
        await busy.end(
            busy.end_command(common_pb2.COMMIT, counts=busy.confirmed_counts(), wait_finished=True)
        )
        for partition in range(PARTITIONS):
            wire = await busy.partition("mix", partition)
            plain = history.send("probe-plain", "mix", partition)
            reply = await client.insist(BROKER, send_command(wire, 3, 0, [plain.value]))
            offset = reply.message_id.entry_id + reply.message_id.index
            history.confirm(plain, asked_at=started_at, offset=offset)
            sent.append(plain)
            await raw_programs.read_new(self, client, "mix", partition, offset)
        description = await client.describe_topic("mix")
        for partition in description.partitions:
            start = max(0, partition.end_offset - 4)
            await raw_programs.read_new(self, client, "mix", partition.partition, start)
        for message in sent:
            if message.value not in history.seen_at:
                history.violation("10", f"{message} is hidden by an open transaction")
        if self.loop.time() - started_at > 2.0:
            history.violation(
                "10", f"{self.loop.time() - started_at:.3f} s beside an open transaction"
            )
        self.provoked["10"] += 1
        await idle.end(idle.end_command(common_pb2.ABORT, wait_finished=True))


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
