"""Every way in which a transactional producer learns of an end, against real servers.

The list is that of docs/protocol/states.md. Everything happens in virtual time.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable

import pytest
from states_page import ENDINGS, Ending
from tests.client.cuts.cluster import BROKERS, PATIENT, Cluster, run
from tests.simulation.nodes import ServerNode
from tests.virtual_time import time_passes

from magnetar import (
    Client,
    CommitRefused,
    InvalidTxnState,
    MessageTooLarge,
    OutcomeUnknown,
    PreparedTxnState,
    ProducerFenced,
    TransactionAction,
    TransactionalProducer,
)
from magnetar.transactions.producer_state import CALLS, ProducerState
from magnetar_core.errors import TxnForgotten
from magnetar_core.wire import service_pb2

ID = "app"
TIMEOUT_S = 5.0
# Longer than a commit or an abort waits for its answer, and shorter than two of them.
SILENCE_S = 1.5
IMPATIENT = dataclasses.replace(PATIENT, commit_timeout_ms=1_000, abort_timeout_ms=1_000)


class Scene:
    """A transactional producer that has written a message in a transaction.

    Attributes:
        committed: what readers have to see.
    """

    def __init__(self, cluster: Cluster, client: Client, start: ProducerState) -> None:
        self.cluster = cluster
        self.client = client
        self.client_name = f"sdk-{cluster._client_count}"
        self.committed: list[bytes] = []
        self.is_prepared = start is ProducerState.PREPARED
        self.producer = self.instance(client)

    def instance(self, client: Client) -> TransactionalProducer:
        timeout_s = None if self.is_prepared else TIMEOUT_S
        return client.transactional_producer(
            ID, two_phase_commit=self.is_prepared, timeout_s=timeout_s
        )

    async def open(self) -> None:
        await self.client.admin.topics.create("t", partitions=4)
        await self.producer.init()
        await self.producer.begin()
        await self.producer.send("t", b"first", partition=0)
        if self.is_prepared:
            await self.producer.prepare()

    @property
    def coordinator(self) -> ServerNode:
        """The coordinator of the transactional id."""
        (node,) = (
            one for one in self.cluster.coordinators if one.server.transactional_ids.find(ID)
        )
        return node

    def silence(self, *servers: str, seconds: float = SILENCE_S) -> None:
        """What leaves the client or a server from now on arrives after these seconds."""
        for name in servers or (self.coordinator.name,):
            self.cluster.network.hold_up(self.client_name, name, seconds)

    def at_next(self, name: str, fault: Callable[[], None]) -> None:
        """When the next such command arrives, something goes wrong before its answer leaves."""

        def watch(frame: service_pb2.Frame) -> None:
            if any(command.WhichOneof("body") == name for command in frame.commands):
                self.cluster.network.watch = None
                asyncio.get_running_loop().call_soon(fault)

        self.cluster.network.watch = watch

    async def unanswered(self, call: str) -> None:
        """A call that takes effect, and whose answer does not come in time."""
        self.at_next("end_txn", self.silence)
        with pytest.raises(OutcomeUnknown):
            await getattr(self.producer, call)()

    async def has_asked(self) -> None:
        """The SDK asks for the outcome by itself, until it knows."""
        transaction = self.producer.transaction
        assert transaction is not None
        await self.cluster.until(lambda: transaction.work.has_ended)

    async def times_out(self) -> None:
        identity = self.coordinator.server.transactional_ids
        await self.cluster.until(lambda: identity.get(ID).state.name == "COMPLETE_ABORT")

    async def restart(self) -> None:
        node = self.coordinator
        node.crash(power_loss=True)
        await self.cluster.start(node)


# The ways. Each returns when the last call of the way has returned or raised.


async def commit_answered(scene: Scene) -> None:
    await scene.producer.commit()
    scene.committed = [b"first"]


async def abort_answered(scene: Scene) -> None:
    await scene.producer.abort()


async def answer_lost(scene: Scene) -> None:
    links = scene.cluster.network.links

    def break_links() -> None:
        for link in links(scene.coordinator.name):
            link.break_off()

    scene.at_next("end_txn", break_links)
    await scene.producer.commit()
    scene.committed = [b"first"]


async def send_failed(scene: Scene) -> None:
    assert scene.producer.transaction is not None
    scene.producer.transaction.work.doom(MessageTooLarge("a send"))
    with pytest.raises(CommitRefused):
        await scene.producer.commit()


async def commit_unanswered(scene: Scene) -> None:
    await scene.unanswered("commit")
    scene.committed = [b"first"]


async def abort_unanswered(scene: Scene) -> None:
    await scene.unanswered("abort")


async def commit_cancelled(scene: Scene) -> None:
    scene.at_next("end_txn", scene.silence)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(scene.producer.commit(), 0.1)
    scene.committed = [b"first"]


async def flush_cancelled(scene: Scene) -> None:
    await scene.producer.enqueue("t", b"second", partition=0)
    scene.silence(*BROKERS)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(scene.producer.commit(), 0.1)


async def commit_again(scene: Scene) -> None:
    await commit_unanswered(scene)
    await scene.producer.commit()


async def abort_again(scene: Scene) -> None:
    await abort_unanswered(scene)
    await scene.producer.abort()


async def commit_inquired(scene: Scene) -> None:
    await commit_unanswered(scene)
    await scene.has_asked()
    await scene.producer.commit()


async def abort_inquired(scene: Scene) -> None:
    await abort_unanswered(scene)
    await scene.has_asked()
    await scene.producer.abort()


async def cancelled_and_inquired(scene: Scene) -> None:
    await commit_cancelled(scene)
    await scene.has_asked()
    await scene.producer.commit()


async def committed_then_abort(scene: Scene) -> None:
    await commit_unanswered(scene)
    with pytest.raises(InvalidTxnState):
        await scene.producer.abort()


async def committed_inquired_then_abort(scene: Scene) -> None:
    await commit_unanswered(scene)
    await scene.has_asked()
    with pytest.raises(InvalidTxnState):
        await scene.producer.abort()


async def lost_commit_then_abort(scene: Scene) -> None:
    for link in scene.cluster.network.links(scene.client_name):
        if link.server_node == scene.coordinator.name:
            # What is written to it is lost.
            link.go_half_open(both=True)
            asyncio.get_running_loop().call_later(SILENCE_S, link.break_off)
    with pytest.raises(OutcomeUnknown):
        await scene.producer.commit()
    await scene.producer.abort()


async def both_unanswered(scene: Scene) -> None:
    scene.at_next("end_txn", lambda: scene.silence(seconds=2 * SILENCE_S))
    for call in (scene.producer.commit, scene.producer.abort):
        with pytest.raises(OutcomeUnknown):
            await call()
    scene.committed = [b"first"]


async def both_unanswered_then_commit(scene: Scene) -> None:
    await both_unanswered(scene)
    await scene.has_asked()
    await scene.producer.commit()


async def both_unanswered_then_abort(scene: Scene) -> None:
    await both_unanswered(scene)
    await scene.has_asked()
    with pytest.raises(InvalidTxnState):
        await scene.producer.abort()


async def abort_unanswered_then_commit(scene: Scene) -> None:
    await abort_unanswered(scene)
    with pytest.raises(InvalidTxnState):
        await scene.producer.commit()
    await scene.producer.abort()


async def timed_out_then_commit(scene: Scene) -> None:
    await scene.has_asked()
    with pytest.raises(InvalidTxnState):
        await scene.producer.commit()


async def timed_out_then_abort(scene: Scene) -> None:
    await scene.has_asked()
    await scene.producer.abort()


async def timed_out_unnoticed_then_commit(scene: Scene) -> None:
    await scene.times_out()
    with pytest.raises(InvalidTxnState):
        await scene.producer.commit()


async def timed_out_then_send(scene: Scene) -> None:
    await scene.times_out()
    with pytest.raises(InvalidTxnState):
        await scene.producer.send("t", b"second", partition=1)
    with pytest.raises((CommitRefused, InvalidTxnState)):
        await scene.producer.commit()


async def begin_unanswered(scene: Scene) -> None:
    await scene.producer.abort()
    scene.at_next("new_txn", lambda: scene.silence(seconds=2 * TIMEOUT_S))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(scene.producer.begin(), 0.1)
    await scene.times_out()
    await scene.producer.begin()


async def coordinator_restarted(scene: Scene) -> None:
    node = scene.coordinator
    scene.at_next("end_txn", lambda: node.crash(power_loss=False))
    committing = asyncio.ensure_future(scene.producer.commit())
    await scene.cluster.until(lambda: not node.alive)
    await scene.cluster.start(node)
    await committing
    scene.committed = [b"first"]


async def coordinator_restarted_in_doubt(scene: Scene) -> None:
    await commit_unanswered(scene)
    await scene.restart()
    await scene.has_asked()
    await scene.producer.commit()


async def aborted_by_administrator(scene: Scene) -> None:
    assert scene.producer.transaction is not None
    txn_id = scene.producer.transaction.txn_id
    await scene.client.admin.transactions.end(txn_id, TransactionAction.ABORT)


async def aborted_by_administrator_then_commit(scene: Scene) -> None:
    await aborted_by_administrator(scene)
    with pytest.raises(InvalidTxnState):
        await scene.producer.commit()


async def aborted_by_administrator_then_abort(scene: Scene) -> None:
    await aborted_by_administrator(scene)
    await scene.producer.abort()


async def forgotten(scene: Scene) -> None:
    transaction = scene.producer.transaction
    assert transaction is not None
    transaction.work._on_forgotten(TxnForgotten("long ago"))
    await aborted_by_administrator(scene)
    with pytest.raises(TxnForgotten):
        await scene.producer.commit()


async def terminated_by_administrator(scene: Scene) -> None:
    terminated = (await scene.client.admin.transactional_ids.describe(ID)).txn_id
    assert terminated is not None
    await scene.client.admin.transactional_ids.force_terminate(ID, terminated, abort_prepared=True)
    with pytest.raises(ProducerFenced):
        await scene.producer.commit()


async def another_takes_over(scene: Scene) -> None:
    async with await scene.cluster.connect(IMPATIENT) as client:
        await scene.instance(client).init()


async def taken_over(scene: Scene) -> None:
    await another_takes_over(scene)
    with pytest.raises(ProducerFenced):
        await scene.producer.commit()


async def taken_over_in_doubt(scene: Scene) -> None:
    await commit_unanswered(scene)
    await another_takes_over(scene)
    with pytest.raises(ProducerFenced):
        await scene.producer.commit()


# Two-phase commit knows no timeout, no abort by the TxnID alone, and no send after prepare().
OF_OPEN_ONLY = (
    send_failed,
    flush_cancelled,
    timed_out_then_commit,
    timed_out_then_abort,
    timed_out_unnoticed_then_commit,
    timed_out_then_send,
    begin_unanswered,
    aborted_by_administrator_then_commit,
    aborted_by_administrator_then_abort,
    forgotten,
)
Way = Callable[[Scene], Awaitable[None]]
CASES = [
    pytest.param(ending, start, id=f"{ending.name}-{start.name}")
    for ending in ENDINGS
    for start in (ProducerState.OPEN, ProducerState.PREPARED)
    if start is ProducerState.OPEN or globals()[ending.name] not in OF_OPEN_ONLY
]
ARGUMENTS = {"complete": (PreparedTxnState(),), "send": ("t", b"x")}


@pytest.mark.parametrize(("ending", "start"), CASES)
def test_after_it_the_producer_does_what_the_table_says(
    ending: Ending, start: ProducerState
) -> None:
    async def scenario(cluster: Cluster, _: Client) -> None:
        async with await cluster.connect(IMPATIENT) as client:
            scene = Scene(cluster, client, start)
            await scene.open()
            way: Way = globals()[ending.name]
            await way(scene)
            state = ending.state_from(start)
            assert scene.producer._state is state
            await refuses_other_calls(scene, state)
            if state is not ProducerState.FENCED:
                await goes_on(scene, state)
            await is_read(scene)
            await another_takes_over(scene)
            if state is not ProducerState.FENCED:
                with pytest.raises(ProducerFenced):
                    await scene.producer.begin()

    run(scenario)


def test_an_answered_end_makes_the_next_beginning_no_dearer() -> None:
    """The answer has the next pair: nothing is refused."""

    async def scenario(cluster: Cluster, client: Client) -> None:
        scene = Scene(cluster, client, ProducerState.OPEN)
        await scene.open()
        beginnings: list[int] = []

        def watch(frame: service_pb2.Frame) -> None:
            beginnings.extend(
                command.new_txn.identity.producer_epoch
                for command in frame.commands
                if command.WhichOneof("body") == "new_txn"
            )

        cluster.network.watch = watch
        for end in (scene.producer.commit, scene.producer.abort, scene.producer.commit):
            await end()
            await scene.producer.begin()
        assert beginnings == [1, 2, 3]

    run(scenario)


async def refuses_other_calls(scene: Scene, state: ProducerState) -> None:
    for call in ("init", "begin", "send", "prepare", "commit", "abort", "complete"):
        if state not in CALLS[call]:
            with pytest.raises(InvalidTxnState, match="allowed: "):
                await getattr(scene.producer, call)(*ARGUMENTS.get(call, ()))


async def goes_on(scene: Scene, state: ProducerState) -> None:
    """The outcome is found out, if it is not known; then the producer begins, and takes over."""
    producer = scene.producer
    if state in CALLS["abort"]:
        await time_passes(SILENCE_S)
        await (producer.commit() if scene.committed else producer.abort())
    for value in (b"second", b"third"):
        await producer.begin()
        await producer.send("t", value, partition=0)
        await producer.commit()
        scene.committed.append(value)
        await producer.init()


async def is_read(scene: Scene) -> None:
    seen: list[bytes] = []
    while len(seen) < len(scene.committed):
        await time_passes(0.1)
        seen = [message.value async for message in scene.client.read("t")]
    assert seen == scene.committed
