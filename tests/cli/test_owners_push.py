"""Conversations hear of other owners: of the first change at once, of many changes seldom."""

from __future__ import annotations

from typing import Any

from tests.cluster.views import view
from tests.virtual_time import run, time_passes

from magnetar_cli.servers.owners_push import PAUSE_SECONDS, OwnersPush


def test_many_changes_are_told_together_and_the_last_one_is_told() -> None:
    async def scenario() -> None:
        pushed: list[Any] = []
        push = OwnersPush(pushed.append)
        push.owners_changed(view(1, broker_0=("a", 1)))
        assert len(pushed) == 1
        for number in range(2, 8):
            push.owners_changed(view(number, broker_0=("a", number)))
        assert len(pushed) == 1
        await time_passes(2 * PAUSE_SECONDS)
        assert len(pushed) == 2
        push.owners_changed(view(8, broker_0=("a", 7)))
        await time_passes(2 * PAUSE_SECONDS)
        assert len(pushed) == 2, "nobody has another owner"
        push.owners_changed(view(9))
        assert len(pushed) == 3
        push.owners_changed(view(10, broker_0=("b", 10)))
        push.close()
        await time_passes(2 * PAUSE_SECONDS)
        assert len(pushed) == 3

    run(scenario())
