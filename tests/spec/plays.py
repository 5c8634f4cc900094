"""Small histories: one or two clients, a few transactions, and faults at chosen moments."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from tests.simulation.short.faults import SYNC_SECONDS
from tests.spec.recording import CLIENT, Play, Recorded, Stage

from magnetar_core.errors import MagnetarError, OutcomeUnknown
from magnetar_core.history import events
from magnetar_core.history.events import Event

# Longer than a write takes to its broker.
SLOW_SYNC_SECONDS = 0.2
# Longer than a client waits for the outcome of a commit.
SILENT_SECONDS = 2.5


class Plan(NamedTuple):
    """Plan of a history: the play, and the servers."""

    play: Play
    broker_count: int = 1
    coordinator: Mapping[str, Any] = {}

    def record(self) -> Recorded:
        """Record it."""
        stage = Stage(self.play, broker_count=self.broker_count, coordinator=self.coordinator)
        return stage.recorded()


def is_(kind: type[Event]) -> Callable[[Event], bool]:
    """Return whether an event is of this kind."""
    return lambda event: type(event) is kind


async def commit(stage: Stage) -> None:
    """A message is acknowledged together with two outputs."""
    hand = await stage.hand()
    consumer, message = await stage.input(hand)
    txn = await hand.begin()
    await hand.send(0, txn)
    await hand.send(1, txn)
    await consumer.ack(message, txn=txn)
    await txn.commit()


async def abort(stage: Stage) -> None:
    """An abort gives the message back, and the next transaction takes it."""
    hand = await stage.hand()
    consumer, message = await stage.input(hand)
    for ends_well in (False, True):
        txn = await hand.begin()
        await hand.send(0, txn)
        await consumer.ack(message, txn=txn)
        if ends_well:
            await txn.commit(wait_finished=True)
        else:
            await txn.abort()
            message = await consumer.receive()


async def expiry(stage: Stage) -> None:
    """A transaction expires, is asked to commit too late, and the next one commits."""
    hand = await stage.hand()
    txn = await hand.begin(timeout_s=0.2)
    await hand.send(0, txn)
    await stage.until(is_(events.Finished))
    with suppress(MagnetarError):
        await txn.commit()
    txn = await hand.begin()
    await hand.send(0, txn)
    await txn.commit()


async def two_clients(stage: Stage) -> None:
    """Two clients write to the same partitions; one of them aborts."""
    one, other = await stage.hand(), await stage.hand()
    first, second = await one.begin(), await other.begin()
    await one.send(0, first)
    await other.send(0, second)
    await other.send(1, second)
    await one.send(1, first)
    await asyncio.gather(first.commit(), second.abort())


async def plain_sends(stage: Stage) -> None:
    """Plain sends follow a transaction, and the next transaction follows them."""
    hand = await stage.hand()
    for _ in range(2):
        txn = await hand.begin()
        await hand.send(0, txn)
        await txn.commit()
        await hand.send(0)


async def watermarks(stage: Stage) -> None:
    """Watermarks cover what has ended, also beside a transaction that stays open."""
    hand, other = await stage.hand(), await stage.hand()
    long = await other.begin()
    await other.send(0, long)
    for _ in range(2):
        txn = await hand.begin()
        await hand.send(0, txn)
        await hand.send(1, txn)
        await txn.commit(wait_finished=True)
        await stage.until(is_(events.EndsForgotten))
    await long.commit(wait_finished=True)
    await stage.until(is_(events.EndsForgotten))


async def lost_answer(stage: Stage) -> None:
    """The answer to a commit is lost, and its repeat is answered."""
    hand = await stage.hand()
    txn = await hand.begin()
    await hand.send(0, txn)
    stage.when(is_(events.OutcomeTold), lambda: stage.hang_up(stage.coordinator))
    await txn.commit()
    txn = await hand.begin()
    await hand.send(0, txn)
    await txn.commit()


async def coordinator_crash(stage: Stage) -> None:
    """A coordinator ends when a decision is durable, and goes on when it is back."""
    hand = await stage.hand()
    txn = await hand.begin()
    await hand.send(0, txn)
    await hand.send(1, txn)
    stage.when(is_(events.OutcomeTold), stage.crash(stage.coordinator))
    await txn.commit()
    txn = await hand.begin()
    await hand.send(0, txn)
    await txn.commit()


async def lost_transaction(stage: Stage) -> None:
    """A TxnID is told, and its record is lost: what was written under it is an orphan."""
    hand = await stage.hand()
    disk = stage.coordinator.disk
    # The record of the transaction is under way until the first write is at the broker.
    disk.sync_seconds = SLOW_SYNC_SECONDS
    stage.when(is_(events.Wrote), stage.crash(stage.coordinator, power_loss=True))
    txn = await hand.begin()
    with suppress(MagnetarError):
        await hand.send(0, txn)
        await txn.commit()
    disk.sync_seconds = SYNC_SECONDS
    txn = await hand.begin()
    await hand.send(0, txn)
    await txn.commit()


async def broker_crash(stage: Stage) -> None:
    """A broker ends after it has applied ends and before they are durable, and once more later."""
    hand = await stage.hand()
    consumer, message = await stage.input(hand)
    txn = await hand.begin()
    await hand.send(0, txn)
    await hand.send(1, txn)
    await consumer.ack(message, txn=txn)
    stage.when(is_(events.EndApplied), stage.crash(stage.broker, power_loss=True))
    await txn.commit(wait_finished=True)
    stage.crash(stage.broker, power_loss=True)()
    txn = await hand.begin()
    await hand.send(0, txn)
    await txn.commit()


async def order(stage: Stage) -> None:
    """A commit is not heard. The next transaction is aborted, and passes on the one before."""
    hand = await stage.hand()
    unheard = await hand.begin(timeout_s=5.0)
    await hand.send(0, unheard)
    stage.network.partition(CLIENT, stage.coordinator.name, SILENT_SECONDS)
    with suppress(OutcomeUnknown):
        await unheard.commit()
    for ends_well in (False, True):
        txn = await hand.begin()
        await hand.send(0, txn)
        if not ends_well:
            await txn.abort()
    # Its marker waits for the end of what was not heard.
    await txn.commit()
    last = txn.txn_id
    await stage.until(lambda event: type(event) is events.Finished and event.txn_id == last)


async def two_brokers(stage: Stage) -> None:
    """The partitions are at different brokers, one of which ends in the middle of a commit."""
    hand = await stage.hand()
    consumer, message = await stage.input(hand)
    txn = await hand.begin()
    await hand.send(0, txn)
    await hand.send(1, txn)
    await consumer.ack(message, txn=txn)
    stage.when(is_(events.MarkerWritten), stage.crash(stage.brokers[1], power_loss=True))
    await txn.commit(wait_finished=True)


PLANS: Mapping[str, Plan] = {
    "commit": Plan(commit),
    "abort": Plan(abort),
    "expiry": Plan(expiry),
    "two clients": Plan(two_clients),
    "plain sends": Plan(plain_sends),
    "watermarks": Plan(
        watermarks, coordinator={"watermark_interval_ms": 500, "watermark_listed_age_ms_min": 700}
    ),
    "lost answer": Plan(lost_answer),
    "coordinator crash": Plan(coordinator_crash),
    "lost transaction": Plan(lost_transaction),
    "broker crash": Plan(broker_crash),
    "order": Plan(order),
    "two brokers": Plan(two_brokers, broker_count=2),
}
