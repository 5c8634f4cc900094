"""Key_Shared at a broker: keys stay with their consumer until what it has of them is settled."""

from __future__ import annotations

from random import Random

import google_crc32c
import pytest
from tests.broker.harness import Client, World, ack, end, flow, nack, run, send, subscribe, txn

from magnetar_broker.dispatch.key_ranges import Targets, slot_of_hash
from magnetar_broker.topics.retention import trim_partition
from magnetar_core.batch import HEADER, encode, split
from magnetar_core.errors import SubscriptionExists
from magnetar_core.ids import TxnID
from magnetar_core.wire import broker_pb2 as wire
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import topic_pb2 as topic_wire

T1 = txn(1)
KEY_SHARED = wire.KEY_SHARED


def keyed(
    *pairs: tuple[bytes, bytes],
    sequence: int,
    in_txn: TxnID | None = None,
    producer: int = 1,
) -> wire.CommandSend:
    command = send(
        *(value for _, value in pairs), sequence=sequence, in_txn=in_txn, producer=producer
    )
    command.batch = encode([value for _, value in pairs], [key for key, _ in pairs])
    return command


def key_of(owner: int, *consumers: int) -> bytes:
    """A key that belongs to one of the consumers when all of them are there, by id."""
    targets = Targets()
    for consumer in consumers:
        targets.add(consumer, "")
    return next(
        key
        for key in (b"key %d" % number for number in range(1000))
        if targets.of(slot_of_hash(google_crc32c.value(key))) == owner
    )


async def attached(world: World, consumer: int, permits: int = 1000, epoch: int = 1) -> Client:
    client = Client(world)
    await client.ask(subscribe(consumer=consumer, kind=KEY_SHARED, epoch=epoch))
    client.tell(flow(permits, consumer=consumer))
    await world.settle()
    return client


def test_messages_of_one_batch_go_to_the_consumers_of_their_keys() -> None:
    async def scenario(world: World) -> None:
        keys = {consumer: key_of(consumer, 1, 2, 3) for consumer in (1, 2, 3)}
        clients = {consumer: await attached(world, consumer) for consumer in keys}
        pairs = [(keys[1 + number % 3], b"%d" % number) for number in range(9)]
        await world.client.ask(keyed(*pairs, sequence=0))
        await world.settle()
        for consumer, client in clients.items():
            assert client.offsets() == [o for o in range(9) if 1 + o % 3 == consumer]

    run(scenario)


def test_no_key_and_an_empty_key_stay_in_order_among_themselves() -> None:
    """They have the same hash, also in a batch whose values are tombstones."""

    async def scenario(world: World) -> None:
        keys: list[bytes | None] = [None, b"", key_of(1, 1, 2), key_of(2, 1, 2)]
        clients = [await attached(world, consumer) for consumer in (1, 2)]
        for sequence in (0, 4):
            command = send(*[b""] * 4, sequence=sequence)
            command.batch = encode([None, b"", None, b"v"], keys)
            await world.client.ask(command)
        for sequence, key in ((8, b""), (9, None)):
            command = send(b"", sequence=sequence)
            command.batch = encode([None], [key])
            await world.client.ask(command)
        await world.settle()
        first, second = (client.offsets() for client in clients)
        assert sorted(first + second) == list(range(10))
        without = {0, 1, 4, 5, 8, 9}
        assert without <= set(first) or without <= set(second)
        assert (2 in first, 3 in second) == (True, True)

    run(scenario)


def test_a_key_moves_when_its_messages_are_acknowledged() -> None:
    async def scenario(world: World) -> None:
        key, other = key_of(2, 1, 2), key_of(1, 1, 2)
        first = await attached(world, 1)
        await world.client.ask(keyed((key, b"0"), (other, b"1"), sequence=0))
        second = await attached(world, 2)
        await world.client.ask(keyed((key, b"2"), (other, b"3"), sequence=2))
        await world.settle()
        assert first.values() == [b"0", b"1", b"3"], "other keys go on"
        assert second.values() == []
        await first.ask(ack((0, 0)))
        await world.settle()
        assert second.values() == [b"2"]

    run(scenario)


def test_who_leaves_gives_its_keys_up_in_order() -> None:
    async def scenario(world: World) -> None:
        key = key_of(1, 1, 2)
        first, second = await attached(world, 1, permits=2), await attached(world, 2)
        for sequence in range(4):
            await world.client.ask(keyed((key, b"%d" % sequence), sequence=sequence))
        assert first.values() == [b"0", b"1"]
        assert second.values() == []
        await first.close()
        await world.settle()
        assert second.values() == [b"0", b"1", b"2", b"3"]
        counts = [batch.redelivery_count for d in second.delivered for batch in d.batches]
        assert counts == [1, 1, 0, 0]

    run(scenario)


