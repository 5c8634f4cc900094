"""Questions about topics go to all brokers of partitions; the answer is whole, or an error."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest
from tests.client.fakes import FAST, Partition
from tests.client.several_brokers import FIRST, SECOND, THIRD, SeveralBrokers, run_with
from tests.fake_link import FakeLink
from tests.playbook import HOLD

from magnetar import Client, ClientClosed, ProducerDescription
from magnetar_core.errors import Gone, InvalidArgument, LogUnavailable, TopicNotFound
from magnetar_core.ids import PartitionName, TxnID
from magnetar_core.wire import service_pb2, topic_pb2

PATIENT = dataclasses.replace(FAST, operation_timeout_ms=20_000, request_timeout_ms=20_000)


def fill(cluster: SeveralBrokers, partitions: int = 5) -> None:
    for number, one in enumerate(cluster.topic("t", partitions)):
        one.messages = [b"m"] * number


def test_a_description_has_all_partitions_each_from_its_broker() -> None:
    async def test(cluster: SeveralBrokers, client: Client) -> None:
        fill(cluster)
        found = await client.admin.topics.describe("t")
        assert [one.partition for one in found.partitions] == [0, 1, 2, 3, 4]
        assert [one.end_offset for one in found.partitions] == [0, 1, 2, 3, 4]
        assert [one.broker_name for one in found.partitions] == [
            FIRST,
            SECOND,
            THIRD,
            FIRST,
            SECOND,
        ]
        assert sorted(cluster.asked("describe_topic")) == sorted((FIRST, SECOND, THIRD))

    run_with(test)


def test_offsets_come_from_the_brokers_of_these_partitions_only() -> None:
    async def test(cluster: SeveralBrokers, client: Client) -> None:
        fill(cluster)
        every = await client.admin.topics.list_offsets("t")
        assert [(one.partition, one.end_offset) for one in every.partitions] == [
            (number, number) for number in range(5)
        ]
        cluster.net.dead.add(THIRD)
        cluster.net.break_links()
        some = await client.admin.topics.list_offsets("t", partitions=[4, 0, 4])
        assert [(one.partition, one.end_offset) for one in some.partitions] == [(0, 0), (4, 4)]

    run_with(test)


def test_all_brokers_are_asked_at_once() -> None:
    async def test(cluster: SeveralBrokers, client: Client) -> None:
        fill(cluster)
        cluster.play.when("describe_topic").always(HOLD)
        asking = asyncio.create_task(client.admin.topics.describe("t"))
        await cluster.play.holds(3)
        cluster.play.release()
        assert len((await asking).partitions) == 5

    run_with(test)


@pytest.mark.parametrize("question", ["describe", "list_offsets"])
def test_without_one_broker_there_is_no_partial_answer_and_the_error_names_it(
    question: str,
) -> None:
    async def test(cluster: SeveralBrokers, client: Client) -> None:
        fill(cluster)
        cluster.net.dead.add(SECOND)
        with pytest.raises(LogUnavailable) as raised:
            await getattr(client.admin.topics, question)("t")
        assert f"broker b-1 at {SECOND}, which has partitions 1, 4 of 't', does not answer" in str(
            raised.value
        )

    run_with(test)


def test_a_broker_that_dies_in_the_middle_and_comes_back_is_asked_again() -> None:
    async def test(cluster: SeveralBrokers, client: Client) -> None:
        fill(cluster)
        cluster.play.when("describe_topic").always(HOLD)
        asking = asyncio.create_task(client.admin.topics.describe("t"))
        await cluster.play.holds(3)
        cluster.net.dead.add(SECOND)
        for link in [one for one in cluster.net.links if one.address == SECOND]:
            link.break_now()
        cluster.play.forget()
        cluster.play.release()
        cluster.net.dead.clear()
        assert len((await asking).partitions) == 5

    run_with(test, config=PATIENT)


def test_a_partition_that_moves_between_look_up_and_question_is_found() -> None:
    async def test(cluster: SeveralBrokers, client: Client) -> None:
        fill(cluster)
        for question in ("describe_topic", "list_offsets"):
            cluster.keepers.clear()
            cluster.play.when(question).always(HOLD)
            asking = asyncio.create_task(
                client.admin.topics.describe("t")
                if question == "describe_topic"
                else client.admin.topics.list_offsets("t")
            )
            await cluster.play.holds(3)
            cluster.keepers["t", 1] = THIRD
            cluster.play.forget()
            cluster.play.release()
            assert [one.end_offset for one in (await asking).partitions] == [0, 1, 2, 3, 4]  # type: ignore[attr-defined]

    run_with(test, config=PATIENT)


def test_a_topic_that_is_made_anew_in_the_middle_is_not_mixed_with_the_one_before() -> None:
    async def test(cluster: SeveralBrokers, client: Client) -> None:
        fill(cluster)
        topic_id = cluster.topics["t"][0]
        cluster.play.when("list_offsets").in_turn(None, HOLD, HOLD)
        asking = asyncio.create_task(client.admin.topics.list_offsets("t"))
        await cluster.play.came("list_offsets", 3)
        cluster.topics["t"] = (topic_id + 1, [Partition() for _ in range(5)])
        cluster.play.release()
        found = await asking
        assert found.topic_id == topic_id + 1
        assert [one.end_offset for one in found.partitions] == [0] * 5
        with pytest.raises(Gone):
            await client.admin.topics.list_offsets("t", topic_id=topic_id)

    run_with(test, config=PATIENT)


def test_a_topic_that_is_deleted_in_the_middle_is_not_found() -> None:
    async def test(cluster: SeveralBrokers, client: Client) -> None:
        fill(cluster)
        topic_id = cluster.topics["t"][0]
        cluster.play.when("describe_topic").in_turn(None, HOLD, HOLD)
        asking = asyncio.create_task(client.admin.topics.describe("t"))
        await cluster.play.came("describe_topic", 3)
        del cluster.topics["t"]
        cluster.play.release()
        with pytest.raises(TopicNotFound):
            await asking
        cluster.topic("t", 2)
        cluster.topics["t"] = (topic_id + 1, cluster.topics["t"][1])
        with pytest.raises(Gone):
            await client.admin.topics.list_offsets("t", topic_id=topic_id)

    run_with(test, config=PATIENT)


@pytest.mark.parametrize("boaster", [FIRST, SECOND, THIRD])
def test_what_a_broker_tells_of_partitions_of_others_does_not_count(boaster: str) -> None:
    """A broker may also tell of partitions that have just moved away from it."""

    async def test(cluster: SeveralBrokers, client: Client) -> None:
        fill(cluster)

        def script(name: str, body: object) -> object:
            if name != "describe_topic" or cluster.play.asked[-1][0] != boaster:
                return None
            return topic_pb2.CommandDescribeTopicResponse(
                topic="t",
                topic_id=cluster.topics["t"][0],
                partitions=[
                    topic_pb2.PartitionDescription(partition=number, end_offset=99)
                    for number in range(5)
                ],
            )

        cluster.play.improvise = script
        found = await client.admin.topics.describe("t")
        assert [one.end_offset for one in found.partitions] == [
            99 if cluster.keeper("t", number) == boaster else number for number in range(5)
        ]

    run_with(test)


def test_a_broker_that_answers_twice_or_late_changes_nothing() -> None:
    async def test(cluster: SeveralBrokers, client: Client) -> None:
        fill(cluster)
        push = FakeLink.push

        def twice(link: FakeLink, *commands: service_pb2.Command) -> None:
            push(link, *commands, *commands)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(FakeLink, "push", twice)
            found = await client.admin.topics.describe("t")
        assert [one.end_offset for one in found.partitions] == [0, 1, 2, 3, 4]
        cluster.play.when("list_offsets").in_turn(None, HOLD)
        with pytest.raises(LogUnavailable):
            await client.admin.topics.list_offsets("t")
        cluster.topics["t"][1][0].messages += [b"m"] * 7
        cluster.play.release()
        assert (await client.admin.topics.list_offsets("t")).partitions[0].end_offset == 7

    run_with(test)


def test_hanging_transactions_are_looked_for_at_all_brokers_or_not_at_all() -> None:
    async def test(cluster: SeveralBrokers, client: Client) -> None:
        partitions = cluster.topic("t", 3)
        for number, one in enumerate(partitions):
            one.pending[TxnID.of(7, 1, 100 + number), 5] = [(1, b"")]
        found = await client.admin.transactions.find_hanging()
        assert [one.producer.partition.partition for one in found] == [0, 1, 2]
        assert set(cluster.asked("describe_producers")) == {FIRST, SECOND, THIRD}
        cluster.net.dead.add(SECOND)
        cluster.net.break_links()
        with pytest.raises(LogUnavailable, match=SECOND):
            await client.admin.transactions.find_hanging("t")

    run_with(test)


def test_what_has_no_transaction_does_not_hang() -> None:
    """It raised an AssertionError: the fuzzer at real servers found that."""

    async def test(cluster: SeveralBrokers, client: Client) -> None:
        plain = ProducerDescription(PartitionName("t", 1, 7), "", 5, -1, 3, 0, None, 0, 0)
        with pytest.raises(InvalidArgument, match="producer 5 has no open transaction on t-part"):
            await client.admin.transactions.abort_hanging(plain)

    run_with(test)


def test_the_rest_of_what_administrators_do_goes_to_the_partitions_brokers() -> None:
    async def test(cluster: SeveralBrokers, client: Client) -> None:
        cluster.topic("t", 3)
        await client.admin.subscriptions.create("t", "s")
        assert await client.admin.subscriptions.seek("t", "s", offset=7) == {0: 7, 1: 7, 2: 7}
        await client.admin.subscriptions.delete("t", "s")
        for number in range(3):
            assert await client.admin.topics.skip_damaged("t", number) == [(number, 9)]
            await client.admin.topics.stored_transactions("t", number)
        for name in ("subscribe", "seek", "unsubscribe", "skip_damaged", "list_stored_txns"):
            assert cluster.asked(name) == [FIRST, SECOND, THIRD], name

    run_with(test)


def test_a_forced_deletion_aborts_what_is_open_at_any_broker() -> None:
    async def test(cluster: SeveralBrokers, client: Client) -> None:
        cluster.topic("t", 3)
        producer = await client.create_producer("t")
        for number in range(3):
            txn = await client.begin_transaction()
            await producer.send(b"1", txn=txn, partition=number)
        await client.admin.topics.delete("t", force=True)
        assert "t" not in cluster.topics
        assert len(cluster.asked("end_txn")) == 3

    run_with(test)


@pytest.mark.parametrize("of", ["groups", "topics"])
def test_a_question_to_all_is_told_of_the_close_of_its_client(of: str) -> None:
    """Not by CancelledError: it looks as if somebody had cancelled whoever asks."""

    async def test(cluster: SeveralBrokers, client: Client) -> None:
        fill(cluster)
        cluster.play.when("list_groups", "describe_topic").always(HOLD)
        admin = client.admin
        task = asyncio.ensure_future(
            admin.groups.list() if of == "groups" else admin.topics.describe("t")
        )
        await cluster.play.holds()
        await client.close()
        with pytest.raises(ClientClosed):
            await task

    run_with(test)
