"""PIP-31, Broker - Transaction Buffer, through the broker's commands."""

from __future__ import annotations

import pytest
from tests.broker.harness import (
    Client,
    World,
    end,
    partition,
    run,
    send,
    take_incarnations,
    txn,
    watermark,
)

from magnetar_broker import keys
from magnetar_broker.log.entries import MarkerEntry, parse_entry
from magnetar_core.errors import (
    DataLoss,
    DiskFull,
    Gone,
    InvalidArgument,
    InvalidTxnState,
    MagnetarError,
    MessageTooLarge,
    QuotaExceeded,
    SequenceGap,
    TopicNotFound,
    TxnIncomplete,
)
from magnetar_core.ids import TxnID
from magnetar_core.wire import broker_pb2 as wire
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import topic_pb2 as topic_wire

T1, T2, T3 = txn(1), txn(2), txn(3)


async def refused(client: Client, body: object, error: type[MagnetarError]) -> MagnetarError:
    with pytest.raises(error) as raised:
        await client.ask(body)
    return raised.value


def test_an_open_transaction_delays_nobody_and_its_commit_sets_its_place() -> None:
    """PIP-31, Broker Dispatching; invariant 10: m1, m2 in an open transaction, m3."""

    async def scenario(world: World) -> None:
        ask = world.client.ask
        await ask(send(b"m1"))
        await ask(send(b"m2", in_txn=T1))
        await ask(send(b"m3", sequence=1))
        assert await world.read() == [b"m1", b"m3"]
        await ask(end(T1, counts={1: 1}))
        assert await world.read() == [b"m1", b"m3", b"m2"]

    run(scenario)


def test_an_aborted_transaction_is_never_seen() -> None:
    """PIP-31, Broker - Transaction Buffer: ABORT; its messages are deleted."""

    async def scenario(world: World) -> None:
        ask = world.client.ask
        await ask(send(b"m1"))
        await ask(send(b"m2", in_txn=T1))
        await ask(end(T1, common.ABORT))
        await ask(send(b"m3", sequence=1))
        assert await world.read() == [b"m1", b"m3"]
        assert await world.rows(keys.TXNLOG) == []

    run(scenario)


def test_message_ids_of_a_transaction_are_the_markers() -> None:
    """PIP-31, Message ID: ledger and entry are the marker's, the index runs from 0 here."""

    async def scenario(world: World) -> None:
        ask = world.client.ask
        first = await ask(send(b"a", b"b"))
        assert (first.message_id.entry_id, first.message_id.index) == (0, 0)
        await ask(send(b"c", in_txn=T1, producer=5))
        await ask(send(b"e", in_txn=T1, producer=6))
        await ask(send(b"d", in_txn=T1, producer=5, sequence=1))
        await ask(end(T1))
        after = await ask(send(b"f", sequence=2))
        assert after.message_id.entry_id == 5, "a marker spans as many offsets as its messages"
        entry = parse_entry(2, dict(await world.rows(keys.LOG))[keys.in_partition(1, 0, 2)])
        assert isinstance(entry, MarkerEntry)
        assert (entry.txn_id, entry.count) == (T1, 3)
        assert await world.read() == [b"a", b"b", b"c", b"d", b"e", b"f"]
        assert await world.read(start=3) == [b"d", b"e", b"f"]
        assert await world.read(start=4) == [b"e", b"f"]

    run(scenario)


def test_the_txnlog_exists_only_after_the_first_transaction() -> None:
    """PIP-31: the transaction buffer is created when the first transaction writes."""

    async def scenario(world: World) -> None:
        async def has_txnlog() -> list[bool]:
            topic = await world.client.ask(topic_wire.CommandDescribeTopic(topic="t"))
            return [one.has_txnlog for one in topic.partitions]

        await world.client.ask(send(b"m1"))
        assert await has_txnlog() == [False, False]
        await world.client.ask(end(T3, common.ABORT))
        assert await has_txnlog() == [False, False], "an empty end is no transaction here"
        await world.client.ask(send(b"m2", in_txn=T1))
        assert await has_txnlog() == [True, False]
        await world.restart()
        assert await has_txnlog() == [True, False]

    run(scenario)


