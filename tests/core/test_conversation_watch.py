"""The watch over conversations goes on, whatever it meets."""

from __future__ import annotations

import asyncio

from tests.waiting import until

from magnetar_core.security.conversation_watch import ConversationWatch


class Broken:
    def look(self) -> None:
        raise RuntimeError("planted")


class Sound:
    looks = 0

    def look(self) -> None:
        self.looks += 1


def look(conversation: Broken | Sound) -> None:
    conversation.look()


def test_a_conversation_that_fails_leaves_the_others_watched() -> None:
    async def run() -> None:
        sound = Sound()
        conversations: list[Broken | Sound] = [Broken(), sound]
        watch = ConversationWatch(lambda: conversations, look)
        watch.start()
        await until(lambda: sound.looks == 2)
        watch.close()

    asyncio.run(run())


def test_a_look_that_fails_is_not_the_last() -> None:
    """As when a new file of keys has what nobody expected."""
    asked = []
    sound = Sound()

    def conversations() -> list[Broken | Sound]:
        asked.append(sound)
        if len(asked) == 1:
            raise RuntimeError("planted")
        return [sound]

    async def run() -> None:
        watch = ConversationWatch(conversations, look)
        watch.start()
        await until(lambda: sound.looks == 1)
        watch.close()

    asyncio.run(run())
