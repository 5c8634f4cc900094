"""Who stops reading in the middle leaves nothing behind that goes on, or waits to be collected.

The loop fails the run for every async generator that is dropped before its end.
"""

from __future__ import annotations

from contextlib import aclosing
from random import Random

import pytest
from tests.simulation.nodes import ClientNode
from tests.simulation.short.draft import Draft
from tests.simulation.world import World

import magnetar

pytestmark = pytest.mark.sim

TOPIC = "in"


class HalfRead(World):
    async def _main(self) -> None:
        await self.set_up()
        await self.run_program("reader", self._read)

    async def _read(self, node: ClientNode) -> None:
        client = await magnetar.connect(
            "broker",
            transport=node.transport(),
            clock=node.clock,
            random=self.environment.random("reader"),
        )
        producer = await client.create_producer(TOPIC, batch_messages_max=1)
        for number in range(5):
            await producer.send(b"%d" % number, partition=0)
        async with aclosing(client.read(TOPIC, 0)) as messages:
            assert (await anext(messages)).value == b"0"
        async with aclosing(client.read_columns(TOPIC, 0, messages_max=1)) as pieces:
            assert (await anext(pieces)).values() == [b"0"]
        async with aclosing(client.read_ahead(TOPIC, 0, 0, 5)) as some:
            await anext(some)
        txn = await client.begin_transaction(30.0)
        for number in range(5):
            await producer.send(b"%d" % number, partition=0, txn=txn)
        peeked = await client.admin.topics.peek_uncommitted(TOPIC, 0, messages_max=1)
        assert len(peeked) == 1
        await txn.abort()
        await client.close()


def test_nothing_is_left_half_read() -> None:
    draft = Draft(Random(0))
    draft.topic(TOPIC, 1)
    HalfRead(draft.finish("half read", "test", ())).run()
