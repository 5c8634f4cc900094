"""Durability "os": what a broker confirms before it syncs, and what it never does.

Source: docs/design/0014-durability.md.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from tests.broker.harness import (
    World,
    ack,
    end,
    flow,
    partition,
    run,
    send,
    subscribe,
    subscription,
    txn,
    watermark,
)

from magnetar_broker.config import BrokerConfig
from magnetar_core.config import InvalidConfig
from magnetar_core.errors import InvalidTxnState, MagnetarError, SequenceGap, TransactionConflict
from magnetar_core.wire import broker_pb2 as wire
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import topic_pb2 as topic_wire
from magnetar_core.wire import transaction_pb2 as txn_wire


class Losing(Random):
    """Chance that is the worst: the power takes all that was not synced."""

    def randint(self, a: int, b: int) -> int:
        return b


ALL = Losing()


def late(**settings: Any) -> dict[str, Any]:
    return {"durability": "os", "sync_interval_ms": 10**9, **settings}


def test_the_setting_has_two_values() -> None:
    assert not BrokerConfig().late_syncs
    with pytest.raises(InvalidConfig, match="synced, os"):
        BrokerConfig(durability="never")


def test_plain_messages_and_acks_do_not_wait_for_the_disk() -> None:
    async def scenario(world: World) -> None:
        await world.client.ask(subscribe(consumer=1))
        world.client.tell(flow())
        world.stall()
        receipt = await world.client.ask(send(b"0", b"1"))
        assert receipt.message_id.entry_id == 0
        assert world.client.messages() == [(0, b"0"), (1, b"1")]
        again = await world.client.ask(send(b"0", b"1"))
        assert again.duplicate
        await world.client.ask(ack((0, 0)))
        assert not world.disk.durable_keys("log")
        await world.go_on()

    run(scenario, **late())


@pytest.mark.parametrize(
    "command",
    [
        send(b"x", in_txn=txn(1)),
        send(b"x", producer=2, follows=txn(5)),
        ack((0, 0), in_txn=txn(1)),
        end(txn(3)),
        end(txn(3), common.ABORT, on="s"),
        watermark(2),
        subscribe("other"),
        topic_wire.CommandCreateTopic(topic="u"),
        wire.CommandSeek(subscription=subscription(), offset=0),
        wire.CommandUnsubscribe(subscription=subscription("t")),
        topic_wire.CommandTakeIncarnation(tcid=7, store_token="a"),
    ],
    ids=lambda one: type(one).__name__,
)
def test_every_other_answer_waits_for_the_disk(command: Any) -> None:
    """What others rely on, a coordinator above all, is never lost: it forgets what it has heard."""

    async def scenario(world: World) -> None:
        for name in ("s", "t"):
            await world.client.ask(subscribe(name))
        await world.client.ask(send(b"0"))
        await world.client.ask(send(b"t", in_txn=txn(3)))
        # Its end is known here: a send that follows it is not parked.
        await world.client.ask(end(txn(5), common.ABORT))
        world.stall()
        answer = world.client.begin(command)
        await world.settle()
        assert not answer.done()
        await world.go_on()
        assert answer.done()
        assert answer.exception() is None

    run(scenario, **late())


def test_answers_in_columns_leave_when_each_may() -> None:
    """Plain sends and acks when they are written; of transactions, and ends, when synced."""

    async def scenario(world: World) -> None:
        await world.client.ask(subscribe())
        await world.client.ask(send(*[b"%d" % number for number in range(16)], producer=9))
        await world.client.ask(send(b"t", in_txn=txn(30)))
        world.stall()
        sends = world.client.begin_together(
            [
                send(b"p", producer=2, sequence=number)
                if number < 5
                else send(b"t", in_txn=txn(number))
                for number in range(10)
            ]
        )
        acks = world.client.begin_together(
            [
                ack((number, number), in_txn=None if number < 5 else txn(number))
                for number in range(10)
            ]
        )
        ends = world.client.begin_together([ended(number, 0) for number in range(20, 30)])
        await world.settle()
        for answers in (sends, acks):
            assert [one.done() for one in answers] == [True] * 5 + [False] * 5
        assert not any(one.done() for one in ends)
        await world.go_on()
        assert all(one.done() and not one.exception() for one in (*sends, *acks, *ends))

    run(scenario, **late())


def test_a_commit_is_seen_before_it_is_synced_and_answered_afterwards() -> None:
    async def scenario(world: World) -> None:
        await world.client.ask(subscribe(consumer=1))
        world.client.tell(flow())
        await world.client.ask(send(b"t", in_txn=txn(1)))
        world.stall()
        ended = world.client.begin(end(txn(1), counts={1: 1}))
        await world.settle()
        assert world.client.values() == [b"t"]
        assert not ended.done()
        # The coordinator has no answer, and asks again after the machine is back.
        await world.restart(ALL)
        world.disk.sync_seconds = 0.0
        await world.client.ask(end(txn(1), counts={1: 1}))
        assert await world.read() == [b"t"]
        assert world.partition().ledger_id == 2

    run(scenario, **late())


@pytest.mark.parametrize("power_loss", [False, True])
def test_the_end_of_an_os_broker(power_loss: bool) -> None:
    """A killed process loses nothing. A machine takes plain messages and acks, and it shows."""

    async def scenario(world: World) -> None:
        await world.client.ask(subscribe(consumer=1))
        world.client.tell(flow())
        await world.client.ask(send(b"0"))
        await world.client.ask(send(b"t", in_txn=txn(1)))
        world.stall()
        await world.client.ask(send(b"1", sequence=1))
        await world.client.ask(ack((0, 0)))
        await world.restart(ALL if power_loss else None)
        world.disk.sync_seconds = 0.0
        ledger_id = 2 if power_loss else 1
        assert world.partition().ledger_id == ledger_id
        assert await world.read() == ([b"0"] if power_loss else [b"0", b"1"])
        await world.client.ask(end(txn(1), counts={1: 1}))
        assert (await world.read())[-1] == b"t", "what belongs to a transaction was synced"
        await world.client.ask(subscribe(consumer=1, epoch=2))
        world.client.tell(flow())
        await world.settle()
        assert world.client.values() == ([b"0", b"t"] if power_loss else [b"1", b"t"])
        # The producer goes on as another one, since its numbers are not known here.
        if power_loss:
            with pytest.raises(SequenceGap):
                await world.client.ask(send(b"2", sequence=2))
            receipt = await world.client.ask(send(b"2", producer=9))
        else:
            receipt = await world.client.ask(send(b"2", sequence=2))
        assert receipt.message_id.ledger_id == ledger_id

    run(scenario, **late())


def test_an_orderly_stop_syncs_everything_and_the_ledger_stays() -> None:
    async def scenario(world: World) -> None:
        await world.client.ask(send(b"0"))
        await world.broker.close()
        await world.broker.environment.store._store.close()  # type: ignore[attr-defined]
        world.disk.crash(ALL)
        await world._open()
        assert world.partition().ledger_id == 1
        assert await world.read() == [b"0"]

    run(scenario, **late())


def ended(number: int, count: int) -> txn_wire.CommandEndTxnOnParticipants:
    """Return the commit of a transaction whose messages are on one partition."""
    asked = txn_wire.CommandEndTxnOnParticipants(
        txn_id=txn(number).to_wire(), txn_action=common.COMMIT, counts_given=True
    )
    counts = [txn_wire.WriterCount(writer_id=1, count=count)]
    asked.partitions.add(partition=partition(0), producers=counts)
    return asked


class Program:
    """Random commands and ends of the broker, and what must hold whatever happens."""

    def __init__(self, world: World, random: Random) -> None:
        self.world = world
        self.random = random
        self.losses = 0
        # By ledger id and offset: what a receipt said to be there.
        self.given: dict[tuple[int, int], bytes] = {}
        # Confirmed since the last loss of the machine, in order; and all that ever was.
        self.plain: list[bytes] = []
        self.ever: set[bytes] = set()
        # Confirmed messages of each transaction, and ends that were answered.
        self.open: dict[int, list[bytes]] = {}
        self.committed: dict[int, list[bytes]] = {}
        self.decided: dict[int, list[bytes]] = {}
        self.sequences: dict[int, int] = {}
        self.producer = 1
        self.next_txn = 1

    async def step(self) -> None:
        await self.random.choice(
            (
                self.send_plain,
                self.send_plain,
                self.send_in,
                self.send_run,
                self.commit,
                self.commit_all,
                self.stall,
                self.fall,
            )
        )()

    def name(self) -> bytes:
        return b"%d" % self.random.getrandbits(60)

    async def send_plain(self) -> None:
        value = self.name()
        sequence = self.sequences.get(self.producer, 0)
        receipt = await self.world.client.ask(
            send(value, producer=self.producer, sequence=sequence)
        )
        self.sequences[self.producer] = sequence + 1
        place = receipt.message_id.ledger_id, receipt.message_id.entry_id
        assert self.given.setdefault(place, value) == value, "an offset was given out twice"
        self.plain.append(value)
        self.ever.add(value)

    async def send_in(self) -> None:
        if not self.open or self.random.random() < 0.4:
            self.open[self.next_txn] = []
            self.next_txn += 1
        number = self.random.choice(list(self.open))
        value = self.name()
        answer = self.world.client.begin(
            send(value, in_txn=txn(number), sequence=len(self.open[number]))
        )
        await self.world.settle()
        if answer.done():
            answer.result()
            self.open[number].append(value)
        else:
            await self.world.go_on()
            answer.result()
            self.open[number].append(value)

    async def send_run(self) -> None:
        """Plain messages and messages of transactions in columns: each waits for what it needs."""
        for number in range(self.next_txn, self.next_txn + 3):
            self.open[number] = []
        self.next_txn += 3
        bodies: list[Any] = []
        values: list[tuple[int | None, bytes]] = []
        written = {number: len(held) for number, held in self.open.items()}
        for _ in range(10):
            value = self.name()
            writer = self.random.choice([None, *self.open])
            if writer is None:
                sequence = self.sequences.get(self.producer, 0)
                self.sequences[self.producer] = sequence + 1
                bodies.append(send(value, producer=self.producer, sequence=sequence))
            else:
                bodies.append(send(value, in_txn=txn(writer), sequence=written[writer]))
                written[writer] += 1
            values.append((writer, value))
        answers = self.world.client.begin_together(bodies)
        await self.world.settle()
        for (writer, value), answer in zip(values, answers, strict=True):
            if writer is None:
                place = answer.result().message_id
                assert self.given.setdefault((place.ledger_id, place.entry_id), value) == value
                self.plain.append(value)
                self.ever.add(value)
        await self.world.go_on()
        for (writer, value), answer in zip(values, answers, strict=True):
            if writer is not None:
                answer.result()
                self.open[writer].append(value)

    async def commit_all(self) -> None:
        """Ends of all transactions that have written, in columns."""
        ready = [number for number, held in self.open.items() if held]
        bodies = [ended(number, len(self.open[number])) for number in ready]
        for number in ready:
            self.decided[number] = self.open.pop(number)
        answers = self.world.client.begin_together(bodies)
        await self.world.settle()
        for number, answer in zip(ready, answers, strict=True):
            if answer.done():
                assert not answer.result().unfinished
                self.committed[number] = self.decided.pop(number)

    async def commit(self) -> None:
        ready = [number for number, values in self.open.items() if values]
        if ready:
            number = self.random.choice(ready)
            self.decided[number] = self.open.pop(number)
            await self.finish(number)

    async def finish(self, number: int) -> None:
        """As a coordinator: the decision is durable, and it asks until it is answered."""
        counts = {1: len(self.decided[number])}
        answer = self.world.client.begin(end(txn(number), counts=counts))
        await self.world.settle()
        if answer.done():
            answer.result()
            self.committed[number] = self.decided.pop(number)

    async def stall(self) -> None:
        if self.world.disk.sync_seconds:
            await self.world.go_on()
        else:
            self.world.stall()

    async def fall(self) -> None:
        if self.random.random() < 0.5:
            return
        power_loss = self.random.random() < 0.5
        world = self.world
        await world.restart(self.random if power_loss else None)
        await world.go_on()
        for number in list(self.decided):
            await self.finish(number)
        assert not self.decided, "nothing that was confirmed in a transaction is missing"
        found = await world.read()
        if power_loss:
            self.losses += 1
            kept = [value for value in found if value in self.ever]
            assert kept == [value for value in self.plain if value in set(kept)], "in order"
            assert kept == self.plain[: len(kept)], "the oldest stay"
            self.plain = kept
            self.producer += 1
        assert world.partition().ledger_id == 1 + self.losses
        assert [value for value in found if value in self.ever] == self.plain
        for values in self.committed.values():
            at = found.index(values[0])
            assert found[at : at + len(values)] == values
            assert all(found.count(value) == 1 for value in values)


@pytest.mark.parametrize("seed", range(30))
def test_whatever_ends_an_os_broker_transactions_are_whole_and_offsets_are_new(seed: int) -> None:
    async def scenario(world: World) -> None:
        program = Program(world, Random(seed))
        try:
            for _ in range(60):
                await program.step()
        except (MagnetarError, InvalidTxnState, TransactionConflict) as error:
            raise AssertionError(f"refused: {error}") from error
        await world.go_on()

    run(scenario, **late(), producer_idle_ms_max=10**12)