def test_a_transaction_without_messages_writes_no_marker() -> None:
    """Rule h: a commit of nothing writes no marker; the end is recorded, late sends refused."""

    async def scenario(world: World) -> None:
        await world.client.ask(end(T1, counts={}))
        assert await world.rows(keys.LOG) == []
        await refused(world.client, send(b"late", in_txn=T1), InvalidTxnState)
        await world.restart()
        await refused(world.client, send(b"late", in_txn=T1), InvalidTxnState)
        await world.client.ask(end(T1, counts={}))
        await refused(world.client, end(T1, common.ABORT), InvalidTxnState)

    run(scenario)


@pytest.mark.parametrize("action", [common.COMMIT, common.ABORT])
def test_a_late_send_is_refused(action: common.TxnAction) -> None:
    """Invariant 9: an ended transaction accepts nothing, repeats of earlier sends included."""

    async def scenario(world: World) -> None:
        await world.client.ask(send(b"m1", in_txn=T1))
        await world.client.ask(end(T1, action))
        for late in (send(b"m1", in_txn=T1), send(b"m2", in_txn=T1, sequence=1)):
            await refused(world.client, late, InvalidTxnState)
        await refused(world.client, send(b"x", in_txn=T1, producer=9), InvalidTxnState)
        assert await world.read() == ([b"m1"] if action == common.COMMIT else [])

    run(scenario)


def test_sequences_within_a_transaction_are_apart_from_plain_ones() -> None:
    """PIP-31, Dedup Cursor; from 0 without gaps per (TxnID, producer, partition)."""

    async def scenario(world: World) -> None:
        ask = world.client.ask
        await ask(send(b"p1", b"p2"))
        first = await ask(send(b"a", b"b", in_txn=T1))
        again = await ask(send(b"a", b"b", in_txn=T1))
        assert (first.duplicate, again.duplicate) == (False, True)
        assert first.message_id == again.message_id
        gap = await refused(world.client, send(b"d", in_txn=T1, sequence=3), SequenceGap)
        assert gap.details["expected"] == "2"
        await refused(world.client, send(b"b", b"c", in_txn=T1, sequence=1), InvalidArgument)
        await ask(send(b"other", in_txn=T2))
        await ask(send(b"c", in_txn=T1, sequence=2))
        await ask(end(T1, counts={1: 3}))
        assert await world.read() == [b"p1", b"p2", b"a", b"b", b"c"]

    run(scenario)


def test_surplus_is_discarded_down_to_within_a_batch() -> None:
    """Rule g: a participant that has more than the client had confirmed discards it."""

    async def scenario(world: World) -> None:
        ask = world.client.ask
        await ask(send(b"a", b"b", in_txn=T1))
        await ask(send(b"c", b"d", b"e", in_txn=T1, sequence=2))
        await ask(send(b"f", in_txn=T1, sequence=5))
        await ask(send(b"x", in_txn=T1, producer=2))
        await ask(end(T1, counts={1: 3}))
        await ask(send(b"after", producer=3))
        assert await world.read() == [b"a", b"b", b"c", b"after"]
        assert await world.read(start=2) == [b"c", b"after"]
        assert len(await world.rows(keys.TXNLOG)) == 2
        await world.restart()
        assert await world.read() == [b"a", b"b", b"c", b"after"]

    run(scenario)


def test_a_loss_keeps_the_transaction_until_it_is_accepted() -> None:
    """Rule g: fewer than confirmed is TxnIncomplete, with loss_accepted a commit without it."""

    async def scenario(world: World) -> None:
        await world.client.ask(send(b"a", in_txn=T1))
        error = await refused(world.client, end(T1, counts={1: 2}), TxnIncomplete)
        assert (error.details["confirmed"], error.details["present"]) == ("2", "1")
        await refused(world.client, end(T2, counts={7: 1}), TxnIncomplete)
        assert await world.read() == []
        await world.restart()
        await refused(world.client, end(T1, counts={1: 2}), TxnIncomplete)
        await world.client.ask(end(T1, counts={1: 2}, loss_accepted=True))
        await world.client.ask(end(T2, counts={7: 1}, loss_accepted=True))
        assert await world.read() == [b"a"]

    run(scenario)


