"""Members of a group by hand: they take each other's places, leave with transactions open, fall
silent, and act where they may not. Whoever is left goes on, soon, whatever they left behind.
"""

from __future__ import annotations

import asyncio

from tests.simulation.raw import BROKER, NoAnswer
from tests.simulation.raw_unit import ABORT, COMMIT, RawUnit
from tests.simulation.short.actors import Actor
from tests.simulation.short.consumers import feed, filled
from tests.simulation.short.draft import Draft
from tests.simulation.short.group_hand import (
    GROUP,
    Hand,
    Partition,
    ack,
    beat,
    join,
    place_of,
    receive,
)
from tests.simulation.short.script import Step
from tests.simulation.world import Verb

from magnetar_core.errors import (
    FencedInstance,
    GroupNotFound,
    InvalidTxnState,
    MagnetarError,
    UnknownMember,
)
from magnetar_core.ids import TxnID
from magnetar_core.wire import broker_pb2, common_pb2, group_pb2

# What a member left is asked for each second, and ends then.
LEFT_BEHIND_SECONDS_MAX = 3.0
EMPTY_SECONDS_MAX = 45.0


async def join_by_hand(actor: Actor, step: Step, *, topic: str, instance: str) -> None:
    """A member joins, perhaps in the place of another one that has the same instance id."""
    # Of this life, and of this step: whoever has left does not come back under its name.
    member_id = f"{actor.name}-{actor.node.life}-{step.number}"
    hand = Hand(member_id, instance, topic)
    if await join(actor, hand):
        actor.units["hand"] = hand
        actor.world.provoked["joined by hand"] += 1


async def beat_by_hand(actor: Actor, step: Step, *, rounds: int, gap_s: float) -> None:
    """Heartbeats; what others have left behind is over soon."""
    world = actor.world
    hand: Hand | None = actor.units.get("hand")
    if hand is None:
        return
    # Since when a transaction of somebody who is no member was seen to be awaited.
    since: dict[TxnID, float] = {}
    for _ in range(rounds):
        if not await beat(actor, hand):
            del actor.units["hand"]
            return
        awaited = await _left_behind(actor)
        since = {txn_id: since.get(txn_id, world.loop.time()) for txn_id in awaited}
        nodes = [actor.name, *world.server_names]
        for txn_id, seen_at in since.items():
            calm = world.calm.seconds(nodes, seen_at)
            if calm > LEFT_BEHIND_SECONDS_MAX:
                world.history.violation(
                    "p", f"{txn_id}, left behind in {GROUP}, is open {calm:.3f} calm seconds later"
                )
        await asyncio.sleep(gap_s)


async def _left_behind(actor: Actor) -> list[TxnID]:
    """What the owners wait for that is of nobody who is a member."""
    command = group_pb2.CommandDescribeGroup(group=GROUP)
    owners: dict[TxnID, str] = actor.world.hand_transactions
    found: list[TxnID] = []
    for broker in actor.raw().brokers:
        reply = await actor.raw().insist(BROKER, command, attempts=20, address=broker)
        members = {one.member_id for one in reply.members}
        found += [
            txn_id
            for partition in reply.partitions
            for txn_id in map(TxnID.from_wire, partition.awaited_txns)
            if owners.get(txn_id, "") not in members and partition.member_id
        ]
    return found


async def take_by_hand(actor: Actor, step: Step, *, permits: int) -> None:
    """Attach to what is held, and receive."""
    hand = actor.units.get("hand")
    if hand is not None:
        await receive(actor, hand, permits, timeout_s=0.1)


async def ack_as_member(actor: Actor, step: Step, *, end: str) -> None:
    """Acknowledge what was received: "plain", or in a transaction that ends, or stays open.

    Args:
        end: "leave": nobody comes back to it; "keep": the member ends it in a later step.
    """
    world, hand = actor.world, actor.units.get("hand")
    if hand is None or not any(hand.messages.values()):
        return
    if end == "plain":
        for partition in list(hand.messages):
            await ack(actor, hand, partition, None, 0)
        return
    unit = actor.unit(step)
    await unit.begin(60_000)
    owners: dict[TxnID, str] = world.hand_transactions
    owners[unit.txn_id] = hand.member_id
    try:
        for partition in list(hand.messages):
            await actor.raw().add_subscription(unit.txn_id, place_of(hand, partition))
            if not await ack(actor, hand, partition, unit, 0):
                break
        else:
            if end == "keep":
                actor.units.setdefault("kept by hand", []).append(unit)
                return
            if end == "leave":
                world.history.counts["abandoned"] += 1
                return
            if end == "commit":
                world.history.ask_commit(unit.record, expected=[])
                await unit.end(unit.end_command(COMMIT, wait_finished=True))
                return
        await unit.end(unit.end_command(ABORT, wait_finished=True))
    except InvalidTxnState:
        return


