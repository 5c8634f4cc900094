"""docs/design/0025-topics-that-change.md, where partitions lie on several brokers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests import virtual_time
from tests.broker.cluster import Client, Cluster, run
from tests.broker.harness import COUNTER_BOUND, take_incarnations, txn, watermark
from tests.broker.test_several_brokers import end, send
from tests.virtual_time import time_passes

from magnetar_broker.topic_directory import growths
from magnetar_core.errors import Gone, LogUnavailable, MagnetarError, TopicNotFound
from magnetar_core.ids import PartitionName
from magnetar_core.membership.placement import shard_of
from magnetar_core.wire import broker_pb2 as wire
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import group_pb2 as group_wire
from magnetar_core.wire import topic_pb2 as topic_wire

TOPIC = "t"


def alter(partitions: int = 0, token: int = 0, **changes: Any) -> topic_wire.CommandAlterTopic:
    return topic_wire.CommandAlterTopic(
        topic=TOPIC, partitions=partitions, keys_move=True, call_token=token, **changes
    )


def subscribe(number: int, name: str = "s", *, latest: bool = True) -> wire.CommandSubscribe:
    return wire.CommandSubscribe(
        subscription=common.Subscription(topic=TOPIC, partition=number, subscription=name),
        initial_position=wire.LATEST if latest else wire.EARLIEST,
    )


def unsubscribe(number: int, name: str = "s") -> wire.CommandUnsubscribe:
    return wire.CommandUnsubscribe(
        subscription=common.Subscription(topic=TOPIC, partition=number, subscription=name)
    )


def holder(cluster: Cluster, number: int) -> int:
    """The broker that keeps a partition, or will."""
    return shard_of(cluster.broker(0).topics.get(TOPIC).topic_id, number)


async def at(cluster: Cluster, number: int) -> Client:
    """A conversation with the broker of a partition."""
    return await cluster.client(holder(cluster, number))


def cursors(cluster: Cluster, number: int) -> dict[str, int]:
    partition = cluster.broker(holder(cluster, number)).topics.get(TOPIC).hosted[number]
    return {one.name.subscription: one.cursor.floor for one in partition.subscriptions}


def growing_to(cluster: Cluster, number: int) -> int:
    return cluster.broker(number).topics.get(TOPIC).record.growing_to


def counts(cluster: Cluster) -> list[int]:
    return [cluster.broker(one).topics.get(TOPIC).record.partitions for one in range(3)]


@pytest.mark.parametrize("where", [0, 1])
@pytest.mark.parametrize("before", [1, 2, 3])
def test_a_topic_grows_everywhere_with_its_subscriptions(where: int, before: int) -> None:
    async def scenario(cluster: Cluster) -> None:
        topic_id = await cluster.create(0, TOPIC, before)
        for number in range(before):
            client = await at(cluster, number)
            await client.ask(send(PartitionName(TOPIC, number, topic_id), b"0"))
            await client.ask(subscribe(number))
        answer = await cluster.ask(where, alter(7, retention_ms=5))
        assert answer.topic_id == topic_id
        # At once, at every broker.
        assert counts(cluster) == [7, 7, 7]
        for restarted in (None, 0, 1, 2):
            if restarted is not None:
                await cluster.restart(restarted)
                await cluster.until(lambda: all(cluster.has_met(one) for one in range(3)))
            for number in range(before, 7):
                assert cursors(cluster, number) == {"s": 0}
            for one in range(3):
                assert cluster.broker(one).topics.get(TOPIC).record.retention_ms == 5
                assert growing_to(cluster, one) == 0
                cluster.broker(one).check()

    run(scenario)


def test_an_alteration_is_made_once() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.create(0, TOPIC, 2)
        shorter = alter(3, token=7, retention_ms=5)
        made = await (await cluster.client(1)).ask(shorter)
        await cluster.ask(2, alter(token=8, retention_ms=9))
        for restarted in (None, 0, 1, 2):
            if restarted is not None:
                await cluster.restart(restarted)
                await cluster.until(lambda: all(cluster.has_met(one) for one in range(3)))
            for number in (1, 0, 2):
                assert await (await cluster.client(number)).ask(shorter) == made
                record = cluster.broker(number).topics.get(TOPIC).record
                assert (record.partitions, record.retention_ms) == (3, 9)

    run(scenario)


def hold_survey(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Let the first broker hear the answers to its survey only when the event is set."""
    released = asyncio.Event()
    before = growths.Survey._on_answer

    def late(self: growths.Survey, peer: str, name: str, body: Any) -> None:
        body_then = type(body).FromString(body.SerializeToString())

        async def wait() -> None:
            await released.wait()
            before(self, peer, name, body_then)

        cluster.broker(0).environment.spawn(wait())

    monkeypatch.setattr(growths.Survey, "_on_answer", late)
    return released