def test_a_selection_leaves_out_the_others_unchecked() -> None:
    """docs/design/0001-protocol.md, Ends at a participant: failed task attempts are left out."""

    async def scenario(world: World) -> None:
        ask = world.client.ask
        await ask(send(b"loser", in_txn=T1, producer=8))
        await ask(send(b"winner", in_txn=T1, producer=9))
        await ask(send(b"loser 2", in_txn=T1, producer=8, sequence=1))
        commit = end(T1, counts={8: 5, 9: 1}, selected=[9, 10])
        await ask(commit)
        assert await world.read() == [b"winner"]
        assert len(await world.rows(keys.TXNLOG)) == 1
        for _ in range(2):
            await ask(commit)
            await ask(end(T1))  # What is omitted is not compared.
            await refused(world.client, end(T1, selected=[8]), InvalidTxnState)
            await refused(world.client, end(T1, selected=[]), InvalidTxnState)
            await refused(world.client, end(T1, common.ABORT), InvalidTxnState)
            await world.restart()
            ask = world.client.ask
        assert await world.read() == [b"winner"]

    run(scenario)


def test_a_selection_of_nobody_commits_nothing() -> None:
    async def scenario(world: World) -> None:
        await world.client.ask(send(b"a", in_txn=T1))
        await world.client.ask(end(T1, selected=[]))
        assert await world.rows(keys.LOG) == []
        assert await world.rows(keys.TXNLOG) == []
        await refused(world.client, end(T1, selected=[1]), InvalidTxnState)

    run(scenario)


# Order: rule k


@pytest.mark.parametrize("action", [common.COMMIT, common.ABORT])
def test_a_plain_send_waits_for_the_transaction_that_it_follows(action: common.TxnAction) -> None:
    """Rule k, plain sends: parked per (producer, partition) while it is open there."""

    async def scenario(world: World) -> None:
        client = world.client
        await client.ask(send(b"in T1", in_txn=T1))
        first = client.begin(send(b"p1", follows=T1))
        second = client.begin(send(b"p2", sequence=1, follows=T1))
        await client.ask(send(b"other producer", producer=2))
        assert not first.done()
        assert not second.done()
        assert await world.read() == [b"other producer"]
        await client.ask(end(T1, action))
        assert first.result().message_id.entry_id < second.result().message_id.entry_id
        expected = [b"in T1"] if action == common.COMMIT else []
        assert await world.read() == [b"other producer", *expected, b"p1", b"p2"]
        await client.ask(send(b"p3", sequence=2, follows=T1))

    run(scenario)


def test_a_parked_send_may_still_be_refused() -> None:
    async def scenario(world: World) -> None:
        client = world.client
        await client.ask(send(b"in T1", in_txn=T1))
        gap = client.begin(send(b"p", sequence=7, follows=T1))
        await client.ask(end(T1))
        with pytest.raises(SequenceGap):
            gap.result()
        await client.ask(send(b"not parked: T2 is not open here", follows=T2))

    run(scenario)


@pytest.mark.parametrize("action", [common.COMMIT, common.ABORT])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_marker_waits_for_the_end_of_the_transaction_before_it(
    action: common.TxnAction, restarted: bool
) -> None:
    """Rule k, the next transaction: its sends are not parked, its marker waits."""

    async def scenario(world: World) -> None:
        await world.client.ask(send(b"in T1", in_txn=T1))
        await world.client.ask(send(b"in T2", in_txn=T2, follows=T1))
        if restarted:
            await world.restart()
        client = world.client
        early = client.begin(end(T2, counts={1: 1}))
        repeat = client.begin(end(T2, counts={1: 1}))
        await world.settle()
        assert not early.done()
        assert await world.read() == []
        await client.ask(end(T1, action))
        assert early.done()
        assert repeat.done()
        expected = [b"in T1"] if action == common.COMMIT else []
        assert await world.read() == [*expected, b"in T2"]

    run(scenario)


