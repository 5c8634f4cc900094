"""A question that a coordinator asks a broker before it serves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from random import Random
from typing import Any

from magnetar_coordinator.config import CoordinatorConfig
from magnetar_core.link.broker_link import Answer, BrokerLink
from magnetar_core.transport.transport import Transport

log = logging.getLogger(__name__)


class BrokerQuestion:
    """Asks a broker until it answers. Asking again must be harmless."""

    def __init__(
        self, address: str, transport: Transport, config: CoordinatorConfig, random: Random
    ) -> None:
        self._config = config
        self._link = BrokerLink(
            address,
            transport,
            config.link_settings(),
            random,
            on_up=self._ask,
            on_answers=self._on_answers,
            on_down=self._wait,
        )
        self._request: Any = None
        self._answer_name = ""
        self._answer: asyncio.Future[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def ask(self, request: Any, answer_name: str) -> Any:
        """Ask, and return the answer.

        Args:
            request: the command.
            answer_name: name of the answer's field in the envelope.
        """
        self._request, self._answer_name = request, answer_name
        self._answer = asyncio.get_running_loop().create_future()
        self._link.start()
        try:
            return await self._answer
        finally:
            self._wait()
            self._link.stop()

    def _ask(self) -> None:
        self._wait()
        self._link.send(self._request, self._link.next_request_id())
        self._ask_later(self._config.constants.answer_deadline_ms)

    def _ask_later(self, delay_ms: int) -> None:
        self._wait()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(delay_ms / 1_000, self._ask)

    def _wait(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_answers(self, answers: Sequence[Answer]) -> None:
        for _, name, body in answers:
            self._on_answer(name, body)

    def _on_answer(self, name: str, body: Any) -> None:
        if self._answer is None or self._answer.done():
            return
        if name == self._answer_name:
            self._answer.set_result(body)
        elif name == "error":
            log.warning("%s gives no %s yet: %s", self._link.address, self._answer_name, body)
            self._ask_later(self._config.constants.retry_delay_ms_max)
