"""Copies of a broker's commands that arrive after what came next.

docs/design/0001-protocol.md, Late copies, has a row for each of these tests.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from tests.broker.group_workers import join
from tests.broker.harness import (
    Client,
    World,
    ack,
    end,
    flow,
    partition,
    run,
    send,
    subscribe,
    subscription,
    take_incarnations,
    txn,
    watermark,
)
from tests.broker.test_damaged_rows import loss_at, three_entries
from tests.broker.test_topics import TWO

from magnetar_broker import keys
from magnetar_broker.dispatch.committed_offset import CommittedOffset
from magnetar_broker.subscriptions import delivery
from magnetar_core.errors import (
    DataLoss,
    Gone,
    IllegalGeneration,
    InvalidArgument,
    InvalidTxnState,
    LogUnavailable,
    ResourceInUse,
    SubscriptionNotFound,
    TopicNotFound,
    TxnNotFound,
    UnknownMember,
    from_wire,
)
from magnetar_core.wire import broker_pb2 as wire
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import group_pb2 as group_wire
from magnetar_core.wire import topic_pb2 as topic_wire
from magnetar_core.wire import transaction_pb2 as txn_wire

GROUP = "s"


def named(topic: str) -> topic_wire.CommandDescribeTopic:
    return topic_wire.CommandDescribeTopic(topic=topic)


def seek(offset: int, token: int) -> wire.CommandSeek:
    return wire.CommandSeek(subscription=subscription(), offset=offset, call_token=token)


def test_create_topic() -> None:
    async def scenario(world: World) -> None:
        ask = world.client.ask
        create = topic_wire.CommandCreateTopic(topic="u", call_token=1)
        use = topic_wire.CommandCreateTopic(topic="u", call_token=3, exist_ok=True)
        made = await ask(create)
        assert await ask(use) == made
        await ask(topic_wire.CommandDeleteTopic(topic="u", call_token=2))
        assert await Client(world).ask(create) == made
        assert await Client(world).ask(use) == made
        with pytest.raises(TopicNotFound):
            await ask(named("u"))

    run(scenario)


def test_alter_topic() -> None:
    async def scenario(world: World) -> None:
        ask = world.client.ask
        shorter = topic_wire.CommandAlterTopic(topic="t", retention_ms=5, call_token=1)
        made = await ask(shorter)
        await ask(topic_wire.CommandAlterTopic(topic="t", retention_ms=9, call_token=2))
        assert await Client(world).ask(shorter) == made
        assert (await ask(named("t"))).retention_ms == 9

    run(scenario)


def test_delete_topic() -> None:
    async def scenario(world: World) -> None:
        ask = world.client.ask
        old_id = (await ask(named("t"))).topic_id
        delete = topic_wire.CommandDeleteTopic(topic="t", call_token=1)
        await ask(delete)
        await ask(topic_wire.CommandCreateTopic(topic="t", call_token=2))
        await ask(send(b"0"))
        await Client(world).ask(delete)
        assert await world.read() == [b"0"]
        # After a restart, by the id that was meant.
        await world.restart()
        with pytest.raises(Gone):
            await world.client.ask(topic_wire.CommandDeleteTopic(topic="t", topic_id=old_id))
        assert await world.read() == [b"0"]

    run(scenario)


def test_send() -> None:
    async def scenario(world: World) -> None:
        first, second = send(b"0"), send(b"1", sequence=1)
        await world.client.ask(first)
        await world.client.ask(second)
        assert (await Client(world).ask(first)).duplicate
        assert await world.read() == [b"0", b"1"]

    run(scenario)


def test_send_in_a_transaction() -> None:
    async def scenario(world: World) -> None:
        first = send(b"0", in_txn=txn(1))
        await world.client.ask(first)
        assert (await Client(world).ask(first)).message_id.index == 0
        await world.client.ask(end(txn(1)))
        for _ in range(2):
            with pytest.raises(InvalidTxnState):
                await Client(world).ask(first)
            # Also when its end is forgotten.
            await world.client.ask(watermark(2))
        assert await world.read() == [b"0"]

    run(scenario)


def test_subscribe_after_its_consumer_has_gone() -> None:
    async def scenario(world: World) -> None:
        ask = world.client.ask
        first = subscribe(consumer=1, epoch=3)
        await ask(first)
        await ask(wire.CommandCloseConsumer(subscription=subscription(), consumer_id=1))
        with pytest.raises(InvalidArgument):
            await Client(world).ask(first)
        # It would be in the way of the next one.
        await ask(subscribe(consumer=2))

    run(scenario)


def test_subscribe_that_was_answered_on_another_link() -> None:
    """The client listens where it was answered; messages went to the copy's link."""

    async def scenario(world: World) -> None:
        attempt = subscribe(consumer=1, epoch=3)
        await world.client.ask(attempt)
        world.client.tell(flow())
        with pytest.raises(InvalidArgument):
            await Client(world).ask(attempt)
        await world.client.ask(send(b"0"))
        await world.settle()
        assert world.client.values() == [b"0"]

    run(scenario)


