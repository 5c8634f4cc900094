"""Answers to beginnings and ends in columns: one message for all but those that are left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.coordinator.fakes import P0, SILENCE, World, end_command
from tests.core.envelope import parsed
from tests.virtual_time import run

from magnetar.testing.envelope import command, in_columns
from magnetar_core.ids import TxnID
from magnetar_core.server.commands import Conversation
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import service_pb2
from magnetar_core.wire import transaction_pb2 as pb

COUNT = 32


class Talk:
    """A conversation whose frames a test reads as they are."""

    def __init__(self, world: World, **fields: Any) -> None:
        self.world = world
        self.heard: list[service_pb2.Command] = []
        self.session = world.coordinator.server.accept(
            Conversation(write=parsed(lambda frame: self.heard.extend(frame.commands)), **fields)
        )
        self._count = 0

    async def say(self, *bodies: Any, seconds: float = 0.05) -> list[service_pb2.Command]:
        """Say commands in columns; return what comes soon."""
        self.heard.clear()
        asked = [command(body, self._count + number) for number, body in enumerate(bodies, 1)]
        self._count += len(bodies)
        self.session.on_frame(service_pb2.Frame.FromString(in_columns(*asked)))
        await self.world.settle(seconds)
        return list(self.heard)

    async def opened(self, count: int = COUNT) -> list[TxnID]:
        (told,) = await self.say(*[pb.CommandNewTxn(partitions=[P0.to_wire()])] * count)
        answer = told.new_txns_response
        assert (answer.count, list(answer.left_out)) == (count, [])
        pairs = zip(answer.txn_most_bits, answer.txn_least_bits, strict=True)
        return [TxnID(*one) for one in pairs]


def ends(txn_ids: Sequence[TxnID], **of: pb.CommandEndTxn) -> list[pb.CommandEndTxn]:
    """Commits, but for some places."""
    every = [end_command(one) for one in txn_ids]
    for place, command_there in of.items():
        every[int(place.removeprefix("at_"))] = command_there
    return every


def test_an_end_that_waits_is_left_out_and_the_others_are_answered_with_their_group() -> None:
    async def scenario() -> None:
        world = await World().start()
        talk = Talk(world)
        txn_ids = await talk.opened()
        stays = txn_ids[7]
        world.broker.answer = lambda name, body: (
            SILENCE
            if name.startswith("end_txn") and TxnID.from_wire(body.txn_id) == stays
            else None
        )
        waits = end_command(stays, wait_finished=True)
        (told,) = await talk.say(*ends(txn_ids, at_7=waits))
        answer = told.end_txns_response
        assert (answer.count, list(answer.left_out)) == (COUNT, [7])
        assert len(answer.txn_least_bits) == COUNT - 1
        # The highest of all that were decided with them, this one's among them.
        assert answer.stamp == max(world.broker.stamps.values())
        talk.heard.clear()
        world.broker.answer = lambda name, body: None
        await world.settle(30.0)
        (alone,) = talk.heard
        assert alone.request_id == answer.first_request_id + 7
        assert alone.end_txn_response.status == common.COMMITTED
        assert world.coordinator.shard.live == {}
        await world.close()

    run(scenario())


def test_refusals_are_answered_alone_each_by_its_own_check() -> None:
    async def scenario() -> None:
        world = await World().start()
        talk = Talk(world)
        txn_ids = await talk.opened()
        unknown = end_command(TxnID.of(0, 1, 99))
        odd = end_command(txn_ids[9], 5)
        told = await talk.say(*ends(txn_ids, at_3=unknown, at_9=odd))
        errors = {one.request_id: one.error.code for one in told if one.HasField("error")}
        (answer,) = [one.end_txns_response for one in told if one.HasField("end_txns_response")]
        first = answer.first_request_id
        assert errors == {first + 3: common.TXN_NOT_FOUND, first + 9: common.INVALID_ARGUMENT}
        assert list(answer.left_out) == [3, 9]
        assert set(world.coordinator.shard.live) == {txn_ids[3], txn_ids[9]}
        await world.close()

    run(scenario())


def test_a_message_of_which_everything_is_refused_is_answered_too() -> None:
    async def scenario() -> None:
        world = await World().start()
        talk = Talk(world)
        told = await talk.say(*[end_command(TxnID.of(0, 1, 99))] * 4)
        assert [one.HasField("error") for one in told] == [True] * 4 + [False]
        answer = told[-1].end_txns_response
        assert (answer.count, list(answer.left_out)) == (4, [0, 1, 2, 3])
        await world.close()

    run(scenario())


def test_a_quota_is_checked_for_each_beginning() -> None:
    async def scenario() -> None:
        world = await World(session_open_txns_max=20).start()
        talk = Talk(world)
        told = await talk.say(*[pb.CommandNewTxn()] * COUNT)
        (answer,) = [one.new_txns_response for one in told if one.HasField("new_txns_response")]
        assert list(answer.left_out) == list(range(20, COUNT))
        assert len(answer.txn_least_bits) == len(world.coordinator.shard.live) == 20
        codes = [one.error.code for one in told if one.HasField("error")]
        assert codes == [common.QUOTA_EXCEEDED] * (COUNT - 20)
        await world.close()

    run(scenario())


def test_a_beginning_that_need_not_be_durable_waits_for_no_other() -> None:
    async def scenario() -> None:
        world = await World().start()
        await world.settle(0.5)
        talk = Talk(world)
        world.disk.sync_seconds = 0.2
        early = [pb.CommandNewTxn(answer_before_durable=one % 2 == 0) for one in range(8)]
        told = await talk.say(*early, seconds=1.0)
        (answer,) = [one.new_txns_response for one in told if one.HasField("new_txns_response")]
        assert list(answer.left_out) == [1, 3, 5, 7]
        first = answer.first_request_id
        alone = [one.request_id for one in told if one.HasField("new_txn_response")]
        assert alone == [first + place for place in answer.left_out]
        await world.close()

    run(scenario())
