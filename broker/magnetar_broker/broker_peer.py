"""Link to another broker, with questions that are answered by a call."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from magnetar_broker.config import BrokerConfig, MemberAddress
from magnetar_core.broker_link import BrokerLink
from magnetar_core.errors import LogUnavailable
from magnetar_core.link_settings import LinkSettings
from magnetar_core.transport import Transport

# Takes the name of the answer's field, or "error", and the answer's message.
OnAnswer = Callable[[str, Any], None]

RETRY_DELAY_MS_MIN = 50
RECONNECT_DELAY_MS_MAX = 500


def _nothing() -> None:
    return


class BrokerPeer:
    """Another broker, as a broker speaks to it."""

    def __init__(
        self,
        member: MemberAddress,
        config: BrokerConfig,
        transport: Transport,
        random: Random,
        *,
        on_up: Callable[[], None] = _nothing,
        on_down: Callable[[], None] = _nothing,
    ) -> None:
        self.name = member.name
        self._tell_down = on_down
        self._asked: dict[int, OnAnswer] = {}
        self._link = BrokerLink(
            member.address,
            transport,
            LinkSettings(
                client_name=config.name,
                cluster_hash=config.cluster_hash,
                answer_deadline_ms=config.broker_answer_deadline_ms,
                retry_delay_ms_min=RETRY_DELAY_MS_MIN,
                reconnect_delay_ms_max=RECONNECT_DELAY_MS_MAX,
            ),
            random,
            on_up=on_up,
            on_answer=self._on_answer,
            on_down=self._on_down,
        )

    @property
    def is_up(self) -> bool:
        """Whether the broker is linked."""
        return self._link.is_up

    def start(self) -> None:
        """Begin to connect."""
        self._link.start()

    async def close(self) -> None:
        """Break the link. No question is answered afterwards."""
        self._asked.clear()
        await self._link.close()

    def ask(self, body: Any, on_answer: OnAnswer) -> int:
        """Ask, and call back with the answer; with LogUnavailable if the link is down or breaks.

        Returns:
            The number of the question, for forget().
        """
        request_id = self._link.next_request_id()
        if self._link.is_up:
            self._asked[request_id] = on_answer
            self._link.send(body, request_id)
        else:
            self._refuse(on_answer)
        return request_id

    def forget(self, request_id: int) -> None:
        """Ignore the answer to a question."""
        self._asked.pop(request_id, None)

    def _refuse(self, on_answer: OnAnswer) -> None:
        error = LogUnavailable(f"{self.name} is away: ask again")
        on_answer("error", error.to_wire())

    def _on_answer(self, request_id: int, name: str, body: Any) -> None:
        on_answer = self._asked.pop(request_id, None)
        if on_answer is not None:
            on_answer(name, body)

    def _on_down(self) -> None:
        asked, self._asked = self._asked, {}
        self._tell_down()
        for on_answer in asked.values():
            self._refuse(on_answer)
