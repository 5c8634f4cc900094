"""Another broker, as a broker speaks to it: a link, and questions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from magnetar_broker.config import BrokerConfig
from magnetar_core.link.broker_link import Answer, BrokerLink
from magnetar_core.link.link_questions import LinkQuestions, OnAnswer
from magnetar_core.link.link_settings import LinkSettings
from magnetar_core.membership.address_book import MemberAddress
from magnetar_core.transport.transport import Transport

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
        self._link = BrokerLink(
            member.address,
            transport,
            LinkSettings(
                client_name=config.name,
                cluster_hash=config.cluster_hash,
                answer_deadline_ms=config.constants.broker_answer_deadline_ms,
                retry_delay_ms_min=RETRY_DELAY_MS_MIN,
                reconnect_delay_ms_max=RECONNECT_DELAY_MS_MAX,
            ),
            random,
            on_up=on_up,
            on_answers=self._on_answers,
            on_down=self._on_down,
        )
        self._questions = LinkQuestions(self._link, member.name)

    @property
    def is_up(self) -> bool:
        """Whether the broker is linked."""
        return self._link.is_up

    def start(self) -> None:
        """Begin to connect."""
        self._link.start()

    def stop(self) -> None:
        """Break the link at once. Nothing is called afterwards."""
        self._questions.forget_all()
        self._link.stop()

    async def close(self) -> None:
        """Do the same, and wait until the link has ended."""
        self.stop()
        await self._link.close()

    def ask(self, body: Any, on_answer: OnAnswer) -> int:
        """Ask, and call back; see LinkQuestions.ask."""
        return self._questions.ask(body, on_answer)

    def forget(self, request_id: int) -> None:
        """Ignore the answer to a question."""
        self._questions.forget(request_id)

    def _on_answers(self, answers: Sequence[Answer]) -> None:
        for answer in answers:
            self._questions.on_answer(*answer)

    def _on_down(self) -> None:
        self._tell_down()
        self._questions.link_is_down()
