"""Random transactions, cancelled anywhere, while links break and answers are lost or late.

However it goes:

- every call ends, with an error for users if with one;
- no message is stored twice;
- nothing of a transaction that was reported aborted is stored, and all of one reported committed;
- each input is acknowledged by one transaction that was not aborted, or comes again;
- the budget of the producers is given back, and no task is left.

`RANDOM_CLIENTS=5000` tries so many seeds.
"""

from __future__ import annotations

import os

import pytest
from tests import virtual_time
from tests.client.transactions.at_random import Play

SEEDS = int(os.environ.get("RANDOM_CLIENTS", "100"))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_calls_say_holds_however_they_end(seed: int) -> None:
    async def play() -> None:
        await Play(seed).run()

    virtual_time.run(play())