def test_who_comes_back_gets_more_of_its_keys_while_its_transaction_is_open() -> None:
    """The acks of a consumer whose link broke are still its own."""

    async def scenario(world: World) -> None:
        key = key_of(1, 1, 2)
        first, second = await attached(world, 1), await attached(world, 2)
        await world.client.ask(keyed((key, b"0"), sequence=0))
        await first.ask(ack((0, 0), in_txn=T1))
        await first.close()
        await world.client.ask(keyed((key, b"1"), sequence=1))
        assert second.values() == []
        again = await attached(world, 1, epoch=2)
        assert again.values() == [b"1"]
        await world.client.ask(end(T1, counts={1: 1}, on="s"))
        assert second.values() == []

    run(scenario)


def test_a_key_in_an_open_transaction_waits_for_it_before_it_moves() -> None:
    async def scenario(world: World) -> None:
        key = key_of(2, 1, 2)
        first = await attached(world, 1)
        await world.client.ask(keyed((key, b"0"), sequence=0))
        await world.settle()
        await first.ask(ack((0, 0), in_txn=T1))
        await first.close()
        second = await attached(world, 2)
        await world.client.ask(keyed((key, b"1"), sequence=1))
        for number in range(20):
            other = b"other %d" % number
            await world.client.ask(keyed((other, b"x"), sequence=2 + number))
        await world.settle()
        assert b"1" not in second.values()
        assert len(second.values()) >= 19, "an open transaction delays its own keys only"
        await world.client.ask(end(T1, common.ABORT, on="s"))
        await world.settle()
        assert [one for one in second.values() if one != b"x"] == [b"0", b"1"]

    run(scenario)


@pytest.mark.parametrize("action", [common.COMMIT, common.ABORT])
@pytest.mark.parametrize("in_marker", [False, True])
def test_after_a_restart_keys_with_pending_acks_wait(
    action: common.TxnAction, in_marker: bool
) -> None:
    """Their keys are learned from the log; whoever acknowledged them is known."""

    async def scenario(world: World) -> None:
        key, other = key_of(2, 1, 2), key_of(1, 1, 2)
        first = await attached(world, 1)
        pairs = [(other, b"a"), (key, b"b"), (other, b"c"), (key, b"d")]
        in_txn = txn(9) if in_marker else None
        await world.client.ask(keyed(*pairs, sequence=0, in_txn=in_txn))
        if in_txn is not None:
            await world.client.ask(end(in_txn))
        await world.settle()
        assert first.values() == [b"a", b"b", b"c", b"d"]
        await first.ask(ack((1, 1), in_txn=T1))
        await first.ask(ack((0, 0)))
        await world.restart(losing=Random(1))
        second = await attached(world, 2)
        assert second.values() == [b"c"], "all but the key that pends"
        again = await attached(world, 1, epoch=2)
        await world.settle()
        assert again.values() == [], "consumer 2 has the key that is now its"
        await second.ask(ack((2, 2)))
        await world.client.ask(end(T1, action, counts={1: 1}, on="s"))
        await world.settle()
        got = [b"d"] if action == common.COMMIT else [b"b", b"d"]
        assert second.values() == [b"c", *got]

    run(scenario)


@pytest.mark.parametrize("others_have_it", [False, True])
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("action", [common.COMMIT, common.ABORT])
def test_a_late_ack_in_a_transaction_keeps_its_key(
    others_have_it: bool, restarts: bool, action: common.TxnAction
) -> None:
    """Who acknowledged late may be a stranger to the key by now: all the same, the key waits."""

    async def scenario(world: World) -> None:
        key = key_of(1, 1, 2)
        first = await attached(world, 1)
        await world.client.ask(keyed((key, b"0"), sequence=0))
        await world.settle()
        assert first.values() == [b"0"]
        await first.close()
        second = await attached(world, 2, permits=1000 if others_have_it else 0)
        assert second.values() == ([b"0"] if others_have_it else [])
        late = Client(world)
        await late.ask(ack((0, 0), in_txn=T1))
        if restarts:
            await world.restart(losing=Random(1))
            second = await attached(world, 2)
        second.tell(flow(1000, consumer=2))
        before = len(second.values())
        await world.client.ask(keyed((key, b"1"), sequence=1))
        await world.settle()
        assert second.values()[before:] == [], "message 0 is pending, and not for this consumer"
        await world.client.ask(end(T1, action, counts={1: 1}, on="s"))
        await world.settle()
        assert second.values()[before:] == ([b"1"] if action == common.COMMIT else [b"0", b"1"])

    run(scenario)


