"""Ends on their way to the participants: lost, late, refused, gone; watermarks and orphans."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest
from tests.coordinator.fakes import P0, P1, S0, SILENCE, World, end_command
from tests.virtual_time import run

from magnetar.testing.envelope import command
from magnetar_coordinator.ending import end_command_sender, end_commands
from magnetar_coordinator.metadata.transaction import Transaction
from magnetar_core.errors import Gone, LogUnavailable, TxnIncomplete
from magnetar_core.ids import TxnID
from magnetar_core.server.commands import Conversation
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import service_pb2
from magnetar_core.wire import transaction_pb2 as pb


def test_counts_selection_and_action_reach_each_participant() -> None:
    """Rules g and h."""

    async def scenario() -> None:
        world = await World().start()
        txn_id = await world.client.new(P0, P1)
        await world.client.add(txn_id, S0)
        writers = [pb.WriterCount(writer_id=5, count=3)]
        await world.client.end(
            txn_id,
            counts_given=True,
            partition_counts=[pb.PartitionCounts(partition=P0.to_wire(), producers=writers)],
            subscription_counts=[
                pb.SubscriptionCounts(subscription=S0.to_wire(), consumers=writers)
            ],
            selection_given=True,
            selected_writer_ids=[6, 5],
        )
        # What was decided survives a crash with everything that it said.
        await world.restart()
        await world.settle()
        ends = world.broker.all_of("end_txn_on_partition")[-2:]
        ends += world.broker.all_of("end_txn_on_subscription")[-1:]
        assert [[(one.writer_id, one.count) for one in end.counts] for end in ends] == [
            [(5, 3)],
            [],
            [(5, 3)],
        ]
        for end in ends:
            assert end.counts_given
            assert end.selection_given
            assert list(end.selected_writer_ids) == [5, 6]
            assert not end.loss_accepted
        await world.close()

    run(scenario())


def test_an_end_is_sent_again_until_it_is_answered() -> None:
    """PIP-31, TC Startup: when all the responses have been received. Here two are lost."""

    async def scenario() -> None:
        world = await World().start()
        lost = [SILENCE, SILENCE]

        def answer(name: str, body: Any) -> Any:
            return lost.pop() if name == "end_txn_on_partition" and lost else None

        world.broker.answer = answer
        txn_id = await world.client.new(P0)
        assert await world.client.end(txn_id, wait_finished=True) == common.COMMITTED
        assert world.broker.names().count("end_txn_on_partition") == 3
        assert 10 < asyncio.get_running_loop().time() < 15
        await world.close()

    run(scenario())


def test_a_busy_broker_is_asked_again_soon() -> None:
    async def scenario() -> None:
        world = await World().start()
        busy = [LogUnavailable().to_wire(), LogUnavailable().to_wire()]

        def answer(name: str, body: Any) -> Any:
            return busy.pop() if name == "end_txn_on_partition" and busy else None

        world.broker.answer = answer
        txn_id = await world.client.new(P0)
        assert await world.client.end(txn_id, wait_finished=True) == common.COMMITTED
        assert asyncio.get_running_loop().time() < 1
        assert world.metric("incomplete_transactions") == 0
        await world.close()

    run(scenario())


def test_ends_go_out_at_once_when_a_link_comes_back() -> None:
    async def scenario() -> None:
        world = await World().start()
        txn_id = await world.client.new(P0)
        await world.settle()
        world.transport.is_reachable = False
        world.transport.break_links()
        await world.settle()
        waiting = world.client.ask(end_command(txn_id, wait_finished=True))
        await world.settle(60)
        assert not waiting.done()
        world.transport.is_reachable = True
        began = asyncio.get_running_loop().time()
        assert (await waiting).status == common.COMMITTED
        assert asyncio.get_running_loop().time() - began < 10.1
        await world.close()

    run(scenario())


def test_a_link_that_only_looks_sound_is_given_up() -> None:
    async def scenario() -> None:
        world = await World().start()
        txn_id = await world.client.new(P0)
        await world.settle(20)
        count = world.transport.connect_count
        world.transport.links[-1].half_open = True
        assert await world.client.end(txn_id, wait_finished=True) == common.COMMITTED
        assert world.transport.connect_count == count + 1
        assert asyncio.get_running_loop().time() < 40
        await world.close()

    run(scenario())


def test_an_idle_link_is_kept() -> None:
    async def scenario() -> None:
        world = await World().start()
        await world.settle(1)
        count = len(world.transport.links)
        await world.settle(600)
        assert len(world.transport.links) == count
        await world.close()

    run(scenario())


@pytest.mark.parametrize(
    "code", [common.GONE, common.TOPIC_NOT_FOUND, common.SUBSCRIPTION_NOT_FOUND]
)
def test_a_participant_that_is_gone_is_done(code: common.ErrorCode) -> None:
    """Rule j."""

    async def scenario() -> None:
        world = await World().start()
        world.broker.answer = lambda name, body: (
            common.ServerError(code=code) if name.startswith("end_txn") else None
        )
        txn_id = await world.client.new(P0)
        await world.client.add(txn_id, S0)
        assert await world.client.end(txn_id, wait_finished=True) == common.COMMITTED
        await world.close()

    run(scenario())


def test_an_incomplete_commit_waits_for_an_administrator() -> None:
    """Rule g."""

    async def scenario() -> None:
        world = await World().start()

        def answer(name: str, body: Any) -> Any:
            if name == "end_txn_on_partition" and not body.loss_accepted:
                return TxnIncomplete("2 of 3 messages", have=2).to_wire()
            return None

        world.broker.answer = answer
        txn_id = await world.client.new(P0)
        await world.client.add(txn_id, S0)
        waiting = world.client.ask(end_command(txn_id, wait_finished=True))
        await world.settle()
        assert world.metric("incomplete_transactions") == 1
        description = await world.client.describe(txn_id)
        assert description.status == common.COMMITTING
        # What was consumed for it stays pending until its messages are in place.
        refusing, waiting_one = description.unfinished
        assert refusing.error == TxnIncomplete("2 of 3 messages", have=2).to_wire()
        assert not waiting_one.HasField("error")
        await world.settle(35)
        # Slowly: one attempt every ten seconds.
        assert world.broker.names().count("end_txn_on_partition") == 4
        await world.restart()
        await world.settle()
        assert world.metric("incomplete_transactions") == 1
        assert not waiting.done()
        accept = pb.CommandAcceptTxnLoss(txn_id=txn_id.to_wire())
        await world.client.ask(accept)
        await world.settle()
        assert await world.client.status(txn_id) == common.COMMITTED
        assert world.metric("incomplete_transactions") == 0
        await world.client.ask(accept)
        await world.close()

    run(scenario())


def test_an_acceptance_of_loss_is_told_when_it_is_durable() -> None:
    """An end that is sent again meanwhile said already that the loss was accepted (rule a).

    The follower of the protocol found it: seed 8 of the profile "long", on Python 3.12.
    """

    async def scenario() -> None:
        world = await World().start()
        incomplete = TxnIncomplete("writes are missing").to_wire()
        world.broker.answer = lambda name, body: (
            incomplete if name == "end_txn_on_partition" and not body.loss_accepted else None
        )
        txn_id = await world.client.new(P0)
        await world.client.end(txn_id)
        await world.settle()
        world.disk.sync_seconds = 5.0
        accepted = world.client.ask(pb.CommandAcceptTxnLoss(txn_id=txn_id.to_wire()))
        world.transport.break_links()
        told = len(world.broker.all_of("end_txn_on_partition"))
        await world.settle(4)
        assert not accepted.done()
        again = world.broker.all_of("end_txn_on_partition")[told:]
        assert again
        assert not any(one.loss_accepted for one in again)
        await accepted
        await world.settle(20)
        assert await world.client.status(txn_id) == common.COMMITTED
        await world.close()

    run(scenario())


def test_what_was_consumed_ends_after_what_was_produced() -> None:
    """docs/design/0003-groups.md: whoever gets the next input writes behind this transaction."""

    async def scenario() -> None:
        world = await World().start()
        world.broker.answer = lambda name, body: (
            SILENCE if name == "end_txn_on_partition" and len(world.broker.received) < 10 else None
        )
        for action in (common.COMMIT, common.ABORT):
            world.broker.received.clear()
            txn_id = await world.client.new(P0)
            await world.client.add(txn_id, S0)
            await world.client.end(txn_id, action)
            await world.settle()
            told = [one for one in world.broker.names() if one.startswith("end_txn")]
            if action == common.COMMIT:
                assert told == ["end_txn_on_partition"]
                await world.settle(60)
                assert (txn_id, S0) in world.broker.ended
            else:
                assert told == ["end_txn_on_partition", "end_txn_on_subscription"]
        await world.close()

    run(scenario())


def test_participants_at_one_broker_are_told_together() -> None:
    async def scenario() -> None:
        world = await World().start()
        txn_id = await world.client.new(P0, P1)
        await world.client.add(txn_id, S0)
        writers = [pb.WriterCount(writer_id=5, count=3)]
        command = end_command(
            txn_id,
            wait_finished=True,
            counts_given=True,
            partition_counts=[pb.PartitionCounts(partition=P1.to_wire(), producers=writers)],
            selection_given=True,
            selected_writer_ids=[5],
        )
        stamp = (await world.client.ask(command)).stamp
        assert world.broker.ended_together == [
            pb.CommandEndTxnOnParticipants(
                txn_id=txn_id.to_wire(),
                txn_action=common.COMMIT,
                counts_given=True,
                partitions=[
                    pb.PartitionCounts(partition=P0.to_wire()),
                    pb.PartitionCounts(partition=P1.to_wire(), producers=writers),
                ],
                subscriptions=[pb.SubscriptionCounts(subscription=S0.to_wire())],
                selection_given=True,
                selected_writer_ids=[5],
                stamp=stamp,
                incarnation=1,
            )
        ]
        # A single one is told as ever.
        await world.client.end(await world.client.new(P0), wait_finished=True)
        assert len(world.broker.ended_together) == 1
        await world.close()

    run(scenario())


def test_only_those_that_have_not_ended_are_told_again() -> None:
    async def scenario() -> None:
        world = await World().start()
        busy = [LogUnavailable("busy").to_wire()] * 2

        def answer(name: str, body: Any) -> Any:
            is_second = name == "end_txn_on_partition" and body.partition == P1.to_wire()
            return busy.pop() if is_second and busy else None

        world.broker.answer = answer
        txn_id = await world.client.new(P0, P1)
        await world.client.add(txn_id, S0)
        waiting = world.client.ask(end_command(txn_id, wait_finished=True))
        assert (await waiting).status == common.COMMITTED
        told = [
            (len(one.partitions), len(one.subscriptions)) for one in world.broker.ended_together
        ]
        assert told == [(2, 1), (1, 1), (1, 1)]
        assert world.broker.names()[-1] == "end_txn_on_subscription"
        assert world.broker.names().count("end_txn_on_subscription") == 1
        await world.close()

    run(scenario())


def test_an_answer_to_an_earlier_copy_says_nothing_of_those_that_are_left() -> None:
    """The first copy's answer comes after the second one's, and denies everything."""

    async def scenario() -> None:
        world = await World().start()
        sent: list[int] = []
        on_frame = world.broker.on_frame

        def remember(link: Any, frame: Any) -> None:
            sent.extend(
                one.request_id
                for one in frame.commands
                if one.WhichOneof("body") == "end_txn_on_participants"
            )
            on_frame(link, frame)

        world.broker.on_frame = remember  # type: ignore[method-assign]
        world.broker.answer = lambda name, body: (
            LogUnavailable("busy").to_wire()
            if name == "end_txn_on_partition" and body.partition == P1.to_wire()
            else None
        )
        txn_id = await world.client.new(P0, P1)
        await world.client.end(txn_id)
        await world.settle()
        gone = pb.CommandEndTxnOnParticipantsResponse(txn_id=txn_id.to_wire())
        world.transport.links[-1].push(command(gone, sent[0]))
        world.transport.links[-1].push(command(Gone("gone").to_wire(), sent[0]))
        await world.settle()
        assert await world.client.status(txn_id) == common.COMMITTING
        assert (txn_id, P1) not in world.broker.ended
        world.broker.answer = lambda name, body: None
        await world.settle(10)
        assert await world.client.status(txn_id) == common.COMMITTED
        await world.close()

    run(scenario())


def test_many_participants_are_told_in_portions_and_in_order() -> None:
    async def scenario() -> None:
        world = await World().start()
        partitions = [P0._replace(partition=number) for number in range(130)]
        txn_id = await world.client.new(*partitions)
        await world.client.add(txn_id, S0, S0._replace(subscription="audit"))
        await world.client.end(txn_id, wait_finished=True)
        assert [
            (len(one.partitions), len(one.subscriptions)) for one in world.broker.ended_together
        ] == [(64, 0), (64, 0), (2, 0), (0, 2)]
        many = [pb.WriterCount(writer_id=one, count=1) for one in range(1_000)]
        crowded = await world.client.new(P0, P1)
        await world.client.end(
            crowded,
            wait_finished=True,
            counts_given=True,
            partition_counts=[
                pb.PartitionCounts(partition=one.to_wire(), producers=many) for one in (P0, P1)
            ],
        )
        assert len(world.broker.ended_together) == 4, "each has so many writers: alone"
        assert (crowded, P1) in world.broker.ended
        await world.close()

    run(scenario())


def test_accepted_loss_survives_a_crash() -> None:
    async def scenario() -> None:
        world = await World().start()
        world.broker.answer = lambda name, body: SILENCE if name.startswith("end_txn") else None
        txn_id = await world.client.new(P0)
        await world.client.end(txn_id)
        await world.client.ask(pb.CommandAcceptTxnLoss(txn_id=txn_id.to_wire()))
        await world.restart(Random(1))
        await world.settle()
        assert world.broker.all_of("end_txn_on_partition")[-1].loss_accepted
        await world.close()

    run(scenario())


def test_the_watermark_follows_durable_ends() -> None:
    async def scenario() -> None:
        world = await World().start()
        first, second = await world.client.new(P0), await world.client.new(P0)
        await world.client.end(second)
        await world.settle(2)
        last = world.broker.all_of("low_watermark")[-1]
        assert (last.tcid, last.incarnation, last.low_watermark) == (0, 1, 0)
        await world.client.end(first)
        await world.settle(2)
        assert world.broker.all_of("low_watermark")[-1].low_watermark == 2
        words = world.broker.all_of("low_watermark")
        await world.settle(30)
        # Also when it does not change: it asks what the broker holds.
        assert 29 <= len(world.broker.all_of("low_watermark")) - len(words) <= 31
        assert world.broker.all_of("low_watermark")[-1] == words[-1]
        world.transport.break_links()
        count = len(world.broker.all_of("low_watermark"))
        await world.settle(0.9)
        assert len(world.broker.all_of("low_watermark")) > count
        await world.close()


def test_one_word_at_a_time() -> None:
    async def scenario() -> None:
        world = World()
        world.broker.answer = lambda name, body: SILENCE if name == "low_watermark" else None
        await world.start()
        await world.settle(4)
        assert len(world.broker.all_of("low_watermark")) == 1
        await world.close()

    run(scenario())

    run(scenario())


def test_old_transactions_are_listed() -> None:
    async def scenario() -> None:
        world = await World().start()
        old = await world.client.new(P0, txn_timeout_ms=600_000)
        for _ in range(3):
            await world.client.end(await world.client.new())
        await world.settle(62)
        last = world.broker.all_of("low_watermark")[-1]
        assert last.low_watermark == 4
        assert [(one.first, one.last) for one in last.live] == [(old.counter, old.counter)]
        await world.close()

    run(scenario())


def test_orphans_are_aborted_when_their_transaction_has_ended() -> None:
    """docs/design/0001-protocol.md, Low watermark: a broker never aborts by itself."""

    async def scenario() -> None:
        world = await World().start()
        client = world.client
        done, live = await client.new(), await client.new(P0)
        await client.end(done, wait_finished=True)
        other = TxnID.of(9, 1, 0)
        future = TxnID.of(0, 2, 0)
        world.broker.orphans = [
            pb.OrphanedParticipant(txn_id=one.to_wire(), partition=P1.to_wire())
            for one in (done, live, other, future)
        ]
        world.broker.orphans.append(
            pb.OrphanedParticipant(
                txn_id=done.to_wire(), partition=P1.to_wire(), subscription="billing"
            )
        )
        await world.settle(2)
        cursor = S0._replace(partition=1)
        assert world.broker.ended == {(done, P1): common.ABORT, (done, cursor): common.ABORT}
        await world.close()

    run(scenario())


def test_what_expelled_members_left_open_is_aborted() -> None:
    """What is being ended goes on, and 2PC waits for its owner's word."""

    async def scenario() -> None:
        world = await World(two_phase_commit_enabled=True).start()
        client = world.client
        left = await client.new(P0)
        committed = await client.new()
        await client.end(committed, wait_finished=True)
        pair = await client.ask(pb.CommandInitProducer(transactional_id="app", enable_2pc=True))
        identity = common.ProducerIdentity(
            transactional_id="app", producer_id=pair.producer_id, producer_epoch=0
        )
        prepared = await client.new(identity=identity)
        never = TxnID.of(0, 1, 99)
        word = pb.CommandAbortExpelled(
            txn_ids=[one.to_wire() for one in (left, committed, prepared, never)]
        )
        world.transport.push(word)
        await world.settle()
        assert world.broker.ended == {(left, P0): common.ABORT}
        assert await client.status(left) == common.ABORTED
        assert await client.status(committed) == common.COMMITTED
        assert await client.status(prepared) == common.OPEN
        assert world.metric("transactions_expelled_total") == 1
        # The broker asks again until it hears of the end.
        world.transport.push(word)
        await world.settle()
        assert world.metric("transactions_expelled_total") == 1
        await world.close()

    run(scenario())


