"""Offsets of Kafka groups at the partition's owner: cursors, generations, transactions, retention.

Source: docs/design/0029-kafka-groups.md.
"""

from __future__ import annotations

import pytest
from tests.broker.harness import (
    Client,
    World,
    ack,
    end,
    flow,
    run,
    send,
    subscribe,
    subscription,
    txn,
)

from magnetar_broker import keys
from magnetar_broker.dispatch.committed_offset import CommittedOffset
from magnetar_core.errors import (
    IllegalGeneration,
    InvalidTxnState,
    MagnetarError,
    QuotaExceeded,
    ResourceInUse,
    SubscriptionNotFound,
    TransactionConflict,
)
from magnetar_core.ids import TxnID
from magnetar_core.wire import broker_pb2 as wire
from magnetar_core.wire import common_pb2 as common

GROUP = "s"
T1, T2 = txn(1), txn(2)
WRITER = 77


class Committed:
    """A group's requests at partition 0, as a listener makes them."""

    def __init__(self, world: World) -> None:
        self._world = world

    def offset(self) -> CommittedOffset | None:
        world = self._world
        return world.broker.local_access.offsets.committed(world.partition(), GROUP)

    def commit(self, offset: int, metadata: str = "", *, generation: int = 1) -> None:
        world = self._world
        world.broker.local_access.offsets.commit(
            world.partition(), GROUP, generation, CommittedOffset(offset, metadata)
        )
        world.broker.check()

    def commit_in(
        self, txn_id: TxnID, offset: int, metadata: str = "", *, generation: int = 1
    ) -> None:
        world = self._world
        world.broker.local_access.offsets.commit_in(
            world.partition(),
            GROUP,
            generation,
            CommittedOffset(offset, metadata),
            txn_id,
            writer_id=WRITER,
            producer_epoch=0,
        )
        world.broker.check()

    def note(self, generation: int) -> None:
        world = self._world
        world.broker.local_access.offsets.note_generation(world.partition(), GROUP, generation)

    def forget(self, *, expired: bool = False) -> None:
        world = self._world
        world.broker.local_access.offsets.forget(world.partition(), GROUP, expired=expired)
        world.broker.check()


async def ten_messages(world: World) -> Committed:
    for first in range(0, 10, 2):
        values = [b"m%d" % first, b"m%d" % (first + 1)]
        await world.client.ask(send(*values, sequence=first))
    return Committed(world)


async def ended(world: World, txn_id: TxnID, action: common.TxnAction = common.COMMIT) -> None:
    await world.client.ask(end(txn_id, action, on=GROUP))


async def received(client: Client) -> list[bytes]:
    """What a consumer of ours gets under the group's name."""
    await client.ask(subscribe(GROUP, consumer=1))
    client.tell(flow(name=GROUP))
    await client.world.settle()
    return client.values()


def test_nothing_is_committed_and_no_subscription_made_until_the_first_commit() -> None:
    async def scenario(world: World) -> None:
        group = await ten_messages(world)
        assert group.offset() is None
        group.note(4)
        assert group.offset() is None
        with pytest.raises(SubscriptionNotFound):
            world.subscription()
        group.commit(3, "here", generation=4)
        assert group.offset() == (3, "here", -1)
        await world.settle()
        await world.restart()
        assert group.offset() == (3, "here", -1)
        assert world.subscription().backlog == 7

    run(scenario)


def test_a_commit_that_was_delayed_over_a_rebalance_is_refused() -> None:
    async def scenario(world: World) -> None:
        group = await ten_messages(world)
        group.commit(2, generation=5)
        # A member of the next generation has asked for its offsets.
        group.note(6)
        for _ in range(2):
            with pytest.raises(IllegalGeneration):
                group.commit(8, generation=5)
            with pytest.raises(IllegalGeneration):
                group.commit_in(T1, 8, generation=5)
            with pytest.raises(IllegalGeneration):
                group.note(5)
            await world.settle()
            await world.restart()
        assert group.offset() == (2, "", -1)
        group.commit(4, generation=6)
        assert group.offset() == (4, "", -1)

    run(scenario)


