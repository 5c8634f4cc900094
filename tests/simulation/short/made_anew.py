"""What an administrator deletes and makes again under the same name, while a copy of the deletion
is still under way: what was made anew stays.

A copy travels on a link to a server's process, and does not outlive it.
Source: docs/design/0001-protocol.md, Late copies.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from tests.simulation.raw import BROKER, COORDINATOR, NoAnswer, RawClient, send_command
from tests.simulation.raw_unit import ABORT
from tests.simulation.sdk_unit import Unit
from tests.simulation.short.actors import Actor
from tests.simulation.short.draft import Draft
from tests.simulation.short.producing import commit
from tests.simulation.short.script import Step

from magnetar_core.errors import (
    Gone,
    GroupNotFound,
    InvalidArgument,
    MagnetarError,
    ResourceInUse,
    SubscriptionNotFound,
    TopicExists,
    TopicNotFound,
)
from magnetar_core.wire import broker_pb2, common_pb2, group_pb2, topic_pb2, transaction_pb2


class Thing:
    """Something that has a name, and can be made, deleted, and made again."""

    service = BROKER
    # What a deletion answers that comes again after a restart, when it is done.
    absent: type[MagnetarError] = TopicNotFound

    def __init__(self, actor: Actor, step: Step, name: str) -> None:
        self.actor = actor
        self.step = step
        self.name = name
        self.client: RawClient = actor.raw()
        self._random: Random = actor.random(f"anew/{step.number}")

    def token(self) -> int:
        return self._random.getrandbits(64) | 1

    async def make(self) -> None:
        raise NotImplementedError

    async def deletion(self, token: int) -> Any:
        raise NotImplementedError

    async def look(self) -> Any:
        """What is there; None: nothing of this name."""
        raise NotImplementedError


class TopicThing(Thing):
    async def make(self) -> None:
        try:
            await self.client.insist(
                BROKER,
                topic_pb2.CommandCreateTopic(
                    topic=self.name, partitions=1, call_token=self.token()
                ),
            )
        except TopicExists:
            pass  # It was asked for twice, with a restart between.
        topic_id = await self.client.lookup(self.name)
        wire = common_pb2.Partition(topic=self.name, topic_id=topic_id)
        await self.client.insist(BROKER, send_command(wire, self.token() >> 1, 0, [b"anew"]))

    async def deletion(self, token: int) -> Any:
        return topic_pb2.CommandDeleteTopic(topic=self.name, call_token=token)

    async def look(self) -> Any:
        try:
            found = await self.client.describe_topic(self.name)
        except TopicNotFound:
            return None
        return found.topic_id, found.partitions[0].end_offset


class TopicOfAnId(TopicThing):
    """The deletion bears no token, and names the topic that is meant by its id."""

    async def deletion(self, token: int) -> Any:
        topic_id = await self.client.lookup(self.name)
        return topic_pb2.CommandDeleteTopic(topic=self.name, topic_id=topic_id)


class SubscriptionThing(Thing):
    absent = SubscriptionNotFound

    async def _place(self) -> common_pb2.Subscription:
        topic_id = await self.client.lookup("mix")
        return common_pb2.Subscription(topic="mix", topic_id=topic_id, subscription=self.name)

    async def make(self) -> None:
        await self.client.insist(
            BROKER,
            broker_pb2.CommandSubscribe(
                subscription=await self._place(),
                initial_position=broker_pb2.EARLIEST,
                call_token=self.token(),
            ),
        )

    async def deletion(self, token: int) -> Any:
        return broker_pb2.CommandUnsubscribe(subscription=await self._place(), call_token=token)

    async def look(self) -> Any:
        found = (await self.client.describe_topic("mix")).partitions[0]
        return [one.subscription for one in found.subscriptions if one.subscription == self.name]


class GroupThing(Thing):
    absent = GroupNotFound

    async def make(self) -> None:
        member = f"{self.name}-{self.token()}"
        await self.client.insist(
            BROKER,
            group_pb2.CommandJoinGroup(
                group=self.name,
                member_id=member,
                topics=["mix"],
                join_epoch=1,
                initial_position=broker_pb2.EARLIEST,
            ),
        )
        await self.client.insist(
            BROKER,
            group_pb2.CommandLeaveGroup(group=self.name, member_id=member, call_token=self.token()),
        )

    async def deletion(self, token: int) -> Any:
        return group_pb2.CommandDeleteGroup(group=self.name, call_token=token)

    async def look(self) -> Any:
        try:
            await self.client.insist(BROKER, group_pb2.CommandDescribeGroup(group=self.name))
        except GroupNotFound:
            return None
        return self.name


class NameThing(Thing):
    """A name of sequences: removed, its sequences may be committed once more."""

    service = COORDINATOR
    absent = InvalidArgument

    async def make(self) -> None:
        client = await self.actor.client()
        for sequence in range(20):
            txn = await client.begin_named_transaction(
                self.name, sequence, str(self.token()), timeout_s=3.0
            )
            unit = Unit(self.actor.world, txn, self.actor.name)
            if await commit(self.actor, unit, attempts=3):
                return

    async def deletion(self, token: int) -> Any:
        return transaction_pb2.CommandRemoveName(name=self.name, call_token=token)

    async def look(self) -> Any:
        try:
            found = await self.client.insist(
                COORDINATOR, transaction_pb2.CommandDescribeName(name=self.name)
            )
        except InvalidArgument:
            return None
        return found.has_committed, found.committed_sequence


THINGS: dict[str, type[Thing]] = {
    "topic": TopicThing,
    "topic of an id": TopicOfAnId,
    "subscription": SubscriptionThing,
    "group": GroupThing,
    "name": NameThing,
}


async def make_anew(
    actor: Actor,
    step: Step,
    *,
    what: str,
    late_s: float,
    relinks: bool,
    refused: bool,
) -> None:
    """Delete, make anew, and have a copy of the deletion arrive.

    Args:
        relinks: the copy comes on a newer link.
        refused: the deletion was refused at the time, since something was open there; the copy
            comes when nothing is.
    """
    world, client = actor.world, actor.raw()
    if what == "name" and len(world.coordinators) > 1:
        return
    thing = THINGS[what](actor, step, f"anew-{step.number}")
    servers = world.brokers if thing.service == BROKER else [world.coordinator]
    await thing.make()
    deletion = await thing.deletion(thing.token())
    lives = [one.life for one in servers]
    if refused and what == "topic":
        await _refuse(actor, step, thing, deletion)
    else:
        try:
            await client.insist(thing.service, deletion)
        except (thing.absent, Gone):
            pass
        await thing.make()
    before = await thing.look()
    if relinks:
        client.hang_up(thing.service)
    await asyncio.sleep(late_s)
    if [one.life for one in servers] != lives or not all(one.alive for one in servers):
        return
    try:
        await client.ask(thing.service, deletion)
    except (NoAnswer, MagnetarError):
        pass
    after = await thing.look()
    if [one.life for one in servers] != lives:
        return
    world.provoked[f"a late deletion of a {what}"] += 1
    if after != before or not after:
        world.history.violation(
            "j", f"{what} {thing.name} was {before}, and is {after} after a copy of its deletion"
        )


async def _refuse(actor: Actor, step: Step, thing: Thing, deletion: Any) -> None:
    """Ask for the deletion while a transaction is open there."""
    unit = actor.unit(step)
    await unit.begin(60_000)
    topic_id = await thing.client.lookup(thing.name)
    wire = common_pb2.Partition(topic=thing.name, topic_id=topic_id)
    await thing.client.add_partition(unit.txn_id, wire)
    await thing.client.insist(
        BROKER, send_command(wire, thing.token() >> 1, 0, [b"never"], txn_id=unit.txn_id)
    )
    try:
        await thing.client.insist(BROKER, deletion)
    except ResourceInUse:
        actor.world.provoked["a deletion refused"] += 1
    await unit.end(unit.end_command(ABORT, wait_finished=True))


def made_anew(draft: Draft) -> None:
    """Some deletions, and what comes of their copies."""
    random = draft.random
    draft.topic("mix", 2)
    for _ in range(random.choice((1, 2))):
        client = draft.client("administrator")
        for _ in range(random.randint(2, 5)):
            draft.step(
                client,
                "make anew",
                what=random.choice(list(THINGS)),
                late_s=round(random.choice((0.0, 0.01, random.uniform(0.0, 1.0))), 3),
                relinks=random.random() < 0.6,
                refused=random.random() < 0.3,
                pause_s=random.choice((0.0, 0.05)),
            )


VERBS = {"make anew": make_anew}
