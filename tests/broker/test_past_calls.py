"""Calls about topics that the first broker remembers over its restarts."""

from __future__ import annotations

from tests.broker.harness import World, run

from magnetar_broker import keys
from magnetar_broker.topic_directory.rows import CALLS_MAX, PastCalls


def test_the_latest_calls_are_remembered() -> None:
    async def scenario(world: World) -> None:
        environment = world.broker.environment
        calls = PastCalls(environment)
        for token in range(1, CALLS_MAX + 11):
            calls.note(token, 1_000 + token)
        calls.note(0, 5)
        await environment.commits.durable()
        again = PastCalls(environment)
        await again.recover()
        for one in (calls, again):
            assert one.topic_of(0) is None
            assert one.topic_of(10) is None
            assert one.topic_of(11) == 1_011
            assert one.topic_of(CALLS_MAX + 10) == 2_010
        # It goes on where it was.
        again.note(5_000, 7)
        await environment.commits.durable()
        third = PastCalls(environment)
        await third.recover()
        assert (third.topic_of(11), third.topic_of(12), third.topic_of(5_000)) == (None, 1_012, 7)
        rows = [
            key for key, _ in await world.rows(keys.META) if key.startswith(keys.META_PAST_CALL)
        ]
        assert len(rows) == CALLS_MAX

    run(scenario)