def test_while_a_topic_grows_its_subscriptions_stay_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that came after its broker had told, or went, would be forgotten or come back."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.create(0, TOPIC, 3)
        for number in range(3):
            await (await at(cluster, number)).ask(subscribe(number))
        released = hold_survey(cluster, monkeypatch)
        altering = (await cluster.client(2)).begin(alter(5))
        await cluster.until(lambda: all(growing_to(cluster, one) == 5 for one in range(3)))
        await time_passes(0.5)
        assert counts(cluster) == [3, 3, 3]
        for number in range(3):
            client = await at(cluster, number)
            with pytest.raises(LogUnavailable, match="is being given 5 partitions"):
                await client.ask(subscribe(number, "late"))
            with pytest.raises(LogUnavailable, match="is being given 5 partitions"):
                await client.ask(unsubscribe(number))
            # Who has a subscription attaches to it.
            await client.ask(subscribe(number))
            # Whatever asks all partitions hears that there may be more.
            told = await client.ask(wire.CommandListOffsets(topic=TOPIC, partitions=[number]))
            assert told.partition_count == 5
        for changes in ({"partitions": 6}, {"retention_ms": 1}):
            with pytest.raises(LogUnavailable, match="is being given 5 partitions"):
                await (await cluster.client(1)).ask(alter(**changes))
        released.set()
        await altering
        assert counts(cluster) == [5, 5, 5]
        for number in range(3):
            await (await at(cluster, number)).ask(subscribe(number, "late"))
        assert cursors(cluster, 3) == cursors(cluster, 4) == {"s": 0}

    run(scenario)


def test_what_is_away_delays_a_growth_and_nothing_else() -> None:
    async def scenario(cluster: Cluster) -> None:
        topic_id = await cluster.create(0, TOPIC, 3)
        cluster.crash(2)
        await time_passes(1)
        with pytest.raises(LogUnavailable, match="b-2"):
            await (await cluster.client(0)).ask(alter(4))
        # The announcement is taken back: subscriptions come and go.
        await cluster.until(lambda: not growing_to(cluster, 1))
        await (await cluster.client(0)).ask(alter(retention_ms=5))
        kept = next(number for number in range(3) if shard_of(topic_id, number) != 2)
        await (await at(cluster, kept)).ask(subscribe(kept))
        await cluster.start(2)
        await cluster.ask(1, alter(4))
        assert counts(cluster) == [4, 4, 4]
        assert cluster.broker(2).topics.get(TOPIC).record.retention_ms == 5

    run(scenario)


def test_a_broker_without_partitions_may_be_away_and_gets_its_subscriptions_later() -> None:
    async def scenario(cluster: Cluster) -> None:
        topic_id = await cluster.create(0, TOPIC, 1)
        away = next(one for one in (1, 2) if one != shard_of(topic_id, 0))
        new = next(number for number in range(1, 4) if shard_of(topic_id, number) == away)
        client = await cluster.client(shard_of(topic_id, 0))
        await client.ask(subscribe(0))
        cluster.crash(away)
        await time_passes(1)
        await cluster.ask(0, alter(4))
        await cluster.start(away)
        # A send that comes before the news waits for it, or is to come again.
        await cluster.ask(away, send(PartitionName(TOPIC, new, topic_id), b"0"))
        assert cursors(cluster, new) == {"s": 0}

    run(scenario)


def test_a_topic_that_was_made_and_grown_while_a_broker_was_away() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.crash(1)
        await time_passes(1)
        topic_id = await cluster.create(0, TOPIC, 1)
        assert [shard_of(topic_id, number) for number in range(3)] == [2, 0, 1]
        await (await at(cluster, 0)).ask(subscribe(0))
        await cluster.ask(0, alter(3))
        await cluster.start(1)
        await cluster.until(lambda: cluster.has_met(1))
        assert cursors(cluster, 2) == {"s": 0}

    run(scenario)


def test_an_announcement_does_not_outlive_the_first_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.create(0, TOPIC, 3)
        hold_survey(cluster, monkeypatch)
        (await cluster.client(0)).begin(alter(5))
        await cluster.until(lambda: all(growing_to(cluster, one) == 5 for one in range(3)))
        await cluster.restart(0)
        monkeypatch.undo()
        await cluster.until(lambda: all(growing_to(cluster, one) == 0 for one in range(3)))
        assert counts(cluster) == [3, 3, 3]
        await cluster.ask(1, alter(5))
        assert counts(cluster) == [5, 5, 5]

    run(scenario)


def test_a_topic_that_is_deleted_while_it_grows_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.create(0, TOPIC, 3)
        released = hold_survey(cluster, monkeypatch)
        altering = (await cluster.client(0)).begin(alter(5))
        await cluster.until(lambda: all(growing_to(cluster, one) == 5 for one in range(3)))
        await cluster.ask(1, topic_wire.CommandDeleteTopic(topic=TOPIC))
        await cluster.create(1, TOPIC, 2)
        released.set()
        with pytest.raises(Gone):
            await altering
        assert counts(cluster) == [2, 2, 2]

    run(scenario)