def test_after_a_late_ack_its_consumer_goes_on_with_the_key_when_it_is_back() -> None:
    async def scenario(world: World) -> None:
        key = key_of(1, 1, 2)
        first = await attached(world, 1)
        await world.client.ask(keyed((key, b"0"), sequence=0))
        await world.settle()
        await first.close()
        second = await attached(world, 2)
        assert second.values() == [b"0"]
        await Client(world).ask(ack((0, 0), in_txn=T1))
        await world.client.ask(keyed((key, b"1"), sequence=1))
        again = await attached(world, 1, epoch=2)
        assert again.values() == [b"1"]
        assert second.values() == [b"0"]

    run(scenario)


def test_after_a_restart_an_abort_ends_the_claim_of_who_acknowledged() -> None:
    """The broker did not need the message's key before, so it had not learned it."""

    async def scenario(world: World) -> None:
        key = key_of(2, 1, 2)
        second = await attached(world, 2)
        await world.client.ask(keyed((key, b"0"), sequence=0))
        await second.ask(ack((0, 0), consumer=2, in_txn=T1))
        await world.restart(losing=Random(1))
        first = await attached(world, 1, permits=0)
        await world.client.ask(end(T1, common.ABORT, on="s"))
        first.tell(flow(1000, consumer=1))
        await world.settle()
        assert first.values() == [b"0"]
        await first.close()
        await Client(world).ask(ack((0, 0), in_txn=txn(2)))
        second = await attached(world, 2, epoch=2)
        await world.client.ask(keyed((key, b"1"), sequence=1))
        await world.settle()
        assert second.values() == [], "message 0 is pending for consumer 1"
        await world.client.ask(end(txn(2), counts={1: 1}, on="s"))
        await world.settle()
        assert second.values() == [b"1"]

    run(scenario)


def test_a_slow_consumer_holds_up_the_others_when_too_much_waits_for_it() -> None:
    async def scenario(world: World) -> None:
        slow, quick = key_of(1, 1, 2), key_of(2, 1, 2)
        first, second = await attached(world, 1, permits=1), await attached(world, 2)
        for number in range(10):
            await world.client.ask(keyed((slow, b"s"), (quick, b"q"), sequence=2 * number))
        await world.settle()
        assert len(first.values()) == 1
        assert len(second.values()) == 6, "its own, and what came before the fifth that waits"
        first.tell(flow(100, consumer=1))
        await world.settle()
        assert len(first.values()) == len(second.values()) == 10

    run(scenario, key_shared_waiting_max=5)


def test_parts_of_a_message_stay_together() -> None:
    async def scenario(world: World) -> None:
        key = key_of(2, 1, 2)
        first, second = await attached(world, 1), await attached(world, 2)
        parts = split(encode([bytes(400)], [key]), 100)
        for sequence, part in enumerate(parts):
            command = send(b"", in_txn=T1, sequence=sequence)
            command.batch = part
            await world.client.ask(command)
        await world.client.ask(end(T1))
        await world.settle()
        assert second.parts() == list(range(len(parts)))
        assert first.parts() == []

    run(scenario)


def test_a_batch_that_cannot_be_opened_goes_out_and_wedges_nothing() -> None:
    """Its header is sound, its body is not: whoever gets it finds that."""

    async def scenario(world: World) -> None:
        command = keyed((b"a", b"0"), (b"b", b"1"), sequence=0)
        broken = bytearray(command.batch[:-4])
        broken[HEADER.size :] = b"\xff" * (len(broken) - HEADER.size)
        checksum = google_crc32c.value(bytes(broken))
        command.batch = bytes(broken) + checksum.to_bytes(4, "little")
        await world.client.ask(command)
        await world.client.ask(keyed((b"c", b"2"), (b"d", b"3"), sequence=2))
        client = await attached(world, 1)
        assert client.parts() == [0, 2]
        await client.ask(ack((0, 3)))
        assert world.subscription().cursor.floor == 4

    run(scenario)


