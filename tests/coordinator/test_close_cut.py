"""CloseCut: later commits are stamped above, and what was decided before is finished.

Source: docs/design/0015-cuts.md, Taking a cut.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest
from tests.coordinator.fakes import P0, P1, SILENCE, FakeClient, World, end_command, refused
from tests.coordinator.test_past_ends import lose_the_end
from tests.coordinator.test_stamps import YEAR_MS, committed
from tests.virtual_time import run

from magnetar_coordinator.commands import cut_commands
from magnetar_coordinator.ending import cut_closings
from magnetar_core.cuts.hybrid_clock import stamp_at
from magnetar_core.errors import InvalidArgument, QuotaExceeded, TxnIncomplete
from magnetar_core.ids import TxnID
from magnetar_core.selections import digest_of_selection
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import transaction_pb2 as pb


def close(client: FakeClient, stamp: int, wait_ms: int = 0) -> asyncio.Future[Any]:
    return client.ask(pb.CommandCloseCut(stamp=stamp, wait_ms=wait_ms))


def unfinished(answer: pb.CommandCloseCutResponse) -> list[TxnID]:
    return [TxnID.from_wire(one) for one in answer.unfinished]


def silent_about_ends(name: str, body: Any) -> Any:
    return SILENCE if name.startswith("end_txn") else None


def test_the_clock_is_told_above_all_that_was_decided() -> None:
    async def scenario() -> None:
        world = await World(tcid=3).start()
        stamp = await committed(world.client, P0)
        world.clock.wall_offset_ms -= 10_000
        answer = await close(world.client, 0)
        assert answer.tcid == 3
        assert answer.incarnation == 1
        assert answer.clock >= stamp
        await world.close()

    run(scenario())


@pytest.mark.parametrize("jump_ms", [0, -5_000])
@pytest.mark.parametrize("crash", [False, True])
def test_later_commits_are_stamped_above_a_closed_past(jump_ms: int, crash: bool) -> None:
    """Also after a power loss, since the answer waits until a bound above it is durable."""

    async def scenario() -> None:
        world = await World().start()
        stamp = stamp_at(world.clock.wall_ms() + 60_000)
        commits = world.coordinator._commits
        await commits.hold()
        closing = close(world.client, stamp)
        await world.settle()
        assert not closing.done()
        commits.release()
        assert (await closing).clock >= stamp
        world.clock.wall_offset_ms += jump_ms
        if crash:
            await world.restart(Random(4))
        assert await committed(world.client, P0) > stamp
        await world.close()

    run(scenario())


def test_it_waits_for_commits_that_are_decided_and_not_finished() -> None:
    async def scenario() -> None:
        world = await World().start()
        world.broker.answer = silent_about_ends
        first = await world.client.new(P0)
        second = await world.client.new(P0, P1)
        open_one = await world.client.new(P0)
        aborted = await world.client.new(P0)
        await world.client.end(aborted, common.ABORT)
        stamps = [(await world.client.ask(end_command(one))).stamp for one in (second, first)]
        assert unfinished(await close(world.client, stamps[-1])) == [second, first]
        assert unfinished(await close(world.client, stamps[0])) == [second]
        assert unfinished(await close(world.client, stamps[0] - 1)) == []
        waiting = close(world.client, stamps[-1], wait_ms=60_000)
        later = (await world.client.ask(end_command(open_one))).stamp
        assert later > stamps[-1]
        await world.settle()
        assert not waiting.done()
        # Only what came later is silent.
        world.broker.answer = lambda name, body: (
            SILENCE
            if name.startswith("end_txn") and TxnID.from_wire(body.txn_id) == open_one
            else None
        )
        await world.settle(10)
        assert unfinished(await waiting) == []
        assert {(second, P0), (second, P1), (first, P0)} <= world.broker.ended.keys()
        assert (open_one, P0) not in world.broker.ended
        world.broker.answer = lambda name, body: None
        await world.close()

    run(scenario())


def test_it_answers_as_soon_as_the_last_participant_has() -> None:
    """It does not wait for the outcome's row, which hurries nobody else."""

    async def scenario() -> None:
        world = await World().start()
        held: list[Any] = []
        repeated = asyncio.Event()

        def hold(name: str, body: Any) -> Any:
            if not name.startswith("end_txn"):
                return None
            held.append(body)
            if len(held) == 1:
                return SILENCE
            repeated.set()
            return None

        world.broker.answer = hold
        txn_id = await world.client.new(P0)
        stamp = (await world.client.ask(end_command(txn_id))).stamp
        waiting = close(world.client, stamp, wait_ms=60_000)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        await repeated.wait()
        repeated_s = loop.time()
        await waiting
        assert repeated_s - began_s > 1
        assert loop.time() - repeated_s < 0.1
        await world.close()

    run(scenario())


