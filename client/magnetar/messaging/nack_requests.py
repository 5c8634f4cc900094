"""Asks a broker to deliver messages again that were given back."""

from __future__ import annotations

import logging
from collections.abc import Callable

from magnetar.link.runtime import Runtime
from magnetar.link.session import LinkSession, Result
from magnetar.messaging.acks import RANGES_PER_COMMAND_MAX, ranges_to_wire
from magnetar.messaging.interval_set import Range
from magnetar_core.errors import MagnetarError
from magnetar_core.ids import SubscriptionName
from magnetar_core.wire import broker_pb2

log = logging.getLogger("magnetar")


class NackRequests:
    """The nacks of a consumer on a partition."""

    def __init__(
        self,
        runtime: Runtime,
        name: SubscriptionName,
        consumer_id: int,
        attached: Callable[[], LinkSession | None],
    ) -> None:
        """No nack is under way.

        Args:
            attached: the link on which the consumer is attached now.
        """
        self._runtime = runtime
        self._name = name
        self._consumer_id = consumer_id
        self._attached = attached

    def ask(self, ranges: list[Range]) -> None:
        """Send a nack, if the consumer is attached.

        Otherwise the next attachment brings all unacknowledged messages by itself.
        """
        session = self._attached()
        if session is None or not ranges:
            return
        ranges, rest = ranges[:RANGES_PER_COMMAND_MAX], ranges[RANGES_PER_COMMAND_MAX:]

        def on_reply(result: Result[broker_pb2.CommandNackResponse]) -> None:
            if isinstance(result, MagnetarError):
                if result.retriable and session is self._attached():
                    delay_s = self._runtime.config.backoff_ms_max / 1000
                    self._runtime.loop.call_later(delay_s, self.ask, ranges)
                else:
                    log.info("%s: a nack failed: %s", self._name, result)

        session.request(
            broker_pb2.CommandNack(
                subscription=self._name.to_wire(),
                consumer_id=self._consumer_id,
                ranges=ranges_to_wire(ranges),
            ),
            on_reply,
        )
        self.ask(rest)
