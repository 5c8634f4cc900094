"""Limits at their edge: the last that fits, the first that does not, and room again."""

from __future__ import annotations

from typing import Any

import pytest
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
    txn,
)

from magnetar_broker.budgets.parked_bytes import PARKED_OVERHEAD_BYTES
from magnetar_broker.commands import views
from magnetar_core.batch import encode
from magnetar_core.errors import (
    InvalidArgument,
    LogUnavailable,
    MagnetarError,
    MessageTooLarge,
    QuotaExceeded,
)
from magnetar_core.membership.address_book import MemberAddress
from magnetar_core.server.commands import Reply, run_handler
from magnetar_core.transport.columns.kinds import as_row
from magnetar_core.transport.columns.sends import Sent
from magnetar_core.wire import broker_pb2 as wire
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import topic_pb2 as topic_wire


async def refused(client: Client, body: Any, error: type[MagnetarError]) -> MagnetarError:
    with pytest.raises(error) as raised:
        await client.ask(body)
    return raised.value


def test_topics_and_partitions() -> None:
    async def scenario(world: World) -> None:
        ask = world.client.ask
        await refused(
            world.client,
            topic_wire.CommandCreateTopic(topic="wide", partitions=4),
            InvalidArgument,
        )
        await ask(topic_wire.CommandCreateTopic(topic="wide", partitions=3))
        await refused(world.client, topic_wire.CommandCreateTopic(topic="u"), QuotaExceeded)
        await ask(topic_wire.CommandDeleteTopic(topic="wide"))
        await ask(topic_wire.CommandCreateTopic(topic="u"))

    run(scenario, topics_max=2, partitions_max=3)


def test_partitions_of_all_topics() -> None:
    """With as many as each topic may have, no broker could start any more."""

    async def scenario(world: World) -> None:
        ask = world.client.ask
        await ask(topic_wire.CommandCreateTopic(topic="fits", partitions=3))
        beyond = topic_wire.CommandCreateTopic(topic="u", partitions=2)
        error = await refused(world.client, beyond, QuotaExceeded)
        assert error.details["broker_partitions_max"] == "6"
        await ask(topic_wire.CommandCreateTopic(topic="last"))
        await refused(world.client, topic_wire.CommandCreateTopic(topic="v"), QuotaExceeded)
        await ask(topic_wire.CommandDeleteTopic(topic="fits"))
        await ask(beyond)

    # The topic that each of these worlds has takes two.
    run(scenario, broker_partitions_max=6)


def test_each_broker_has_room_for_partitions() -> None:
    async def scenario(world: World) -> None:
        ask = world.client.ask
        await ask(topic_wire.CommandCreateTopic(topic="u", partitions=4))
        await refused(world.client, topic_wire.CommandCreateTopic(topic="v"), QuotaExceeded)

    brokers = tuple(MemberAddress(name=f"broker-{one}", address=f"b{one}") for one in range(2))
    run(scenario, broker_partitions_max=3, brokers=brokers)


@pytest.mark.parametrize(
    ("name", "fits"),
    [("a", True), ("a" * 200, True), ("a" * 201, False), ("", False), ("a b/é☃", True)]
    + [(f"a{character}", False) for character in "\x00\n\x7f"],
)
def test_names_of_subscriptions(name: str, fits: bool) -> None:
    async def scenario(world: World) -> None:
        if fits:
            await world.client.ask(subscribe(name))
            await world.restart()
            assert world.subscription(name).name.subscription == name
        else:
            await refused(world.client, subscribe(name), InvalidArgument)

    run(scenario)


@pytest.mark.parametrize(
    ("name", "fits"),
    [("a", True), ("a" * 200, True), ("a" * 201, False), ("", False), ("a b", False)]
    + [(f"a{character}", True) for character in "._-/9"]
    + [("-a", False), ("é", False)],
)
def test_names_of_topics(name: str, fits: bool) -> None:
    async def scenario(world: World) -> None:
        body = topic_wire.CommandCreateTopic(topic=name)
        if fits:
            await world.client.ask(body)
        else:
            await refused(world.client, body, InvalidArgument)

    run(scenario)


def test_subscriptions_and_consumers() -> None:
    async def scenario(world: World) -> None:
        ask = world.client.ask
        await ask(subscribe("a"))
        await ask(subscribe("b"))
        await refused(world.client, subscribe("c"), QuotaExceeded)
        await ask(subscribe("a"))
        await ask(wire.CommandUnsubscribe(subscription=subscription("b")))
        await ask(subscribe("c"))
        for consumer in (1, 2):
            await ask(subscribe("a", consumer=consumer, kind=wire.SHARED))
        third = subscribe("a", consumer=3, kind=wire.SHARED)
        await refused(world.client, third, QuotaExceeded)
        await ask(subscribe("a", consumer=2, kind=wire.SHARED, epoch=2))
        await ask(wire.CommandCloseConsumer(subscription=subscription("a"), consumer_id=1))
        await ask(third)

    run(scenario, subscriptions_max=2, consumers_max=2)


