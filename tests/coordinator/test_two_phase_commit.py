"""KIP-939 through the public commands: its worked examples row by row, and every way to be late."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from tests.coordinator.fakes import World, refused
from tests.coordinator.producers import P0, P1, Hand, hold_ends, next_producer_id, raised_to
from tests.virtual_time import run

from magnetar_coordinator.metadata.transactional_id import NO_PAIR, Pair
from magnetar_core import list_limits
from magnetar_core.errors import (
    ConcurrentTransactions,
    InvalidArgument,
    InvalidTxnState,
    MagnetarError,
    ProducerFenced,
    QuotaExceeded,
    TransactionalIdAuthorizationFailed,
    TransactionalIdNotFound,
)
from magnetar_core.ids import TxnID
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import transaction_pb2 as pb

MAX = 6
COMMIT, ABORT = common.COMMIT, common.ABORT


async def open_world(**settings: object) -> World:
    return await World(
        producer_epoch_max=MAX,
        two_phase_commit_enabled=True,
        answer_deadline_ms=50,
        retry_delay_ms_min=10,
        retry_delay_ms_max=20,
        **settings,
    ).start()


def test_vanilla_transaction_with_epoch_overflow() -> None:
    """KIP-939, the first worked example, every value as printed."""

    async def scenario() -> None:
        world = await open_world()
        app = Hand(world)
        await next_producer_id(world, 42)
        pair = await raised_to(app, MAX - 1)
        # 1
        assert pair == (42, MAX - 1)
        assert await app.state() == ("Empty", 42, MAX - 1, -1, -1, -1)
        # 2
        await app.begin(pair, P0)
        assert await app.state() == ("Ongoing", 42, MAX - 1, -1, -1, -1)
        # 3
        await next_producer_id(world, 85)
        hold_ends(world)
        assert await app.end(pair) == (85, 0)
        assert await app.state() == ("PrepareCommit", 42, MAX, 42, 85, 0)
        # 4
        hold_ends(world, False)
        await world.settle(0.2)
        assert await app.state() == ("CompleteCommit", 85, 0, 42, -1, -1)
        # The retry with the previous pair, as the text below the example has it.
        assert await app.end(pair) == (85, 0)
        await app.begin(Pair(85, 0), P0)
        await world.close()

    run(scenario())


def test_two_phase_commit_with_two_epoch_overflows() -> None:
    """KIP-939, the second worked example, every value as printed."""

    async def scenario() -> None:
        world = await open_world()
        app = Hand(world)
        await next_producer_id(world, 42)
        pair = await raised_to(app, MAX - 1, two_phase=True)
        # 1
        assert pair == (42, MAX - 1)
        assert await app.state() == ("Empty", 42, MAX - 1, -1, -1, -1)
        # 2, 3
        txn_id = await app.begin(pair, P0)
        assert await app.state() == ("Ongoing", 42, MAX - 1, -1, -1, -1)
        await next_producer_id(world, 73)

        async def keep() -> tuple[int, int, int, int]:
            kept = await app.ask(app.init_command(keep=True, two_phase=True))
            assert TxnID.from_wire(kept.ongoing_txn_id) == txn_id
            return (
                kept.producer_id,
                kept.producer_epoch,
                kept.ongoing_producer_id,
                kept.ongoing_producer_epoch,
            )

        # 4
        assert await keep() == (73, 0, 42, MAX - 1)
        assert await app.state() == ("Ongoing", 42, MAX - 1, -1, 73, 0)
        # 5, 6
        assert await keep() == (73, 1, 42, MAX - 1)
        assert await app.state() == ("Ongoing", 42, MAX - 1, -1, 73, 1)
        # 7
        for epoch in range(2, MAX):
            assert await keep() == (73, epoch, 42, MAX - 1)
        # 8
        assert await keep() == (73, MAX, 42, MAX - 1)
        assert await app.state() == ("Ongoing", 42, MAX - 1, -1, 73, MAX)
        # 9
        await next_producer_id(world, 85)
        hold_ends(world)
        assert await app.end(Pair(73, MAX)) == (85, 0)
        assert await app.state() == ("PrepareCommit", 42, MAX, 73, 85, 0)
        # 10
        await world.restart()
        assert await app.state() == ("PrepareCommit", 42, MAX, 73, 85, 0)
        hold_ends(world, False)
        await world.settle(0.2)
        assert await app.state() == ("CompleteCommit", 85, 0, 73, -1, -1)
        assert await app.end(Pair(73, MAX)) == (85, 0)
        await refused(app.ask(app.end_command(pair, COMMIT)), ProducerFenced)
        assert world.broker.ended == {(txn_id, P0): COMMIT}
        await world.close()

    run(scenario())


Reached = tuple[Pair, Pair]


async def empty(app: Hand) -> Reached:
    before = await app.init()
    return before, await app.init()


async def complete_abort(app: Hand) -> Reached:
    pair = await app.init()
    await app.begin(pair)
    return pair, await app.end(pair, ABORT)


async def complete_commit(app: Hand) -> Reached:
    pair = await app.init()
    await app.begin(pair)
    return pair, await app.end(pair)


FENCED, INVALID = ProducerFenced, InvalidTxnState
TABLE: dict[tuple[Callable[[Hand], Awaitable[Reached]], int, str], type[MagnetarError] | str] = {
    (empty, ABORT, "previous"): FENCED,
    (empty, ABORT, "current"): "raise",
    (empty, COMMIT, "previous"): FENCED,
    (empty, COMMIT, "current"): INVALID,
    (complete_abort, ABORT, "previous"): "as before",
    (complete_abort, ABORT, "current"): "raise",
    # KIP-588: it is not fenced, since its timeout may have ended it.
    (complete_abort, COMMIT, "previous"): INVALID,
    (complete_abort, COMMIT, "current"): INVALID,
    (complete_commit, ABORT, "previous"): INVALID,
    (complete_commit, ABORT, "current"): "raise",
    (complete_commit, COMMIT, "previous"): "as before",
    (complete_commit, COMMIT, "current"): INVALID,
}


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize(
    ("reach", "action", "which"), TABLE, ids=[f"{k[0].__name__}-{k[1]}-{k[2]}" for k in TABLE]
)
def test_ends_with_nothing_open(
    reach: Callable[[Hand], Awaitable[Reached]], action: int, which: str, restarts: bool
) -> None:
    """KIP-890's rules, every cell, also after a restart."""

    async def scenario() -> None:
        world = await open_world()
        app = Hand(world)
        previous, current = await reach(app)
        await world.settle()
        if restarts:
            await world.restart()
        expected = TABLE[reach, action, which]
        before = await app.state()
        answer = app.ask(app.end_command(previous if which == "previous" else current, action))
        if not isinstance(expected, str):
            await refused(answer, expected)
            assert await app.state() == before
        else:
            identity = (await answer).identity
            pair = Pair(identity.producer_id, identity.producer_epoch)
            raised = Pair(current.producer_id, current.epoch + 1)
            assert pair == (raised if expected == "raise" else current)
            await app.begin(pair)
        if which == "previous":
            older = Pair(previous.producer_id, previous.epoch - 1)
            for other in (COMMIT, ABORT):
                await refused(app.ask(app.end_command(older, other)), ProducerFenced)
        await world.close()

    run(scenario())


