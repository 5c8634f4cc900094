"""Three brokers and two coordinators as processes: transactions over all of them, and kills.

Source: docs/design/0008-cluster.md, What it promises.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.cli.running import Standalone, running_standalone
from tests.freezing import freeze, thaw
from tests.system.conftest import Figure
from tests.system.programs import run, values
from tests.waiting import until

import magnetar
from magnetar import (
    Client,
    MagnetarError,
    Transaction,
    TransactionDescription,
    TransactionStatus,
    TxnID,
)
from magnetar_core.membership.placement import shard_of

BROKERS, COORDINATORS, PARTITIONS = 3, 2, 6
# Each with a message for every partition.
ROUNDS, SOAK_ROUNDS = 40, 600
BATCH_MAX = 20
FIRST, COORDINATOR = ("brokers", 0), ("coordinators", 0)
EVERYTHING = [("brokers", number) for number in range(BROKERS)]
EVERYTHING += [("coordinators", number) for number in range(COORDINATORS)]
# Who is killed together, one after the other over the rounds of a step.
KILLS = ([("brokers", 1)], [FIRST], [COORDINATOR], EVERYTHING)
PATIENCE_S = 60.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Standalone]:
    counts = ("--brokers", str(BROKERS), "--coordinators", str(COORDINATORS))
    with running_standalone(tmp_path, *counts) as running:
        yield running
    assert "Traceback" not in (tmp_path / "log").read_text()


def addresses(cluster: Standalone) -> list[str]:
    return [one["address"] for one in cluster.ready()["brokers"]]


class Progress:
    """How far the steps are, and who was killed while they were under way."""

    def __init__(self, cluster: Standalone, rounds_due: int) -> None:
        self._cluster = cluster
        self.rounds_due = rounds_due
        self.rounds = 0
        self.again = 0

    async def kill(self) -> None:
        """Kill servers as rounds pass, and see that each is started again."""
        for number, victims in enumerate(KILLS, start=1):
            rounds = self.rounds_due * number // (len(KILLS) + 1)
            await until(partial(self._has_reached, rounds), PATIENCE_S)
            killed = {victim: self._pid(*victim) for victim in victims}
            for pid in killed.values():
                os.kill(pid, signal.SIGKILL)
            await until(partial(self._all_are_new, killed), PATIENCE_S)

    def _has_reached(self, rounds: int) -> bool:
        return self.rounds >= rounds

    def _all_are_new(self, killed: dict[tuple[str, int], int]) -> bool:
        return all(self._pid(*victim) != pid for victim, pid in killed.items())

    def _pid(self, kind: str, number: int) -> int:
        pid: int = self._cluster.ready()[kind][number]["pid"]
        return pid


async def was_committed(client: Client, txn_id: TxnID) -> bool:
    """How a transaction has ended whose end its client did not hear of."""
    ended = {TransactionStatus.COMMITTED, TransactionStatus.ABORTED}
    found: list[TransactionStatus] = []

    async def is_ended() -> bool:
        try:
            found[:] = [(await client.admin.transactions.describe(txn_id)).status]
        except MagnetarError:
            return False
        return found[0] in ended

    await until(is_ended, PATIENCE_S)
    return found[0] is TransactionStatus.COMMITTED


async def ended_well(client: Client, txn: Transaction) -> bool:
    """Commit; whether that was done, also when the answer was lost."""
    try:
        await txn.commit()
    except MagnetarError:
        return await was_committed(client, txn.txn_id)
    return True


async def gave_up(client: Client, txn: Transaction) -> None:
    """Abort what went wrong on the way, until its coordinator has heard of it."""

    async def is_over() -> bool:
        try:
            await txn.abort()
        except MagnetarError:
            described = await client.admin.transactions.describe(txn.txn_id)
            return described.status is TransactionStatus.ABORTED
        return True

    await until(is_over, PATIENCE_S)


async def produce(client: Client, progress: Progress) -> None:
    """Each round is a transaction with a message for each partition."""
    producer = await client.create_producer("orders")
    for number in range(progress.rounds_due):
        while True:
            txn = await client.begin_transaction()
            try:
                for partition in range(PARTITIONS):
                    await producer.send(b"%d" % number, partition=partition, txn=txn)
            except MagnetarError:
                await gave_up(client, txn)
            else:
                if await ended_well(client, txn):
                    break
            progress.again += 1
        progress.rounds = number + 1
    await producer.close()


async def transform(client: Client, progress: Progress) -> None:
    """Inputs become outputs, and both steps count together."""
    producer = await client.create_producer("invoices")
    done, due = 0, progress.rounds_due * PARTITIONS
    while done < due:
        # After an abort from the beginning: what comes again must not come behind the rest.
        consumer = await client.subscribe("orders", "billing", initial_position="earliest")
        try:
            while done < due:
                messages = await consumer.receive_batch(BATCH_MAX, timeout_s=0.5)
                if not messages:
                    continue
                txn = await client.begin_transaction()
                try:
                    for message in messages:
                        partition = message.message_id.partition
                        await producer.send(message.value, partition=partition, txn=txn)
                        await consumer.ack(message, txn=txn)
                except MagnetarError:
                    await gave_up(client, txn)
                    progress.again += 1
                    break
                if not await ended_well(client, txn):
                    progress.again += 1
                    break
                done += len(messages)
                progress.rounds = max(progress.rounds, done // PARTITIONS)
        finally:
            await consumer.close()
    await producer.close()


async def create(client: Client) -> None:
    for topic in ("orders", "invoices"):
        await client.admin.topics.create(topic, partitions=PARTITIONS)
        topic_id = (await client.admin.topics.describe(topic)).topic_id
        kept = Counter(shard_of(topic_id, number) for number in range(PARTITIONS))
        assert kept == {shard: 2 for shard in range(BROKERS)}


async def unfinished(client: Client) -> list[TransactionDescription]:
    """Transactions that have participants and an end to come."""
    # Who asked for a TxnID when the coordinator died asked again: the first one expires.
    left = await client.admin.transactions.list()
    return [one for one in left if one.partitions or one.subscriptions]


async def are_carried_out(client: Client) -> bool:
    """Whether readers see all that was committed: commit() may return a moment before."""
    return not await unfinished(client)


async def check(client: Client, topic: str, rounds: int) -> None:
    for partition in range(PARTITIONS):
        found = [int(value) for value in await values(client, topic, partition)]
        assert found == list(range(rounds)), f"{topic}, partition {partition}"


@pytest.mark.parametrize("rounds", [ROUNDS, pytest.param(SOAK_ROUNDS, marks=pytest.mark.soak)])
def test_what_was_acknowledged_is_there_once_and_in_order(
    cluster: Standalone, figure: Figure, rounds: int
) -> None:
    """The second broker, the first one, a coordinator, and then all at once die at each step."""

    async def program() -> None:
        async with await magnetar.connect(addresses(cluster)) as client:
            await create(client)
            for step, topic in ((produce, "orders"), (transform, "invoices")):
                progress = Progress(cluster, rounds)
                async with asyncio.TaskGroup() as group:
                    group.create_task(step(client, progress))
                    group.create_task(progress.kill())
                figure(f"{topic}: done again", str(progress.again))
                await until(partial(are_carried_out, client), PATIENCE_S)
                await check(client, topic, rounds)
            described = await client.admin.topics.describe("orders")
            assert [one.subscriptions[0].backlog for one in described.partitions] == [0] * 6
            assert await unfinished(client) == []
        # Whoever comes later finds the same, by any broker.
        for address in addresses(cluster):
            async with await magnetar.connect(address) as witness:
                await check(witness, "invoices", rounds)

    run(program(), timeout_s=240)


def test_a_broker_that_is_away_delays_its_own_partitions_only(cluster: Standalone) -> None:
    async def program() -> None:
        async with await magnetar.connect(addresses(cluster)) as client:
            await create(client)
            topic_id = (await client.admin.topics.describe("orders")).topic_id
            by_shard = {shard_of(topic_id, number): number for number in range(PARTITIONS)}
            producer = await client.create_producer("orders")
            over_all = await client.begin_transaction()
            others = await client.begin_transaction()
            for shard in range(BROKERS):
                await producer.send(b"all", partition=by_shard[shard], txn=over_all)
            for shard in (0, 2):
                await producer.send(b"others", partition=by_shard[shard], txn=others)
            pid = cluster.ready()["brokers"][1]["pid"]
            freeze(pid)
            try:
                await over_all.commit()
                await others.commit(wait_finished=True)
                assert others.status is TransactionStatus.COMMITTED
                for shard in (0, 2):
                    await producer.send(b"plain", partition=by_shard[shard])
                    found = await values(client, "orders", by_shard[shard])
                    assert found == [b"all", b"others", b"plain"]
                described = await client.admin.transactions.describe(over_all.txn_id)
                assert described.status is TransactionStatus.COMMITTING
                (unfinished,) = described.unfinished
                assert unfinished.partition.partition == by_shard[1]
            finally:
                thaw(pid)
            assert await was_committed(client, over_all.txn_id)
            assert await values(client, "orders", by_shard[1]) == [b"all"]

    run(program(), timeout_s=90)
