"""protocol.md, Invented TxnIDs, and Orphaned participants; rule f."""

from __future__ import annotations

from typing import Any

import pytest
from tests.broker.harness import (
    COUNTER_BOUND,
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

from magnetar_broker.transactions import orphan_candidates as candidates_module
from magnetar_broker.transactions.issued import HEARD_MS_MAX, NEAR_COUNT
from magnetar_broker.transactions.orphan_candidates import (
    ORPHAN_AGE_MS_MIN,
    OrphanCandidates,
    Participant,
)
from magnetar_core.errors import InvalidTxnState, LogUnavailable, MagnetarError, TxnNotFound
from magnetar_core.ids import SubscriptionName, TxnID
from magnetar_core.membership.address_book import MemberAddress
from magnetar_core.transport.frames import COMMAND_BYTES_MAX
from magnetar_core.wire import broker_pb2 as wire
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import topic_pb2 as topic_wire
from magnetar_core.wire import transaction_pb2 as txn_wire

TWO_COORDINATORS = (
    MemberAddress(name="c0", address="c0", tcid=0),
    MemberAddress(name="c5", address="c5", tcid=5),
)
FAR = COUNTER_BOUND + NEAR_COUNT


def publish(in_txn: TxnID) -> wire.CommandPublish:
    return wire.CommandPublish(
        partition=partition(), messages=[wire.Message(value=b"x")], txn_id=in_txn.to_wire()
    )


async def refused(client: Client, command: Any, error: type[MagnetarError]) -> None:
    with pytest.raises(error):
        await client.begin(command)


async def refused_in(world: World, txn_id: TxnID, error: type[MagnetarError]) -> None:
    """Every command of a client in a transaction is refused, and nothing stays of it."""
    await world.client.ask(subscribe())
    before = world.disk.write_count
    for command in (
        send(b"x", in_txn=txn_id),
        publish(txn_id),
        ack((0, 0), in_txn=txn_id),
        end(txn_id, common.ABORT),
        end(txn_id, common.ABORT, on="s"),
    ):
        await refused(world.client, command, error)
    assert world.disk.write_count == before
    assert not world.partition().index.open
    assert not world.partition().index.ended
    assert not world.subscription().index.open


@pytest.mark.parametrize(
    "made_up",
    [
        pytest.param(txn(0, tcid=9), id="no coordinator has this TCID"),
        pytest.param(txn(0, incarnation=2), id="an incarnation that is not there yet"),
        pytest.param(txn(FAR), id="a counter that was never reached"),
        pytest.param(txn((1 << 64) - 1), id="the last counter"),
    ],
)
def test_what_nobody_has_issued_is_refused_at_once(made_up: TxnID) -> None:
    async def scenario(world: World) -> None:
        await world.client.ask(send(b"0"))
        await refused_in(world, made_up, TxnNotFound)
        await world.restart()
        # Its coordinator may have gone on meanwhile; of a coordinator that is none, it has not.
        error = TxnNotFound if made_up.tcid else LogUnavailable
        await refused_in(world, made_up, error)

    run(scenario)


def issued(next_counter: int, *, tcid: int = 0, incarnation: int = 1) -> Any:
    return txn_wire.CommandTxnsIssued(tcid=tcid, incarnation=incarnation, next_counter=next_counter)


def test_what_is_not_issued_yet_waits_until_it_is() -> None:
    """Whoever is given it later finds nothing that others did."""

    async def scenario(world: World) -> None:
        tell = world.client.tell
        await world.client.ask(send(b"0"))
        await take_incarnations(world.client, 3)
        await world.client.ask(watermark(0, tcid=3, issued=4, bound=100))
        early = txn(4, tcid=3)
        await world.client.ask(send(b"x", in_txn=txn(3, tcid=3)))
        await world.client.ask(end(txn(3, tcid=3), common.ABORT))
        for word in (
            issued(5, tcid=3, incarnation=2),
            issued(5, tcid=3, incarnation=0),
            issued(5, tcid=2),
        ):
            tell(word)
        await refused(world.client, send(b"x", in_txn=early), LogUnavailable)
        await refused(world.client, publish(early), LogUnavailable)
        await refused(world.client, end(early, common.ABORT), LogUnavailable)
        tell(issued(5, tcid=3))
        # Late copies.
        tell(issued(2, tcid=3))
        await world.client.ask(watermark(0, tcid=3, issued=4, bound=100))
        await world.client.ask(send(b"owner's", in_txn=early))
        await world.client.ask(end(early, counts={1: 1}))
        assert await world.read() == [b"0", b"owner's"]
        # The next word is stored, and with it what was told in between.
        await world.client.ask(watermark(0, tcid=3, issued=4, bound=100))
        await world.restart()
        await world.client.ask(watermark(1, tcid=3, issued=4, bound=100))
        await refused(world.client, send(b"x", in_txn=early), InvalidTxnState)
        await refused(world.client, send(b"x", in_txn=txn(5, tcid=3)), LogUnavailable)

    run(scenario)


def test_what_may_be_announced_any_moment_is_not_refused_for_good() -> None:
    async def scenario(world: World) -> None:
        await world.client.ask(send(b"0"))
        for counter in (COUNTER_BOUND, FAR - 1):
            await refused_in(world, txn(counter), LogUnavailable)
        await world.client.ask(send(b"last", in_txn=txn(COUNTER_BOUND - 1)))
        await world.client.ask(watermark(0, bound=COUNTER_BOUND + 1))
        await world.client.ask(send(b"next", in_txn=txn(COUNTER_BOUND)))
        await world.restart()
        await world.client.ask(send(b"known after a restart", in_txn=txn(COUNTER_BOUND - 2)))

    run(scenario)


def test_a_coordinator_that_falls_silent_may_have_issued_more() -> None:
    async def scenario(world: World) -> None:
        world.clock.advance(HEARD_MS_MAX)
        await refused(world.client, send(b"x", in_txn=txn(FAR)), TxnNotFound)
        world.clock.advance(1)
        await refused(world.client, send(b"x", in_txn=txn(FAR)), LogUnavailable)
        await world.client.ask(watermark(0, bound=COUNTER_BOUND))
        await refused(world.client, send(b"x", in_txn=txn(FAR)), TxnNotFound)

    run(scenario)


def test_a_coordinator_that_was_never_heard_may_have_issued_anything() -> None:
    """At the first start: clients ask again until it has spoken."""

    async def scenario(world: World) -> None:
        early = txn(0, tcid=5)
        for _ in range(2):
            await refused(world.client, send(b"x", in_txn=early), LogUnavailable)
            await world.restart()
        taken = topic_wire.CommandTakeIncarnation(tcid=6, store_token="token")
        await refused(world.client, send(b"x", in_txn=txn(0, tcid=6)), TxnNotFound)
        await world.client.ask(taken)
        await refused(world.client, send(b"x", in_txn=txn(0, tcid=6)), LogUnavailable)
        await take_incarnations(world.client, 5)
        await world.client.ask(watermark(0, tcid=5, bound=1))
        await world.client.ask(send(b"x", in_txn=early))
        await refused(world.client, send(b"x", in_txn=txn(1, tcid=5)), LogUnavailable)

    run(scenario, coordinators=TWO_COORDINATORS)


def test_a_late_word_takes_no_bound_back() -> None:
    async def scenario(world: World) -> None:
        await world.client.ask(watermark(5, bound=COUNTER_BOUND))
        await world.client.ask(watermark(4, bound=7))
        await world.client.ask(watermark(5))
        await world.client.ask(send(b"x", in_txn=txn(COUNTER_BOUND - 1)))
        # A coordinator that has begun anew may say a lower watermark: its bound counts.
        await world.client.ask(watermark(1, bound=COUNTER_BOUND + 9))
        await world.client.ask(send(b"x", in_txn=txn(COUNTER_BOUND + 8)))

    run(scenario)


def asked_about(answer: Any) -> set[tuple[int, str]]:
    return {(one.txn_id.least_bits, one.subscription) for one in answer.held}


def test_a_coordinator_is_asked_until_it_knows_who_takes_part() -> None:
    async def scenario(world: World) -> None:
        ask = world.client.ask
        await ask(send(b"0"))
        await ask(subscribe())
        await ask(send(b"1", in_txn=txn(7)))
        await ask(ack((0, 0), in_txn=txn(8)))
        assert not (await ask(watermark(0))).held, "it is being added"
        world.clock.advance(ORPHAN_AGE_MS_MIN)
        for _ in range(3):
            answer = await ask(watermark(0))
            assert asked_about(answer) == {(7, ""), (8, "s")}
        await take_incarnations(world.client, 3)
        assert not (await ask(watermark(0, tcid=3))).held
        word = watermark(0)
        word.known.extend(one for one in answer.held if one.subscription)
        assert asked_about(await ask(word)) == {(7, "")}
        await ask(send(b"2", in_txn=txn(7), sequence=1))
        assert asked_about(await ask(watermark(0))) == {(7, "")}
        await ask(end(txn(7), common.ABORT))
        assert not (await ask(watermark(0))).held
        await world.restart()
        ask = world.client.ask
        world.clock.advance(ORPHAN_AGE_MS_MIN)
        assert asked_about(await ask(watermark(0))) == {(8, "s")}, "what was said is forgotten"
        await ask(end(txn(8), on="s"))
        assert not (await ask(watermark(0))).held

    run(scenario)


def test_what_an_older_incarnation_left_is_an_administrators() -> None:
    """Its coordinator has lost its store: whether it was committed elsewhere, nobody knows."""

    async def scenario(world: World) -> None:
        await world.client.ask(send(b"1", in_txn=txn(7)))
        world.clock.advance(ORPHAN_AGE_MS_MIN)
        await world.client.close()
        world.client = Client(world)
        await take_incarnations(world.client, 0, 2)
        answer = await world.client.ask(watermark(0, incarnation=2, bound=9))
        assert not answer.held
        assert not answer.orphans
        assert txn(7) in world.partition().index.open

    run(scenario)


def test_an_ended_transaction_stays_ended_whatever_is_announced() -> None:
    async def scenario(world: World) -> None:
        await world.client.ask(send(b"1", in_txn=txn(3)))
        await world.client.ask(end(txn(3)))
        await world.client.ask(watermark(0, bound=COUNTER_BOUND))
        await refused(world.client, send(b"2", in_txn=txn(3)), InvalidTxnState)

    run(scenario)


def test_what_is_asked_about_fits_a_command_with_the_longest_names() -> None:
    """The coordinator repeats those it knows, and a command of more than that is not read."""
    held = OrphanCandidates()
    count = 3_000
    places = [
        (txn(counter), SubscriptionName("t" * 200, 3, 1 << 40, "\U0001f600" * 200))
        for counter in range(count)
    ]
    for place in places:
        held.opened(*place, 0.0)
    asked: list[tuple[TxnID, Participant]] = []
    while len(asked) < count:
        due = held.to_ask(0, ORPHAN_AGE_MS_MIN)
        assert due
        word = txn_wire.CommandLowWatermark(tcid=0)
        for txn_id, participant in due:
            assert isinstance(participant, SubscriptionName)
            name = common.Partition(
                topic=participant.topic, partition=3, topic_id=participant.topic_id
            )
            word.known.add(
                txn_id=txn_id.to_wire(), partition=name, subscription=participant.subscription
            )
        assert word.ByteSize() <= COMMAND_BYTES_MAX
        asked += due
    # Each in its turn, whatever became of the others.
    assert asked[:count] == places


def test_what_is_covered_and_open_is_named_a_part_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All of it came in each answer, however much that was; and a recovery needs all of it."""
    monkeypatch.setattr(candidates_module, "ORPHANS_LISTED_MAX", 3)

    async def scenario(world: World) -> None:
        for counter in range(5):
            await world.client.ask(send(b"x", in_txn=txn(counter)))
        for restarted in (False, True):
            if restarted:
                await world.restart()
            named = []
            for _ in range(4):
                answer = await world.client.ask(watermark(5))
                assert len(answer.orphans) <= 3
                named += [orphan.txn_id.least_bits for orphan in answer.orphans]
            assert sorted(set(named)) == list(range(5))

    run(scenario)