def test_when_its_time_is_up_it_names_those_for_which_it_waits() -> None:
    async def scenario() -> None:
        world = await World().start()
        world.broker.answer = lambda name, body: (
            TxnIncomplete("lost").to_wire() if name.startswith("end_txn") else None
        )
        txn_id = await world.client.new(P0)
        stamp = (await world.client.ask(end_command(txn_id))).stamp
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        assert unfinished(await close(world.client, stamp, wait_ms=2_000)) == [txn_id]
        assert 2 <= loop.time() - began_s < 2.5
        world.broker.answer = lambda name, body: None
        waiting = close(world.client, stamp, wait_ms=60_000)
        await world.client.ask(pb.CommandAcceptTxnLoss(txn_id=txn_id.to_wire()))
        assert unfinished(await waiting) == []
        await world.close()

    run(scenario())


def test_a_wait_is_a_minute_at_most() -> None:
    async def scenario() -> None:
        world = await World().start()
        world.broker.answer = silent_about_ends
        txn_id = await world.client.new(P0)
        stamp = (await world.client.ask(end_command(txn_id))).stamp
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        assert unfinished(await close(world.client, stamp, wait_ms=1 << 60)) == [txn_id]
        assert loop.time() - began_s == pytest.approx(cut_commands.WAIT_MS_MAX / 1_000, abs=1)
        await world.close()

    run(scenario())


def test_who_has_gone_takes_nobodys_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cut_closings, "WAITING_MAX", 2)

    async def scenario() -> None:
        world = await World().start()
        world.broker.answer = silent_about_ends
        txn_id = await world.client.new(P0)
        stamp = (await world.client.ask(end_command(txn_id))).stamp
        for _ in range(5):
            gone = FakeClient(world.coordinator)
            close(gone, stamp, wait_ms=60_000)
            gone._session.on_closed()
        assert len(world.coordinator._runtime.cut_closings) <= 2
        assert unfinished(await close(world.client, stamp, wait_ms=1_000)) == [txn_id]
        world.broker.answer = lambda name, body: None
        assert unfinished(await close(world.client, stamp, wait_ms=60_000)) == []
        await world.close()

    run(scenario())


@pytest.mark.parametrize("limit", ["WAITING_MAX", "WAITING_OF_CLIENT_MAX"])
def test_few_wait_at_once(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setattr(cut_closings, limit, 2)

    async def scenario() -> None:
        world = await World().start()
        world.broker.answer = silent_about_ends
        txn_id = await world.client.new(P0)
        stamp = (await world.client.ask(end_command(txn_id))).stamp
        waiting = [close(world.client, stamp, wait_ms=1_000) for _ in range(2)]
        await refused(close(world.client, stamp, wait_ms=1_000), QuotaExceeded)
        other = close(FakeClient(world.coordinator), stamp, wait_ms=1_000)
        if limit == "WAITING_MAX":
            await refused(other, QuotaExceeded)
        else:
            assert unfinished(await other) == [txn_id]
        for one in waiting:
            assert unfinished(await one) == [txn_id]
        assert unfinished(await close(world.client, stamp, wait_ms=1_000)) == [txn_id]
        await world.close()

    run(scenario())


def test_who_is_answered_leaves_no_timer() -> None:
    """Else a client that asks often would fill the memory for a minute."""

    async def scenario() -> None:
        world = await World().start()
        world.broker.answer = silent_about_ends
        txn_id = await world.client.new(P0)
        stamp = (await world.client.ask(end_command(txn_id))).stamp
        closings = world.coordinator._runtime.cut_closings
        waiting = close(world.client, stamp, wait_ms=60_000)
        await world.settle()
        (closing,) = closings._waiting
        timer = closing.stop_timer.__self__  # type: ignore[attr-defined]
        assert not timer.cancelled()
        world.broker.answer = lambda name, body: None
        assert unfinished(await waiting) == []
        assert timer.cancelled()
        await world.close()

    run(scenario())


def test_waiting_cuts_and_stamps_ahead_show_in_metrics() -> None:
    async def scenario() -> None:
        world = await World().start()
        world.broker.answer = silent_about_ends
        txn_id = await world.client.new(P0)
        stamp = (await world.client.ask(end_command(txn_id))).stamp
        await world.settle(2)
        assert world.metric("cuts_waiting") == 0
        assert world.metric("stamps_ahead_seconds") == 0
        waiting = close(world.client, stamp, wait_ms=60_000)
        ahead = stamp_at(world.clock.wall_ms() + 3_600_000)
        close(world.client, ahead)
        await world.settle(2)
        assert world.metric("cuts_waiting") == 1
        assert 3_590 < world.metric("stamps_ahead_seconds") <= 3_600
        world.broker.answer = lambda name, body: None
        await waiting
        await world.settle(2)
        assert world.metric("cuts_waiting") == 0
        await world.close()

    run(scenario())


def test_few_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cut_commands, "UNFINISHED_TOLD_MAX", 2)

    async def scenario() -> None:
        world = await World().start()
        world.broker.answer = silent_about_ends
        txn_ids = [await world.client.new(P0) for _ in range(3)]
        stamp = 0
        for txn_id in txn_ids:
            stamp = (await world.client.ask(end_command(txn_id))).stamp
        answer = await close(world.client, stamp)
        assert (unfinished(answer), answer.truncated) == (txn_ids[:2], True)
        answer = await close(world.client, stamp - 1)
        assert (unfinished(answer), answer.truncated) == (txn_ids[:2], False)
        await world.close()

    run(scenario())


