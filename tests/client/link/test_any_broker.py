"""Several bootstrap addresses: the first that answers is used, another one when it is away."""

from __future__ import annotations

import asyncio
import dataclasses
from random import Random
from typing import Any

import pytest
from tests.client.fakes import COORDINATOR_ADDRESS, FAST, connect
from tests.client.several_brokers import FIRST, SECOND, THIRD, SeveralBrokers, run_with
from tests.playbook import BREAK, HOLD
from tests.virtual_loop import VirtualClock
from tests.virtual_time import time_passes
from tests.waiting import turns, until

from magnetar import Client, blocking
from magnetar import connect as connect_for_real
from magnetar.link.addresses import addresses_of
from magnetar.link.connection import Connection
from magnetar.link.first_answer import FirstAnswer
from magnetar.link.runtime import Runtime
from magnetar_core.errors import (
    ClusterMismatch,
    InvalidArgument,
    LogUnavailable,
    OutcomeUnknown,
    TopicNotFound,
)
from magnetar_core.wire import topic_pb2

BOTH = f"{FIRST},{SECOND}"
# Nobody's time ends: who goes on does so because a broker is away, or after its patience.
PATIENT = dataclasses.replace(
    FAST, operation_timeout_ms=60_000, request_timeout_ms=60_000, broker_patience_ms=500
)


def seconds() -> float:
    return asyncio.get_running_loop().time()


