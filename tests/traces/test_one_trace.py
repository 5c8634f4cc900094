"""One transaction is one trace, over client, coordinator and brokers.

Source: docs/design/0013-traces.md.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, ParentBased
from opentelemetry.trace import StatusCode
from tests.traces.world import CLIENT, TC, TOPIC, World, current_is_nothing, run

from magnetar_core.errors import MagnetarError
from magnetar_core.wire import service_pb2 as pb

TXN = "client: transaction"
FINISH = f"tc-0: finish transaction < tc-0: EndTxn < client: EndTxn < {TXN}"


def expected(*, broker_count: int, ends: str = FINISH) -> list[str]:
    """The paths of a transaction that writes to so many brokers, a message each."""
    paths = [TXN, ends]
    for command in ("NewTxn", "EndTxn"):
        paths += [f"client: {command} < {TXN}", f"tc-0: {command} < client: {command} < {TXN}"]
    for broker in range(broker_count):
        sent = f"client: send {TOPIC} < {TXN}"
        paths += [sent, f"b-{broker}: send {TOPIC} < {sent}"]
        end = f"tc-0: EndTxnOnPartition {TOPIC} < {ends}"
        paths += [end, f"b-{broker}: EndTxnOnPartition {TOPIC} < {end}"]
    return paths


def without_enrollment(paths: list[str]) -> list[str]:
    """The paths but for AddPartitionToTxn: how many there are depends on turns of the loop."""
    enrolled = [path for path in paths if "AddPartitionToTxn" in path]
    asked = f"client: AddPartitionToTxn < {TXN}"
    assert set(enrolled) == {asked, f"tc-0: AddPartitionToTxn < {asked}"}
    return [path for path in paths if path not in enrolled]


def only(spans: list[ReadableSpan], process: str) -> ReadableSpan:
    (one,) = [span for span in spans if span.resource.attributes["service.name"] == process]
    return one


def test_a_commit_is_one_trace_with_the_right_parents() -> None:
    async def scenario(world: World) -> None:
        async with world.client.transaction() as txn:
            await world.fill(txn, 0, 1)
            txn_id = str(txn.txn_id)
            open_one = await world.client.admin.transactions.describe(txn.txn_id)
        trace_id = await world.finished()
        ended = await world.client.admin.transactions.describe(txn.txn_id)
        # For people, who search for it where their spans are.
        assert {open_one.trace_id, ended.trace_id} == {f"{trace_id:032x}"}
        paths = without_enrollment(world.spans.paths(trace_id))
        assert paths == sorted(expected(broker_count=2))
        assert {one.context.trace_id for one in world.spans.all()} == {trace_id}
        about = [one for one in world.spans.all() if one.name != "NewTxn"]
        assert {one.attributes["magnetar.txn.id"] for one in about} == {txn_id}
        systems = {one.attributes["messaging.system.name"] for one in world.spans.all()}
        assert systems == {"magnetar"}
        finish = only(world.spans.named("finish"), TC)
        assert finish.attributes["magnetar.txn.action"] == "commit"
        assert finish.attributes["magnetar.txn.participant_count"] == 2
        whole = only(world.spans.named("transaction"), CLIENT)
        assert whole.attributes["magnetar.txn.outcome"] == "committing"
        assert not any(one.status.status_code is StatusCode.ERROR for one in world.spans.all())

    run(scenario)


def test_an_abort_is_one_trace() -> None:
    async def scenario(world: World) -> None:
        txn = await world.client.begin_transaction()
        await world.fill(txn, 0, 1)
        await txn.abort()
        trace_id = await world.finished()
        paths = without_enrollment(world.spans.paths(trace_id))
        assert paths == sorted(expected(broker_count=2))
        ends = world.spans.named("EndTxn")
        assert {end.attributes["magnetar.txn.action"] for end in ends} == {"abort"}

    run(scenario)


def test_each_copy_of_a_repeated_command_has_its_own_spans_in_the_same_trace() -> None:
    async def scenario(world: World) -> None:
        network = world.cluster.network
        txn = await world.client.begin_transaction()
        await world.fill(txn, 0)
        lost: list[None] = []

        def lose_the_answer(frame: pb.Frame) -> None:
            if not lost and any(command.HasField("end_txn") for command in frame.commands):
                lost.append(None)
                (link,) = [one for one in network.links(CLIENT) if one.server_node == TC]
                asyncio.get_running_loop().call_soon(link.break_off)

        network.watch = lose_the_answer
        await txn.commit()
        trace_id = await world.finished()
        assert lost
        first, second = [
            one
            for one in world.spans.named("EndTxn")
            if one.resource.attributes["service.name"] == CLIENT
        ]
        assert first.attributes["error.type"] == "LinkClosed"
        assert first.status.status_code is StatusCode.ERROR
        assert second.status.status_code is not StatusCode.ERROR
        answered = [
            one
            for one in world.spans.of_trace(trace_id)
            if one.name == "EndTxn" and one.resource.attributes["service.name"] == TC
        ]
        assert [one.parent.span_id for one in answered] == [
            first.context.span_id,
            second.context.span_id,
        ]
        # What was decided belongs to the copy that decided it.
        finish = only(world.spans.named("finish"), TC)
        assert finish.parent.span_id == answered[0].context.span_id
        assert {one.context.trace_id for one in world.spans.all()} == {trace_id}
        assert not any("lost" in one for one in world.spans.paths(trace_id))

    run(scenario)


def test_the_trace_goes_on_when_the_coordinator_restarts_between_decision_and_ends() -> None:
    async def scenario(world: World) -> None:
        cluster = world.cluster
        txn = await world.client.begin_transaction()
        await world.fill(txn, 0, 1)
        cluster.crash(1)
        await txn.commit()
        cluster.coordinator.crash(power_loss=True)
        assert not world.spans.named("finish")
        await cluster.start_coordinator()
        await cluster.start(1)
        trace_id = await world.finished()
        assert trace_id == only(world.spans.named("transaction"), CLIENT).context.trace_id
        end = f"tc-0: EndTxnOnPartition {TOPIC} < {FINISH}"
        paths = world.spans.paths(trace_id)
        assert FINISH in paths
        assert f"b-0: EndTxnOnPartition {TOPIC} < {end}" in paths
        assert f"b-1: EndTxnOnPartition {TOPIC} < {end}" in paths
        # What the first life had begun and not ended went with it, and nothing else.
        assert {path for path in paths if "lost" in path} <= {
            f"b-0: EndTxnOnPartition {TOPIC} < lost: "
        }
        assert {one.context.trace_id for one in world.spans.all()} == {trace_id}

    run(scenario)


def test_a_transaction_that_expires_ends_in_the_trace_of_its_beginning() -> None:
    async def scenario(world: World) -> None:
        txn = await world.client.begin_transaction(timeout_s=1)
        await world.fill(txn, 0)
        trace_id = await world.finished()
        # The client learns it later.
        await world.cluster.until(lambda: world.spans.named("transaction"))
        assert (
            f"b-0: EndTxnOnPartition {TOPIC} < tc-0: EndTxnOnPartition {TOPIC}"
            f" < tc-0: finish transaction < tc-0: NewTxn < client: NewTxn < {TXN}"
        ) in world.spans.paths(trace_id)

    run(scenario)


def test_the_transaction_of_a_program_belongs_to_the_span_of_the_program() -> None:
    async def scenario(world: World) -> None:
        tracer = world.spans.provider("program").get_tracer("program")
        with tracer.start_as_current_span("charge a card"):
            async with world.client.transaction() as txn:
                await world.fill(txn, 0)
        assert current_is_nothing()
        trace_id = await world.finished()
        above = " < program: charge a card"
        paths = world.spans.paths(trace_id)
        assert [path for path in paths if not path.endswith(above)] == ["program: charge a card"]
        assert f"{FINISH}{above}" in paths

    run(scenario)


def test_a_lazy_transaction_begins_inside_its_span() -> None:
    async def scenario(world: World) -> None:
        async with world.client.transaction(lazy=True) as txn:
            await world.fill(txn, 0, 1)
        trace_id = await world.finished()
        assert f"tc-0: NewTxn < client: NewTxn < {TXN}" in world.spans.paths(trace_id)
        assert {one.context.trace_id for one in world.spans.all()} == {trace_id}

    run(scenario)


def test_a_plain_send_is_a_trace_of_its_own() -> None:
    async def scenario(world: World) -> None:
        producer = await world.client.create_producer(TOPIC)
        await producer.send(b"a message", partition=world.partitions[1])
        (sent,) = [one for one in world.spans.all() if one.parent is None]
        paths = world.spans.paths(sent.context.trace_id)
        assert paths == [f"b-1: send {TOPIC} < client: send {TOPIC}", f"client: send {TOPIC}"]
        assert sent.attributes["messaging.batch.message_count"] == 1
        assert sent.attributes["messaging.destination.partition.id"] == str(world.partitions[1])

    run(scenario)


def test_an_ack_in_a_transaction_is_a_span_and_plain_acks_are_none() -> None:
    async def scenario(world: World) -> None:
        producer = await world.client.create_producer(TOPIC)
        consumer = await world.client.subscribe(TOPIC, "billing", initial_position="earliest")
        for number in range(2):
            await producer.send(b"%d" % number, partition=world.partitions[0])
        await consumer.ack(await consumer.receive())
        async with world.client.transaction() as txn:
            await consumer.ack(await consumer.receive(), txn=txn)
        trace_id = await world.finished()
        ack = f"b-0: ack {TOPIC} < client: ack {TOPIC} < {TXN}"
        paths = world.spans.paths(trace_id)
        assert ack in paths
        assert any(path.startswith(f"b-0: EndTxnOnSubscription {TOPIC}") for path in paths)
        assert len(world.spans.named("ack")) == 2

    run(scenario)


def test_a_refusal_is_told_by_its_name() -> None:
    async def scenario(world: World) -> None:
        with pytest.raises(MagnetarError):
            await world.client.begin_transaction(timeout_s=1e6)
        kinds = {(one.name, one.attributes["error.type"]) for one in world.spans.all()}
        assert kinds == {("NewTxn", "INVALID_ARGUMENT"), ("transaction", "INVALID_ARGUMENT")}

    run(scenario)


def test_what_the_head_does_not_sample_nobody_records() -> None:
    async def scenario(world: World) -> None:
        async with world.client.transaction() as txn:
            await world.fill(txn, 0, 1)
        await world.cluster.until(lambda: not world.cluster.coordinator.server._runtime.shard.live)

    # Servers that would record everything are told that the client does not record.
    for sampler in (ALWAYS_OFF, ParentBased(ALWAYS_OFF)):
        assert run(scenario, sampler=sampler).all() == []


def test_servers_begin_traces_for_clients_that_make_none() -> None:
    async def scenario(world: World) -> None:
        async with world.client.transaction() as txn:
            await world.fill(txn, 0)
        trace_id = await world.finished()
        finish = "tc-0: finish transaction < tc-0: EndTxn"
        end = f"tc-0: EndTxnOnPartition {TOPIC} < {finish}"
        assert world.spans.paths(trace_id) == sorted(
            ["tc-0: EndTxn", finish, end, f"b-0: EndTxnOnPartition {TOPIC} < {end}"]
        )

    run(scenario, sampler=ParentBased(ALWAYS_ON), client_traces=False)


def test_nothing_of_a_message_is_in_a_span() -> None:
    async def scenario(world: World) -> None:
        async with world.client.transaction() as txn:
            producer = await world.client.create_producer(TOPIC)
            await producer.send(
                b"secret value", key=b"secret key", properties={"secret name": "x"}, txn=txn
            )
        await world.finished()
        assert world.spans.all()
        assert "secret" not in "".join(one.to_json() for one in world.spans.all())

    run(scenario)


class _Failing(SpanProcessor):  # type: ignore[misc]
    """A processor of spans that fails when they begin or when they end."""

    def __init__(self, when: str) -> None:
        self._when = when
        self.failed_count = 0

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        self._fail_if("on_start")

    def on_end(self, span: Any) -> None:
        self._fail_if("on_end")

    def _fail_if(self, when: str) -> None:
        if when == self._when:
            self.failed_count += 1
            raise ArithmeticError("planted")


@pytest.mark.parametrize("when", ["on_start", "on_end"])
def test_no_transaction_fails_because_what_takes_its_spans_does(
    when: str, caplog: pytest.LogCaptureFixture
) -> None:
    failing = _Failing(when)

    async def scenario(world: World) -> None:
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(failing)
        async with await world.cluster.connect(provider) as client:
            txn = await client.begin_transaction()
            producer = await client.create_producer(TOPIC)
            await producer.send(b"a message", txn=txn)
            await txn.commit(wait_finished=True)

    run(scenario)
    # The spans of the transaction, of NewTxn, of the message and of EndTxn, at least.
    assert failing.failed_count >= 4
    assert "planted" in caplog.text
