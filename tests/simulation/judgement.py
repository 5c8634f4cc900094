"""The end of a run: everything comes to rest, and then the invariants are judged."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.simulation import checks, identities, surveys
from tests.simulation.history import Cursor, Place
from tests.simulation.nodes import ClientNode
from tests.simulation.raw import BROKER, COORDINATOR, RawClient, send_command
from tests.simulation.raw_unit import RawUnit, ask_status, raw_client, read_new
from tests.simulation.settling_tricks import held_on, probe_settling

from magnetar.testing.lives import SimulationFailure
from magnetar_core.errors import OutOfRange
from magnetar_core.ids import TxnID
from magnetar_core.wire import broker_pb2, common_pb2, transaction_pb2

if TYPE_CHECKING:
    from tests.simulation.world import World

QUIET_SECONDS_MAX = 120.0
# From the end of a transaction until the watermark has told the broker what it left behind.
ORPHAN_SECONDS_MAX = 30.0
# From the last acknowledgement until retention has looked again.
RETENTION_SECONDS = 1.0
# Of a store's read, once all is quiet.
READ_SECONDS_MAX = 0.002


class Judgement:
    """Of one world, when the faults are over."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._history = world.history
        self._loop = world.loop

    async def come_to_rest(self) -> None:
        """All is done that was to be done, faults end, and then what was said for the end."""
        world = self._world
        await self._until(self._nothing_more_to_do, "steps to be done")
        world.trace.event("quiet", "the faults are over")
        world.end_faults()
        for server in world.servers:
            server.restarts = True
        if world.owners is not None:
            await world.owners.settled("the faults were over")
        # Servers look only so often whether their disks have room again.
        await asyncio.sleep(0.2)
        for actor in world.actors.values():
            actor.node.stopping = True
        await self._until(self._all_stopped, "clients to stop")
        await world.run_program("recoverer", self._recover)
        await world.run_program("janitor", self._wait_for_ends)
        for server in world.servers:
            # Row by row, all that there is would take longer than an operation may.
            server.reads.seconds_max = min(server.reads.seconds_max, READ_SECONDS_MAX)
        for actor in world.actors.values():
            await actor.close_down()
        for server in world.servers:
            # What nobody gave up is looked at as well.
            server.damage.repair_all()
        await self._wait_for_arrivals()
        await world.run_program("janitor", self._wait_for_ends)

    def _nothing_more_to_do(self) -> bool:
        return all(actor.finished for actor in self._world.actors.values())

    def _all_stopped(self) -> bool:
        return all(
            actor.node.finished or not actor.node.alive for actor in self._world.actors.values()
        )

    async def _until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = self._loop.time() + QUIET_SECONDS_MAX
        while not condition():
            if self._loop.time() > deadline:
                raise SimulationFailure(
                    f"waited {QUIET_SECONDS_MAX} s for {what}\n" + self._loop.describe_tasks()
                )
            await asyncio.sleep(0.1)

    async def _wait_for_arrivals(self) -> None:
        """Until nothing is under way any more that clients wrote before they died."""
        network = self._world.network
        await self._until(lambda: self._loop.time() > network.arriving_until, "late frames")

    async def _recover(self, node: ClientNode) -> None:
        """What is prepared is decided, as it would be sooner or later."""
        await identities.recover_all(self._world, node)
        await identities.terminate_all(self._world, node)

    async def _wait_for_ends(self, node: ClientNode) -> None:
        """Until no transaction is live; losses are accepted on the way."""
        client = raw_client(self._world, node)
        for coordinator in self._world.coordinators:
            await self._wait_for_ends_at(client, coordinator.name)

    async def _wait_for_ends_at(self, client: RawClient, coordinator: str) -> None:
        deadline = self._loop.time() + QUIET_SECONDS_MAX
        while True:
            reply = await client.insist(
                COORDINATOR, transaction_pb2.CommandListTxns(), address=coordinator
            )
            if not reply.transactions:
                return
            if self._loop.time() > deadline:
                raise SimulationFailure(f"these transactions do not end: {reply}")
            for one in reply.transactions:
                if not any(part.error.code == common_pb2.TXN_INCOMPLETE for part in one.unfinished):
                    continue
                known = self._history.transactions.get(TxnID.from_wire(one.txn_id))
                if known is None or not known.inexact:
                    self._history.violation("2", f"a participant lost what it confirmed: {one}")
                await client.insist(
                    COORDINATOR, transaction_pb2.CommandAcceptTxnLoss(txn_id=one.txn_id)
                )
            await asyncio.sleep(0.3)

    async def verify(self, node: ClientNode) -> None:
        client = raw_client(self._world, node)
        await self._wait_for_orphans(client)
        if self._world.script.flags.get("probe"):
            await self._probe_freedom(client)
            await probe_settling(self._world, node)
        if self._world.script.settings["topic"]:
            # Retention goes on for a moment: what it removes while it is read is nobody's fault.
            await asyncio.sleep(RETENTION_SECONDS)
        first_offsets: dict[Place, int] = {}
        end_offsets: dict[Place, int] = {}
        for topic in self._world.script.topics:
            description = await client.describe_topic(topic)
            self._world.check_description(description)
            for partition in description.partitions:
                place = (topic, partition.partition)
                first_offsets[place] = partition.first_offset
                end_offsets[place] = partition.end_offset
                offset = partition.first_offset
                while offset < partition.end_offset:
                    try:
                        following = await read_new(self._world, client, *place, offset)
                    except OutOfRange as error:
                        # Retention goes on.
                        following = int(error.details["first_offset"])
                        first_offsets[place] = following
                    if following <= offset:
                        self._history.violation(
                            "2", f"{place} cannot be read past {offset} of {partition.end_offset}"
                        )
                    offset = following
        outcomes = {
            txn_id: await ask_status(self._world, client, txn)
            for txn_id, txn in self._history.transactions.items()
        }
        checks.check_all(self._history, outcomes, first_offsets, end_offsets)
        for place in end_offsets:
            await self._check_stored(client, place, outcomes)
        if not self._world.script.flags.get("loses_plain"):
            for answers in self._world.listeners.answers.values():
                checks.check_placed(self._history, answers.placed, first_offsets)
        checks.check_databases(self._history, self._world.databases, outcomes)
        checks.check_jobs(self._history, self._world.jobs, outcomes)
        surveys.check_cuts(self._history, self._world.cuts)
        again = checks.sent_values(self._world.network.arrived_again)
        checks.check_wholes(self._history, first_offsets, arrived_again=again)
        checks.check_denied(self._history, arrived_again=again)
        self._check_processed(trimmed=any(first_offsets.values()))

    async def _check_stored(
        self, client: RawClient, place: Place, outcomes: dict[TxnID, int]
    ) -> None:
        """What an abort discards leaves the disk as well: nobody would remove it later."""
        topic, partition = place
        wire = common_pb2.Partition(topic=topic, partition=partition)
        reply = await client.insist(BROKER, broker_pb2.CommandListStoredTxns(partition=wire))
        for one in reply.transactions:
            txn_id = TxnID.from_wire(one.txn_id)
            if outcomes.get(txn_id) == common_pb2.ABORTED:
                self._history.violation("f", f"{place} keeps messages of {txn_id}, ABORTED")

    def _check_processed(self, trimmed: bool) -> None:
        in_order: list[Cursor] = []
        for cursor, ordered in self._world.processed.items():
            checks.check_processed_once(self._history, [cursor], complete=not trimmed)
            if ordered:
                in_order.append(cursor)
        checks.check_processed_in_order(self._history, in_order)
        for check in self._world.final_checks:
            check(trimmed)

    async def _wait_for_orphans(self, client: RawClient) -> None:
        """Rule f: what the coordinator ended does not stay open at the broker."""
        deadline = self._loop.time() + ORPHAN_SECONDS_MAX
        for topic in self._world.script.topics:
            while True:
                left = await held_on(client, topic)
                if not left:
                    break
                if self._loop.time() > deadline:
                    self._history.violation(
                        "f", f"{topic} keeps ended transactions: {sorted(left)}"
                    )
                await asyncio.sleep(0.5)

    async def _probe_freedom(self, client: RawClient) -> None:
        """Invariant 10: an open transaction delays no other reader or writer."""
        random = self._world.environment.random("probe")
        idle = RawUnit(self._world, client, random, "probe-idle")
        await idle.begin(60_000)
        await idle.send(1, "mix", 0)
        await idle.send(1, "mix", 1)
        started_at = self._loop.time()
        busy = RawUnit(self._world, client, random, "probe-busy")
        await busy.begin(60_000)
        sent = await busy.send(2, "mix", 0) + await busy.send(2, "mix", 1)
        self._history.ask_commit(busy.record, expected=sent)
        await busy.end(
            busy.end_command(common_pb2.COMMIT, counts=busy.confirmed_counts(), wait_finished=True)
        )
        for partition in range(2):
            wire = await busy.partition("mix", partition)
            plain = self._history.send("probe-plain", "mix", partition)
            reply = await client.insist(BROKER, send_command(wire, 3, 0, [plain.value]))
            offset = reply.message_id.entry_id + reply.message_id.index
            self._history.confirm(plain, asked_at=started_at, offset=offset)
            sent.append(plain)
            await read_new(self._world, client, "mix", partition, offset)
        description = await client.describe_topic("mix")
        for described in description.partitions:
            start = max(described.first_offset, described.end_offset - 4)
            await read_new(self._world, client, "mix", described.partition, start)
        for message in sent:
            if message.value not in self._history.seen_at:
                self._history.violation("10", f"{message} is hidden by an open transaction")
        if self._loop.time() - started_at > 2.0:
            self._history.violation(
                "10", f"{self._loop.time() - started_at:.3f} s beside an open transaction"
            )
        self._world.provoked["10"] += 1
        await idle.end(idle.end_command(common_pb2.ABORT, wait_finished=True))
