"""What a coordinator tells of transactions that have ended: who took part, when, and why."""

from __future__ import annotations

from typing import Any

import pytest
from tests.configs import coordinator_config
from tests.coordinator.fakes import P0, P1, S0, SILENCE, FakeClient, World, counted
from tests.coordinator.producers import Hand
from tests.coordinator.test_several_brokers import ADDRESSES, on_shard
from tests.virtual_time import run

from magnetar_coordinator.constants import CoordinatorConstants
from magnetar_coordinator.metadata.participant_counts import counts_message
from magnetar_coordinator.metadata.records import WIRE_CAUSE, TxnEnded
from magnetar_coordinator.metadata.transaction import EndCause, Transaction, TxnStatus
from magnetar_coordinator.transactions import ended_details
from magnetar_coordinator.transactions.ended_details import EndedDetails
from magnetar_core.ids import PartitionName, SubscriptionName, TxnID
from magnetar_core.protocol_version import PROTOCOL_VERSION
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import transaction_pb2 as pb


def ends(description: pb.TransactionDescription) -> dict[tuple[int, str], int]:
    """When each participant ended it, by partition and subscription."""
    return {
        (one.partition.partition, one.subscription): one.ended_at_ms for one in description.ended
    }


def test_a_transaction_that_has_ended_tells_what_it_was() -> None:
    """`describe` showed PARTITIONS 0, and no client: nothing said what became of 1:1:22."""

    async def scenario() -> None:
        world = await World().start()
        worker = FakeClient(world.coordinator, origin="ipv4:10.0.0.7")
        await worker.ask(common.CommandHello(protocol_version=PROTOCOL_VERSION, client_name="tea"))
        txn_id = await worker.new(P0, P1, txn_timeout_ms=5_000)
        await worker.add(txn_id, S0)
        await world.settle(0.5)
        decided_ms = world.clock.wall_ms()
        await worker.end(
            txn_id,
            counts_given=True,
            partition_counts=[counts_message(counted(P0, (5, 2), (6, 40)))],
            subscription_counts=[counts_message(counted(S0, (9, 7)))],
            wait_finished=True,
        )
        found = await world.client.describe(txn_id)
        assert found.status == common.COMMITTED
        assert found.details_missing == pb.DETAILS_ARE_THERE
        assert list(found.partitions) == [P0.to_wire(), P1.to_wire()]
        assert list(found.subscriptions) == [S0.to_wire()]
        assert (found.txn_timeout_ms, found.decided_at_ms) == (5_000, decided_ms)
        assert (found.cause, found.caused_by) == (pb.BY_CLIENT, "")
        assert (found.client.name, found.client.host) == ("tea", "10.0.0.7")
        assert found.client.connected
        places = [(0, ""), (1, ""), (0, "billing")]
        assert ends(found) == dict.fromkeys(places, found.ended_at_ms)
        confirmed = [
            (one.partition.partition, one.subscription, one.count) for one in found.confirmed
        ]
        assert confirmed == [(0, "", 42), (0, "billing", 7)]
        (listed,) = (
            await world.client.ask(pb.CommandListTxns(statuses=[common.COMMITTED]))
        ).transactions
        assert listed == found
        await world.close()

    run(scenario())


def test_each_participant_has_the_time_at_which_it_answered() -> None:
    """The one that is late stands out, while it is awaited and afterwards."""

    async def scenario() -> None:
        world = await World(broker_addresses=ADDRESSES).start()
        first, second = on_shard(0), on_shard(1)
        world.lose_broker(1)
        txn_id = await world.client.new(first, second)
        await world.client.end(txn_id)
        await world.settle(2)
        waiting = await world.client.describe(txn_id)
        early_ms = ends(waiting)[first.partition, ""]
        assert list(ends(waiting)) == [(first.partition, "")]
        assert [one.partition for one in waiting.unfinished] == [second.to_wire()]
        await world.get_broker_back(1)
        found = await world.client.describe(txn_id)
        assert found.status == common.COMMITTED
        assert ends(found)[first.partition, ""] == early_ms
        assert ends(found)[second.partition, ""] == found.ended_at_ms >= early_ms + 1_500
        await world.close()

    run(scenario())