@pytest.mark.parametrize("action", [COMMIT, ABORT])
def test_ends_while_the_last_one_is_under_way(action: int) -> None:
    async def scenario() -> None:
        world = await open_world(takeover_wait_ms=1_000)
        app = Hand(world)
        older = await app.init()
        pair = await app.init()
        await app.begin(pair, P0)
        hold_ends(world)
        following = await app.end(pair, action)
        state = await app.state()
        other = ABORT if action == COMMIT else COMMIT
        assert await app.end(pair, action) == following
        await refused(app.ask(app.end_command(pair, other)), InvalidTxnState)
        for what in (COMMIT, ABORT):
            await refused(app.ask(app.end_command(following, what)), ConcurrentTransactions)
        for what in (COMMIT, ABORT):
            await refused(app.ask(app.end_command(older, what)), ProducerFenced)
        # To begin, or to take over, waits for it, and not for ever.
        await refused(app.ask(app.begin_command(following)), ConcurrentTransactions)
        await refused(app.ask(app.init_command()), ConcurrentTransactions)
        assert await app.state() == state
        began = app.ask(app.begin_command(following, P0))
        hold_ends(world, False)
        await began
        await world.close()

    run(scenario())


def test_split_brain_the_first_instance_is_fenced() -> None:
    """KIP-939, Skip Epoch Bump When KeepPreparedTxn=true: its eight steps, without the mix."""

    async def scenario() -> None:
        world = await open_world()
        app = Hand(world)
        txn_id = await app.begin(await app.init(two_phase=True), P0)
        first = await app.init(keep=True, two_phase=True)  # 1
        second = await app.init(keep=True, two_phase=True)  # 2
        assert first != second
        await refused(app.ask(app.end_command(first, COMMIT)), ProducerFenced)  # 3
        following = await app.end(second)  # 4
        await world.settle()
        await refused(app.ask(app.begin_command(first)), ProducerFenced)  # 5, 8
        await refused(app.ask(app.end_command(first, COMMIT)), ProducerFenced)
        fresh = await app.begin(following, P0)  # 6, 7
        assert fresh != txn_id
        with pytest.raises(ProducerFenced):
            await app.add(first, fresh, P1)
        await app.end(following)
        await world.settle()
        assert set(world.broker.ended.values()) == {COMMIT}
        await world.close()

    run(scenario())