def test_a_nack_brings_it_before_what_is_new() -> None:
    async def scenario(world: World) -> None:
        client = await attached(world, 1, permits=2)
        for sequence in range(4):
            await world.client.ask(keyed((b"k", b"%d" % sequence), sequence=sequence))
        assert client.values() == [b"0", b"1"]
        await client.ask(nack((0, 1)))
        client.tell(flow(10))
        await world.settle()
        assert client.values() == [b"0", b"1", b"0", b"1", b"2", b"3"]

    run(scenario)


def test_the_types_of_a_subscription_follow_each_other() -> None:
    """What one left unsettled, the next one delivers."""

    async def scenario(world: World) -> None:
        for sequence in range(4):
            await world.client.ask(keyed((b"a", b"x"), (b"b", b"y"), sequence=2 * sequence))
        by_key = await attached(world, 1)
        with pytest.raises(SubscriptionExists):
            await world.client.ask(subscribe(consumer=2, kind=wire.SHARED))
        await by_key.ask(ack((0, 1)))
        await by_key.ask(ack((2, 2), in_txn=T1))
        await by_key.close()
        await world.client.ask(subscribe(consumer=2, kind=wire.SHARED))
        world.client.tell(flow(consumer=2))
        await world.settle()
        assert world.client.offsets() == [3, 4, 5, 6, 7]
        await world.client.ask(
            wire.CommandCloseConsumer(subscription=ack().subscription, consumer_id=2)
        )
        third = await attached(world, 3)
        await world.client.ask(end(T1, common.ABORT, on="s"))
        await world.settle()
        assert sorted(third.offsets()) == [2, 3, 4, 5, 6, 7]

    run(scenario)


def test_a_seek_starts_over() -> None:
    async def scenario(world: World) -> None:
        client = await attached(world, 1)
        for sequence in range(3):
            await world.client.ask(keyed((b"k", b"%d" % sequence), sequence=sequence))
        await client.ask(ack((0, 0)))
        await client.ask(wire.CommandSeek(subscription=ack().subscription, offset=1))
        again = await attached(world, 1, epoch=2)
        assert again.values() == [b"1", b"2"]

    run(scenario)


def test_retention_settles_what_it_removes() -> None:
    async def scenario(world: World) -> None:
        await world.client.ask(topic_wire.CommandDeleteTopic(topic="t"))
        await world.client.ask(
            topic_wire.CommandCreateTopic(
                topic="t", retention_bytes=1, retain_unconsumed=topic_wire.NO
            )
        )
        key = key_of(2, 1, 2)
        first = await attached(world, 1)
        for sequence in range(3):
            await world.client.ask(keyed((key, b"%d" % sequence), sequence=sequence))
        await first.ask(ack((0, 0), in_txn=T1))
        second = await attached(world, 2)
        topic = world.broker.topics.get("t")
        await trim_partition(world.broker.environment, topic, topic.partitions[0])
        await world.settle()
        removed = world.partition().log.first_offset
        assert removed > 1
        await world.client.ask(keyed((key, b"new"), sequence=3))
        if removed < 3:
            await first.ask(ack((removed, 2)))
        await world.settle()
        assert second.values() == [b"new"]
        await world.client.ask(end(T1, common.ABORT, on="s"))
        await world.settle()
        assert second.values() == [b"new"]

    run(scenario)


def test_an_abort_after_retention_and_a_restart_leaves_no_key_waiting() -> None:
    """The broker began with an ack in PENDING_ACK of a message that retention had removed."""

    async def scenario(world: World) -> None:
        await world.client.ask(topic_wire.CommandDeleteTopic(topic="t"))
        await world.client.ask(
            topic_wire.CommandCreateTopic(
                topic="t", retention_bytes=1, retain_unconsumed=topic_wire.NO
            )
        )
        client = await attached(world, 1)
        for sequence in range(3):
            await world.client.ask(keyed((b"key", b"%d" % sequence), sequence=sequence))
        await client.ask(ack((0, 0), in_txn=T1))
        topic = world.broker.topics.get("t")
        await trim_partition(world.broker.environment, topic, topic.partitions[0])
        await world.settle()
        await world.restart()
        assert world.partition().log.first_offset > 0
        again = await attached(world, 1, permits=0)
        await again.ask(end(T1, common.ABORT, on="s"))
        await world.settle()
        again.tell(flow(10))
        await again.ask(keyed((b"key", b"new"), sequence=0, producer=2))
        await world.settle()
        assert again.values()[-1] == b"new"

    run(scenario)
