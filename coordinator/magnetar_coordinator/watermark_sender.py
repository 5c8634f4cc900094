"""Tells one broker the low watermark, and hears of orphans in return.

Source: docs/design/protocol.md, Low watermark.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from magnetar_coordinator.broker_link import BrokerLink
from magnetar_core.wire import transaction_pb2 as pb

log = logging.getLogger(__name__)


class WatermarkSender:
    """One word at a time: the next leaves only when the last was answered."""

    def __init__(
        self, link: BrokerLink, on_orphans: Callable[[Iterable[pb.OrphanedParticipant]], None]
    ) -> None:
        self._link = link
        self._on_orphans = on_orphans
        self._known: pb.CommandLowWatermark | None = None
        self._asked: pb.CommandLowWatermark | None = None
        self._request_id = 0

    def tell(self, watermark: pb.CommandLowWatermark) -> None:
        """Send it unless the broker knows it, or has not answered the last one."""
        if not self._link.is_up or self._asked is not None or watermark == self._known:
            return
        self._asked = watermark
        self._request_id = self._link.next_request_id()
        self._link.send(watermark, self._request_id)

    def repeat(self) -> None:
        """Let the next word be sent even if it has not changed."""
        self._known = None

    def reset(self) -> None:
        """The link broke."""
        self._known = self._asked = None

    def on_answer(self, request_id: int, name: str, body: Any) -> bool:
        """Whether this was the answer to the last word."""
        if self._asked is None or request_id != self._request_id:
            return False
        self._known, self._asked = self._asked, None
        if name == "low_watermark_response":
            self._on_orphans(body.orphans)
        else:
            self._known = None
            log.warning("%s refuses the low watermark: %s", self._link.address, body)
        return True