def test_an_epoch_overflow_does_not_fence_its_own_client() -> None:
    """KAFKA-18660: the end at the last epoch was retried, and its client fenced by the rotation."""

    async def scenario() -> None:
        world = await open_world()
        app = Hand(world)
        pair = await raised_to(app, MAX - 1)
        for action in (COMMIT, ABORT):
            await app.begin(pair, P0)
            rotated = await app.end(pair, action)
            assert (rotated.producer_id, rotated.epoch) != (pair.producer_id, MAX)
            await world.settle()
            assert await app.end(pair, action) == rotated, "the answer was lost"
            await app.begin(rotated, P0)
            await app.end(rotated)
            await world.settle()
            pair = await raised_to(app, MAX - 1)
        await world.close()

    run(scenario())


def test_at_the_last_epoch_a_takeover_does_not_raise_twice() -> None:
    """KAFKA-19367: InitProducerId raised once to abort, and again, beyond the highest epoch."""

    async def scenario() -> None:
        world = await open_world()
        for epoch in (MAX - 2, MAX - 1):
            app = Hand(world, f"app-{epoch}")
            pair = await raised_to(app, epoch)
            await app.begin(pair, P0)
            taken = await app.init()
            assert taken.epoch < MAX
            await refused(app.ask(app.end_command(pair, COMMIT)), ProducerFenced)
            await app.begin(taken, P0)
            await app.end(taken)
            await world.settle()
        await world.close()

    run(scenario())


def test_a_retry_after_a_rotation_and_a_failover_is_not_fenced() -> None:
    """KAFKA-20357."""

    async def scenario() -> None:
        world = await open_world()
        app = Hand(world)
        pair = await raised_to(app, MAX - 1)
        await app.begin(pair, P0)
        hold_ends(world)
        rotated = await app.end(pair)
        await world.restart()
        assert await app.end(pair) == rotated
        hold_ends(world, False)
        await world.settle(0.2)
        await world.restart()
        assert await app.end(pair) == rotated
        await world.close()

    run(scenario())


def test_a_delayed_end_does_not_hit_a_later_transaction() -> None:
    """KAFKA-17754."""

    async def scenario() -> None:
        world = await open_world()
        app = Hand(world)
        first = await app.init()
        earlier = await app.begin(first, P0)
        second = await app.end(first, ABORT)
        await world.settle()
        later = await app.begin(second, P0)
        for action in (COMMIT, ABORT):
            await refused(app.ask(app.end_command(first, action)), ProducerFenced)
        named = app.end_command(second, ABORT, txn_id=earlier.to_wire())
        await refused(app.ask(named), InvalidTxnState)
        assert await world.client.status(later) == common.OPEN
        await world.close()

    run(scenario())


