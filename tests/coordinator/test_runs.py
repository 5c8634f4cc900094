"""Runs of commands and of answers: the same answers, rows and memory as one by one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.coordinator.fakes import P0, P1, S0, SILENCE, World, add_command, counted
from tests.core.envelope import parsed
from tests.fake_link import FakeLink
from tests.virtual_time import run

from magnetar.testing.envelope import command
from magnetar_coordinator.metadata.records import FAMILIES
from magnetar_coordinator.runtime import Runtime
from magnetar_coordinator.transactions.shard import Shard
from magnetar_core.ids import SubscriptionName, TxnID
from magnetar_core.server.commands import Conversation
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import service_pb2
from magnetar_core.wire import transaction_pb2 as pb

PARTICIPANTS = (P0, P1, S0)
# A command that has seen this stamp fails, in place of a mistake in its handler.
POISON = 666
# Of the first transaction of a new store, and how many others commands may name.
TXN_IDS = [TxnID.of(0, 1, counter) for counter in range(8)]

stamps = st.sampled_from([0, 0, 0, POISON])
some = st.lists(st.sampled_from(PARTICIPANTS), max_size=3)


def new(participants: list[Any], early: bool, stamp: int) -> pb.CommandNewTxn:
    return pb.CommandNewTxn(
        partitions=[one.to_wire() for one in participants if not isinstance(one, SubscriptionName)],
        subscriptions=[one.to_wire() for one in participants if isinstance(one, SubscriptionName)],
        answer_before_durable=early,
        seen_stamp=stamp,
    )


def add(txn_id: TxnID, participant: Any, stamp: int) -> Any:
    body = add_command(txn_id, participant)
    body.seen_stamp = stamp
    return body


def end(
    txn_id: TxnID, commits: bool, confirmed: list[Any], selection: list[int] | None, stamp: int
) -> pb.CommandEndTxn:
    body = pb.CommandEndTxn(
        txn_id=txn_id.to_wire(),
        txn_action=common.COMMIT if commits else common.ABORT,
        counts_given=bool(confirmed),
        selection_given=selection is not None,
        selected_writer_ids=selection,
        seen_stamp=stamp,
    )
    for one in confirmed:
        body.MergeFromString(counted(one, (5, 1)))
    return body


commands = st.lists(
    st.builds(new, some, st.booleans(), stamps)
    | st.builds(add, st.sampled_from(TXN_IDS), st.sampled_from(PARTICIPANTS), stamps)
    | st.builds(
        end,
        st.sampled_from(TXN_IDS),
        st.booleans(),
        some,
        st.none() | st.lists(st.integers(1, 3), max_size=2),
        stamps,
    ),
    min_size=1,
    max_size=20,
)


class Left(NamedTuple):
    """What commands leave behind."""

    answers: list[tuple[int, bytes]]
    live: list[Any]
    rows: dict[str, list[tuple[bytes, bytes | None]]]
    ended: dict[Any, Any]


async def left_by(bodies: Iterable[Any], *, together: bool, broker_answers: bool) -> Left:
    """Send commands in one turn, in a frame or in a frame each; likewise a broker's answers."""
    world = await World().start()
    if not broker_answers:
        world.broker.answer = lambda name, _: SILENCE if name.startswith("end_txn") else None
    if not together:
        on_frame = world.broker.on_frame

        def one_by_one(link: FakeLink, frame: service_pb2.Frame) -> None:
            for one in frame.commands:
                on_frame(link, service_pb2.Frame(commands=[one]))

        world.broker.on_frame = one_by_one  # type: ignore[method-assign]
    answers: list[tuple[int, bytes]] = []

    def heard(frame: service_pb2.Frame) -> None:
        answers.extend((one.request_id, one.SerializeToString()) for one in frame.commands)

    session = world.coordinator.server.accept(Conversation(write=parsed(heard)))
    asked = [command(body, number) for number, body in enumerate(bodies, 1)]
    for frame in [asked] if together else [[one] for one in asked]:
        session.on_frame(service_pb2.Frame(commands=frame))
    await world.settle(1.0)
    world.coordinator.shard.check()
    live = list(world.coordinator.shard.live.values())
    await world.close()
    rows = {
        family: [(key, world.disk.durable(family, key)) for key in world.disk.durable_keys(family)]
        for family in FAMILIES
    }
    assert not world.fatal_errors
    return Left(sorted(answers), live, rows, world.broker.ended)


@settings(max_examples=60)
@given(commands, st.booleans())
def test_a_run_leaves_the_same_as_its_commands_one_by_one(
    bodies: list[Any], broker_answers: bool
) -> None:
    """Also when some of them are refused, and others fail."""
    hear = Runtime.hear

    def poisoned(runtime: Runtime, stamp: int) -> None:
        if stamp == POISON:
            raise ZeroDivisionError
        hear(runtime, stamp)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Runtime, "hear", poisoned)
        one_by_one = run(left_by(bodies, together=False, broker_answers=broker_answers))
        together = run(left_by(bodies, together=True, broker_answers=broker_answers))
    assert len(together.answers) == len(bodies)
    assert together == one_by_one


def test_after_a_command_that_failed_half_way_its_run_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Memory no longer is what the rows say: the process ends."""
    apply = Shard.apply

    def breaking(shard: Shard, record: Any) -> Any:
        if record.txn_id == TXN_IDS[1]:
            raise ZeroDivisionError
        return apply(shard, record)

    monkeypatch.setattr(Shard, "apply", breaking)

    async def scenario() -> None:
        world = await World().start()
        session = world.coordinator.server.accept(Conversation(write=lambda _: None))
        asked = [command(new([P0], False, 0), number) for number in range(1, 4)]
        session.on_frame(service_pb2.Frame(commands=asked))
        assert [type(one) for one in world.fatal_errors] == [ZeroDivisionError]
        assert list(world.coordinator.shard.live) == TXN_IDS[:1]
        world.coordinator.abandon()

    run(scenario())
