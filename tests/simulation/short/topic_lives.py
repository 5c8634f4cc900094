"""Topics that are made, used and deleted at any broker of a cluster, again and again.

Each life of a topic holds what was written in it, and nothing else, on each of its brokers; whoever
has made one finds it everywhere (docs/design/0008-cluster.md, The directory).
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from tests.simulation.raw import BROKER, NoAnswer, messages_of, send_command
from tests.simulation.raw_unit import ABORT, COMMIT, RawUnit
from tests.simulation.short.actors import Actor
from tests.simulation.short.script import Step
from tests.simulation.world import Verb, World

from magnetar_core.errors import (
    Gone,
    LogUnavailable,
    MagnetarError,
    PartitionMoved,
    ResourceInUse,
    TopicExists,
    TopicNotFound,
)
from magnetar_core.ids import TxnID
from magnetar_core.wire import broker_pb2, common_pb2, topic_pb2, transaction_pb2

# From the answer to a deletion until every broker knows, while nothing is wrong with it.
FORGOTTEN_SECONDS_MAX = 1.0
# From the end of all faults until every broker has heard of every topic.
SAME_SECONDS_MAX = 5.0
# Until both ends of a broken link know.
TOLD_SECONDS = 1.1


class _Life:
    """A topic from when it is made until it is deleted."""

    def __init__(self, actor: Actor, name: str, partitions: int, random: Random) -> None:
        self.actor = actor
        self.world: World = actor.world
        self.client = actor.raw()
        self.name = name
        self.partitions = partitions
        self._random = random
        self.topic_id = 0
        # What its partitions hold.
        self.values: list[bytes] = []

    def _token(self) -> int:
        return self._random.getrandbits(64) | 1

    def _is_calm(self, broker: str, since: float) -> bool:
        """Whether nothing was wrong with a broker, nor with the first one, since then."""
        passed = self.world.loop.time() - since
        nodes = [self.actor.name, broker, self.world.broker_names[0]]
        return self.world.calm.seconds(nodes, since) >= passed

    async def make(self, at: str) -> None:
        asked_at = self.world.loop.time()
        command = topic_pb2.CommandCreateTopic(
            topic=self.name, partitions=self.partitions, call_token=self._token()
        )
        try:
            reply = await self.client.insist(BROKER, command, address=at)
            self.topic_id = reply.topic_id
        except TopicExists:
            # It was asked for twice, with a restart between.
            found = await self.client.insist(
                BROKER, topic_pb2.CommandLookup(topic=self.name), address=at
            )
            self.topic_id = found.topic_id
        self.world.provoked["topics made at a follower"] += at != self.world.broker_names[0]
        for broker in self.world.broker_names:
            await self._check_found(broker, asked_at)

    async def _check_found(self, broker: str, since: float) -> None:
        """Whoever has made a topic finds it at every broker that is linked to the first one."""
        command = topic_pb2.CommandLookup(topic=self.name)
        try:
            found = (await self.client.ask(BROKER, command, address=broker)).topic_id
        except TopicNotFound:
            found = None
        except (NoAnswer, MagnetarError):
            return
        if found != self.topic_id and self._is_calm(broker, since):
            self.world.history.violation(
                "cluster", f"{self.name} was made as {self.topic_id}, and {broker} has {found}"
            )
        self.world.provoked["topics found"] += found == self.topic_id

    async def write(self) -> None:
        """A message into each partition."""
        for partition in range(self.partitions):
            value = f"{self.name}/{partition}/{self._token()}".encode()
            command = send_command(self._wire(partition), self._token() >> 1, 0, [value])
            await self.client.insist(BROKER, command)
            self.values.append(value)

    async def check(self) -> None:
        """Each partition holds what was written in this life."""
        for partition, value in enumerate(self.values):
            reply = await self.client.read(self.name, partition, 0)
            found = [one for batch in reply.batches for one in messages_of(batch)]
            if found != [(0, value)]:
                self.world.history.violation(
                    "cluster", f"{self.name}/{partition} holds {found}, and not {value!r} alone"
                )
        self.world.provoked["lives checked"] += 1

    def _wire(self, partition: int) -> common_pb2.Partition:
        return common_pb2.Partition(topic=self.name, partition=partition, topic_id=self.topic_id)

    async def ask_astray(self, txn_id: TxnID) -> None:
        """Ask brokers about partitions that others keep: each says so, and does nothing.

        Args:
            txn_id: of an open transaction that has no part in them.
        """
        wire_id = txn_id.to_wire()
        for partition in range(self.partitions):
            keeper = self.world.keeper_of(self.topic_id, partition).name
            wire = self._wire(partition)
            place = common_pb2.Subscription(
                topic=self.name, partition=partition, topic_id=self.topic_id, subscription="none"
            )
            bodies: list[Any] = [
                send_command(wire, self._token() >> 1, 0, [b"astray"]),
                broker_pb2.CommandRead(partition=wire),
                broker_pb2.CommandSubscribe(
                    subscription=place, initial_position=broker_pb2.EARLIEST
                ),
                broker_pb2.CommandAck(
                    subscription=place,
                    consumer_id=1,
                    ranges=[common_pb2.OffsetRange(first=0, last=0)],
                ),
                transaction_pb2.CommandEndTxnOnPartition(
                    partition=wire, txn_id=wire_id, txn_action=COMMIT
                ),
                transaction_pb2.CommandEndTxnOnSubscription(
                    subscription=place, txn_id=wire_id, txn_action=ABORT
                ),
            ]
            for broker in self.world.broker_names:
                if broker != keeper:
                    await self._check_moved(broker, self._random.choice(bodies))

    async def _check_moved(self, broker: str, body: Any) -> None:
        """What it may answer is known to the checker of who keeps what."""
        try:
            await self.client.ask(BROKER, body, address=broker)
        except PartitionMoved:
            self.world.provoked["sent to their brokers"] += 1
        except (MagnetarError, NoAnswer):
            return

    async def race(self, unit: RawUnit, partition: int, at: str) -> None:
        """A deletion while somebody opens a transaction: it is refused, or ends that."""
        deleting = asyncio.ensure_future(self.delete(at))
        try:
            await self.hold(unit, partition)
            self.world.provoked["opened beside a deletion"] += 1
        except (MagnetarError, NoAnswer):
            pass
        self.world.history.ask_commit(unit.record, expected=[])
        await unit.end(unit.end_command(COMMIT, wait_finished=True))
        await deleting

    async def hold(self, unit: RawUnit, partition: int) -> None:
        """Send in a transaction that stays open."""
        wire = self._wire(partition)
        await self.client.add_partition(unit.txn_id, wire)
        command = send_command(wire, self._token() >> 1, 0, [b"held"], txn_id=unit.txn_id)
        await self.client.insist(BROKER, command)

    async def check_refused(self, at: str, partition: int) -> None:
        """A deletion while a transaction is open, whichever broker knows of it."""
        command = topic_pb2.CommandDeleteTopic(topic=self.name, call_token=self._token())
        try:
            await self.client.insist(BROKER, command, address=at, attempts=10)
        except (ResourceInUse, NoAnswer):
            self.world.provoked["deletions refused"] += 1
            return
        self.world.history.violation(
            "j", f"{self.name} is deleted, and a transaction is open on {partition} of it"
        )

    async def delete(self, at: str) -> None:
        token = self._token()
        while True:
            command = topic_pb2.CommandDeleteTopic(
                topic=self.name, topic_id=self.topic_id, call_token=token
            )
            try:
                await self.client.insist(BROKER, command, address=at)
            except (TopicNotFound, Gone):
                pass
            except ResourceInUse:
                # A transaction has ended, and not everybody has heard of it.
                await asyncio.sleep(0.05)
                token = self._token()
                continue
            break
        self.world.provoked["topics deleted at a follower"] += at != self.world.broker_names[0]
        for broker in self.world.broker_names:
            await self._check_forgotten(broker)

    async def _check_forgotten(self, broker: str) -> None:
        command = topic_pb2.CommandLookup(topic=self.name)
        since = self.world.loop.time()
        while True:
            try:
                found = (await self.client.ask(BROKER, command, address=broker)).topic_id
            except (NoAnswer, MagnetarError):
                return
            calm = self.world.calm.seconds(
                [self.actor.name, broker, self.world.broker_names[0]], since
            )
            if calm > FORGOTTEN_SECONDS_MAX:
                self.world.history.violation(
                    "cluster", f"{self.name} was deleted, and {broker} has {found}"
                )
            await asyncio.sleep(0.05)


async def topic_lives(
    actor: Actor,
    step: Step,
    *,
    partitions: list[int],
    made_at: list[int],
    deleted_at: list[int],
    held: list[str],
) -> None:
    """Make a topic, use it and delete it, as often as there are partition counts; keep the last.

    Args:
        made_at, deleted_at: the broker that is asked, by its place.
        held: "commit" or "abort": how a transaction ends that is open at the first attempt to
            delete; "race": it is opened meanwhile; "": there is none.
    """
    world = actor.world
    # Of this process alone: what an earlier one has left behind stays as it is.
    name = f"lives-{step.number}-{actor.node.life}"
    random = actor.random(f"lives/{step.number}/{actor.node.life}")
    names = world.broker_names
    last = len(partitions) - 1
    # It takes no part in anything.
    idle = actor.unit(step)
    await idle.begin(60_000)
    for number, count in enumerate(partitions):
        life = _Life(actor, name, count, random)
        await life.make(names[made_at[number] % len(names)])
        await life.write()
        await life.ask_astray(idle.txn_id)
        await life.check()
        if number == last:
            actor.kept.setdefault("lives", []).append(life)
            break
        at = names[deleted_at[number] % len(names)]
        unit, partition = actor.unit(step), random.randrange(count)
        if held[number]:
            await unit.begin(60_000)
        if held[number] == "race":
            await life.race(unit, partition, at)
        elif held[number]:
            await life.hold(unit, partition)
            await life.check_refused(at, partition)
            action = COMMIT if held[number] == "commit" else ABORT
            if action == COMMIT:
                world.history.ask_commit(unit.record, expected=[])
            await unit.end(unit.end_command(action, wait_finished=True))
        if held[number] != "race":
            await life.delete(at)
        await life.ask_astray(idle.txn_id)
    await idle.end(idle.end_command(ABORT))


async def cut_off(
    actor: Actor, step: Step, *, follower: int, partitions: int, seconds: float
) -> None:
    """A follower that knows that it is cut off denies no topic that is made meanwhile."""
    world = actor.world
    first, *followers = world.broker_names
    cut = followers[follower % len(followers)]
    life = _Life(
        actor,
        f"cut-{step.number}-{actor.node.life}",
        partitions,
        actor.random(f"cut/{step.number}/{actor.node.life}"),
    )
    world.excuse_cut_off([cut], seconds)
    for link in world.network.links(cut):
        if first in (link.client_node, link.server_node):
            link.break_off()
    world.network.partition(first, cut, seconds)
    # Both ends have heard of it.
    await asyncio.sleep(TOLD_SECONDS)
    await life.make(first)
    try:
        await life.client.ask(BROKER, topic_pb2.CommandLookup(topic=life.name), address=cut)
    except TopicNotFound as error:
        if world.network.is_cut(first, cut):
            world.history.violation("cluster", f"{cut}, cut off from {first}, says: {error}")
    except (LogUnavailable, NoAnswer):
        world.provoked["topics unknown while cut off"] += 1
    await life.write()
    await life.check()
    actor.kept.setdefault("lives", []).append(life)


async def slow_follower(
    actor: Actor, step: Step, *, follower: int, partitions: int, seconds: float
) -> None:
    """A follower that hears of a topic late: the answer waits for it, for less than a second."""
    world = actor.world
    first, *followers = world.broker_names
    name = f"slow-{step.number}-{actor.node.life}"
    life = _Life(actor, name, partitions, actor.random(f"slow/{step.number}/{actor.node.life}"))
    # What it holds up is late for nobody else, unless other shards are on these machines.
    world.excuse_cut_off([], seconds)
    world.network.hold_up(first, followers[follower % len(followers)], seconds)
    await life.make(first)
    await life.write()
    await life.check()
    actor.kept.setdefault("lives", []).append(life)


async def same_everywhere(actor: Actor, step: Step) -> None:
    """At the end every broker knows the same topics; those that were kept hold what they did."""
    world, client = actor.world, actor.raw()
    since = world.loop.time()
    while True:
        known = []
        for broker in world.broker_names:
            reply = await client.insist(BROKER, topic_pb2.CommandListTopics(), address=broker)
            known.append(sorted((one.topic, one.topic_id, one.partitions) for one in reply.topics))
        if all(one == known[0] for one in known):
            break
        if world.loop.time() - since > SAME_SECONDS_MAX:
            world.history.violation("cluster", f"brokers know different topics: {known}")
        await asyncio.sleep(0.1)
    for life in actor.kept.get("lives", ()):
        life.client = client
        await life.check()


VERBS: dict[str, Verb] = {
    "topic lives": topic_lives,
    "cut off": cut_off,
    "slow follower": slow_follower,
    "same everywhere": same_everywhere,
}
