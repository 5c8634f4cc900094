"""Produce: what is stored, what is refused, and what is a repeat."""

from __future__ import annotations

from tests.kafka.harness import KafkaWorld, batch, produce, produced, run

from magnetar_kafka.error_codes import ErrorCode
from magnetar_kafka.wire import apis


def test_a_batch_is_stored_as_it_came_and_our_readers_open_it() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await world.connect()
        assert produced(await client.ask(apis.PRODUCE, produce(batch(b"a", b"b")))) == [
            (ErrorCode.NONE, 0)
        ]
        assert produced(await client.ask(apis.PRODUCE, produce(batch(b"c")), 3)) == [
            (ErrorCode.NONE, 2)
        ]
        assert await world.read() == [b"a", b"b", b"c"]
        assert world.metric("requests_total", api="Produce", error="NONE") == 2

    run(scenario)
