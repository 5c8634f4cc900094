"""Sends the low watermark to a broker, and receives the orphans that the broker holds.

Source: docs/design/0001-protocol.md, Low watermark, and Orphaned participants.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from magnetar_core.link.broker_link import BrokerLink
from magnetar_core.wire import transaction_pb2 as pb

log = logging.getLogger(__name__)


class WatermarkSender:
    """Sends a single watermark at a time: the next leaves only when the last was answered.

    Args:
        on_held: called with the orphans that the broker holds.
    """

    def __init__(
        self,
        link: BrokerLink,
        on_held: Callable[[Iterable[pb.OrphanedParticipant]], None],
    ) -> None:
        self._link = link
        self._on_held = on_held
        self._known: list[pb.OrphanedParticipant] = []
        self._is_asked = False
        self._request_id = 0

    def tell(self, watermark: pb.CommandLowWatermark) -> None:
        """Send the watermark, even unchanged: the answer lists the broker's orphans.

        Nothing is sent while the broker has not answered the last watermark.
        """
        if not self._link.is_up or self._is_asked:
            return
        if self._known:
            word = pb.CommandLowWatermark()
            word.CopyFrom(watermark)
            word.known.extend(self._known)
            watermark, self._known = word, []
        self._is_asked = True
        self._request_id = self._link.next_request_id()
        self._link.send(watermark, self._request_id)

    def add_known(self, participants: Iterable[pb.OrphanedParticipant]) -> None:
        """Tell the broker with the next watermark that these participants are known, durably."""
        self._known.extend(participants)

    def reset(self) -> None:
        """Note that the link broke."""
        self._known = []
        self._is_asked = False

    def on_answer(self, request_id: int, name: str, body: Any) -> bool:
        """Take an answer; return whether it answered the last watermark."""
        if not self._is_asked or request_id != self._request_id:
            return False
        self._is_asked = False
        if name == "low_watermark_response":
            self._on_held((*body.orphans, *body.held))
        else:
            log.warning("%s refuses the low watermark: %s", self._link.address, body)
        return True
