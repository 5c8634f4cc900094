"""History of a transaction: the coordinator's word, and that of each broker that answers."""

from __future__ import annotations

from typing import Any

import pytest
from tests.client.several_brokers import (
    FIRST,
    SECOND,
    THIRD,
    SeveralBrokers,
    run_cluster,
    run_with,
)
from tests.fake_link import FakeLink

from magnetar import Client, DetailsMissing, EndCause, TransactionStatus, TxnNotFound
from magnetar.admin import transaction_history
from magnetar_core.errors import Gone, PartitionMoved
from magnetar_core.ids import PartitionName, SubscriptionName, TxnID
from magnetar_core.wire import broker_pb2, common_pb2, transaction_pb2


class Knowing(SeveralBrokers):
    """Each broker knows of as many messages as the partition's number says."""

    def on_describe_participants(self, link: FakeLink, body: Any) -> Any:
        answer = broker_pb2.CommandDescribeParticipantsResponse()
        for one in body.partitions:
            told = answer.participants.add(partition=one)
            if self.keeper(one.topic, one.partition) != link.address:
                told.error.CopyFrom(PartitionMoved("elsewhere").to_wire())
                continue
            told.status = common_pb2.OPEN
            told.count, told.bytes = 10 + one.partition, 100
            told.first_write_ms = 5_000
        for other in body.subscriptions:
            place = SubscriptionName.from_wire(other)
            answer.participants.add(
                partition=place.partition_name.to_wire(),
                subscription=place.subscription,
                count=2,
                pending_ack_count=33,
            )
        return answer


def participants(topic_id: int, count: int = 3) -> dict[str, Any]:
    partitions = [PartitionName("t", number, topic_id) for number in range(count)]
    return {
        "partitions": [one.to_wire() for one in partitions],
        "subscriptions": [SubscriptionName(*partitions[1], "s").to_wire()],
    }


async def begun(cluster: SeveralBrokers, sdk: Client, /, **described: Any) -> TxnID:
    txn_id = (await sdk.begin_transaction()).txn_id
    cluster.transactions[txn_id]["described"] = described
    return txn_id


def test_each_broker_is_asked_once_about_its_participants() -> None:
    async def test(cluster: Knowing, client: Client) -> None:
        cluster.topic("t", 6)
        topic_id = cluster.find("t")[0]
        first, second = (PartitionName("t", number, topic_id) for number in (0, 1))
        txn_id = await begun(
            cluster,
            client,
            **participants(topic_id, 6),
            client=transaction_pb2.TransactionClient(name="tea", host="10.0.0.7", connected=True),
            decided_at_ms=7,
            cause=transaction_pb2.BY_HAND,
            caused_by="cli at 10.0.0.8",
            ended=[transaction_pb2.EndedParticipant(partition=first.to_wire(), ended_at_ms=9)],
            unfinished=[
                transaction_pb2.UnfinishedParticipant(
                    partition=second.to_wire(), subscription="s", error=Gone("away").to_wire()
                )
            ],
            confirmed=[transaction_pb2.ConfirmedWrites(partition=second.to_wire(), count=11)],
        )
        found = await client.admin.transactions.history(txn_id)
        assert sorted(cluster.asked("describe_participants")) == sorted([FIRST, SECOND, THIRD])
        assert found.transaction == await client.admin.transactions.describe(txn_id)
        assert found.transaction.cause is EndCause.BY_HAND
        assert found.transaction.caused_by == "cli at 10.0.0.8"
        assert not found.is_partial
        assert [(one.partition.partition, one.subscription) for one in found.participants] == [
            *((number, None) for number in range(6)),
            (1, "s"),
        ]
        assert [one.count for one in found.participants] == [10, 11, 12, 13, 14, 15, 2]
        part, other, *_, acks = found.participants
        assert (part.status, part.bytes) == (TransactionStatus.OPEN, 100)
        assert (part.first_write_at_ms, part.ended_at_ms, part.confirmed) == (5_000, 9, None)
        assert (other.ended_at_ms, other.confirmed) == (0, 11)
        assert (acks.pending_ack_count, acks.status) == (33, None)
        assert acks.last_error == "GONE: away"

    run_cluster(Knowing, test)