def test_the_size_of_a_batch() -> None:
    async def scenario(world: World) -> None:
        overhead = len(encode([b""]))
        fits = send(bytes(1_000 - overhead))
        assert len(fits.batch) == 1_000
        await world.client.ask(fits)
        error = await refused(
            world.client, send(bytes(1_001 - overhead), sequence=1), MessageTooLarge
        )
        assert error.details["batch_bytes_max"] == "1000"
        await world.client.ask(send(b"next", sequence=1))

    run(scenario, batch_bytes_max=1_000)


@pytest.mark.parametrize("on", ["", "s"])
def test_open_transactions_at_a_participant(on: str) -> None:
    async def scenario(world: World) -> None:
        await world.client.ask(subscribe())
        await world.client.ask(send(*(b"%d" % number for number in range(9)), producer=99))

        def write(number: int, sequence: int = 0) -> Any:
            if on:
                place = number + 4 * sequence
                return ack((place, place), in_txn=txn(number), sequence=sequence)
            return send(b"x", in_txn=txn(number), sequence=sequence)

        await world.client.ask(write(1))
        await world.client.ask(write(2))
        await refused(world.client, write(3), QuotaExceeded)
        await world.client.ask(write(2, sequence=1))
        await world.restart()
        await refused(world.client, write(3), QuotaExceeded)
        await world.client.ask(end(txn(1), common.ABORT, on=on))
        await world.client.ask(write(3))

    run(scenario, open_txns_max=2)


def test_writers_in_a_transaction() -> None:
    async def scenario(world: World) -> None:
        for producer in (1, 2):
            await world.client.ask(send(b"x", in_txn=txn(1), producer=producer))
        await refused(world.client, send(b"x", in_txn=txn(1), producer=3), QuotaExceeded)
        await world.client.ask(send(b"x", in_txn=txn(1), producer=2, sequence=1))

    run(scenario, txn_writers_max=2)


def test_bytes_of_open_transactions() -> None:
    """Of one connection and of all; an end makes room again, and a restart forgets nothing."""
    size = len(encode([b"x" * 100]))

    async def scenario(world: World) -> None:
        first, second = world.client, Client(world)
        value = b"x" * 100
        for sequence in range(2):
            await first.ask(send(value, in_txn=txn(1), sequence=sequence))
        error = await refused(first, send(value, in_txn=txn(2)), QuotaExceeded)
        assert "session_open_txn_bytes_max" in error.details
        await first.ask(send(value, in_txn=txn(1), sequence=1))  # A repeat takes no room.
        await first.ask(send(value))  # Nor does what is in no transaction.
        await second.ask(send(value, in_txn=txn(3)))
        error = await refused(second, send(value, in_txn=txn(4)), QuotaExceeded)
        assert "open_txn_bytes_max" in error.details
        await world.restart()
        error = await refused(world.client, send(value, in_txn=txn(4)), QuotaExceeded)
        assert "open_txn_bytes_max" in error.details
        await world.client.ask(end(txn(1), common.ABORT))
        for number in (4, 5):
            await world.client.ask(send(value, in_txn=txn(number)))
        await refused(world.client, send(value, in_txn=txn(6)), QuotaExceeded)

    run(scenario, open_txn_bytes_max=3 * size, session_open_txn_bytes_max=2 * size)


def test_bytes_of_sends_that_wait_for_a_transaction() -> None:
    """One client's could take all memory until its transaction expires; others go on meanwhile."""
    size = len(encode([b"x" * 100])) + PARKED_OVERHEAD_BYTES

    async def scenario(world: World) -> None:
        client = world.client
        await client.ask(send(b"in it", in_txn=txn(1)))
        parked = [
            client.begin(send(b"%d" % number * 100, producer=number, follows=txn(1)))
            for number in (2, 3)
        ]
        beyond = send(b"4" * 100, producer=4, follows=txn(1))
        error = await refused(client, beyond, LogUnavailable)
        assert "parked_bytes_max" in error.details
        assert error.retriable
        await client.ask(send(b"5" * 100, producer=5))
        await client.ask(end(txn(1), common.ABORT))
        for one in parked:
            one.result()
        await client.ask(beyond)
        await client.ask(send(b"in it", in_txn=txn(2)))
        larger = client.begin(send(b"6" * 9_000, producer=6, follows=txn(2)))
        await refused(client, send(b"x", producer=7, follows=txn(2)), LogUnavailable)
        assert not larger.done(), "one has room, however large it is"
        await client.ask(end(txn(2), common.ABORT))
        larger.result()

    run(scenario, parked_bytes_max=2 * size)