def test_commands_of_one_turn_share_a_sync_and_a_frame() -> None:
    async def scenario() -> None:
        world = await World().start()
        txn_ids = [await world.client.new(P0, P1) for _ in range(50)]
        await world.settle()
        syncs, frames = world.disk.sync_count, world.transport.links[-1].frame_count
        await asyncio.gather(*(world.client.ask(end_command(one)) for one in txn_ids))
        await world.settle()
        assert world.disk.sync_count - syncs <= 3
        assert world.transport.links[-1].frame_count - frames == 1
        assert len(world.broker.ended) == 100
        await world.close()

    run(scenario())


def test_an_end_command_that_fails_takes_no_other_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is tried again when it is due."""
    failing: list[TxnID] = []

    def make(transaction: Transaction, participants: Any, incarnation: int) -> Any:
        if transaction.txn_id in failing:
            failing.clear()
            raise ZeroDivisionError
        return end_commands.end_command(transaction, participants, incarnation)

    monkeypatch.setattr(end_command_sender, "end_command", make)

    async def scenario() -> None:
        world = await World().start()
        txn_ids = [await world.client.new(P0, P1) for _ in range(3)]
        failing.append(txn_ids[1])
        session = world.coordinator.server.accept(Conversation(write=lambda _: None))
        ends = [command(end_command(one), number) for number, one in enumerate(txn_ids, 1)]
        session.on_frame(service_pb2.Frame(commands=ends))
        await world.settle()
        assert {txn_id for txn_id, _ in world.broker.ended} == {txn_ids[0], txn_ids[2]}
        await world.settle(world.config.constants.answer_deadline_ms / 1_000 + 1)
        assert {txn_id for txn_id, _ in world.broker.ended} == set(txn_ids)
        await world.close()

    run(scenario())


def test_the_finisher_forgets_what_has_ended() -> None:
    async def scenario() -> None:
        world = await World().start()
        for _ in range(20):
            await world.client.end(await world.client.new(P0, P1), wait_finished=True)
        await world.settle(6)
        assert not world.coordinator._runtime.finisher._transactions
        for broker in world.coordinator._brokers._peers.values():
            assert not broker.ends._ends
            assert not broker.ends._first
            assert not broker.ends._later
        await world.close()

    run(scenario())


def test_a_participant_may_answer_with_a_code_of_a_later_version() -> None:
    """A broker that is upgraded first: its error is told, and the end is sent again."""

    async def scenario() -> None:
        world = await World().start()
        later = common.ServerError(message="new")
        later.code = 999  # type: ignore[assignment]
        world.broker.answer = lambda name, body: later if name.startswith("end_txn") else None
        txn_id = await world.client.new(P0)
        await world.client.end(txn_id)
        await world.settle()
        (unfinished,) = (await world.client.describe(txn_id)).unfinished
        assert unfinished.error == later
        world.broker.answer = lambda name, body: None
        await world.settle(10)
        assert await world.client.status(txn_id) == common.COMMITTED

    run(scenario())
