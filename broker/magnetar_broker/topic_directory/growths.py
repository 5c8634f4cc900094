"""Growth of a topic whose partitions lie on several brokers, at the first broker.

The announcement reaches the brokers of the topic's partitions first, and each of them tells its
subscriptions. Only then does the topic have its new partitions. If one of the brokers does not
answer in time, the announcement is taken back, and the caller asks again.
Source: docs/design/0025-topics-that-change.md, How a topic grows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from magnetar_broker.topic_directory.peer import BrokerPeer
from magnetar_broker.topics.alterations import SubscriptionKinds
from magnetar_core.errors import LogUnavailable, MagnetarError, from_wire
from magnetar_core.wire import topic_pb2 as wire

# How long a broker may take to tell the subscriptions of its partitions.
ANSWER_S = 5.0

# The subscriptions of partitions, by the partition's number.
Told = dict[int, SubscriptionKinds]
OnTold = Callable[[Told | MagnetarError], None]


class Survey:
    """Asks the brokers of a topic's partitions for its subscriptions, once they are sealed there.

    It calls back once: with the subscriptions, or with the error of a broker that did not tell.
    """

    def __init__(
        self, record: wire.TopicRecord, peers: Mapping[str, BrokerPeer], on_told: OnTold
    ) -> None:
        """Prepare it.

        Args:
            record: says to how many partitions the topic grows.
            peers: the brokers, by name. At least one.
        """
        self._record = record
        self._on_told: OnTold | None = on_told
        self._told: Told = {}
        self._peers = peers
        self._left = dict.fromkeys(peers)
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Ask all of them; what is known at once is called back at once."""
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(ANSWER_S, self._too_late)
        for name, peer in self._peers.items():
            command = wire.CommandDescribeTopic(topic=self._record.topic)
            peer.ask(command, partial(self._on_answer, name))

    def cancel(self) -> None:
        """Call nothing back: the broker ends."""
        self._on_told = None
        self._stop_timer()

    def _too_late(self) -> None:
        self._end(not_told(self._record, next(iter(self._left)), "it does not answer"))

    def _on_answer(self, peer: str, name: str, body: Any) -> None:
        if name == "error":
            self._end(not_told(self._record, peer, str(from_wire(body))))
        elif (body.topic_id, body.growing_to) != (self._record.topic_id, self._record.growing_to):
            self._end(not_told(self._record, peer, "it does not know yet that the topic grows"))
        else:
            for one in body.partitions:
                self._told[one.partition] = {
                    each.subscription: each.is_of_group for each in one.subscriptions
                }
            self._left.pop(peer, None)
            if not self._left:
                self._end(self._told)

    def _end(self, outcome: Told | MagnetarError) -> None:
        on_told, self._on_told = self._on_told, None
        self._stop_timer()
        if on_told is not None:
            on_told(outcome)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def not_told(record: wire.TopicRecord, peer: str, reason: str) -> LogUnavailable:
    """Return the error that names the broker for which the growth of a topic waits."""
    return LogUnavailable(
        f"{record.topic!r} gets partitions when the brokers of all its partitions have told their"
        f" subscriptions, and {peer} has not: {reason}. Ask again"
    )