def test_subscribe_after_unsubscribe() -> None:
    async def scenario(world: World) -> None:
        ask = world.client.ask
        attach, create = subscribe(consumer=1, epoch=1), subscribe()
        create.call_token = 7
        await ask(create)
        await ask(attach)
        await ask(wire.CommandUnsubscribe(subscription=subscription(), call_token=8))
        with pytest.raises(InvalidArgument):
            await Client(world).ask(attach)
        await Client(world).ask(create)
        with pytest.raises(SubscriptionNotFound):
            world.subscription()
        # Made anew by somebody else, it refuses what was attached to the old one.
        await ask(subscribe())
        with pytest.raises(InvalidArgument):
            await Client(world).ask(attach)

    run(scenario)


def test_flow() -> None:
    async def scenario(world: World) -> None:
        await world.client.ask(subscribe(consumer=1))
        world.client.tell(flow(permits=1))
        late = Client(world)
        late.tell(flow(permits=1))
        await world.client.ask(send(b"0"))
        await world.client.ask(send(b"1", sequence=1))
        await world.settle()
        assert world.client.values() == [b"0"]

    run(scenario)


def test_ack_after_a_seek() -> None:
    """What was asked for once more would be gone."""

    async def scenario(world: World) -> None:
        ask = world.client.ask
        await ask(subscribe(consumer=1, epoch=1))
        world.client.tell(flow())
        await ask(send(b"0", b"1"))
        first = ack((0, 1))
        first.attach_epoch = 1
        await ask(first)
        await ask(seek(0, token=1))
        await Client(world).ask(first)
        assert world.subscription().backlog == 2
        await ask(subscribe(consumer=1, epoch=2))
        again = ack((0, 0))
        again.attach_epoch = 2
        await ask(again)
        await Client(world).ask(first)
        assert world.subscription().backlog == 1

    run(scenario)


def test_ack_in_a_transaction() -> None:
    async def scenario(world: World) -> None:
        ask = world.client.ask
        await ask(subscribe(consumer=1))
        world.client.tell(flow())
        await ask(send(b"0"))
        first = ack((0, 0), in_txn=txn(1))
        await ask(first)
        await Client(world).ask(first)
        await ask(end(txn(1), common.ABORT, on="s"))
        with pytest.raises(InvalidTxnState):
            await Client(world).ask(first)
        assert world.subscription().backlog == 1

    run(scenario)


def test_nack() -> None:
    """What was settled stays settled; what the consumer holds it gets again."""

    async def scenario(world: World) -> None:
        ask = world.client.ask
        await ask(subscribe(consumer=1))
        world.client.tell(flow())
        await ask(send(b"0"))
        nack = wire.CommandNack(
            subscription=subscription(),
            consumer_id=1,
            ranges=[common.OffsetRange(first=0, last=0)],
        )
        await ask(nack)
        await world.settle()
        await ask(ack((0, 0)))
        await Client(world).ask(nack)
        await world.settle()
        assert world.client.values() == [b"0", b"0"]

    run(scenario)