async def end_kept_by_hand(actor: Actor, step: Step) -> None:
    """Abort the oldest transaction that the member has kept; whoever owns the partitions waits."""
    kept: list[RawUnit] = actor.units.get("kept by hand", [])
    if not kept:
        return
    unit = kept.pop(0)
    try:
        await unit.end(unit.end_command(ABORT, wait_finished=True))
    except InvalidTxnState:
        return
    if kept:
        actor.world.provoked["p one of two ended"] += 1


async def intrude_by_hand(actor: Actor, step: Step, *, how: str) -> None:
    """Acknowledge where that is nobody's business: refused, as long as there is a member."""
    world, hand = actor.world, actor.units.get("hand")
    if hand is None or not hand.held:
        return
    partition, generation = next(iter(hand.held.items()))
    name: common_pb2.GroupMember | None = hand.name_at(partition)
    if how == "no member":
        name = None
    elif how == "old generation":
        assert name is not None
        name.generation = generation - 1
    elif how == "two-phase":
        await _intrude_two_phase(actor, step, hand, partition)
        return
    elif how == "not owner":
        others = {(partition[0], one) for one in range(world.script.topics[hand.topic])}
        partition = min(others - hand.held.keys(), default=partition)
    if how == "old generation" and generation < 2:
        return
    held_before = dict(hand.held)
    if not await beat(actor, hand) or hand.held != held_before:
        return
    if how == "not owner" and partition in hand.held:
        return
    intrusion = broker_pb2.CommandAck(
        subscription=place_of(hand, partition),
        consumer_id=1,
        # Of what is there, so that nothing else is wrong with it.
        ranges=[common_pb2.OffsetRange(first=0, last=0)],
        member=name,
    )
    history = world.history
    history.ack((hand.topic, partition[1], GROUP), [0], None)
    try:
        await actor.raw().ask(BROKER, intrusion)
    except (MagnetarError, NoAnswer):
        world.provoked["intruder refused"] += 1
        return
    # A member before and after, with the same of it: a member all along.
    if await beat(actor, hand) and hand.held == held_before:
        history.violation("p", f"{partition} of {GROUP} takes an ack: {how}")


async def _intrude_two_phase(actor: Actor, step: Step, hand: Hand, partition: Partition) -> None:
    """A transaction that never expires could hold a partition for ever."""
    unit = actor.unit(step)
    await unit.begin(5_000)
    place = place_of(hand, partition)
    await actor.raw().add_subscription(unit.txn_id, place)
    try:
        await actor.raw().ask(
            BROKER,
            broker_pb2.CommandAck(
                subscription=place,
                consumer_id=1,
                ranges=[common_pb2.OffsetRange(first=0, last=0)],
                txn_id=unit.txn_id.to_wire(),
                member=hand.name_at(partition),
                two_phase_commit=True,
            ),
        )
    except (MagnetarError, NoAnswer):
        actor.world.provoked["intruder refused"] += 1
    else:
        actor.world.history.violation(
            "p", f"{partition} of {GROUP} takes an ack of a two-phase commit transaction"
        )
    await unit.end(unit.end_command(ABORT))


async def leave_by_hand(actor: Actor, step: Step, *, silently: bool) -> None:
    """A member goes, or falls silent; what it has begun stays open."""
    hand = actor.units.pop("hand", None)
    if hand is None or silently:
        return
    command = group_pb2.CommandLeaveGroup(
        group=GROUP,
        member_id=hand.member_id,
        instance_id=hand.instance_id,
        call_token=actor.random(f"leave/{step.number}").getrandbits(63) or 1,
    )
    for broker in actor.raw().brokers:
        try:
            await actor.raw().insist(BROKER, command, attempts=20, address=broker)
        except (UnknownMember, FencedInstance, GroupNotFound):
            continue


async def empty_by_hand(actor: Actor, step: Step, *, topic: str) -> None:
    """At the end: one member gets everything that nobody has consumed."""
    world = actor.world
    hand = Hand(f"{actor.name}-last", "", topic)
    if not await join(actor, hand):
        world.history.violation("p", f"a new member of {GROUP} is refused")
    since = world.loop.time()
    while True:
        if not await beat(actor, hand):
            await join(actor, hand)
        if len(hand.held) == world.script.topics[topic]:
            await receive(actor, hand, 100, timeout_s=0.05)
            for partition in list(hand.messages):
                await ack(actor, hand, partition, None, 0)
        description = await actor.raw().describe_topic(topic)
        world.check_description(description)
        left = sum(
            one.backlog + one.pending_ack_count
            for part in description.partitions
            for one in part.subscriptions
            if one.subscription == GROUP
        )
        if not left:
            world.provoked["emptied by hand"] += 1
            return
        if world.loop.time() - since > EMPTY_SECONDS_MAX:
            world.history.violation("2", f"{left} messages of {topic} do not come to {GROUP}")
        await asyncio.sleep(0.2)