def test_a_lost_answer_to_new_txn_gives_the_same_transaction() -> None:
    async def scenario() -> None:
        world = await open_world()
        app = Hand(world)
        pair = await app.init()
        txn_id = await app.begin(pair, P0)
        assert await app.begin(pair, P0, P1) == txn_id
        described = await world.client.describe(txn_id)
        assert [one.partition for one in described.partitions] == [0, 1]
        assert described.identity == app.identity(pair)
        await world.close()

    run(scenario())


def test_a_takeover_aborts_what_was_open_and_fences_it() -> None:
    async def scenario() -> None:
        world = await open_world()
        app = Hand(world)
        pair = await app.init()
        txn_id = await app.begin(pair, P0)
        taken = await app.init()
        assert world.broker.ended == {(txn_id, P0): ABORT}
        assert taken.epoch == pair.epoch + 2
        for body in (app.begin_command(pair), app.end_command(pair, COMMIT)):
            await refused(app.ask(body), ProducerFenced)
        with pytest.raises(ProducerFenced):
            await app.add(pair, txn_id)
        await world.close()

    run(scenario())


def test_a_takeover_with_two_phase_commit_keeps_only_what_it_is_asked_to_keep() -> None:
    async def scenario() -> None:
        world = await open_world()
        app = Hand(world)
        pair = await app.init(two_phase=True)
        txn_id = await app.begin(pair, P0)
        await app.init(two_phase=True)
        assert world.broker.ended == {(txn_id, P0): ABORT}
        await world.close()

    run(scenario())


def test_a_takeover_outside_of_two_phase_commit_aborts_nothing_that_may_be_prepared() -> None:
    """KIP-939 has it aborted, though its database may have committed."""

    async def scenario() -> None:
        world = await open_world()
        app = Hand(world)
        pair = await app.init(two_phase=True)
        txn_id = await app.begin(pair, P0)
        for restarts in (False, True):
            if restarts:
                await world.restart()
            before = world.coordinator.transactional_ids.get(app.id)
            error = await refused(app.ask(app.init_command()), InvalidTxnState)
            assert "complete" in str(error)
            assert "--abort-prepared" in str(error)
            assert world.coordinator.transactional_ids.get(app.id) == before
        # One that keeps it is no part of two-phase commit either: it may end it, but not by chance.
        kept = await app.init(keep=True)
        await refused(app.ask(app.init_command()), InvalidTxnState)
        assert await world.client.status(txn_id) == common.OPEN
        following = await app.end(kept, ABORT)
        await world.settle()
        assert await app.init() > following
        await world.close()

    run(scenario())


def test_who_kept_a_prepared_transaction_begins_nothing_and_does_not_get_it_either() -> None:
    async def scenario() -> None:
        world = await open_world()
        app = Hand(world)
        pair = await app.init(two_phase=True)
        txn_id = await app.begin(pair, P0)
        kept = await app.init(keep=True, two_phase=True)
        await refused(app.ask(app.begin_command(kept)), InvalidTxnState)
        described = await world.client.describe(txn_id)
        assert [one.partition for one in described.partitions] == [0]
        await app.end(kept, ABORT)
        await world.close()

    run(scenario())


def test_keep_prepared_without_two_phase_commit() -> None:
    """Allowed, also where that is off; with nothing ongoing the answer is -1/-1."""

    async def scenario() -> None:
        world = await World(producer_epoch_max=MAX).start()
        app = Hand(world)
        nothing = await app.ask(app.init_command(keep=True))
        assert (nothing.ongoing_producer_id, nothing.ongoing_producer_epoch) == NO_PAIR
        assert not nothing.HasField("ongoing_txn_id")
        pair = Pair(nothing.producer_id, nothing.producer_epoch)
        await app.begin(pair, P0)
        kept = await app.init(keep=True)
        await refused(app.ask(app.begin_command(kept)), InvalidTxnState)
        await app.end(kept, ABORT)
        await world.close()

    run(scenario())


