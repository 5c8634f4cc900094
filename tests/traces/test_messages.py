"""A message names the span that sent it, and its processing is linked to that span."""

from __future__ import annotations

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode
from tests.traces.world import CLIENT, TOPIC, World, run

from magnetar.message import Message
from magnetar.traces import processing
from magnetar_core.errors import InvalidArgument
from magnetar_core.traces.traceparent import TRACEPARENT, parse


def processed(world: World) -> ReadableSpan:
    (span,) = world.spans.named("process")
    return span


async def received(world: World, count: int) -> list[Message]:
    found = [one async for one in world.client.read(TOPIC)]
    assert len(found) == count
    return found


def test_processing_is_linked_to_the_spans_that_sent() -> None:
    async def scenario(world: World) -> None:
        provider = world.spans.provider(CLIENT)
        producer = await world.client.create_producer(TOPIC)
        with provider.get_tracer("shop").start_as_current_span("order") as order:
            await producer.send(b"alone", properties={"a": "b"})
            producer.send_nowait(b"later")
            await producer.enqueue(b"as well")
            async with world.client.transaction() as txn:
                await txn.send(TOPIC, b"in a transaction")
            await producer.flush()
        messages = await received(world, 4)
        headers = {one.properties[TRACEPARENT] for one in messages}
        (sender,) = {parse(header.encode()) for header in headers}
        assert sender is not None
        assert sender.trace_id == order.get_span_context().trace_id
        assert sender.span_id == order.get_span_context().span_id
        assert {one.value: one.properties.get("a") for one in messages}[b"alone"] == "b"
        with processing(*messages, provider=provider) as span:
            assert trace.get_current_span() is span
        done = processed(world)
        assert done.kind is SpanKind.CONSUMER
        assert done.name == f"process {TOPIC}"
        assert {one.context.span_id for one in done.links} == {sender.span_id}
        assert len(done.links) == 4
        assert done.attributes is not None
        assert done.attributes["messaging.system.name"] == "magnetar"
        assert done.attributes["messaging.operation.type"] == "process"
        assert done.attributes["messaging.destination.name"] == TOPIC
        assert done.attributes["messaging.batch.message_count"] == 4
        assert done.context.trace_id != sender.trace_id

    run(scenario)


def test_what_the_program_says_of_its_message_stays() -> None:
    async def scenario(world: World) -> None:
        tracer = world.spans.provider(CLIENT).get_tracer("shop")
        producer = await world.client.create_producer(TOPIC)
        with tracer.start_as_current_span("order"):
            await producer.send(b"", properties={TRACEPARENT: "its own"})
            with pytest.raises(InvalidArgument, match="properties"):
                await producer.send(b"", properties="none")  # type: ignore[arg-type]
        await producer.send(b"")
        found = [one.properties.get(TRACEPARENT) for one in await received(world, 2)]
        assert set(found) == {"its own", None}
        with processing(*await received(world, 2), provider=world.spans.provider(CLIENT)):
            pass
        assert not processed(world).links

    run(scenario)


def test_a_client_without_traces_adds_nothing() -> None:
    async def scenario(world: World) -> None:
        producer = await world.client.create_producer(TOPIC)
        with world.spans.provider(CLIENT).get_tracer("shop").start_as_current_span("order"):
            await producer.send(b"")
        (message,) = await received(world, 1)
        assert not message.properties

    run(scenario, client_traces=False)


def test_a_span_that_is_not_recorded_is_named_all_the_same() -> None:
    """Its header says so, and the consumer need not record either."""

    async def scenario(world: World) -> None:
        producer = await world.client.create_producer(TOPIC)
        with world.spans.provider(CLIENT).get_tracer("shop").start_as_current_span("order"):
            await producer.send(b"")
        (message,) = await received(world, 1)
        sender = parse(message.properties[TRACEPARENT].encode())
        assert sender is not None
        assert not sender.sampled

    run(scenario, sampler=ALWAYS_OFF)


def test_an_exception_is_noted_and_goes_on() -> None:
    async def scenario(world: World) -> None:
        producer = await world.client.create_producer(TOPIC)
        await producer.send(b"")
        (message,) = await received(world, 1)
        with (
            pytest.raises(ZeroDivisionError),
            processing(message, provider=world.spans.provider(CLIENT)),
        ):
            raise ZeroDivisionError
        done = processed(world)
        assert done.status.status_code is StatusCode.ERROR
        assert done.attributes is not None
        assert done.attributes["messaging.destination.partition.id"] == str(message.partition)

    run(scenario)


def test_nothing_to_process_is_refused() -> None:
    with pytest.raises(ValueError, match="give the messages"), processing():
        pass
