"""Asks a broker to deliver messages again that were given back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from magnetar.link.runtime import Runtime, WorkOwner
from magnetar.link.session import LinkSession, Result
from magnetar.messaging.acknowledging.acks import RANGES_PER_COMMAND_MAX, ranges_to_wire
from magnetar.messaging.interval_set import IntervalSet, Range
from magnetar_core.errors import MagnetarError
from magnetar_core.ids import SubscriptionName
from magnetar_core.transport.transport import LinkClosed
from magnetar_core.wire import broker_pb2

log = logging.getLogger("magnetar")


class NackRequests:
    """The nacks of a consumer on a partition.

    Each attachment brings all unacknowledged messages by itself. So a nack that did not reach the
    broker is sent after the next one only to be counted.
    """

    def __init__(
        self,
        runtime: Runtime,
        name: SubscriptionName,
        consumer_id: int,
        attached: Callable[[], LinkSession | None],
        owner: WorkOwner,
    ) -> None:
        """No nack is under way.

        Args:
            attached: the link on which the consumer is attached now.
            owner: called if a nack cannot be repeated.
        """
        self._owner = owner
        self._runtime = runtime
        self._name = name
        self._consumer_id = consumer_id
        self._attached = attached
        # By redelivery counts: to be sent after the next attachment.
        self._unsent: dict[int, IntervalSet] = {}

    def ask(self, counts: Mapping[int, list[Range]]) -> None:
        """Send nacks, now or after the next attachment.

        Args:
            counts: the offsets, by the redelivery counts with which the application had them.
        """
        for redelivery_count, ranges in counts.items():
            for start in range(0, len(ranges), RANGES_PER_COMMAND_MAX):
                self._ask(ranges[start : start + RANGES_PER_COMMAND_MAX], redelivery_count)

    def on_attached(self) -> None:
        """Send the nacks that could not be sent before."""
        unsent, self._unsent = self._unsent, {}
        self.ask({count: list(ranges) for count, ranges in unsent.items()})

    def _ask(self, ranges: list[Range], redelivery_count: int) -> None:
        session = self._attached()
        if session is None:
            self._unsent.setdefault(redelivery_count, IntervalSet()).add_all(ranges)
            return

        def on_reply(result: Result[broker_pb2.CommandNackResponse]) -> None:
            if isinstance(result, LinkClosed):
                self._ask(ranges, redelivery_count)
            elif isinstance(result, MagnetarError):
                if result.retriable:
                    delay_ms = self._runtime.config.backoff_ms_max
                    self._runtime.call_later(
                        self._owner, delay_ms, self._ask, ranges, redelivery_count
                    )
                else:
                    log.info("%s: a nack failed: %s", self._name, result)

        session.request(
            broker_pb2.CommandNack(
                subscription=self._name.to_wire(),
                consumer_id=self._consumer_id,
                ranges=ranges_to_wire(ranges),
                redelivery_count=redelivery_count,
            ),
            on_reply,
        )
