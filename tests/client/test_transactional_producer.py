"""A transactional producer against servers whose answers are lost."""

from __future__ import annotations

from tests.client.fakes import BREAK, FakeCluster, run

from magnetar import Client


def test_repeats_of_one_init_are_copies_and_the_next_one_is_none() -> None:
    """What the coordinator has to know to tell a late copy from a new instance."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        client_breaks = [BREAK, None, None, None]
        cluster.script = lambda name, body: (
            client_breaks.pop(0) if name == "init_producer" else None
        )
        producer = client.transactional_producer("app")
        await producer.init()
        await producer.init()
        await client.force_terminate("app")
        first, again, second, third = (one.call_token for one in cluster.commands("init_producer"))
        assert first == again != 0
        assert len({first, second, third}) == 3

    run(test)