def test_subscriptions_that_wait_for_partitions_end_later() -> None:
    """With several brokers, a commit ends partitions first."""

    async def scenario() -> None:
        world = await World(broker_addresses=ADDRESSES).start()
        first, second = on_shard(0), on_shard(1)
        group = SubscriptionName(*first, "billing")
        world.brokers[0].answer = lambda name, body: (
            SILENCE if name == "end_txn_on_subscription" and world.clock.wall_ms() < until else None
        )
        txn_id = await world.client.new(first, second)
        await world.client.add(txn_id, group)
        until = world.clock.wall_ms() + 3_000
        await world.client.end(txn_id, wait_finished=True)
        found = await world.client.describe(txn_id)
        partitions = [ends(found)[one.partition, ""] for one in (first, second)]
        assert max(partitions) < until <= ends(found)[first.partition, "billing"]
        await world.close()

    run(scenario())


def test_after_a_restart_it_says_that_it_does_not_know() -> None:
    async def scenario() -> None:
        world = await World().start()
        ended = await world.client.new(P0)
        await world.client.end(ended, wait_finished=True)
        world.broker.answer = lambda name, body: SILENCE
        decided = await world.client.new(P0)
        await world.client.end(decided, common.ABORT)
        await world.restart()
        world.broker.answer = lambda name, body: None
        found = await world.client.describe(ended)
        assert found.status == common.COMMITTED
        assert found.details_missing == pb.ENDED_BEFORE_START
        assert not found.partitions
        assert not found.HasField("client")
        # Of what was not over, the log has all but the client and the cause.
        await world.settle(20)
        found = await world.client.describe(decided)
        assert found.status == common.ABORTED
        assert found.details_missing == pb.DETAILS_ARE_THERE
        assert list(ends(found)) == [(0, "")]
        assert found.decided_at_ms
        assert found.cause == pb.CAUSE_UNKNOWN
        assert not found.HasField("client")
        await world.close()

    run(scenario())


def test_why_a_transaction_ended() -> None:
    async def scenario() -> None:
        world = await World().start()
        client = world.client

        async def cause(txn_id: TxnID) -> tuple[int, str]:
            await world.settle(1)
            found = await client.describe(txn_id)
            assert found.ended_at_ms
            return found.cause, found.caused_by

        timed_out = await client.new(P0, txn_timeout_ms=100)
        assert await cause(timed_out) == (pb.TIMED_OUT, "")
        admin = FakeClient(world.coordinator, origin="ipv6:[::1]")
        await admin.ask(common.CommandHello(protocol_version=PROTOCOL_VERSION, client_name="cli"))
        by_hand = await client.new(P0)
        await admin.end(by_hand, common.ABORT, by_hand=True)
        assert await cause(by_hand) == (pb.BY_HAND, "cli at [::1]")
        hand = Hand(world)
        pair = await hand.init()
        response = await client.ask(hand.begin_command(pair, PartitionName("t", 0, 1)))
        await admin.ask(hand.init_command())
        assert await cause(TxnID.from_wire(response.txn_id)) == (pb.TAKEN_OVER, "cli at [::1]")
        sequence = pb.NamedSequence(name="job", sequence=1, run_token="a")
        named = await client.new(P0, named_sequence=sequence)
        sequence.run_token = "b"
        await client.new(P0, named_sequence=sequence)
        assert await cause(named) == (pb.TAKEN_OVER, "a client at ")
        expelled = await client.new(P0)
        world.coordinator._on_expelled([expelled])
        assert await cause(expelled) == (pb.MEMBER_EXPELLED, "")
        await world.close()

    run(scenario())


@pytest.mark.parametrize("cause", EndCause)
def test_causes_have_the_numbers_of_the_wire(cause: EndCause) -> None:
    assert int(WIRE_CAUSE[cause]) == int(cause)


def test_two_phase_commit_is_told_of_an_ended_one() -> None:
    async def scenario() -> None:
        world = await World(two_phase_commit_enabled=True).start()
        hand = Hand(world)
        pair = await hand.init(two_phase=True)
        response = await world.client.ask(hand.begin_command(pair, P0))
        txn_id = TxnID.from_wire(response.txn_id)
        await world.client.ask(
            pb.CommandEndTxn(
                identity=hand.identity(pair), txn_action=common.COMMIT, wait_finished=True
            )
        )
        found = await world.client.describe(txn_id)
        assert found.two_phase_commit
        assert found.txn_timeout_ms == 0
        await world.close()

    run(scenario())


