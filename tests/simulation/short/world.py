"""The run of a script: a cluster, its clients, the faults, and the judgement."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Coroutine
from typing import TYPE_CHECKING, Any, TextIO

from tests.simulation.history import Cursor, Place
from tests.simulation.network import REPEATABLE
from tests.simulation.nodes import ClientNode
from tests.simulation.owners.plan import OwnersPlan
from tests.simulation.owners.seats import AnyServer
from tests.simulation.plan import Plan
from tests.simulation.short.actors import Actor
from tests.simulation.short.calm import EVERYBODY, Calm
from tests.simulation.short.faults import Striker
from tests.simulation.short.judgement import ShortJudgement
from tests.simulation.short.power import Power
from tests.simulation.short.script import Script, Step
from tests.simulation.world import Result, World

from magnetar_core.ids import TxnID

if TYPE_CHECKING:
    from tests.simulation.short.derived import Tally
    from tests.simulation.short.members import Instance

Verb = Callable[..., Coroutine[Any, Any, None]]
CLIENT_SETTINGS = {
    "connect_timeout_ms": 500,
    "request_timeout_ms": 800,
    "operation_timeout_ms": 4_000,
    "send_timeout_ms": 5_000,
    "commit_timeout_ms": 2_000,
    "abort_timeout_ms": 1_000,
    "abort_drain_ms": 300,
    "close_timeout_ms": 300,
}
# Whatever a client may say can turn up once more, and late.
FRAME_AGE_SECONDS_MAX = 1.2
COPIED = REPEATABLE | {
    "abort_hanging_txn",
    "accept_txn_loss",
    "close_consumer",
    "create_topic",
    "delete_topic",
    "describe_topic",
    "describe_txn",
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
    "nack",
    "publish",
    "remove_name",
    "seek",
    "skip_damaged",
    "subscribe",
    "unsubscribe",
}


class ShortWorld(World):
    """Args:
    verbs: what steps mean, by name.
    out: where a readable trace goes.
    """

    def __init__(self, script: Script, verbs: dict[str, Verb], *, out: TextIO | None = None):
        settings = script.settings
        plan = Plan(
            topics=script.topics,
            broker_count=script.broker_count,
            coordinator_count=script.coordinator_count,
            owners=OwnersPlan(**script.flags["owners"]) if "owners" in script.flags else None,
            topic_settings=settings["topic"],
            broker_settings=settings["broker"],
            coordinator_settings=settings["coordinator"],
            client_settings={**CLIENT_SETTINGS, **settings["client"]},
            fault_weights={"duplicate": float(any(f.kind == "copies" for f in script.faults))},
        )
        super().__init__(f"short {script.profile} {script.seed}", plan=plan, out=out)
        self.script = script
        self.verbs = verbs
        self.calm = Calm(self.loop.time)
        self.striker = Striker(
            self, script.faults, [one.number for one in script.steps if not one.closing]
        )
        self.network.copied = COPIED
        # Frames do not travel for longer than a broker remembers an idle producer.
        self.network.delay_seconds_max = FRAME_AGE_SECONDS_MAX
        # Where it is to forget soon, nobody can expect it to know.
        for answers in self.listeners.answers.values():
            answers.remembers_attempts = (
                "magnetar_broker.subscriptions.delivery:PAST_CONSUMERS_MAX"
                not in settings["constants"]
            )
        self.power = Power(self._server_at)
        self.taps.add(self.power)
        self.network.on_half_open = lambda link, seconds: self.calm.trouble(
            [link.client_node, link.server_node], seconds
        )
        for server in self.servers:
            server.on_ready = lambda name=server.name: self.calm.over(name)  # type: ignore[misc]
        if self.owners is not None:
            self.owners.on_trouble = self.calm.trouble
        for server in self.servers:
            server.reads.seconds_max = script.flags.get("read_seconds_max", 0.0)
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
        # What scenarios found out, each by the name of what they count.
        self.active: Counter[str] = Counter()
        # Of topics that the history does not know message by message; of dead letters, by the
        # subscription that they come from, too.
        self.tallies: dict[tuple[str, str | None], Tally] = {}
        # Asked when everything has been read; each fails the run by itself.
        # Told whether retention has removed something.
        self.final_checks: list[Callable[[bool], None]] = []

    def _server_at(self, link_number: int) -> str | None:
        for one in self.network.links():
            if one.number == link_number:
                return one.server_node
        return None

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
        return [*self.actors, *(one.name for one in self.servers)]

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

    async def _main(self) -> None:
        await self.set_up()
        self.clients = {name: [actor.node] for name, actor in self.actors.items()}
        for actor in self.actors.values():
            actor.node.start()
        judgement = ShortJudgement(self)
        await judgement.come_to_rest()
        await self.run_program("verifier", judgement.verify)
        self.check_servers()

    def _result(self) -> Result:
        self.provoked.update(self.active)
        if self.owners is not None:
            self.provoked.update(self.owners.counts)
            self.provoked.update(self.owners.watch.counts)
            fenced = sum(one.disk.fenced_count for one in self.owners.seats.values())
            self.provoked["fenced"] += fenced
        return super()._result()