def hand_members(draft: Draft) -> None:
    """Members by hand: some take each other's places, some hand over what they have open."""
    random = draft.random
    topic = draft.topic("mix", 2)
    before = filled(draft, topic, random.randint(4, 12))
    if random.random() < 0.25:
        _hand_over(draft, topic, before)
        draft.step(draft.client("hand"), "empty by hand", topic=topic, closing=True)
        return
    instance = random.choice(("", "seat"))
    for number in range(random.choice((2, 2, 3))):
        client = draft.client("hand")
        for turn in range(random.choice((1, 2, 2))):
            draft.step(
                client,
                "join by hand",
                topic=topic,
                instance=instance,
                after=(before,) if number == turn == 0 else (),
                pause_s=random.choice((0.0, 0.05, 0.3)),
            )
            for _ in range(random.randint(0, 3)):
                draft.step(
                    client,
                    "beat by hand",
                    rounds=random.choice((1, 2, 8)),
                    gap_s=random.choice((0.02, 0.1, 0.5)),
                )
                if random.random() < 0.25:
                    how = random.choice(("no member", "old generation", "not owner", "two-phase"))
                    draft.step(client, "intrude by hand", how=how)
                draft.step(client, "take by hand", permits=random.choice((1, 3, 20)))
                draft.step(
                    client,
                    "ack as member",
                    end=random.choice(("plain", "commit", "abort", "leave", "leave")),
                )
            if random.random() < 0.7:
                gone = draft.step(client, "leave by hand", silently=random.random() < 0.3)
                _strike(draft, client, gone)
        if random.random() < 0.7:
            # Somebody stays, and waits for what the others have left.
            draft.step(client, "beat by hand", rounds=20, gap_s=0.25)
    if random.random() < 0.4:
        feed(draft, topic, 2)
    draft.step(client, "empty by hand", topic=topic, closing=True)


def _hand_over(draft: Draft, topic: str, before: int) -> None:
    """A partition goes to another member, while two transactions of the first one are open there.

    They end one after the other, and the new owner waits for both.
    """
    random = draft.random
    first, second = draft.client("hand"), draft.client("hand")
    gap_s = random.choice((0.02, 0.1))
    draft.step(first, "join by hand", topic=topic, instance="", after=(before,))
    draft.step(first, "beat by hand", rounds=1, gap_s=gap_s)
    for _ in range(2):
        draft.step(first, "take by hand", permits=1)
        kept = draft.step(first, "ack as member", end="keep")
    joined = draft.step(second, "join by hand", topic=topic, instance="", after=(kept,))
    released = draft.step(first, "beat by hand", rounds=2, gap_s=gap_s, after=(joined,))
    draft.step(second, "beat by hand", rounds=2, gap_s=gap_s, after=(released,))
    taken = draft.step(second, "take by hand", permits=20)
    draft.step(first, "end kept by hand", after=(taken,))
    draft.step(first, "end kept by hand", pause_s=random.choice((0.02, 0.1, 0.4)))
    draft.step(first, "beat by hand", rounds=2, gap_s=gap_s)
    draft.step(second, "beat by hand", rounds=4, gap_s=0.25)
    draft.step(second, "ack as member", end=random.choice(("plain", "commit", "leave")))


def _strike(draft: Draft, client: str, gone: int) -> None:
    """What the member has said arrives once more, or the broker starts anew."""
    random = draft.random
    what = random.choice(("", "copies", "crash", "unheard", "unheard and crash"))
    if what == "copies":
        draft.fault(
            "copies",
            step=gone,
            delay_s=random.choice((0.0, 0.01, 0.05)),
            client=client,
            server="broker",
            command=random.choice(("join_group", "join_group", "group_heartbeat", "leave_group")),
            late_s=random.choice((0.0, 0.3)),
            count=1,
        )
    if "unheard" in what:
        # Nobody hears for now that there is something to abort.
        draft.fault(
            "partition",
            step=gone,
            client="coordinator",
            server="broker",
            seconds=random.choice((0.2, 0.6, 1.2)),
        )
    if "crash" in what:
        draft.fault(
            "crash",
            step=gone,
            delay_s=random.choice((0.002, 0.01, 0.1)),
            server="broker",
            power_loss=random.random() < 0.5,
            in_write_s=0.0,
            down_s=0.01,
        )


VERBS: dict[str, Verb] = {
    "join by hand": join_by_hand,
    "beat by hand": beat_by_hand,
    "take by hand": take_by_hand,
    "ack as member": ack_as_member,
    "end kept by hand": end_kept_by_hand,
    "intrude by hand": intrude_by_hand,
    "leave by hand": leave_by_hand,
    "empty by hand": empty_by_hand,
}