def test_a_broker_that_is_away_is_missing_and_said_to_be() -> None:
    async def test(cluster: Knowing, client: Client) -> None:
        cluster.topic("t", 3)
        txn_id = await begun(cluster, client, **participants(cluster.find("t")[0]))
        cluster.net.dead.add(SECOND)
        cluster.net.break_links()
        found = await client.admin.transactions.history(txn_id)
        assert found.is_partial
        assert [bool(one.unanswered) for one in found.participants] == [False, True, False, True]
        assert SECOND in found.participants[1].unanswered
        assert found.participants[1].error is not None
        assert [one.count for one in found.participants] == [10, 0, 12, 0]

    run_cluster(Knowing, test)


def test_a_topic_that_is_deleted_or_made_anew_does_not_hide_the_rest() -> None:
    async def test(cluster: Knowing, client: Client) -> None:
        cluster.topic("t", 3)
        topic_id = cluster.find("t")[0]
        gone = PartitionName("gone", 0, 77).to_wire()
        beyond = PartitionName("t", 9, topic_id).to_wire()
        here = PartitionName("t", 0, topic_id).to_wire()
        txn_id = await begun(cluster, client, partitions=[gone, here])
        lost, found = (await client.admin.transactions.history(txn_id)).participants
        assert lost.unanswered.startswith("TOPIC_NOT_FOUND: ")
        assert found.count == 10
        txn_id = await begun(cluster, client, partitions=[beyond])
        (lost,) = (await client.admin.transactions.history(txn_id)).participants
        assert "no partition 9" in lost.unanswered

    run_cluster(Knowing, test)


def test_many_participants_are_asked_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(cluster: Knowing, client: Client) -> None:
        monkeypatch.setattr(transaction_history, "PARTICIPANTS_AT_ONCE", 2)
        cluster.topic("t", 9)
        txn_id = await begun(cluster, client, **participants(cluster.find("t")[0], 9))
        found = await client.admin.transactions.history(txn_id)
        assert cluster.asked("describe_participants").count(FIRST) == 2
        assert [one.count for one in found.participants] == [*range(10, 19), 2]

    run_cluster(Knowing, test)


def test_what_is_not_kept_has_no_participants() -> None:
    async def test(cluster: SeveralBrokers, client: Client) -> None:
        missing = transaction_pb2.ENDED_BEFORE_START
        txn_id = await begun(cluster, client, details_missing=missing)
        found = await client.admin.transactions.history(txn_id)
        assert found.transaction.details_missing is DetailsMissing.ENDED_BEFORE_START
        assert found.participants == ()
        assert cluster.asked("describe_participants") == []
        with pytest.raises(TxnNotFound):
            await client.admin.transactions.history(TxnID.of(txn_id.tcid, 1, 999))

    run_with(test)


def test_how_soon_a_transaction_expires() -> None:
    async def test(cluster: SeveralBrokers, client: Client) -> None:
        async def expires_in_ms(**described: Any) -> int | None:
            txn_id = await begun(cluster, client, **described)
            return (await client.admin.transactions.describe(txn_id)).expires_in_ms

        assert await expires_in_ms(txn_timeout_ms=60_000, age_ms=58_500) == 1_500
        assert await expires_in_ms(two_phase_commit=True, age_ms=58_500) is None
        txn_id = await begun(cluster, client, txn_timeout_ms=60_000, age_ms=1)
        cluster.transactions[txn_id]["status"] = common_pb2.COMMITTING
        assert (await client.admin.transactions.describe(txn_id)).expires_in_ms is None

    run_with(test)