def test_one_connection_does_not_take_all_room_for_sends_that_wait() -> None:
    """Others waited, or were refused, until its transaction ended; also when it came again."""
    size = len(encode([b"x" * 100])) + PARKED_OVERHEAD_BYTES

    async def scenario(world: World) -> None:
        greedy, other = Client(world), world.client
        await greedy.ask(send(b"in it", in_txn=txn(1)))
        values = [b"%d" % number * 100 for number in range(8)]

        def waiting(number: int) -> Any:
            return send(values[number], producer=number, follows=txn(1))

        parked = [greedy.begin(waiting(number)) for number in (2, 3)]
        error = await refused(greedy, waiting(4), LogUnavailable)
        assert "session_parked_bytes_max" in error.details
        ours = other.begin(waiting(5))
        await world.settle()
        assert not ours.done()
        await greedy.close()
        greedy = Client(world)
        error = await refused(greedy, waiting(4), LogUnavailable)
        assert "session_parked_bytes_max" in error.details
        await other.ask(end(txn(1), common.ABORT))
        await ours
        await greedy.ask(waiting(6))
        assert await world.read() == [values[number] for number in (2, 3, 5, 6)]
        assert not any(one.done() for one in parked)

    run(scenario, session_parked_bytes_max=2 * size)


def test_bytes_that_a_connection_leaves_open_count_for_who_comes_from_there() -> None:
    size = len(encode([b"x" * 100]))

    async def scenario(world: World) -> None:
        value = b"x" * 100
        gone = Client(world)
        for number in (1, 2):
            await gone.ask(send(value, in_txn=txn(number)))
        await gone.close()
        error = await refused(world.client, send(value, in_txn=txn(3)), QuotaExceeded)
        assert "session_open_txn_bytes_max" in error.details
        elsewhere = Client(world, origin="another machine")
        await elsewhere.ask(send(value, in_txn=txn(4)))
        await world.client.ask(end(txn(1), common.ABORT))
        await world.client.ask(send(value, in_txn=txn(3)))
        await refused(world.client, send(value, in_txn=txn(5)), QuotaExceeded)
        for number in (2, 3, 4):
            await world.client.ask(end(txn(number), common.ABORT))
        for sequence in range(2):
            await world.client.ask(send(value, in_txn=txn(6), sequence=sequence))

    run(scenario, session_open_txn_bytes_max=2 * size)


def test_bytes_that_unary_calls_leave_open_count_together() -> None:
    size = len(encode([b"x" * 100]))

    async def scenario(world: World) -> None:
        async def call(number: int) -> Any:
            answers: list[Any] = []
            server = world.broker.server
            reply = Reply(answers.append, None, "there")
            items = [(as_row(send(b"x" * 100, in_txn=txn(number))), reply)]
            run_handler(server.handlers, "send", items, server.refuse)
            await world.settle()
            return answers[0]

        for number in (1, 2):
            assert isinstance(await call(number), Sent)
        assert (await call(3)).code == common.QUOTA_EXCEEDED
        await world.client.ask(end(txn(1), common.ABORT))
        assert isinstance(await call(3), Sent)

    run(scenario, session_open_txn_bytes_max=2 * size)


def test_the_tails_of_all_partitions_share_a_budget() -> None:
    """200 busy partitions kept 4 MiB each."""
    budget = 20_000

    async def scenario(world: World) -> None:
        ask = world.client.ask
        await ask(topic_wire.CommandCreateTopic(topic="wide", partitions=20))
        for sequence in range(10):
            for number in range(20):
                body = send(bytes(700), number=number, sequence=sequence)
                body.partition.topic = "wide"
                await ask(body)
                assert world.broker.environment.tails.byte_count <= budget
        partitions = world.broker.topics.get("wide").partitions
        kept = [len(one.log.tail_from(9, entries_max=10)) for one in partitions]
        assert sum(kept) == 20, "the newest of each is kept, where all are as busy"
        # One that is busy alone takes over what the idle ones had.
        for sequence in range(10, 40):
            body = send(bytes(700), number=3, sequence=sequence)
            body.partition.topic = "wide"
            await ask(body)
        assert len(partitions[3].log.tail_from(25, entries_max=50)) == 15
        await ask(topic_wire.CommandDeleteTopic(topic="wide"))
        assert world.broker.environment.tails.byte_count == 0

    run(scenario, tails_bytes_max=budget, partitions_max=20)


def test_producers_that_are_not_shown_have_no_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind many plain producers, a hanging transaction could not be found (KIP-664)."""
    monkeypatch.setattr(views, "PRODUCERS_SHOWN_MAX", 3)

    async def scenario(world: World) -> None:
        for producer in range(1, 4):
            await world.client.ask(send(b"0", producer=producer))
        await world.client.ask(subscribe(consumer=1))
        world.client.tell(flow())
        await world.client.ask(send(b"1", producer=9, in_txn=txn(1)))
        await world.client.ask(ack((0, 0), in_txn=txn(2)))
        shown = await world.client.ask(wire.CommandDescribeProducers(partition=partition()))
        assert [one.HasField("txn_id") for one in shown.producers] == [
            True,
            True,
            False,
        ]
        assert shown.truncated

    run(scenario)
