"""Random calls of all public methods, at real servers: see tests/client/fuzzing.

`FUZZED_CALLS_AT_SERVERS` names another number than 100,000.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from benchmarks.servers import started
from tests.client.fuzzing.arguments import PARTITIONS, TOPICS
from tests.client.fuzzing.ledger import Content, Ledger
from tests.client.fuzzing.play import Play, content
from tests.client.fuzzing.script import Script, draw
from tests.client.fuzzing.threads import PlayOnThreads
from tests.waiting import until

import magnetar
from magnetar import Client, TransactionAction, TransactionStatus, blocking
from magnetar_core.errors import MagnetarError

CALLS = int(os.environ.get("FUZZED_CALLS_AT_SERVERS", "100000"))
# After many more most clients would be closed.
STEPS = 500

Playing = Callable[[Script, str], Awaitable[tuple[Ledger, bool]]]


async def play_at(script: Script, address: str) -> tuple[Ledger, bool]:
    """Play with an asyncio client; return what it said, and whether its callers closed it."""
    client = await magnetar.connect(address)
    playing = Play(script, in_real_time=True)
    await playing.begin(client)
    await playing.run()
    return playing.ledger, await playing.settle(client)


async def play_on_threads_at(script: Script, address: str) -> tuple[Ledger, bool]:
    """Play with a blocking client."""
    playing = PlayOnThreads(script, blocking.connect(address))
    return playing.ledger, await asyncio.to_thread(playing.run)


async def end_what_is_open(client: Client) -> None:
    """Abort the open transactions of callers: readers would wait for them."""

    async def all_have_ended() -> bool:
        found = await client.admin.transactions.list()
        for one in found:
            if one.status is TransactionStatus.OPEN:
                try:
                    await client.admin.transactions.end(one.txn_id, TransactionAction.ABORT)
                except MagnetarError:
                    pass  # It has ended meanwhile.
        return not found

    await until(all_have_ended, 120)


async def check(play: Playing, script: Script, address: str) -> int:
    """Play, and compare what is stored; return how many calls there were."""
    async with await magnetar.connect(address) as admin:
        for topic in TOPICS:
            await admin.admin.topics.create(topic, partitions=PARTITIONS)
        ledger, is_closed = await play(script, address)
        ledger.check_ends()
        await end_what_is_open(admin)
        stored: list[Content] = []
        for topic in TOPICS:
            for partition in range(PARTITIONS):
                stored += [content(one) async for one in admin.read(topic, partition)]
        for one in await admin.admin.topics.list():
            await admin.admin.topics.delete(one.topic, force=True)
    ledger.check_messages(stored, is_closed=is_closed)
    return len(ledger.records)


@pytest.mark.soak
@pytest.mark.parametrize("play", [play_at, play_on_threads_at], ids=["asyncio", "threads"])
def test_what_calls_say_holds_at_real_servers(play: Playing, tmp_path: Path) -> None:
    count = 0
    with started(tmp_path) as servers:
        for seed in range(CALLS // 2 // STEPS):
            count += asyncio.run(check(play, draw(seed, STEPS), servers.address))
    print(f"{count} calls")