def test_seek() -> None:
    async def scenario(world: World) -> None:
        ask = world.client.ask
        await ask(subscribe(consumer=1))
        await ask(send(b"0", b"1"))
        back, on = seek(0, token=1), seek(2, token=2)
        await ask(back)
        await ask(on)
        await Client(world).ask(back)
        assert world.subscription().backlog == 0
        await ask(seek(0, token=3))
        await Client(world).ask(on)
        assert world.subscription().backlog == 2

    run(scenario)


def test_subscribe_of_a_consumer_that_stays_while_many_come_and_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its epoch was forgotten as the oldest, and the copy took it off its new link."""
    monkeypatch.setattr(delivery, "PAST_CONSUMERS_MAX", 2)

    async def scenario(world: World) -> None:
        await world.client.ask(subscribe(consumer=1, kind=wire.SHARED, epoch=2))
        for other in range(2, 8):
            await world.client.ask(subscribe(consumer=other, kind=wire.SHARED))
            await world.client.ask(
                wire.CommandCloseConsumer(subscription=subscription(), consumer_id=other)
            )
        with pytest.raises(InvalidArgument, match="raise it"):
            await Client(world).ask(subscribe(consumer=1, kind=wire.SHARED, epoch=1))

    run(scenario)


def test_close_consumer() -> None:
    async def scenario(world: World) -> None:
        old = Client(world)
        await old.ask(subscribe(consumer=1, epoch=1))
        await world.client.ask(subscribe(consumer=1, epoch=2))
        close = wire.CommandCloseConsumer(subscription=subscription(), consumer_id=1)
        await old.ask(close)
        world.client.tell(flow())
        await world.client.ask(send(b"0"))
        await world.settle()
        assert world.client.values() == [b"0"]

    run(scenario)


def test_unsubscribe() -> None:
    async def scenario(world: World) -> None:
        ask = world.client.ask
        await ask(subscribe())
        unsubscribe = wire.CommandUnsubscribe(subscription=subscription(), call_token=1)
        await ask(unsubscribe)
        await ask(subscribe())
        await Client(world).ask(unsubscribe)
        assert world.subscription().backlog == 0

    run(scenario)


@pytest.mark.parametrize("action", [common.COMMIT, common.ABORT])
@pytest.mark.parametrize("on", ["", "s"])
def test_ends(action: Any, on: str) -> None:
    async def scenario(world: World) -> None:
        ask = world.client.ask
        await ask(subscribe(consumer=1))
        await ask(send(b"0", in_txn=txn(1)))
        first = end(txn(1), action, on=on)
        await ask(first)
        before = await world.read()
        await Client(world).ask(first)
        await ask(watermark(2))
        await Client(world).ask(first)
        assert await world.read() == before

    run(scenario)


def test_low_watermark() -> None:
    async def scenario(world: World) -> None:
        early, later = watermark(2), watermark(5)
        await world.client.ask(early)
        await world.client.ask(later)
        await Client(world).ask(early)
        with pytest.raises(InvalidTxnState):
            await world.client.ask(send(b"0", in_txn=txn(4)))

    run(scenario)


def test_skip_damaged() -> None:
    async def scenario(world: World) -> None:
        await three_entries(world)
        (first, _), (second, _), _ = await world.rows(keys.LOG)
        world.disk.unreadable.add((keys.LOG, first))
        skip = wire.CommandSkipDamaged(partition=partition(), call_token=1)
        accepted = await world.client.ask(skip)
        assert [(one.first, one.last) for one in accepted.damaged] == [(0, 2)]
        world.disk.unreadable.add((keys.LOG, second))
        assert await Client(world).ask(skip) == accepted
        assert await loss_at(world, 3) == 3

    run(scenario, tail_bytes_max=1)


def test_txns_issued() -> None:
    async def scenario(world: World) -> None:
        await take_incarnations(world.client, 3)
        await world.client.ask(watermark(0, tcid=3, bound=1))

        def issued(next_counter: int) -> txn_wire.CommandTxnsIssued:
            return txn_wire.CommandTxnsIssued(tcid=3, incarnation=1, next_counter=next_counter)

        world.client.tell(issued(3))
        world.client.tell(issued(9))
        Client(world).tell(issued(3))
        await world.client.ask(send(b"0", in_txn=txn(8, tcid=3)))
        with pytest.raises((TxnNotFound, LogUnavailable)):
            await world.client.ask(send(b"0", in_txn=txn(9, tcid=3)))

    run(scenario)


def test_set_log_level() -> None:
    logger = logging.getLogger("magnetar_broker")
    before = logger.level

    async def scenario(world: World) -> None:
        first = common.CommandSetLogLevel(level="debug", logger=logger.name)
        await world.client.ask(first)
        second = common.CommandSetLogLevel(level="error", logger=logger.name)
        assert (await world.client.ask(second)).previous_level == "debug"
        assert (await Client(world).ask(first)).previous_level == "error"
        assert logger.level == logging.DEBUG

    try:
        run(scenario)
    finally:
        logger.setLevel(before)


def test_hold_backup() -> None:
    """A copy is refused while the backup is made; later it is one that nobody reads."""

    async def scenario(world: World) -> None:
        hold = common.CommandHoldBackup(backup_token=7, hold_ms=1_000)
        assert (await world.client.ask(hold)).member == world.broker.environment.config.name
        with pytest.raises(ResourceInUse):
            await Client(world).ask(hold)
        released = await world.client.ask(common.CommandReleaseBackup(backup_token=7))
        assert released.was_held
        await world.client.ask(common.CommandEndBackup(backup_token=7))
        await Client(world).ask(common.CommandHoldBackup(backup_token=7, hold_ms=1))
        # Nobody releases it, and it ends by itself.
        async with asyncio.timeout(10):
            await world.client.begin(send(b"0"))

    run(scenario)


def test_end_backup() -> None:
    async def scenario(world: World) -> None:
        ask = world.client.ask
        await ask(common.CommandHoldBackup(backup_token=7, hold_ms=1_000))
        await ask(common.CommandEndBackup(backup_token=7))
        await ask(common.CommandHoldBackup(backup_token=8, hold_ms=1_000))
        await Client(world).ask(common.CommandEndBackup(backup_token=7))
        late = await Client(world).ask(common.CommandReleaseBackup(backup_token=7))
        assert not late.was_held
        assert (await ask(common.CommandReleaseBackup(backup_token=8))).was_held
        read = await ask(common.CommandReadBackup(backup_token=8, family=keys.META))
        assert read.row_count

    run(scenario)


def test_take_incarnation() -> None:
    async def scenario(world: World) -> None:
        async def take(token: str) -> int:
            command = topic_wire.CommandTakeIncarnation(tcid=1, store_token=token)
            return int((await world.client.ask(command)).incarnation)

        assert [await take(token) for token in ("a", "b", "c")] == [1, 2, 3]
        await world.restart()
        # It took a number that no store has, above the one that is in use.
        assert [await take(token) for token in ("a", "b", "c", "d")] == [1, 2, 3, 4]

    run(scenario)


def joined(world: World) -> list[str]:
    return sorted(world.broker.groups.get(GROUP).members)


def heartbeat(number: int, *held: group_wire.AssignedPartition) -> group_wire.CommandGroupHeartbeat:
    return group_wire.CommandGroupHeartbeat(
        group=GROUP, member_id="a", held=held, heartbeat_number=number
    )


def test_follow_directory() -> None:
    async def scenario(world: World) -> None:
        def question(token: str, losses: int = 0, **fields: Any) -> Any:
            return topic_wire.CommandFollowDirectory(
                broker_name="broker-1", store_token=token, accepted_losses=losses, **fields
            )

        ask, first = world.client.ask, question("a")
        told = await ask(first)
        assert [one.topic for one in told.topics] == ["t"]
        known = {"directory_life": told.directory_life, "revision": told.revision}
        waiting = world.client.begin(question("a", **known))
        await world.settle()
        assert not waiting.done()
        copy = Client(world)
        assert await copy.ask(first) == told
        await copy.close()
        # The follower asks again, and has lost nothing by it.
        answer = waiting.result()
        assert (answer.all, answer.revision, len(answer.topics)) == (False, told.revision, 0)
        # A copy from a store that was given up since.
        ask = Client(world).ask
        await ask(question("b", losses=1))
        for _ in range(2):
            with pytest.raises(DataLoss):
                await Client(world).ask(first)
            with pytest.raises(DataLoss):
                await Client(world).ask(question("a", **known))
            await ask(question("b", losses=1))
            await world.restart()
            ask = world.client.ask

    run(scenario, **TWO)


def test_join_group() -> None:
    async def scenario(world: World) -> None:
        ask = world.client.ask
        first = join("a", join_epoch=1)
        answer = await ask(first)
        assert await Client(world).ask(first) == answer, "it was repeated: its answer was lost"
        await ask(group_wire.CommandLeaveGroup(group=GROUP, member_id="a", call_token=1))
        with pytest.raises(UnknownMember):
            await Client(world).ask(first)
        assert joined(world) == []
        await ask(join("a", join_epoch=2))
        with pytest.raises(UnknownMember):
            await Client(world).ask(first)
        assert joined(world) == ["a"]

    run(scenario)


def test_join_group_over_a_restart() -> None:
    """A member that left right after a restart came back, and had partitions until its timeout."""

    async def scenario(world: World) -> None:
        first = join("a", join_epoch=1)
        await world.client.ask(first)
        await world.restart()
        leave = group_wire.CommandLeaveGroup(group=GROUP, member_id="a", call_token=1)
        await world.client.ask(leave)
        with pytest.raises(UnknownMember):
            await Client(world).ask(first)
        assert joined(world) == []

    run(scenario)


def test_join_group_of_an_instance_that_was_replaced() -> None:
    """A copy of the old one's call took the place of the new one, and fenced it."""

    async def scenario(world: World) -> None:
        first = join("a", instance="i", join_epoch=1)
        await world.client.ask(first)
        await world.client.ask(join("b", instance="i", join_epoch=1))
        with pytest.raises(UnknownMember):
            await Client(world).ask(first)
        assert joined(world) == ["b"]

    run(scenario)


