"""The order of a producer's transactions (rule k), through the broker's commands."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import Any, NoReturn

import pytest
from tests.broker.harness import Client, World, end, new_index, run, send, txn, watermark

from magnetar_broker import keys
from magnetar_broker.commands.send_commands import FOLLOWED_MAX
from magnetar_broker.transactions.order import CALLS_IN_A_TURN_MAX, Order
from magnetar_broker.transactions.transaction_index import End, Outcome
from magnetar_core.errors import InternalError, InvalidArgument, InvalidTxnState, QuotaExceeded
from magnetar_core.ids import TxnID
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import topic_pb2 as topic_wire

T0, T1, T2, T3, T4 = (txn(counter) for counter in range(5))

# More than are called in one turn, and than calls can lie inside each other.
CHAIN = 2_500


async def nothing(_: World) -> None:
    pass


async def kill(world: World) -> None:
    await world.restart()


async def lose_power(world: World) -> None:
    await world.restart(Random(3))


async def cover(world: World) -> None:
    """The coordinator says that all but T0 and T1 have ended, and the broker is killed."""
    await world.client.ask(watermark(4, (0, 1)))
    await world.restart()


ACCIDENTS = [nothing, kill, lose_power, cover]


async def one_and_two_wait(world: World, action: common.TxnAction = common.ABORT) -> Any:
    """T0 is open; T1 follows it and is to commit; T2 follows T1 and comes to nothing."""
    await world.client.ask(send(b"0", in_txn=T0))
    await world.client.ask(send(b"1", in_txn=T1, follows=T0))
    await world.client.ask(send(b"2", in_txn=T2, follows=T1))
    if action == common.ABORT:
        await world.client.ask(end(T2, common.ABORT))
    else:
        await world.client.ask(end(T2, selected=[7]))
    return world.client.begin(end(T1, counts={1: 1}))


@pytest.mark.parametrize("ended", [common.COMMIT, common.ABORT])
@pytest.mark.parametrize("last", [common.COMMIT, common.ABORT])
@pytest.mark.parametrize("accident", ACCIDENTS)
@pytest.mark.parametrize("arrives_late", [False, True])
def test_what_an_ended_transaction_followed_is_inherited(
    ended: common.TxnAction,
    last: common.TxnAction,
    accident: Callable[[World], Awaitable[None]],
    arrives_late: bool,
) -> None:
    """Rule k: readers got what was committed last first, since an abort let its followers go."""

    async def scenario(world: World) -> None:
        await one_and_two_wait(world, ended)
        if not arrives_late:
            await world.client.ask(send(b"3", in_txn=txn(5), follows=T2))
        await accident(world)
        first = world.client.begin(end(T1, counts={1: 1}))
        if arrives_late:
            await world.client.ask(send(b"3", in_txn=txn(5), follows=T2))
        third = world.client.begin(end(txn(5), counts={1: 1}))
        await world.settle()
        assert not third.done()
        assert await world.read() == []
        await world.client.ask(end(T0, last))
        assert first.done()
        assert third.done()
        expected = [b"0"] if last == common.COMMIT else []
        assert await world.read() == [*expected, b"1", b"3"]

    run(scenario)


@pytest.mark.parametrize("ended", [common.COMMIT, common.ABORT])
@pytest.mark.parametrize("accident", ACCIDENTS)
@pytest.mark.parametrize("producer", [1, 8])
def test_a_plain_send_waits_for_what_an_ended_transaction_followed(
    ended: common.TxnAction, accident: Callable[[World], Awaitable[None]], producer: int
) -> None:
    """Rule k; also of a producer that goes on under another id."""

    async def scenario(world: World) -> None:
        await one_and_two_wait(world, ended)
        await accident(world)
        world.client.begin(end(T1, counts={1: 1}))
        plain = world.client.begin(send(b"plain", follows=T2, producer=producer))
        await world.client.ask(send(b"nobody's", producer=9))
        assert not plain.done()
        await world.client.ask(end(T0))
        assert plain.done()
        assert await world.read() == [b"nobody's", b"0", b"1", b"plain"]

    run(scenario)


def test_inheritance_passes_through_many() -> None:
    async def scenario(world: World) -> None:
        ask = world.client.ask
        await ask(send(b"first", in_txn=T0))
        for counter in range(1, 6):
            await ask(send(b"x", in_txn=txn(counter), follows=txn(counter - 1)))
        for counter in (2, 4, 1, 5, 3):
            await ask(end(txn(counter), common.ABORT))
            await world.restart()
            ask = world.client.ask
        plain = world.client.begin(send(b"plain", follows=txn(5)))
        await world.settle()
        assert not plain.done()
        await ask(end(T0))
        assert await world.read() == [b"first", b"plain"]

    run(scenario)


def test_what_passes_something_on_is_forgotten_when_that_has_ended() -> None:
    """Rule c: only so long does it outlive the watermark that covers it."""

    async def scenario(world: World) -> None:
        await world.client.ask(send(b"0", in_txn=T0))
        await world.client.ask(send(b"1", in_txn=T1, follows=T0))
        await world.client.ask(end(T1, common.ABORT))
        await world.client.ask(end(T2, common.ABORT))
        await world.client.ask(watermark(3, (0, 0)))
        assert sorted(world.partition().index.ended) == [T1]
        await world.client.ask(watermark(4, (0, 0)))
        await world.restart()
        assert sorted(world.partition().index.ended) == [T1]
        # It has ended for whoever asks, as it was ended here.
        with pytest.raises(InvalidTxnState):
            await world.client.ask(send(b"late", in_txn=T1))
        await world.client.ask(end(T1, common.ABORT))
        await world.client.ask(end(T0))
        await world.client.ask(watermark(5))
        assert not world.partition().index.ended
        assert await world.rows(keys.TXNINDEX) == []
        await world.restart()
        assert not world.partition().index.ended
        await world.client.ask(send(b"plain", follows=T1))
        assert await world.read() == [b"0", b"plain"]

    run(scenario)


def test_every_writer_of_a_transaction_has_one_that_it_follows() -> None:
    """Rule k for each producer: a marker waits for all of them, whichever wrote first."""

    async def scenario(world: World) -> None:
        client = world.client
        await client.ask(send(b"a", in_txn=T0, producer=1))
        await client.ask(send(b"b", in_txn=T1, producer=2))
        await client.ask(send(b"-", in_txn=T2, producer=3))
        await client.ask(send(b"c", in_txn=T2, producer=1, follows=T0))
        await client.ask(send(b"d", in_txn=T2, producer=2, follows=T1))
        waiting = client.begin(end(T2))
        await client.ask(end(T0))
        assert not waiting.done()
        assert await world.read() == [b"a"]
        await client.ask(end(T1))
        assert waiting.done()
        assert await world.read() == [b"a", b"b", b"-", b"c", b"d"]

    run(scenario)


def test_nobody_waits_for_what_is_not_here() -> None:
    async def scenario(world: World) -> None:
        ask = world.client.ask
        await ask(send(b"a", in_txn=T1, follows=T1))
        await ask(send(b"b", in_txn=T2, follows=T4))
        await ask(end(T1))
        await ask(end(T2))
        assert await world.read() == [b"a", b"b"]

    run(scenario)


@pytest.mark.parametrize("length", [2, 4])
def test_a_circle_is_refused(length: int) -> None:
    """Each of these would wait for the others for ever."""

    async def scenario(world: World) -> None:
        client = world.client
        for counter in range(length):
            follows = txn(counter - 1) if counter else None
            await client.ask(send(b"%d" % counter, in_txn=txn(counter), follows=follows))
        if length > 2:
            await client.ask(end(txn(length - 2), common.ABORT))
        closing = send(b"x", in_txn=T0, producer=2, follows=txn(length - 1))
        with pytest.raises(InvalidArgument):
            await client.ask(closing)
        await client.ask(send(b"y", in_txn=T0, producer=2))
        for counter in range(length):
            if length == 2 or counter != length - 2:
                await client.ask(end(txn(counter)))
        left = [b"1"] if length == 2 else [b"1", b"3"]
        assert await world.read() == [b"0", b"y", *left]

    run(scenario)


@pytest.mark.parametrize("accident", ACCIDENTS)
@pytest.mark.parametrize("plain", [True, False])
def test_what_follows_several_waits_for_all_of_them(
    accident: Callable[[World], Awaitable[None]], plain: bool
) -> None:
    """Rule k: T0 and T1 were open at once, so neither follows the other.

    The third named the one that ended last, and passed the other one's marker.
    """

    async def scenario(world: World) -> None:
        for counter in range(2):
            await world.client.ask(send(b"%d" % counter, in_txn=txn(counter)))
        third = send(b"3", in_txn=None if plain else T3, follows=[T1, T0])
        if not plain:
            await world.client.ask(third)
        await accident(world)
        waiting = world.client.begin(third if plain else end(T3))
        await world.client.ask(end(T1))
        assert not waiting.done()
        await world.client.ask(end(T0))
        await waiting
        assert await world.read() == [b"1", b"0", b"3"]

    run(scenario)


def test_a_transactions_send_is_told_which_of_several_are_settled() -> None:
    async def scenario(world: World) -> None:
        for counter in range(2):
            await world.client.ask(send(b"%d" % counter, in_txn=txn(counter)))
        third = send(b"3", in_txn=T3, follows=[T1, T0])
        assert not (await world.client.ask(third)).settled_txn_ids
        await world.client.ask(end(T1))
        for repeat in (third, send(b"4", in_txn=T4, follows=[T0, T1])):
            assert (await world.client.ask(repeat)).settled_txn_ids == [T1.to_wire()]

    run(scenario)


@pytest.mark.parametrize("named", [[T0], [T1, T0]])
def test_a_transactions_send_is_told_in_short_that_all_are_settled(named: list[TxnID]) -> None:
    async def scenario(world: World) -> None:
        for counter in range(2):
            await world.client.ask(send(b"%d" % counter, in_txn=txn(counter)))
        command = send(b"3", in_txn=T3, follows=named)
        for ended in named:
            answer = await world.client.ask(command)
            assert not answer.all_settled
            assert ended.to_wire() not in answer.settled_txn_ids
            await world.client.ask(end(ended))
        answer = await world.client.ask(command)
        assert answer.all_settled
        assert not answer.settled_txn_ids
        plain = send(b"4", follows=named)
        assert not (await world.client.ask(plain)).all_settled
        nobody = send(b"5", in_txn=T4)
        assert not (await world.client.ask(nobody)).all_settled

    run(scenario)


def test_a_circle_by_way_of_one_of_several_is_refused() -> None:
    async def scenario(world: World) -> None:
        for counter in range(2):
            await world.client.ask(send(b"%d" % counter, in_txn=txn(counter)))
        await world.client.ask(send(b"2", in_txn=T2, follows=[T1, T0]))
        with pytest.raises(InvalidArgument):
            await world.client.ask(send(b"x", in_txn=T0, producer=2, follows=[T1, T2]))

    run(scenario)


def test_a_send_follows_so_many_and_no_more() -> None:
    async def scenario(world: World) -> None:
        some = [txn(counter) for counter in range(FOLLOWED_MAX)]
        await world.client.ask(send(b"x", in_txn=txn(1_000), follows=some))
        with pytest.raises(InvalidArgument):
            await world.client.ask(send(b"x", producer=2, follows=[T0, *some]))

    run(scenario)


def test_what_passes_something_on_counts_as_open() -> None:
    async def scenario(world: World) -> None:
        ask = world.client.ask
        await ask(send(b"0", in_txn=T0))
        for counter in (1, 2):
            await ask(send(b"x", in_txn=txn(counter), follows=T0))
            await ask(end(txn(counter), common.ABORT))
        with pytest.raises(QuotaExceeded):
            await ask(send(b"x", in_txn=T3))
        await ask(end(T0))
        await ask(send(b"x", in_txn=T3))

    run(scenario, open_txns_max=3)


# Deep chains


@contextmanager
def unchecked(world: World) -> Iterator[None]:
    """Without looking at all of the broker after each command: it has too much for that."""
    check, world.broker.check = world.broker.check, lambda: None  # type: ignore[method-assign]
    yield
    world.broker.check = check  # type: ignore[method-assign]


async def begin_chain(world: World) -> None:
    with unchecked(world):
        for counter in range(CHAIN):
            follows = txn(counter - 1) if counter else None
            world.client.begin(send(b"%d" % counter, in_txn=txn(counter), follows=follows))
    await world.settle()


@pytest.mark.parametrize("restarted", [False, True])
def test_a_long_chain_of_commits_ends_when_its_first_one_does(restarted: bool) -> None:
    """It ended a few hundred, answered one of them twice, and left the rest open."""

    async def scenario(world: World) -> None:
        await begin_chain(world)
        if restarted:
            await world.restart()
        with unchecked(world):
            ends = [world.client.begin(end(txn(one), counts={1: 1})) for one in range(1, CHAIN)]
        plain = world.client.begin(send(b"plain", follows=txn(CHAIN - 1)))
        await world.settle()
        assert not any(one.done() for one in [*ends, plain])
        await world.client.ask(end(T0))
        assert plain.done()
        for one in ends:
            one.result()
        assert not world.partition().index.open
        assert await world.read() == [*(b"%d" % counter for counter in range(CHAIN)), b"plain"]

    run(scenario)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_long_chain_of_aborts_is_inherited(restarted: bool) -> None:
    async def scenario(world: World) -> None:
        await begin_chain(world)
        with unchecked(world):
            for counter in range(1, CHAIN):
                world.client.begin(end(txn(counter), common.ABORT))
        await world.settle()
        if restarted:
            await world.restart()
        plain = world.client.begin(send(b"plain", follows=txn(CHAIN - 1)))
        await world.settle()
        assert not plain.done()
        await world.client.ask(end(T0))
        assert plain.done()
        assert await world.read() == [b"0", b"plain"]

    run(scenario)


def test_one_that_is_refused_does_not_keep_the_others() -> None:
    """What waited is answered each for itself."""

    async def scenario(world: World) -> None:
        client = world.client
        await client.ask(send(b"0", in_txn=T0))
        for counter in (1, 2):
            await client.ask(send(b"%d" % counter, in_txn=txn(counter), follows=T0))
        refused = client.begin(end(T1))
        taken = client.begin(end(T2))
        await client.ask(end(T1, common.ABORT))
        await client.ask(end(T0))
        with pytest.raises(InvalidTxnState):
            refused.result()
        taken.result()
        assert await world.read() == [b"0", b"2"]

    run(scenario)


def test_a_parked_command_that_fails_by_a_bug_is_answered() -> None:
    async def scenario(world: World) -> None:
        def fail(*_: object, **__: object) -> NoReturn:
            raise RecursionError("deep")

        client = world.client
        await client.ask(send(b"0", in_txn=T0))
        await client.ask(send(b"1", in_txn=T1, follows=T0))
        parked = [
            client.begin(send(b"plain", follows=T0)),
            client.begin(end(T1)),
            client.begin(send(b"other", follows=T0, producer=2)),
        ]
        good, world.partition().send = world.partition().send, fail  # type: ignore[method-assign]
        world.partition()._marker, marker = fail, world.partition()._marker  # type: ignore[method-assign]
        await client.ask(end(T0, common.ABORT))
        for one in parked:
            with pytest.raises(InternalError):
                one.result()
        world.partition().send, world.partition()._marker = good, marker  # type: ignore[method-assign]
        await client.ask(end(T1))
        assert await world.read() == [b"1"]

    run(scenario)


def test_a_topic_is_deleted_when_all_has_ended() -> None:
    async def scenario(world: World) -> None:
        await one_and_two_wait(world)
        await world.client.ask(end(T0))
        await world.client.ask(topic_wire.CommandDeleteTopic(topic="t"))
        assert await world.rows(keys.TXNINDEX) == []

    run(scenario)


def test_what_waited_is_called_in_turns_and_each_for_itself() -> None:
    """Others have their turn between a thousand calls; one that fails keeps nobody."""
    later: list[Callable[[], None]] = []
    index = new_index()
    order = Order(index, later.append)
    index.record_write(T0, 1, 1, now_ms=0)
    called: list[int] = []

    def call(number: int) -> None:
        called.append(number)
        order.run()  # Nothing is called inside a call.
        if number == 3:
            raise ValueError("a bug")

    for number in range(CALLS_IN_A_TURN_MAX + 2):
        order.park(T0, partial(call, number))
    ending = End(txn_id=T0, outcome=Outcome.COMMITTED)
    plan = index.plan_end(ending)
    assert order.ended(ending, plan.transaction) == ()
    index.record_end(ending)
    assert called == []
    order.run()
    assert called == list(range(CALLS_IN_A_TURN_MAX))
    order.run()
    assert len(called) == CALLS_IN_A_TURN_MAX, "only in the turn that was asked for"
    later.pop()()
    assert called == list(range(CALLS_IN_A_TURN_MAX + 2))
    assert not later
    order.check()


def test_copies_of_a_commit_that_waits_do_not_pile_up() -> None:
    """A coordinator asks every few seconds, for as long as what is awaited takes."""

    async def scenario(world: World) -> None:
        await world.client.ask(send(b"0", in_txn=T0))
        await world.client.ask(send(b"1", in_txn=T1, follows=T0))
        for _ in range(20):
            left = Client(world)
            left.begin(end(T1, counts={1: 1}))
            await left.close()
        others = [Client(world).begin(end(T1)), world.client.begin(end(T1))]
        first = world.client.begin(end(T1, counts={1: 1}))
        for _ in range(20):
            world.client.begin_again(end(T1, counts={1: 1}))
        # What it says by now counts: an administrator has accepted a loss meanwhile.
        world.client.begin_again(end(T1, counts={1: 1}, loss_accepted=True))
        waiting = world.partition().waiting_ends.of(T1)
        assert [one.end.loss_accepted for one in waiting] == [False, False, True]
        await world.client.ask(end(T0))
        assert all(one.done() for one in (*others, first))
        assert await world.read() == [b"0", b"1"]
        assert world.partition().waiting_ends.of(T1) == []

    run(scenario)


def test_a_commit_that_waited_for_one_waits_for_the_next_one_it_follows() -> None:
    async def scenario(world: World) -> None:
        await world.client.ask(send(b"0", in_txn=T0))
        await world.client.ask(send(b"1", in_txn=T1))
        await world.client.ask(send(b"2", in_txn=T2, producer=1, follows=T0))
        await world.client.ask(send(b"3", in_txn=T2, producer=2, follows=T1))
        waiting = [Client(world).begin(end(T2)), world.client.begin(end(T2))]
        await world.client.ask(end(T0))
        assert not any(one.done() for one in waiting)
        assert len(world.partition().waiting_ends.of(T2)) == 2
        await world.client.ask(end(T1))
        assert all(one.done() for one in waiting)
        assert await world.read() == [b"0", b"1", b"2", b"3"]

    run(scenario)