def test_a_chain_of_followers_ends_in_order() -> None:
    async def scenario(world: World) -> None:
        client = world.client
        await client.ask(send(b"1", in_txn=T1))
        await client.ask(send(b"2", in_txn=T2, follows=T1))
        await client.ask(send(b"3", in_txn=T3, follows=T2))
        plain = client.begin(send(b"4", follows=T3))
        ends = [client.begin(end(one)) for one in (T3, T2, T1)]
        await world.settle()
        assert all(one.done() for one in [*ends, plain])
        assert await world.read() == [b"1", b"2", b"3", b"4"]

    run(scenario)


def test_an_abort_waits_for_nobody() -> None:
    async def scenario(world: World) -> None:
        await world.client.ask(send(b"1", in_txn=T1))
        await world.client.ask(send(b"2", in_txn=T2, follows=T1))
        await world.client.ask(end(T2, common.ABORT))
        await world.client.ask(end(T1))
        assert await world.read() == [b"1"]

    run(scenario)


def test_a_waiting_commit_that_is_aborted_meanwhile_is_refused() -> None:
    async def scenario(world: World) -> None:
        client = world.client
        await client.ask(send(b"1", in_txn=T1))
        await client.ask(send(b"2", in_txn=T2, follows=T1))
        waiting = client.begin(end(T2))
        await client.ask(end(T2, common.ABORT))
        await client.ask(end(T1))
        with pytest.raises(InvalidTxnState):
            waiting.result()
        assert await world.read() == [b"1"]

    run(scenario)


# Low watermark: rule c


def test_the_watermark_forgets_what_it_covers_and_refuses_it() -> None:
    async def scenario(world: World) -> None:
        ask = world.client.ask
        await ask(send(b"1", in_txn=T1))
        await ask(end(T1))
        await ask(end(T2, common.ABORT))
        await ask(end(txn(9), common.ABORT))
        assert len(await world.rows(keys.TXNINDEX)) == 3
        await ask(watermark(5, (3, 3)))
        assert len(await world.rows(keys.TXNINDEX)) == 1
        for _ in range(2):
            ask = world.client.ask
            for covered in (T1, T2, txn(4)):
                await refused(world.client, send(b"x", in_txn=covered), InvalidTxnState)
            before = world.disk.write_count
            for action in (common.COMMIT, common.ABORT):
                await ask(end(T1, action, counts={1: 9}))
            assert world.disk.write_count == before, "ending what is covered writes nothing"
            assert await world.read() == [b"1"]
            await world.restart()
        await world.client.ask(send(b"3", in_txn=T3))
        await take_incarnations(world.client, 1)
        await world.client.ask(watermark(0, tcid=1, bound=2))
        await world.client.ask(send(b"another TC's", in_txn=txn(1, tcid=1)))
        await world.client.ask(end(T3))

    run(scenario)


def test_orphans_are_reported_until_they_are_ended_and_take_no_more() -> None:
    """Rules c, f: the broker answers with what is open below W, and never aborts by itself."""

    async def scenario(world: World) -> None:
        ask = world.client.ask
        await ask(send(b"orphan", in_txn=T1))
        await ask(send(b"live", in_txn=T2))
        for low in (5, 5, 6):
            answer = await ask(watermark(low, (2, 2)))
            assert [orphan.txn_id.least_bits for orphan in answer.orphans] == [1]
            assert answer.orphans[0].partition.topic_id == 1
        late = send(b"more", in_txn=T1, sequence=1)
        await refused(world.client, late, InvalidTxnState)
        await world.restart()
        await refused(world.client, late, InvalidTxnState)
        ask = world.client.ask
        answer = await ask(watermark(6, (2, 2)))
        assert [orphan.txn_id.least_bits for orphan in answer.orphans] == [1]
        await ask(end(T1, common.ABORT))
        assert not (await ask(watermark(6, (2, 2)))).orphans
        await ask(end(T2))
        assert await world.read() == [b"live"]

    run(scenario)


def test_an_older_watermark_takes_nothing_back() -> None:
    async def scenario(world: World) -> None:
        ask = world.client.ask
        await ask(watermark(10, (7, 8)))
        await ask(watermark(4, (2, 2)))
        await ask(watermark(10, (2, 2), (7, 8)))
        for counter in (2, 5, 9):
            await refused(world.client, send(b"x", in_txn=txn(counter)), InvalidTxnState)
        await ask(send(b"x", in_txn=txn(7)))
        await ask(send(b"x", in_txn=txn(10)))

    run(scenario)