def test_two_phase_commit_is_off_by_default() -> None:
    async def scenario() -> None:
        world = await World().start()
        app = Hand(world)
        await refused(app.ask(app.init_command(two_phase=True)), TransactionalIdAuthorizationFailed)
        await refused(
            app.ask(pb.CommandDescribeTransactionalId(transactional_id="app")),
            TransactionalIdNotFound,
        )
        await world.close()

    run(scenario())


def test_a_two_phase_transaction_never_expires_and_its_timeout_is_ignored() -> None:
    async def scenario() -> None:
        world = await open_world()
        app = Hand(world)
        pair = await app.init(two_phase=True, timeout_ms=1)
        response = await app.ask(pb.CommandDescribeTransactionalId(transactional_id=app.id))
        assert response.description.txn_timeout_ms == -1
        txn_id = await app.begin(pair, P0)
        world.clock.wall_offset_ms += 30 * 24 * 3_600_000
        await world.settle(1_000)
        assert await world.client.status(txn_id) == common.OPEN
        await world.restart()
        world.clock.wall_offset_ms += 30 * 24 * 3_600_000
        await world.settle(1_000)
        assert await world.client.status(txn_id) == common.OPEN
        kept = await app.init(keep=True, two_phase=True)
        await app.end(kept)
        assert await world.client.status(txn_id) in (common.COMMITTING, common.COMMITTED)
        await world.close()

    run(scenario())


async def expire(world: World, pair: Pair, txn_id: TxnID) -> None:
    await world.settle(1.0)


async def abort_by_id(world: World, pair: Pair, txn_id: TxnID) -> None:
    command = pb.CommandEndTxn(txn_id=txn_id.to_wire(), txn_action=common.ABORT)
    assert (await world.client.ask(command)).status == common.ABORTING


async def end_without_an_answer(world: World, pair: Pair, txn_id: TxnID) -> None:
    await Hand(world).end(pair)


ENDS = [expire, abort_by_id, end_without_an_answer]


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("finished", [False, True])
@pytest.mark.parametrize("end", ENDS, ids=lambda one: one.__name__)
def test_who_did_not_hear_the_next_pair_is_told_it_until_another_instance_comes(
    end: Callable[[World, Pair, TxnID], Awaitable[None]], finished: bool, restarts: bool
) -> None:
    """KIP-588: a transaction that timed out does not fence its producer."""

    async def scenario() -> None:
        world = await open_world()
        app = Hand(world)
        pair = await app.init(timeout_ms=100)
        txn_id = await app.begin(pair, P0)
        hold_ends(world, not finished)
        await end(world, pair, txn_id)
        await world.settle()
        if restarts:
            await world.restart()
        following = Pair(pair.producer_id, pair.epoch + 1)
        other = ABORT if end is end_without_an_answer else COMMIT
        for late in (
            app.ask(app.begin_command(pair, P0)),
            app.add(pair, txn_id, P1),
            app.ask(app.end_command(pair, other)),
        ):
            with pytest.raises(InvalidTxnState) as error:
                await late
            told = error.value.details
            assert Pair(int(told["producer_id"]), int(told["producer_epoch"])) == following
        hold_ends(world, False)
        await world.settle(0.2)
        newer = await app.init()
        for zombie in (pair, following):
            with pytest.raises(ProducerFenced) as fenced:
                await app.begin(zombie, P0)
            assert "producer_epoch" not in fenced.value.details
            await refused(app.ask(app.end_command(zombie, other)), ProducerFenced)
        await app.begin(newer, P0)
        await world.close()

    run(scenario())