def test_a_broker_that_answers_no_survey_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.create(0, TOPIC, 3)
        hold_survey(cluster, monkeypatch)
        with pytest.raises(LogUnavailable, match="does not answer"):
            await (await cluster.client(0)).ask(alter(5))
        await cluster.until(lambda: all(growing_to(cluster, one) == 0 for one in range(3)))
        assert counts(cluster) == [3, 3, 3]

    run(scenario)


def test_a_partition_that_may_be_new_is_never_denied_by_a_broker_that_lags(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A coordinator takes TopicNotFound for "ended": the transaction would be torn."""

    async def scenario(cluster: Cluster) -> None:
        topic_id = await cluster.create(0, TOPIC, 1)
        lagging = next(one for one in (1, 2) if one != shard_of(topic_id, 0))
        new = next(number for number in range(1, 4) if shard_of(topic_id, number) == lagging)
        name = PartitionName(TOPIC, new, topic_id)
        follower: Any = cluster.broker(lagging).topic_directory
        client = await cluster.client(lagging)
        await take_incarnations(client, 0)
        await client.ask(watermark(0, bound=COUNTER_BOUND))
        # What it is told comes late.
        heard, late = follower._on_told, []

        def hear_later(name: str, body: Any) -> None:
            late.append((name, type(body).FromString(body.SerializeToString())))

        monkeypatch.setattr(follower, "_on_told", hear_later)
        follower._follow()
        await cluster.ask(0, alter(4))
        with pytest.raises(LogUnavailable):
            await client.ask(send(name, b"0", in_txn=txn(1)))
        ending = client.begin(end(name, txn(1), 1))
        await time_passes(0.1)
        assert not ending.done()
        monkeypatch.setattr(follower, "_on_told", heard)
        for one in late:
            heard(*one)
        outcome: MagnetarError | None = None
        try:
            await ending
        except MagnetarError as error:
            outcome = error
        assert not isinstance(outcome, TopicNotFound | Gone), "the partition is there"
        # Once it knows, it has the partition, and denies the next one with the first broker's word.
        await cluster.ask(lagging, send(name, b"0"))
        invented = PartitionName(TOPIC, new + 3, topic_id)
        with pytest.raises(TopicNotFound):
            await client.ask(end(invented, txn(2), 1))

    run(scenario)


def test_a_first_broker_that_lost_partitions_is_not_followed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.create(0, TOPIC, 3)
        keeper = cluster.broker(0)
        older = topic_wire.TopicRecord.FromString(
            keeper.topics.get(TOPIC).record.SerializeToString()
        )
        await cluster.ask(0, alter(6))
        # As after a restore of an older backup.
        keeper.topics.alter(older)
        directory: Any = keeper.topic_directory
        directory._directory.topic_changed(older.topic_id)
        directory._tell_followers()
        await cluster.until(lambda: "has fewer partitions than here" in caplog.text)
        await time_passes(3)
        assert counts(cluster) == [3, 6, 6]

    run(scenario)


def test_a_group_without_members_has_new_partitions_at_every_broker() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.create(0, TOPIC, 1)
        for number in range(3):
            client = await cluster.client(number)
            await client.ask(group_wire.CommandJoinGroup(group="g", member_id="a", topics=[TOPIC]))
            await client.ask(group_wire.CommandLeaveGroup(group="g", member_id="a"))
        await cluster.ask(0, alter(6))
        for restarted in (None, 0, 1, 2):
            if restarted is not None:
                await cluster.restart(restarted)
            for number in range(3):
                described = await cluster.ask(number, group_wire.CommandDescribeGroup(group="g"))
                assert described.summary.partitions == 2
            assert all(cursors(cluster, number) == {"g": 0} for number in range(1, 6))
        await cluster.ask(holder(cluster, 5), group_wire.CommandDeleteGroup(group="g"))
        assert cursors(cluster, 5) == {}

    run(scenario)


@pytest.mark.parametrize(
    ("growing_to", "topic_id", "is_told"),
    [(5, 7, True), (0, 7, False), (4, 7, False), (5, 8, False)],
)
def test_what_is_told_before_the_announcement_does_not_count(
    growing_to: int, topic_id: int, is_told: bool
) -> None:
    """A broker that was told may have restarted with what it knew before."""

    class Peer:
        def ask(self, body: Any, on_answer: Any) -> int:
            answer = topic_wire.CommandDescribeTopicResponse(
                topic_id=topic_id, growing_to=growing_to
            )
            answer.partitions.add(partition=1).subscriptions.add(subscription="s")
            on_answer("describe_topic_response", answer)
            return 1

    async def survey() -> None:
        told: list[Any] = []
        record = topic_wire.TopicRecord(topic=TOPIC, topic_id=7, partitions=2, growing_to=5)
        growths.Survey(record, {"b-1": Peer()}, told.append).start()  # type: ignore[dict-item]
        assert (told == [{1: {"s": False}}]) == is_told
        assert isinstance(told[0], LogUnavailable) != is_told

    virtual_time.run(survey())
