"""Link from the listener to another server of the cluster, and questions that are awaited on it.

A command that the link loses is not sent again here: the client of Kafka asks again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any

from magnetar_core.errors import LogUnavailable, from_wire
from magnetar_core.link.broker_link import Answer, BrokerLink
from magnetar_core.link.link_questions import LinkQuestions
from magnetar_core.link.link_settings import LinkSettings
from magnetar_core.membership.address_book import MemberAddress
from magnetar_core.transport.transport import Transport


class ServerLink:
    """A link to a server, and the questions on it that have no answer yet.

    Args:
        service: the one of gRPC that the server has.
        title: what errors call the server.
    """

    def __init__(
        self,
        member: MemberAddress,
        transport: Transport,
        settings: LinkSettings,
        random: Random,
        *,
        service: str,
        title: str,
    ) -> None:
        self._title = title
        self._link = BrokerLink(
            member.address,
            transport,
            settings,
            random,
            on_up=_nothing,
            on_answers=self._on_answers,
            on_down=lambda: self._questions.link_is_down(),
            service=service,
        )
        self._questions = LinkQuestions(self._link, title)

    def start(self) -> None:
        """Begin to connect."""
        self._link.start()

    async def close(self) -> None:
        """End the link; what waits for an answer is told that none will come."""
        self._questions.link_is_down()
        await self._link.close()

    async def ask(self, command: Any, deadline_s: float) -> Any:
        """Return the answer to a command, which is sent at once.

        Raises:
            LogUnavailable: the server is away, the link broke, or no answer came in time.
            MagnetarError: the server refuses.
        """
        answer: asyncio.Future[tuple[str, Any]] = asyncio.get_running_loop().create_future()

        def on_answer(name: str, body: Any) -> None:
            if not answer.done():
                answer.set_result((name, body))

        number = self._questions.ask(command, on_answer)
        try:
            async with asyncio.timeout(deadline_s):
                name, body = await answer
        except TimeoutError:
            raise LogUnavailable(f"{self._title} does not answer: ask again") from None
        finally:
            self._questions.forget(number)
        if name == "error":
            raise from_wire(body)
        return body

    def _on_answers(self, answers: Sequence[Answer]) -> None:
        for answer in answers:
            self._questions.on_answer(*answer)


def _nothing() -> None:
    return