def test_a_lower_incarnation_is_refused_except_for_ends() -> None:
    """Rule n."""

    async def scenario(world: World) -> None:
        ask = world.client.ask
        await ask(send(b"1", in_txn=T1))
        await world.client.close()
        world.client = Client(world)
        ask = world.client.ask
        await take_incarnations(world.client, 0, 2)
        await ask(watermark(1, incarnation=2))
        for _ in range(2):
            await refused(world.client, watermark(9, incarnation=1), InvalidTxnState)
            await refused(world.client, send(b"x", in_txn=T2), InvalidTxnState)
            await refused(world.client, send(b"2", in_txn=T1, sequence=1), InvalidTxnState)
            await world.restart()
        await world.client.ask(end(T1))
        assert await world.read() == [b"1"]

    run(scenario)


# Limits and the disk


def test_below_the_floor_sends_are_refused_and_ends_work() -> None:
    """docs/architecture.md: after COMMITTING a commit cannot fail."""

    async def scenario(world: World) -> None:
        ask = world.client.ask
        await ask(send(b"1", in_txn=T1))
        await ask(send(b"2", in_txn=T2))
        world.clock.advance(1000)
        world.disk.free_bytes = 1 << 19
        await refused(world.client, send(b"3", in_txn=T1, sequence=1), DiskFull)
        await refused(world.client, send(b"p"), DiskFull)
        await refused(world.client, topic_wire.CommandCreateTopic(topic="u"), DiskFull)
        await ask(end(T1))
        await ask(end(T2, common.ABORT))
        assert await world.read() == [b"1"]
        world.disk.free_bytes = 1 << 40
        world.clock.advance(1000)
        await ask(send(b"p"))

    run(scenario)


def test_a_batch_of_exactly_the_limit_passes() -> None:
    exact = send(b"v" * 900)
    one_more = send(b"v" * 901, sequence=1)

    async def scenario(world: World) -> None:
        await world.client.ask(exact)
        error = await refused(world.client, one_more, MessageTooLarge)
        assert error.details["batch_bytes_max"] == str(len(exact.batch))
        assert await world.read() == [b"v" * 900]

    run(scenario, batch_bytes_max=len(exact.batch))


def test_limits_of_writers_and_open_transactions() -> None:
    async def scenario(world: World) -> None:
        ask = world.client.ask
        await ask(send(b"1", in_txn=T1, producer=1))
        await ask(send(b"2", in_txn=T1, producer=2))
        await refused(world.client, send(b"3", in_txn=T1, producer=3), QuotaExceeded)
        await ask(send(b"4", in_txn=T2))
        await refused(world.client, send(b"5", in_txn=T3), QuotaExceeded)
        await ask(end(T1))
        await ask(send(b"5", in_txn=T3))
        assert await world.read() == [b"1", b"2"]

    run(scenario, txn_writers_max=2, open_txns_max=2)


def test_a_question_says_how_many_transactions_it_takes() -> None:
    async def scenario(world: World) -> None:
        for txn_id in (T1, T2, T3):
            await world.client.ask(send(b"1", in_txn=txn_id))
        for most, named in ((0, 3), (2, 2), (9, 3)):
            command = topic_wire.CommandDescribeTopic(topic="t", txns_max=most)
            (partition,) = (await world.client.ask(command)).partitions[:1]
            assert partition.open_txn_count == 3
            expected = [T1, T2, T3][:named]
            assert [TxnID.from_wire(one) for one in partition.open_txns] == expected
            told = await world.client.ask(
                wire.CommandDescribeProducers(
                    partition=common.Partition(topic="t"), producers_max=most
                )
            )
            assert [TxnID.from_wire(one.txn_id) for one in told.producers] == expected
            assert told.truncated is (named < 3)

    run(scenario)


def test_what_makes_no_sense_is_refused_without_effect() -> None:
    async def scenario(world: World) -> None:
        wrong_count = send(b"a", b"b")
        wrong_count.num_messages = 3
        await refused(world.client, wrong_count, InvalidArgument)
        damaged = send(b"abc")
        damaged.batch = damaged.batch[:-1] + bytes((damaged.batch[-1] ^ 1,))
        await refused(world.client, damaged, MagnetarError)
        await refused(world.client, send(b"a", number=2), TopicNotFound)
        assert await world.read() == []

    run(scenario)