def test_the_newest_stay_and_those_that_took_long() -> None:
    async def scenario() -> None:
        world = await World(ended_details_max=3).start()

        async def ended(*, slow: bool = False) -> TxnID:
            txn_id = await world.client.new(P0)
            if slow:
                await world.settle(ended_details.SLOW_MS / 1_000)
            await world.client.end(txn_id, wait_finished=True)
            return txn_id

        async def missing(txn_id: TxnID) -> int:
            return int((await world.client.describe(txn_id)).details_missing)

        slow = await ended(slow=True)
        short = [await ended() for _ in range(3)]
        assert [await missing(one) for one in [slow, *short]] == [pb.DETAILS_ARE_THERE] * 4
        short.append(await ended())
        gone = [pb.MANY_ENDED_SINCE]
        assert [await missing(one) for one in short] == gone + [pb.DETAILS_ARE_THERE] * 3
        short += [await ended() for _ in range(5)]
        assert [await missing(one) for one in short] == gone * 6 + [pb.DETAILS_ARE_THERE] * 3
        assert await missing(slow) == pb.DETAILS_ARE_THERE
        for _ in range(3):
            await ended(slow=True)
        assert await missing(slow) == pb.MANY_ENDED_SINCE
        await world.close()

    run(scenario())


def transaction(counter: int, participants: int, **fields: Any) -> Transaction:
    names = [PartitionName("t", number, 1) for number in range(participants)]
    return Transaction(
        txn_id=TxnID.of(0, 1, counter),
        status=TxnStatus.COMMITTING,
        timeout_ms=1,
        start_run_time_ms=0,
        start_time_ms=0,
        participants=dict.fromkeys(names),
        **fields,
    )


def outcome(counter: int) -> TxnEnded:
    return TxnEnded(TxnID.of(0, 1, counter), TxnStatus.COMMITTED, 0, 0, b"")


def kept(details: EndedDetails, counters: range) -> list[int]:
    details.check()
    return [one for one in counters if details.find(outcome(one).txn_id) is not None]


def test_large_ones_are_bounded_by_their_participants() -> None:
    details = EndedDetails(CoordinatorConstants(ended_participants_max=1_000))
    for counter in range(10):
        details.add(transaction(counter, participants=299), outcome(counter))
    assert kept(details, range(10)) == [7, 8, 9]
    details.add(transaction(10, participants=2_000), outcome(10))
    assert kept(details, range(11)) == []
    details.add(transaction(11, participants=2), outcome(11))
    assert kept(details, range(12)) == [11]


def test_long_counts_and_selections_are_bounded() -> None:
    """A client chooses how many writers it names, and 10,000 such commits would fill memory."""
    details = EndedDetails(CoordinatorConstants(ended_participants_max=1_000))
    name = PartitionName("t", 0, 1)
    for counter in range(8):
        counts = {name: counted(name, *((writer, 1) for writer in range(10_000)))}
        details.add(transaction(counter, participants=1, counts=counts), outcome(counter))
    assert len(kept(details, range(8))) < 8
    details.add(transaction(8, 1, counts={name: bytes(2 << 20)}), outcome(8))
    found = details.find(outcome(8).txn_id)
    assert found is not None
    assert found.counts is None
    details.add(transaction(9, 1, selection=tuple(range(100_000))), outcome(9))
    found = details.find(outcome(9).txn_id)
    assert found is not None
    assert found.selection is None


def test_few_more_than_the_bound_stay_between_two_questions() -> None:
    details = EndedDetails(CoordinatorConstants(ended_details_max=100))
    for counter in range(100):
        details.add(transaction(counter, participants=1), outcome(counter))
    assert kept(details, range(100)) == [*range(100)]
    for counter in range(100, 160):
        details.add(transaction(counter, participants=1), outcome(counter))
    details.forget_old()
    assert len(details._short) + len(details._arrived) == 100
    assert kept(details, range(160)) == [*range(60, 160)]


def test_the_bounds_are_those_that_are_promised() -> None:
    constants = coordinator_config().constants
    assert constants.ended_details_max == 10_000
    assert ended_details.SLOW_MS == 1_000