def test_join_group_after_the_group_was_deleted() -> None:
    """The member that had left was back, and had partitions until its timeout."""

    async def scenario(world: World) -> None:
        ask = world.client.ask
        first = join("a", join_epoch=1)
        await ask(first)
        await ask(group_wire.CommandLeaveGroup(group=GROUP, member_id="a", call_token=1))
        await ask(group_wire.CommandDeleteGroup(group=GROUP, call_token=2))
        with pytest.raises(UnknownMember):
            await Client(world).ask(first)
        assert world.broker.groups.all() == [], "the copy would make the group anew"
        await ask(join("b", join_epoch=1))
        with pytest.raises(UnknownMember):
            await Client(world).ask(first)
        assert joined(world) == ["b"]
        await ask(join("a", join_epoch=2))
        assert joined(world) == ["a", "b"]

    run(scenario)


def test_group_heartbeat() -> None:
    """It names what was held when it was written: what came since was given away."""

    async def scenario(world: World) -> None:
        ask = world.client.ask
        empty = heartbeat(1)
        await ask(join("a", join_epoch=1))
        await ask(empty)
        state = await ask(heartbeat(2))
        held = list(state.assigned)
        assert len(held) == 2
        await ask(heartbeat(3, *held))
        await Client(world).ask(join("b", join_epoch=1))
        group = world.broker.groups.get(GROUP)
        assert len(group.asked_back("a")) == 1
        await Client(world).ask(empty)
        assert len(group.asked_back("a")) == 1, "it is still at work there"
        kept = (await ask(heartbeat(4, *held))).assigned
        await ask(heartbeat(5, *kept))
        assert group.asked_back("a") == []

    run(scenario)