# Topics


def test_a_deleted_topic_is_gone_also_when_its_name_lives_again() -> None:
    """Rule j: ids are never reused, and a participant that is gone answers Gone."""

    async def scenario(world: World) -> None:
        ask = world.client.ask
        await ask(send(b"old"))
        await ask(send(b"old", in_txn=T1))
        await ask(end(T1))
        await ask(topic_wire.CommandDeleteTopic(topic="t"))
        for family in keys.FAMILIES:
            if family != keys.META:
                assert await world.rows(family) == [], family
        await refused(world.client, end(T1, topic_id=1), Gone)
        await refused(world.client, end(T1), TopicNotFound)
        created = await ask(topic_wire.CommandCreateTopic(topic="t", partitions=2))
        assert created.topic_id == 2
        for _ in range(2):
            await refused(world.client, end(T2, topic_id=1), Gone)
            await refused(world.client, send(b"late", topic_id=1), Gone)
            await world.restart()
        await world.client.ask(send(b"new", topic_id=2))
        assert await world.read() == [b"new"]

    run(scenario)


def test_an_end_on_a_subscription_that_is_gone_says_so() -> None:
    """protocol.md, Ends at a participant: the coordinator counts this answer as done."""

    async def scenario(world: World) -> None:
        await refused(world.client, end(T1, on="none"), Gone)

    run(scenario)


def test_open_messages_can_be_peeked_at() -> None:
    """PIP-31, Isolation Level: READ_UNCOMMITTED, for debugging."""

    def peek(skip: int = 0, most: int = 10, of: TxnID | None = None) -> wire.CommandPeek:
        return wire.CommandPeek(
            partition=common.Partition(topic="t"),
            uncommitted=True,
            start_offset=skip,
            messages_max=most,
            txn_id=of.to_wire() if of is not None else None,
        )

    async def values(world: World, body: wire.CommandPeek) -> list[tuple[bytes, int]]:
        answer = await world.client.ask(body)
        assert not any(one.HasField("message_id") for one in answer.messages)
        assert answer.next_offset == body.start_offset + len(answer.messages)
        return [(one.value, one.txn_id.least_bits) for one in answer.messages]

    async def scenario(world: World) -> None:
        await world.client.ask(send(b"plain"))
        await world.client.ask(send(b"c", in_txn=T2))
        await world.client.ask(send(b"a", b"b", in_txn=T1, producer=2))
        await world.client.ask(send(b"d", in_txn=T1, producer=3))
        await world.client.ask(send(b"e", b"f", in_txn=T1, producer=2, sequence=2))
        everything = [(b"a", 1), (b"b", 1), (b"e", 1), (b"f", 1), (b"d", 1), (b"c", 2)]
        assert await values(world, peek()) == everything
        for skip in range(len(everything) + 2):
            assert await values(world, peek(skip, 2)) == everything[skip : skip + 2], skip
        assert await values(world, peek(of=T2)) == everything[-1:]
        assert await values(world, peek(of=T3)) == []
        await world.restart()
        assert await values(world, peek()) == everything
        await world.client.ask(end(T1, common.ABORT))
        await world.client.ask(end(T2))
        assert await values(world, peek()) == []

    run(scenario)


def test_a_read_inside_a_lost_batch_says_so() -> None:
    """It gave the batch before, which a reader took for the end of the log."""

    async def scenario(world: World) -> None:
        await world.client.ask(send(b"a", b"b", in_txn=T1))
        await world.client.ask(send(b"c", b"d", in_txn=T1, sequence=2))
        await world.client.ask(end(T1))
        name = world.partition().name
        prefix = keys.partition(name.topic_id, name.partition)
        world.broker.environment.commits.batch.delete(keys.TXNLOG, keys.txnlog(prefix, T1, 0, 2))
        await world.client.ask(send(b"e"))
        await world.restart()
        command = wire.CommandRead(partition=partition(), start_offset=3, bytes_max=1)
        with pytest.raises(DataLoss):
            await world.client.ask(command)

    run(scenario)