def test_a_generation_is_kept_where_nothing_is_committed_yet() -> None:
    async def scenario(world: World) -> None:
        group = await ten_messages(world)
        group.note(6)
        await world.settle()
        await world.restart()
        with pytest.raises(IllegalGeneration):
            group.commit(8, generation=5)
        with pytest.raises(SubscriptionNotFound):
            world.subscription()
        # A subscription of ours takes the generation over, and leaves it when it is deleted.
        await world.client.ask(subscribe(GROUP))
        with pytest.raises(IllegalGeneration):
            group.commit(8, generation=5)
        await world.client.ask(wire.CommandUnsubscribe(subscription=subscription(GROUP)))
        await world.settle()
        await world.restart()
        with pytest.raises(IllegalGeneration):
            group.commit(8, generation=5)
        group.forget()
        group.commit(8, generation=1)
        await world.settle()
        await world.restart()
        assert group.offset() == (8, "", -1)

    run(scenario)


def test_ours_go_on_where_a_kafka_group_has_stopped_and_the_other_way_round() -> None:
    async def scenario(world: World) -> None:
        group = await ten_messages(world)
        group.commit(6, "of Kafka")
        assert await received(world.client) == [b"m6", b"m7", b"m8", b"m9"]
        assert world.subscription().backlog == 4
        await world.client.ask(ack((6, 7), name=GROUP))
        # The metadata was that of another offset.
        assert group.offset() == (8, "", -1)
        await world.client.ask(ack((9, 9), name=GROUP))
        assert group.offset() == (8, "", -1)
        group.commit(9, "again")
        # What ours have acknowledged above is not read again.
        assert group.offset() == (10, "again", -1)
        assert world.subscription().backlog == 0

    run(scenario)


def test_a_commit_moves_back_too() -> None:
    async def scenario(world: World) -> None:
        group = await ten_messages(world)
        group.commit(8)
        group.commit(3, "back")
        assert group.offset() == (3, "back", -1)
        assert world.subscription().backlog == 7
        await world.settle()
        await world.restart()
        assert group.offset() == (3, "back", -1)
        assert await received(world.client) == [b"m%d" % number for number in range(3, 10)]

    run(scenario)


def test_an_offset_behind_the_end_is_kept_and_acknowledges_nothing_that_is_not_there() -> None:
    async def scenario(world: World) -> None:
        group = await ten_messages(world)
        group.commit(1_000)
        assert group.offset() == (1_000, "", -1)
        await world.client.ask(send(b"m10", sequence=10))
        assert world.subscription().backlog == 1
        assert group.offset() == (1_000, "", -1)

    run(scenario)


def test_an_unchanged_offset_writes_its_metadata_only() -> None:
    async def scenario(world: World) -> None:
        group = await ten_messages(world)
        group.commit(6, "a")
        await world.settle()
        cursors = await world.rows(keys.CURSORS)
        group.commit_in(T1, 8)
        # Acks are pending, but nothing is moved over them.
        group.commit(6, "b")
        await world.settle()
        assert group.offset() == (6, "b", -1)
        assert await world.rows(keys.CURSORS) == cursors

    run(scenario)


def test_a_commit_over_pending_acks_has_to_wait() -> None:
    async def scenario(world: World) -> None:
        group = await ten_messages(world)
        group.commit_in(T1, 4)
        for offset in (2, 4, 7):
            with pytest.raises(ResourceInUse):
                group.commit(offset)
        assert group.offset() is None
        await ended(world, T1)
        assert group.offset() == (4, "", -1)
        group.commit_in(T2, 6)
        with pytest.raises(ResourceInUse):
            group.commit(3)
        await ended(world, T2, common.ABORT)
        group.commit(3)
        assert group.offset() == (3, "", -1)

    run(scenario)


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("action", [common.COMMIT, common.ABORT])
def test_a_commit_in_a_transaction_counts_with_its_outcome(
    action: common.TxnAction, restarts: bool
) -> None:
    async def scenario(world: World) -> None:
        group = await ten_messages(world)
        group.commit_in(T1, 4, "first")
        group.commit_in(T1, 6, "second")
        assert world.broker.local_access.offsets.has_pending_acks(world.partition(), GROUP)
        assert group.offset() is None
        await world.settle()
        if restarts:
            await world.restart()
        # A repeat is recognised by what it says, also after a restart.
        group.commit_in(T1, 6, "second")
        assert len(await world.rows(keys.PENDINGACKS)) == 2
        await ended(world, T1, action)
        if restarts:
            await world.restart()
        assert not world.broker.local_access.offsets.has_pending_acks(world.partition(), GROUP)
        if action == common.COMMIT:
            assert group.offset() == (6, "second", -1)
            assert world.subscription().backlog == 4
        else:
            # Nothing was ever committed.
            assert group.offset() is None
            assert world.subscription().backlog == 10
        with pytest.raises(InvalidTxnState):
            group.commit_in(T1, 8)

    run(scenario)


