"""protocol.md, Invented TxnIDs: commands that overtake the announcement; rule f."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.broker.harness import (
    Client,
    World,
    ack,
    end,
    partition,
    run,
    send,
    subscribe,
    take_incarnations,
    txn,
    watermark,
)
from tests.virtual_time import time_passes

from magnetar_broker import keys
from magnetar_broker.budgets.parked_bytes import PARKED_OVERHEAD_BYTES
from magnetar_broker.coordinators import unannounced as unannounced_module
from magnetar_broker.coordinators.unannounced import WAIT_SECONDS
from magnetar_broker.transactions.issued import HEARD_MS_MAX
from magnetar_core.errors import InvalidTxnState, LogUnavailable, MagnetarError, from_wire
from magnetar_core.ids import TxnID
from magnetar_core.server.commands import Reply, run_handler
from magnetar_core.transport.columns.kinds import as_row
from magnetar_core.wire import broker_pb2 as wire
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import transaction_pb2 as txn_wire

TCID = 3
ISSUED, BOUND = 4, 100
# The first ones that are not announced.
FIRST, SECOND = txn(ISSUED, tcid=TCID), txn(ISSUED + 1, tcid=TCID)


def announcement(next_counter: int, *, tcid: int = TCID, incarnation: int = 1) -> Any:
    return txn_wire.CommandTxnsIssued(tcid=tcid, incarnation=incarnation, next_counter=next_counter)


async def heard(world: World) -> None:
    """Coordinator 3 has announced what is below FIRST."""
    await take_incarnations(world.client, TCID)
    await world.client.ask(watermark(0, tcid=TCID, issued=ISSUED, bound=BOUND))


def end_of_all(txn_id: TxnID) -> txn_wire.CommandEndTxnOnParticipants:
    return txn_wire.CommandEndTxnOnParticipants(
        txn_id=txn_id.to_wire(), txn_action=common.ABORT, partitions=[{"partition": partition()}]
    )


async def waiting(world: World, *futures: asyncio.Future[Any]) -> None:
    await world.settle()
    assert not any(one.done() for one in futures)


def count(world: World) -> float:
    value = world.broker.metrics.registry.get_sample_value(
        "magnetar_broker_unannounced_commands_total"
    )
    assert value is not None
    return value


def test_commands_wait_for_the_announcement_and_keep_their_order() -> None:
    async def scenario(world: World) -> None:
        await heard(world)
        client = world.client
        await client.ask(send(b"plain"))
        await client.ask(subscribe())
        first = [
            client.begin(send(b"%d" % number, in_txn=FIRST, sequence=number)) for number in range(3)
        ]
        first.append(client.begin(ack((0, 0), in_txn=FIRST)))
        second = client.begin(send(b"other", in_txn=SECOND, producer=2))
        ends = [
            client.begin(end(SECOND, common.ABORT)),
            client.begin(end(SECOND, common.ABORT, on="s")),
            client.begin(end_of_all(SECOND)),
        ]
        await waiting(world, *first, second, *ends)
        assert not world.partition().index.open, "nothing is written yet"
        # What names no transaction goes on.
        await client.ask(send(b"plain", sequence=1))
        client.tell(announcement(ISSUED + 1))
        await world.settle()
        for one in first:
            assert not one.exception()
        assert [*world.partition().index.open] == [FIRST]
        await waiting(world, second, *ends)
        await client.ask(watermark(0, tcid=TCID, issued=ISSUED + 2, bound=BOUND))
        for one in (second, *ends):
            assert not one.exception()
        assert SECOND in world.partition().index.ended
        await client.ask(end(FIRST, counts={1: 3}))
        await client.ask(end(FIRST, counts={1: 1}, on="s"))
        assert await world.read() == [b"plain", b"plain", b"0", b"1", b"2"]
        assert count(world) == 8

    run(scenario)


def test_commands_that_wait_in_vain_are_refused() -> None:
    """A command that came later for the same TxnID does not wait longer: order holds."""

    async def scenario(world: World) -> None:
        await heard(world)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        earlier = world.client.begin(send(b"0", in_txn=FIRST))
        await time_passes(WAIT_SECONDS / 2)
        later = world.client.begin(send(b"1", in_txn=FIRST, sequence=1))
        other = world.client.begin(send(b"2", in_txn=SECOND))
        for future in (earlier, later):
            with pytest.raises(LogUnavailable):
                await future
            assert loop.time() - began_s == pytest.approx(WAIT_SECONDS)
        await waiting(world, other)
        with pytest.raises(LogUnavailable):
            await other
        assert loop.time() - began_s == pytest.approx(1.5 * WAIT_SECONDS)
        for family in (keys.TXNLOG, keys.TXNINDEX):
            assert not await world.rows(family)
        # Their client sends them again.
        world.client.tell(announcement(ISSUED + 1))
        await world.client.ask(send(b"0", in_txn=FIRST))
        await world.client.ask(send(b"1", in_txn=FIRST, sequence=1))

    run(scenario)


def test_what_waits_ends_with_its_connection() -> None:
    async def scenario(world: World) -> None:
        await heard(world)
        leaving = Client(world)
        leaving.begin(send(b"gone", in_txn=FIRST))
        stays = world.client.begin(send(b"stays", in_txn=FIRST, producer=2))
        await leaving.close()
        world.client.tell(announcement(ISSUED + 1))
        await stays
        assert list(world.partition().index.open[FIRST].writers) == [2]

    run(scenario)


def test_an_announcement_of_others_changes_nothing() -> None:
    async def scenario(world: World) -> None:
        await heard(world)
        for tcid in (TCID - 1, TCID + 1):
            await take_incarnations(world.client, tcid)
            await world.client.ask(watermark(0, tcid=tcid, bound=BOUND))
        future = Client(world).begin(send(b"x", in_txn=FIRST))
        for other in (
            announcement(BOUND, tcid=TCID - 1),
            announcement(BOUND, tcid=TCID + 1),
            announcement(BOUND, incarnation=2),
            announcement(ISSUED),
        ):
            world.client.tell(other)
        await waiting(world, future)
        # A new store: what the former one had issued and not announced never comes.
        await world.client.close()
        successor = Client(world)
        await take_incarnations(successor, TCID, 2)
        await successor.ask(watermark(0, tcid=TCID, incarnation=2, bound=BOUND))
        with pytest.raises(InvalidTxnState):
            future.result()

    run(scenario)


def test_nothing_waits_for_a_coordinator_that_is_not_heard() -> None:
    async def scenario(world: World) -> None:
        await heard(world)
        world.clock.advance(HEARD_MS_MAX + 1)
        with pytest.raises(LogUnavailable):
            await world.client.ask(send(b"x", in_txn=FIRST))
        await heard(world)
        with pytest.raises(LogUnavailable):
            await world.client.ask(send(b"x", in_txn=txn(BOUND, tcid=TCID)))
        assert not count(world)

    run(scenario)


def test_a_unary_call_is_refused_at_once() -> None:
    """Nobody tells when its caller is gone."""

    async def scenario(world: World) -> None:
        await heard(world)
        answers: list[Any] = []
        publish = wire.CommandPublish(
            partition=partition(), messages=[wire.Message(value=b"x")], txn_id=FIRST.to_wire()
        )
        server = world.broker.server
        run_handler(
            server.handlers, "publish", [(publish, Reply(answers.append, None))], server.refuse
        )
        await world.settle()
        (answer,) = answers
        assert isinstance(from_wire(answer), LogUnavailable)
        assert not count(world)

    run(scenario)


async def refused(client: Client, command: Any) -> MagnetarError:
    with pytest.raises(LogUnavailable) as caught:
        await client.ask(command)
    return caught.value


@pytest.mark.parametrize(
    ("limit", "of_all"),
    [("CONNECTION_WAITING_MAX", False), ("WAITING_MAX", True)],
)
def test_so_many_commands_wait(limit: str, of_all: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unannounced_module, limit, 2)

    async def scenario(world: World) -> None:
        await heard(world)
        client, other = world.client, Client(world)
        parked = [client.begin(send(b"x", in_txn=FIRST, producer=number)) for number in (1, 2)]
        await refused(client, send(b"x", in_txn=FIRST, producer=3))
        if of_all:
            await refused(other, send(b"x", in_txn=SECOND))
        else:
            parked.append(other.begin(send(b"x", in_txn=SECOND)))
        await waiting(world, *parked)
        client.tell(announcement(ISSUED + 2))
        await world.settle()
        for one in parked:
            one.result()
        # There is room again.
        again = client.begin(send(b"x", in_txn=txn(ISSUED + 2, tcid=TCID)))
        await waiting(world, again)
        client.tell(announcement(ISSUED + 3))
        await again

    run(scenario)


@pytest.mark.parametrize("way", ["announced", "in vain", "gone"])
def test_so_many_bytes_wait(way: str) -> None:
    def sent(txn_id: TxnID, producer: int) -> wire.CommandSend:
        return send(b"x" * 100, in_txn=txn_id, producer=producer)

    size = as_row(sent(FIRST, 1)).byte_count + PARKED_OVERHEAD_BYTES

    async def scenario(world: World) -> None:
        await heard(world)
        client = Client(world)
        parked = [client.begin(sent(FIRST, producer)) for producer in (1, 2)]
        error = await refused(client, sent(FIRST, 3))
        assert "session_parked_bytes_max" in error.details
        if way == "announced":
            world.client.tell(announcement(ISSUED + 1))
        elif way == "gone":
            await client.close()
            client = Client(world)
        await time_passes(WAIT_SECONDS)
        await world.settle()
        assert [one.done() for one in parked] == [way != "gone"] * 2
        assert all(
            (one.exception() is None) == (way == "announced") for one in parked if one.done()
        )
        # There is room for as many again.
        again = [client.begin(sent(SECOND, producer)) for producer in (1, 2)]
        await waiting(world, *again)
        world.client.tell(announcement(ISSUED + 2))
        for one in again:
            await one

    run(scenario, session_parked_bytes_max=2 * size)


def test_a_refusal_counts_under_the_error_that_its_client_gets() -> None:
    async def scenario(world: World) -> None:
        await heard(world)
        with pytest.raises(LogUnavailable):
            await world.client.begin(send(b"x", in_txn=FIRST))
        refusals = world.broker.metrics.registry.get_sample_value(
            "magnetar_broker_refusals_total", {"error": "LogUnavailable"}
        )
        assert refusals == 1

    run(scenario)
