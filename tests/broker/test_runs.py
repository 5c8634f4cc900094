"""A run of commands does what the same commands do one by one, whatever fails among them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.harness import (
    Client,
    World,
    ack,
    end,
    partition,
    run,
    send,
    subscribe,
    subscription,
    txn,
)
from tests.core.envelope import framed, parsed

from magnetar.testing.envelope import command, in_columns, singles
from magnetar_broker.keys import FAMILIES
from magnetar_broker.subscriptions.subscription import Subscription
from magnetar_broker.topics.partition import Partition
from magnetar_core.ids import TxnID
from magnetar_core.server.commands import Conversation
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import service_pb2 as service
from magnetar_core.wire import transaction_pb2 as pb

OPEN_TXNS_MAX = 3
TXNS = st.integers(1, 5).map(txn)
NUMBERS = st.integers(0, 1)
SMALL = st.integers(0, 2)


def ends(
    txn_id: TxnID, action: common.TxnAction, sends: list[int], acks: int | None
) -> pb.CommandEndTxnOnParticipants:
    """An end on partitions, for each the count of producer 1, and on a subscription."""
    asked = pb.CommandEndTxnOnParticipants(
        txn_id=txn_id.to_wire(), txn_action=action, counts_given=True
    )
    for number, count in enumerate(sends):
        counts = [pb.WriterCount(writer_id=1, count=count)]
        asked.partitions.add(partition=partition(number), producers=counts)
    if acks is not None:
        counts = [pb.WriterCount(writer_id=1, count=acks)]
        asked.subscriptions.add(subscription=subscription(), consumers=counts)
    return asked


def sent(
    txn_id: TxnID | None, producer: int, sequence: int, follows: list[TxnID], number: int
) -> Any:
    return send(
        b"x%d" % sequence,
        in_txn=txn_id,
        producer=producer,
        sequence=sequence,
        follows=follows,
        number=number,
    )


SENDS = st.builds(
    sent, st.none() | TXNS, st.integers(1, 2), SMALL, st.lists(TXNS, max_size=2), NUMBERS
)
ENDS = st.builds(
    ends,
    TXNS,
    st.sampled_from((common.COMMIT, common.ABORT)),
    st.lists(SMALL, max_size=2),
    st.none() | SMALL,
)
ACKS = st.builds(
    lambda first, txn_id, sequence: ack((first, first + 1), in_txn=txn_id, sequence=sequence),
    SMALL,
    st.none() | TXNS,
    SMALL,
)
# Many of them are refused, each for a reason of its own.
COMMANDS = st.one_of(
    SENDS,
    ACKS,
    ENDS,
    st.builds(end, TXNS, counts=st.dictionaries(st.just(1), SMALL)),
)
# Frames with commands of one kind: no process sends all of them, and kinds change places in frames.
OF_ONE_KIND = st.lists(
    st.one_of([st.lists(kind, min_size=1, max_size=24) for kind in (SENDS, ACKS, ENDS)]),
    min_size=1,
    max_size=4,
)


@dataclass
class Told:
    """What a conversation is told, by request."""

    answers: dict[int, Any] = field(default_factory=dict)

    def take(self, frame: service.Frame) -> None:
        for one in singles(frame).commands:
            if one.request_id:
                assert one.request_id not in self.answers
                self.answers[one.request_id] = getattr(one, one.WhichOneof("body"))


class History(Told):
    """A broker that gets commands in frames, and what it has become."""

    def __init__(self, frames: Sequence[Sequence[Any]], *, has_columns: bool = False) -> None:
        super().__init__()
        self.frames = frames
        self.has_columns = has_columns
        self.rows: dict[str, list[tuple[bytes, bytes]]] = {}

    async def live(self, world: World) -> None:
        await world.client.ask(subscribe(consumer=1))
        await world.client.ask(send(b"0", b"1", b"2", b"3", b"4", producer=9))
        session = world.broker.server.accept(Conversation(write=parsed(self.take)))
        number = 0
        for bodies in self.frames:
            numbered = []
            for body in bodies:
                number += 1
                numbered.append(command(body, number))
            data = in_columns(*numbered) if self.has_columns else framed(*numbered)
            session.on_frame(service.Frame.FromString(data))
            await world.settle()
        self.rows = {family: await world.rows(family) for family in FAMILIES}
        restarted = {family: rows for family, rows in self.rows.items() if family != "meta"}
        open_before = [list(world.partition(number).index.open) for number in range(2)]
        await world.restart()
        assert [sorted(world.partition(number).index.open) for number in range(2)] == [
            sorted(one) for one in open_before
        ]
        assert restarted == {family: await world.rows(family) for family in restarted}


def lived(frames: Sequence[Sequence[Any]], *, has_columns: bool = False) -> History:
    history = History(frames, has_columns=has_columns)
    run(history.live, open_txns_max=OPEN_TXNS_MAX)
    return history


@given(st.lists(st.lists(COMMANDS, min_size=1, max_size=12), min_size=1, max_size=3))
def test_a_run_does_what_its_commands_do_one_by_one(frames: list[list[Any]]) -> None:
    together = lived(frames)
    alone = lived([[one] for bodies in frames for one in bodies])
    assert together.answers == alone.answers
    assert together.rows == alone.rows


@given(OF_ONE_KIND)
def test_columns_do_what_their_commands_do(frames: list[list[Any]]) -> None:
    in_columns, alone = lived(frames, has_columns=True), lived(frames)
    assert in_columns.answers == alone.answers
    assert in_columns.rows == alone.rows


@given(st.lists(COMMANDS, min_size=2, max_size=12), st.sets(st.integers(0, 11), min_size=1))
def test_a_bug_in_one_command_is_that_commands_alone(bodies: list[Any], failing: set[int]) -> None:
    """It raises where nothing has been applied yet; all others are handled and answered."""
    together, alone = Failing([bodies], failing), Failing([[one] for one in bodies], failing)
    for history in (together, alone):
        history.run()
    assert together.answers == alone.answers
    assert together.rows == alone.rows


@given(OF_ONE_KIND, st.sets(st.integers(0, 40), min_size=1, max_size=8))
def test_a_bug_in_one_row_is_that_rows_alone(frames: list[list[Any]], failing: set[int]) -> None:
    in_columns = Failing(frames, failing, has_columns=True)
    alone = Failing([[one] for bodies in frames for one in bodies], failing)
    for history in (in_columns, alone):
        history.run()
    assert in_columns.answers == alone.answers
    assert in_columns.rows == alone.rows


class Failing(History):
    """A history in which some calls of the state machines raise, by their number."""

    def __init__(
        self, frames: Sequence[Sequence[Any]], failing: set[int], *, has_columns: bool = False
    ) -> None:
        super().__init__(frames, has_columns=has_columns)
        self.failing = failing

    def run(self) -> None:
        count = 0
        with pytest.MonkeyPatch.context() as patch:
            for owner, name in (
                (Partition, "send"),
                (Partition, "send_in"),
                (Partition, "end"),
                (Subscription, "acknowledge"),
                (Subscription, "acknowledge_in"),
                (Subscription, "end"),
            ):
                original: Callable[..., Any] = getattr(owner, name)

                def wrapped(
                    *args: Any, original: Callable[..., Any] = original, **named: Any
                ) -> Any:
                    nonlocal count
                    count += 1
                    # The first call is the preparation's.
                    if count - 2 in self.failing:
                        raise RecursionError("deep")
                    return original(*args, **named)

                patch.setattr(owner, name, wrapped)
            run(self.live, open_txns_max=OPEN_TXNS_MAX)


async def answered(world: World, client: Client, bodies: Sequence[Any]) -> Told:
    told = Told()
    session = world.broker.server.accept(Conversation(write=parsed(told.take)))
    numbered = [command(body, number + 1) for number, body in enumerate(bodies)]
    session.on_frame(service.Frame(commands=numbered))
    await world.settle()
    return told


def test_each_answer_of_a_run_waits_for_what_its_command_needs() -> None:
    """With durability "os": plain sends leave when written, those of transactions when synced."""

    async def scenario(world: World) -> None:
        world.stall()
        bodies = [
            send(b"a", in_txn=txn(1)),
            send(b"b", producer=2),
            send(b"c", in_txn=txn(2)),
            send(b"d", producer=2, sequence=1),
        ]
        told = await answered(world, world.client, bodies)
        assert sorted(told.answers) == [2, 4]
        await world.go_on()
        assert sorted(told.answers) == [1, 2, 3, 4]

    run(scenario, durability="os", sync_interval_ms=10**9)


def test_an_end_that_waits_holds_up_no_other_answer_of_its_run() -> None:
    async def scenario(world: World) -> None:
        first, second = txn(1), txn(2)
        await world.client.ask(send(b"a", in_txn=first))
        await world.client.ask(send(b"b", in_txn=second, follows=first))
        bodies = [
            ends(second, common.COMMIT, [1], None),
            ends(txn(3), common.ABORT, [0], None),
        ]
        told = await answered(world, world.client, bodies)
        assert sorted(told.answers) == [2]
        await world.client.ask(ends(first, common.COMMIT, [1], None))
        assert sorted(told.answers) == [1, 2]

    run(scenario)


def test_what_an_end_lets_go_on_is_answered_with_its_run() -> None:
    """The end of one is in the run in which another waits for it."""

    async def scenario(world: World) -> None:
        first, second = txn(1), txn(2)
        await world.client.ask(send(b"a", in_txn=first))
        await world.client.ask(send(b"b", in_txn=second, follows=first))
        world.stall()
        bodies = [
            ends(second, common.COMMIT, [1], None),
            ends(first, common.COMMIT, [1], None),
        ]
        told = await answered(world, world.client, bodies)
        assert not told.answers
        await world.go_on()
        assert sorted(told.answers) == [1, 2]
        assert await world.read() == [b"a", b"b"]

    run(scenario)


def test_an_end_that_waits_is_left_out_of_the_answer_of_its_columns() -> None:
    async def scenario(world: World) -> None:
        first, second = txn(1), txn(2)
        await world.client.ask(send(b"a", in_txn=first))
        await world.client.ask(send(b"b", in_txn=second, follows=first))
        frames: list[service.Frame] = []
        session = world.broker.server.accept(Conversation(write=parsed(frames.append)))
        bodies = [ends(txn(number), common.ABORT, [0], None) for number in range(3, 35)]
        bodies[7] = ends(second, common.COMMIT, [1], None)
        numbered = [command(body, number) for number, body in enumerate(bodies)]
        session.on_frame(service.Frame.FromString(in_columns(*numbered)))
        await world.settle()
        ((answer,),) = (frame.commands for frame in frames)
        told = answer.end_txns_on_participants_response.request_ids
        assert list(told) == [number for number in range(32) if number != 7]
        frames.clear()
        await world.client.ask(ends(first, common.COMMIT, [1], None))
        ((late,),) = (frame.commands for frame in frames)
        assert late.request_id == 7
        assert late.end_txn_on_participants_response.txn_id == second.to_wire()

    run(scenario)
