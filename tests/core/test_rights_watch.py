"""The watch over rights goes on, whatever a conversation meets."""

from __future__ import annotations

import asyncio

from tests.waiting import until

from magnetar_core.rights_watch import RightsWatch


class Broken:
    def look(self) -> None:
        raise RuntimeError("planted")


class Sound:
    looks = 0

    def look(self) -> None:
        self.looks += 1


def test_a_conversation_that_fails_leaves_the_others_watched() -> None:
    async def run() -> None:
        sound = Sound()
        watch = RightsWatch(lambda: [Broken(), sound])
        watch.start()
        await until(lambda: sound.looks == 2)
        watch.close()

    asyncio.run(run())