def test_metadata_of_an_unmoved_offset_counts_with_the_outcome() -> None:
    async def scenario(world: World) -> None:
        group = await ten_messages(world)
        group.commit(6, "before")
        group.commit_in(T1, 6, "within")
        assert group.offset() == (6, "before", -1)
        await world.settle()
        await world.restart()
        await ended(world, T1)
        assert group.offset() == (6, "within", -1)

    run(scenario)


def test_a_transaction_covers_what_is_pending_whatever_is_deleted_between() -> None:
    async def scenario(world: World) -> None:
        group = await ten_messages(world)
        await world.client.ask(subscribe(GROUP))
        await world.client.ask(ack((2, 3), (6, 6), name=GROUP))
        group.commit_in(T1, 8)
        await ended(world, T1)
        assert group.offset() == (8, "", -1)
        assert world.subscription().backlog == 2

    run(scenario)


@pytest.mark.parametrize("offset", [4, 6, 9])
def test_no_transaction_commits_over_messages_that_another_one_holds(offset: int) -> None:
    async def scenario(world: World) -> None:
        group = await ten_messages(world)
        group.commit_in(T1, 6)
        with pytest.raises(TransactionConflict):
            group.commit_in(T2, offset)
        await ended(world, T1, common.ABORT)
        group.commit_in(T2, offset)
        await ended(world, T2)
        assert group.offset() == (offset, "", -1)

    run(scenario)


def test_a_transaction_does_not_move_back() -> None:
    async def scenario(world: World) -> None:
        group = await ten_messages(world)
        group.commit(4)
        with pytest.raises(TransactionConflict):
            group.commit_in(T1, 3)
        group.commit_in(T1, 7)
        with pytest.raises(TransactionConflict):
            group.commit_in(T1, 5)
        await ended(world, T1)
        assert group.offset() == (7, "", -1)

    run(scenario)


def test_an_offset_that_retention_has_passed_is_returned_as_it_was_committed() -> None:
    async def scenario(world: World) -> None:
        group = await ten_messages(world)
        group.commit(2, "old")
        world.partition().log.first_offset = 6
        world.subscription().trimmed(6)
        assert group.offset() == (2, "old", -1)
        assert world.subscription().backlog == 4
        # As an administrator does who sets it again.
        group.commit(1, "older")
        assert group.offset() == (1, "older", -1)
        assert world.subscription().backlog == 4
        group.commit_in(T1, 8)
        await ended(world, T1)
        assert group.offset() == (8, "", -1)

    run(scenario)


def test_what_only_a_group_has_used_expires_and_nothing_else_does() -> None:
    async def scenario(world: World) -> None:
        group = await ten_messages(world)
        group.commit(4)
        group.commit_in(T1, 6)
        with pytest.raises(ResourceInUse):
            group.forget(expired=True)
        await ended(world, T1)
        group.forget(expired=True)
        assert group.offset() is None
        with pytest.raises(SubscriptionNotFound):
            world.subscription()
        group.commit(4)
        await world.settle()
        await world.restart()
        await world.client.ask(subscribe(GROUP))
        group.forget(expired=True)
        assert world.subscription().backlog == 6
        assert group.offset() == (4, "", -1)
        group.forget()
        assert group.offset() is None

    run(scenario)


def test_names_of_groups_that_only_ask_are_bounded() -> None:
    async def scenario(world: World) -> None:
        access, partition = world.broker.local_access, world.partition()
        for number in range(2):
            access.offsets.note_generation(partition, f"g{number}", 1)
        with pytest.raises(QuotaExceeded):
            access.offsets.note_generation(partition, "another", 1)
        access.offsets.note_generation(partition, "g1", 2)
        with pytest.raises(MagnetarError):
            access.offsets.note_generation(partition, "", 1)

    run(scenario, subscriptions_max=2)