def hang(cluster: SeveralBrokers, *addresses: str) -> None:
    """Have these take whatever comes, and answer nothing."""

    def script(name: str, body: object) -> object:
        address, _ = cluster.play.asked[-1]
        return HOLD if address in addresses and name != "hello" else None

    cluster.play.improvise = script


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("a:1", ("a:1",)),
        ("a:1, b:2", ("a:1", "b:2")),
        (["a:1", "b:2,c:3"], ("a:1", "b:2", "c:3")),
        (("a:1", "b:2", "a:1"), ("a:1", "b:2")),
        ("[::1]:6650,", ("[::1]:6650",)),
    ],
)
def test_addresses_come_as_a_text_or_a_list(given: Any, found: tuple[str, ...]) -> None:
    assert addresses_of(given) == found


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("", "no broker is named"),
        (" , ", "no broker is named"),
        ([], "no broker is named"),
        ("nowhere", "'nowhere' is not the address of a broker; write HOST:PORT"),
        ("[::1]:6650,::1:6651", r"'::1:6651' .* as \[::1\]:6651, several as HOST:PORT,HOST:PORT"),
        ("a:1,b:x", "'b:x' is not the address"),
        ("a:0", "'a:0' is not the address"),
        ("a:65536", "'a:65536' is not the address"),
        ("http://a:1", "'http://a:1' is not the address"),
        ("a:1 b:2", "'a:1 b:2' is not the address"),
        ("broker-0=a:1", "'broker-0=a:1' is not the address"),
        (None, "None does not name brokers"),
        ([b"a:1"], "does not name brokers"),
        (6650, "6650 does not name brokers"),
    ],
)
def test_who_names_brokers_wrongly_hears_how_to(given: Any, text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        addresses_of(given)


def test_the_client_refuses_what_is_no_address_before_it_connects() -> None:
    with pytest.raises(InvalidArgument, match="'nowhere' is not the address"):
        asyncio.run(connect_for_real("127.0.0.1:1,nowhere"))
    with pytest.raises(InvalidArgument, match="'nowhere' is not the address"):
        blocking.connect(["nowhere"])


def test_the_first_broker_that_answers_is_used_and_the_others_left_in_peace() -> None:
    async def test(cluster: SeveralBrokers, client: Client) -> None:
        for number in range(3):
            await client.admin.topics.create(f"t-{number}")
        await client.admin.topics.list()
        assert {address for address, _ in cluster.play.asked} == {FIRST}

    run_with(test, BOTH)


def test_a_broker_that_is_away_costs_nothing_but_the_attempt_to_connect() -> None:
    """Nobody listens at the first address: the second answers at once, and is asked first then."""

    async def test(cluster: SeveralBrokers, client: Client) -> None:
        assert seconds() < 0.1
        attempts = cluster.net.connect_count
        for _ in range(5):
            await client.admin.topics.list()
        assert seconds() < 0.1
        assert cluster.asked("list_topics") == [SECOND] * 5
        # One who asked the dead one each time would have tried to connect each time.
        assert cluster.net.connect_count <= attempts + 2

    run_with(test, BOTH, PATIENT, prepare=lambda cluster: cluster.net.dead.add(FIRST))


def test_a_server_that_is_known_to_be_away_costs_nothing_at_all() -> None:
    """Somebody tries to connect to it, with pauses: nobody waits for the next attempt."""

    async def test(cluster: SeveralBrokers, client: Client) -> None:
        slow = dataclasses.replace(PATIENT, backoff_ms_min=20_000, backoff_ms_max=20_000)
        runtime = Runtime(cluster.transport(), VirtualClock(), Random(7), slow)
        first, second = (Connection(one, "Broker", runtime) for one in (FIRST, SECOND))
        cluster.net.dead.add(FIRST)
        connected: list[object] = []
        first.when_connected(connected.append)
        await time_passes(5)
        question = FirstAnswer(
            runtime,
            lambda connection: connection.request(topic_pb2.CommandListTopics()),
            name="ask",
            patience_ms=60_000,
            is_no_answer=lambda error: True,
        )
        began_s = seconds()
        answer = await question.among([first, second])
        assert answer is not None
        assert answer[1] is second
        assert seconds() == began_s
        # It comes back, and is asked first again.
        await question.cancel()
        cluster.net.dead.clear()
        await until(lambda: connected)
        answer = await question.among([first, second])
        assert answer is not None
        assert answer[1] is first
        for connection in (first, second):
            connection.close()
        await runtime.cancel_all()

    run_with(test)


def test_a_broker_that_hangs_delays_one_request_and_not_the_next() -> None:
    async def test(cluster: SeveralBrokers, client: Client) -> None:
        hang(cluster, FIRST)
        began_s = seconds()
        await client.admin.topics.list()
        assert seconds() - began_s == pytest.approx(0.5, abs=0.1)
        began_s = seconds()
        await client.admin.topics.list()
        assert seconds() == began_s

    run_with(test, BOTH, PATIENT)


def test_a_broker_that_refuses_for_longer_than_a_moment_is_passed_over() -> None:
    """It is recovering, or has no link to the first broker of the list."""

    async def test(cluster: SeveralBrokers, client: Client) -> None:
        cluster.play.improvise = lambda name, body: (
            LogUnavailable()
            if name == "list_topics" and cluster.play.asked[-1][0] == FIRST
            else None
        )
        began_s = seconds()
        await client.admin.topics.list()
        assert seconds() - began_s == pytest.approx(0.5, abs=0.1)
        assert cluster.asked("list_topics").count(FIRST) > 1

    run_with(test, BOTH, PATIENT)


def test_one_address_is_enough_to_find_the_others_when_it_is_away_later() -> None:
    async def test(cluster: SeveralBrokers, client: Client) -> None:
        cluster.net.dead.add(FIRST)
        cluster.net.break_links()
        await client.admin.topics.create("t", partitions=1)
        assert cluster.asked("create_topic") == [SECOND]

    run_with(test, FIRST, PATIENT)


def test_a_refusal_is_an_answer_and_no_reason_to_ask_others() -> None:
    async def test(cluster: SeveralBrokers, client: Client) -> None:
        with pytest.raises(TopicNotFound):
            await client.create_producer("nothing")
        assert cluster.asked("lookup") == [FIRST]

    run_with(test, BOTH)


def test_a_call_that_two_brokers_get_is_one_call() -> None:
    """The first broker creates the topic and dies before it answers; the second is asked again."""

    async def test(cluster: SeveralBrokers, client: Client) -> None:
        cluster.play.when("create_topic").once(HOLD)
        creating = asyncio.create_task(client.admin.topics.create("t"))
        await cluster.play.holds(1)
        cluster.net.dead.add(FIRST)
        cluster.net.break_links()
        await creating
        tokens = [one.call_token for one in cluster.play.commands("create_topic")]
        assert tokens == [tokens[0]] * 2
        assert tokens[0] != 0

    run_with(test, BOTH, PATIENT)


def test_an_answer_that_comes_late_changes_nothing() -> None:
    async def test(cluster: SeveralBrokers, client: Client) -> None:
        cluster.topic("t")
        hang(cluster, FIRST)
        assert len(await client.admin.topics.list()) == 1
        cluster.play.improvise = lambda name, body: None
        cluster.play.release()
        assert len(await client.admin.topics.list()) == 1
        assert cluster.asked("list_topics")[-1] == SECOND

    run_with(test, BOTH, PATIENT)


def test_each_broker_hears_at_which_address_it_was_reached() -> None:
    async def test(cluster: SeveralBrokers, client: Client) -> None:
        cluster.topic("t")
        cluster.net.dead.add(FIRST)
        cluster.net.break_links()
        await client.create_producer("t")
        (lookup,) = cluster.play.commands("lookup")
        assert lookup.reached_at == SECOND

    run_with(test, BOTH, PATIENT)


def test_members_are_asked_for_again_when_a_broker_is_away() -> None:
    async def test(cluster: SeveralBrokers, client: Client) -> None:
        cluster.brokers[2] = "four:1"
        cluster.net.dead.add(FIRST)
        cluster.net.break_links()
        await client.admin.topics.list()
        await until(lambda: len(cluster.asked("get_cluster_info")) == 2)
        await time_passes(0.1)
        cluster.net.dead.add(SECOND)
        cluster.net.break_links()
        await client.admin.topics.list()
        assert cluster.asked("list_topics")[-1] == "four:1"

    run_with(test, BOTH, PATIENT)


def test_a_server_of_another_cluster_is_passed_over() -> None:
    async def test(cluster: SeveralBrokers, client: Client) -> None:
        cluster.net.dead.add(FIRST)
        cluster.net.break_links()
        await client.admin.topics.list()
        assert cluster.asked("list_topics") == [THIRD]

    def prepare(cluster: SeveralBrokers) -> None:
        cluster.hashes["stranger:1"] = "other"
        cluster.brokers.remove(SECOND)

    run_with(test, f"{FIRST},stranger:1", PATIENT, prepare)


def test_a_stranger_whose_handshake_was_under_way_first_is_refused_too() -> None:
    """Both were asked before either had named its cluster; the slower one is of another."""

    async def main(cluster: SeveralBrokers, client: Client) -> None:
        cluster.hashes["stranger:1"] = "other"
        cluster.play.when("hello").in_turn(HOLD)
        hasty = dataclasses.replace(FAST, broker_patience_ms=100)
        second = await connect(cluster, hasty, address=f"stranger:1,{FIRST}")
        async with second:
            assert cluster.asked("get_cluster_info")[-1] == FIRST
            cluster.play.release()
            await second.admin.topics.list()
            cluster.net.dead.update((FIRST, SECOND, THIRD))
            for link in [one for one in cluster.net.links if one.address != "stranger:1"]:
                link.break_now()
            with pytest.raises(LogUnavailable, match="stranger:1: "):
                await second.admin.topics.list()
        assert {name for one, name in cluster.play.asked if one == "stranger:1"} == {"hello"}

    run_with(main)


def test_strangers_alone_refuse_the_client() -> None:
    async def test(cluster: SeveralBrokers, client: Client) -> None:
        cluster.hashes.update(dict.fromkeys((FIRST, SECOND, THIRD), "other"))
        cluster.net.break_links()
        with pytest.raises(ClusterMismatch, match="no broker answers: one:1: "):
            await client.admin.topics.list()

    run_with(test, BOTH)


def test_an_address_that_is_named_twice_is_asked_once() -> None:
    async def test(cluster: SeveralBrokers, client: Client) -> None:
        hang(cluster, FIRST, SECOND, THIRD)
        with pytest.raises(OutcomeUnknown):
            await client.admin.topics.list()
        assert sorted(set(cluster.asked("list_topics"))) == sorted((FIRST, SECOND, THIRD))
        assert len(cluster.asked("list_topics")) == 3

    run_with(test, f"{FIRST},{FIRST}", dataclasses.replace(FAST, broker_patience_ms=100))


def test_a_coordinator_among_the_addresses_is_passed_over() -> None:
    """Its server has no such service, as one at which nobody listens."""

    async def test(cluster: SeveralBrokers, client: Client) -> None:
        assert cluster.asked("get_cluster_info") == [FIRST]

    run_with(
        test,
        f"{COORDINATOR_ADDRESS},{FIRST}",
        PATIENT,
        prepare=lambda cluster: cluster.net.dead.add(COORDINATOR_ADDRESS),
    )


def test_who_finds_no_broker_hears_of_all_of_them() -> None:
    async def test(cluster: SeveralBrokers, client: Client) -> None:
        cluster.play.when("list_topics").always(BREAK)
        cluster.net.dead.update((SECOND, THIRD))
        with pytest.raises(OutcomeUnknown) as raised:
            await client.admin.topics.list()
        assert all(f"{one}: " in str(raised.value) for one in (FIRST, SECOND, THIRD))
        cluster.net.dead.add(FIRST)
        cluster.net.break_links()
        with pytest.raises(LogUnavailable) as refused:
            await client.admin.topics.list()
        assert all(f"{one}: " in str(refused.value) for one in (FIRST, SECOND, THIRD))

    run_with(test, BOTH)


@pytest.mark.parametrize("reaction", [HOLD, LogUnavailable("busy")], ids=["waits", "pauses"])
def test_what_was_asked_of_any_broker_may_have_happened_when_the_client_closes(
    reaction: object,
) -> None:
    """It said that the client is closed, and that nothing had happened."""

    async def test(cluster: SeveralBrokers, client: Client) -> None:
        cluster.play.when("create_topic").always(reaction)
        asking = asyncio.ensure_future(client.admin.topics.create("t"))
        await cluster.play.came("create_topic")
        await turns()
        await client.close()
        with pytest.raises(OutcomeUnknown, match="cannot be sent again to know"):
            await asking

    run_with(test, BOTH, dataclasses.replace(PATIENT, backoff_ms_min=60_000, backoff_ms_max=60_000))