def test_leave_group() -> None:
    async def scenario(world: World) -> None:
        ask = world.client.ask
        leave = group_wire.CommandLeaveGroup(group=GROUP, member_id="a", call_token=1)
        await ask(join("a", join_epoch=1))
        await ask(leave)
        await ask(join("a", join_epoch=2))
        await Client(world).ask(leave)
        assert joined(world) == ["a"]

    run(scenario)


def test_delete_group() -> None:
    async def scenario(world: World) -> None:
        ask = world.client.ask
        delete = group_wire.CommandDeleteGroup(group=GROUP, call_token=1)
        leave = group_wire.CommandLeaveGroup(group=GROUP, member_id="a")
        await ask(join("a", join_epoch=1))
        await ask(leave)
        await ask(delete)
        await ask(send(b"0"))
        await ask(join("a", join_epoch=2))
        await ask(leave)
        await Client(world).ask(delete)
        assert world.subscription().backlog == 1

    run(scenario)


def commit_offsets(world: World, offset: int, generation: int) -> group_wire.CommandCommitOffsets:
    row = group_wire.PartitionOffset(
        partition=world.partition().name.to_wire(), offset=CommittedOffset(offset).row()
    )
    return group_wire.CommandCommitOffsets(group=GROUP, generation=generation, offsets=[row])