def test_it_waits_for_commits_from_before_a_restart() -> None:
    async def scenario() -> None:
        world = await World().start()
        world.broker.answer = silent_about_ends
        txn_id = await world.client.new(P0)
        stamp = (await world.client.ask(end_command(txn_id))).stamp
        await world.restart(Random(2))
        assert unfinished(await close(world.client, stamp)) == [txn_id]
        world.broker.answer = lambda name, body: None
        assert unfinished(await close(world.client, stamp, wait_ms=60_000)) == []
        await world.close()

    run(scenario())


def test_it_waits_for_a_commit_of_which_a_loss_has_taken_the_selection() -> None:
    """Some participants have its marker, and others do not."""

    async def scenario() -> None:
        world = await World().start()
        selected: dict[str, Any] = {"selection_given": True, "selected_writer_ids": [4]}
        txn_id = await lose_the_end(world, common.COMMIT, **selected)
        told = world.broker.stamps[txn_id, P0]
        world.broker.digest = digest_of_selection([4])
        await world.start()
        assert unfinished(await close(world.client, told - 1)) == []
        assert unfinished(await close(world.client, told)) == [txn_id]
        waiting = close(world.client, told, wait_ms=60_000)
        await world.client.end(txn_id, **selected)
        assert unfinished(await waiting) == []
        assert (txn_id, P1) in world.broker.ended
        await world.close()

    run(scenario())


def test_another_incarnation_shows_after_a_loss() -> None:
    async def scenario() -> None:
        world = await World().start()
        before = (await close(world.client, 0)).incarnation
        await lose_the_end(world, common.COMMIT)
        await world.start()
        assert (await close(world.client, 0)).incarnation > before
        await world.close()

    run(scenario())


def test_a_stamp_that_nobody_gave_is_refused() -> None:
    async def scenario() -> None:
        world = await World().start()
        stamp = stamp_at(world.clock.wall_ms() + YEAR_MS + 60_000)
        await refused(close(world.client, stamp), InvalidArgument)
        await refused(close(world.client, (1 << 64) - 1), InvalidArgument)
        assert await committed(world.client, P0) < stamp_at(world.clock.wall_ms() + 60_000)
        await world.close()

    run(scenario())


def test_a_coordinator_that_ends_answers_nobody_who_waits() -> None:
    """The link breaks, and the client asks again."""

    async def scenario() -> None:
        world = await World().start()
        world.broker.answer = silent_about_ends
        txn_id = await world.client.new(P0)
        stamp = (await world.client.ask(end_command(txn_id))).stamp
        waiting = close(world.client, stamp, wait_ms=5_000)
        await world.close()
        await world.settle(10)
        assert not waiting.done()
        assert not world.fatal_errors

    run(scenario())