def test_who_is_taken_over_while_its_transaction_still_ends_begins_nothing() -> None:
    """Until the takeover is complete, it is told the next pair; that pair never begins."""

    async def scenario() -> None:
        world = await open_world()
        app = Hand(world)
        pair = await app.init()
        await app.begin(pair, P0)
        hold_ends(world)
        taking_over = app.ask(app.init_command())
        await world.settle()
        error = await refused(app.ask(app.begin_command(pair)), InvalidTxnState)
        told = Pair(int(error.details["producer_id"]), int(error.details["producer_epoch"]))
        beginning = app.ask(app.begin_command(told, P0))
        await world.settle()
        hold_ends(world, False)
        newest = await taking_over
        await refused(beginning, ProducerFenced)
        await app.begin(Pair(newest.producer_id, newest.producer_epoch), P0)
        await world.close()

    run(scenario())


@pytest.mark.parametrize("two_phase", [False, True])
def test_by_its_txn_id_alone_it_ends_as_expiry_could_end_it(two_phase: bool) -> None:
    async def scenario() -> None:
        world = await open_world()
        app = Hand(world)
        pair = await app.init(two_phase=two_phase)
        txn_id = await app.begin(pair, P0)

        async def refused_end(action: common.TxnAction) -> str:
            command = pb.CommandEndTxn(txn_id=txn_id.to_wire(), txn_action=action)
            error = await refused(world.client.ask(command), InvalidTxnState)
            assert error.details["transactional_id"] == "app"
            return str(error)

        assert ("complete" in await refused_end(COMMIT)) is two_phase
        if two_phase:
            assert "complete" in await refused_end(ABORT)
            hold_ends(world)
            await app.end(pair)
            assert "complete" not in await refused_end(ABORT), "it is decided"
        else:
            command = pb.CommandEndTxn(txn_id=txn_id.to_wire(), txn_action=ABORT)
            await world.client.ask(command)
        await world.close()

    run(scenario())


def test_only_its_identity_adds_to_it() -> None:
    async def scenario() -> None:
        world = await open_world()
        app = Hand(world)
        txn_id = await app.begin(await app.init(), P0)
        add = pb.CommandAddPartitionToTxn(txn_id=txn_id.to_wire(), partitions=[P1.to_wire()])
        await refused(world.client.ask(add), InvalidArgument)
        await world.close()

    run(scenario())


def test_idle_identities_are_forgotten_unless_something_is_open() -> None:
    async def scenario() -> None:
        world = await open_world(identity_idle_ms_max=200_000, identities_max=2)
        idle, busy = Hand(world, "idle"), Hand(world, "busy")
        pair = await busy.init(two_phase=True)
        await busy.begin(pair)
        await idle.init()
        await refused(world.client.ask(Hand(world, "third").init_command()), QuotaExceeded)
        await world.settle(350)
        await Hand(world, "third").init()
        await world.restart()
        await refused(
            world.client.ask(pb.CommandDescribeTransactionalId(transactional_id="idle")),
            TransactionalIdNotFound,
        )
        assert (await busy.state())[0] == "Ongoing"
        await world.close()

    run(scenario())


@pytest.mark.parametrize("bad", ["", "a\nb", "x" * 256])
def test_ids_are_checked(bad: str) -> None:
    async def scenario() -> None:
        world = await open_world()
        await refused(world.client.ask(Hand(world, bad).init_command()), InvalidArgument)
        await Hand(world, "x" * 255).init()
        for pattern, count in (("", 1), ("x*", 1), ("*x*x*x*x*x*x*x*y", 0), ("(x+)+y", 0)):
            listed = await world.client.ask(pb.CommandListTransactionalIds(pattern=pattern))
            assert [description.transactional_id for description in listed.descriptions] == [
                "x" * 255
            ] * count
        await world.close()

    run(scenario())


def test_a_list_of_ids_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the client asks for: an answer is made whole in memory."""
    monkeypatch.setattr(list_limits, "ROWS_MAX", 2)

    async def scenario() -> None:
        world = await open_world()
        for name in ("a", "b", "c"):
            await Hand(world, name).init()
        for limit, told in ((0, 2), (1, 1), (1_000_000, 2)):
            listed = await world.client.ask(pb.CommandListTransactionalIds(limit=limit))
            assert [description.transactional_id for description in listed.descriptions] == [
                "a",
                "b",
            ][:told]
            assert listed.truncated
        await world.close()

    run(scenario())