def offset_of_group(world: World) -> CommittedOffset | None:
    return world.broker.local_access.offsets.committed(world.partition(), GROUP)


def test_commit_offsets() -> None:
    async def scenario(world: World) -> None:
        ask = world.client.ask
        await ask(send(b"0", b"1", b"2"))
        first = commit_offsets(world, 1, 1)
        await ask(first)
        await ask(commit_offsets(world, 3, 1))
        await Client(world).ask(first)
        assert offset_of_group(world) == CommittedOffset(1)
        await ask(commit_offsets(world, 3, 2))
        (outcome,) = (await Client(world).ask(first)).outcomes
        assert isinstance(from_wire(outcome.error), IllegalGeneration)
        assert offset_of_group(world) == CommittedOffset(3)

    run(scenario)


def test_fetch_offsets() -> None:
    async def scenario(world: World) -> None:
        ask = world.client.ask

        def fetch(generation: int) -> group_wire.CommandFetchOffsets:
            names = [world.partition().name.to_wire()]
            return group_wire.CommandFetchOffsets(
                group=GROUP, generation=generation, partitions=names
            )

        await ask(fetch(1))
        await ask(fetch(2))
        (outcome,) = (await Client(world).ask(fetch(1))).outcomes
        assert isinstance(from_wire(outcome.error), IllegalGeneration)
        assert world.partition().subscriptions.generation(GROUP) == 2

    run(scenario)


def test_forget_offsets() -> None:
    async def scenario(world: World) -> None:
        ask = world.client.ask
        await ask(send(b"0", b"1", b"2"))
        await ask(commit_offsets(world, 1, 1))
        forget = group_wire.CommandForgetOffsets(group=GROUP, of_all=True, call_token=1)
        await ask(forget)
        assert offset_of_group(world) is None
        await ask(commit_offsets(world, 2, 2))
        await Client(world).ask(forget)
        assert offset_of_group(world) == CommittedOffset(2)

    run(scenario)
