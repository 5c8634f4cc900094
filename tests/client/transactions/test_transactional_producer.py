"""A transactional producer against servers whose answers are lost."""

from __future__ import annotations

import dataclasses

import pytest
from tests.client.fakes import FAST, TCID, FakeCluster, run
from tests.playbook import BREAK, DROP, LOSE, Expect

from magnetar import Client, InvalidTxnState, OutcomeUnknown
from magnetar_core.errors import MagnetarError, ResourceInUse, TxnForgotten, TxnNotFound
from magnetar_core.ids import TxnID


def test_repeats_of_one_init_are_copies_and_the_next_one_is_none() -> None:
    """What the coordinator has to know to tell a late copy from a new instance."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.play.scene(
            Expect("init_producer", reaction=BREAK),
            Expect("init_producer"),
            Expect("init_producer"),
            Expect("init_producer"),
        )
        producer = client.transactional_producer("app")
        await producer.init()
        await producer.init()
        await client.admin.transactional_ids.force_terminate("app", TxnID.of(TCID, 1, 1))
        first, again, second, third = (
            one.call_token for one in cluster.play.commands("init_producer")
        )
        assert first == again != 0
        assert len({first, second, third}) == 3

    run(test)


def test_calls_that_take_effect_once_bear_a_token_of_their_own() -> None:
    """Repeats of one call the same one, also where its message is used again; the next another."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        # The first copy is lost; the second one is a refusal, after which it asks once more.
        cluster.play.scene(
            Expect("create_topic"),
            Expect("delete_topic", reaction=LOSE),
            Expect("delete_topic", reaction=ResourceInUse()),
            Expect("delete_topic"),
        )
        await client.admin.topics.create("t")
        await client.admin.topics.delete("t", force=True)
        tokens = [one.call_token for one in cluster.play.commands("delete_topic")]
        assert tokens[0] == tokens[1] != tokens[2]
        assert len({*tokens, cluster.play.commands("create_topic")[0].call_token, 0}) == 4

    run(test)


def test_named_sequences_have_a_token_and_other_transactions_none() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        await client.begin_transaction()
        await client.begin_named_transaction("n", 1, "run-1")
        await client.begin_named_transaction("n", 1, "run-1")
        tokens = [one.call_token for one in cluster.play.commands("new_txn")]
        assert tokens[0] == 0
        assert len(set(tokens)) == 3

    run(test)


@pytest.mark.parametrize("error", [TxnForgotten("long ago"), TxnNotFound("lost")])
@pytest.mark.parametrize("call", ["commit", "abort", "close"])
def test_a_transaction_that_nobody_remembers_is_over_for_its_producer(
    error: MagnetarError, call: str
) -> None:
    """Every call had raised that for ever, and no other transaction could begin."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        (partition,) = cluster.topic("t", 1)
        producer = client.transactional_producer()
        await producer.begin()
        await producer.send("t", b"nobody knows")
        cluster.play.when("end_txn").once(error)
        with pytest.raises(type(error)):
            await getattr(producer, call)()
        if call == "close":
            with pytest.raises(InvalidTxnState, match="CLOSED"):
                await producer.begin()
            return
        await producer.begin()
        await producer.send("t", b"next")
        await producer.commit()
        assert partition.messages == [b"next"]
        await producer.close()

    run(test)


def test_a_producer_whose_abort_has_no_answer_is_closed_all_the_same() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("t", 1)
        producer = client.transactional_producer()
        await producer.begin()
        await producer.send("t", b"x")
        cluster.play.when("end_txn").always(DROP)
        with pytest.raises(OutcomeUnknown):
            await producer.close()
        await producer.close()
        assert not client._opened.producers._open

    run(test, dataclasses.replace(FAST, request_timeout_ms=60_000))
