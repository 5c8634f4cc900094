"""Listens where frames leave and enter clients of the SDK: what they ask, and what they are told.

Copies and losses happen behind this place, so all that is heard here the SDK has done itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import magnetar
from magnetar.testing.lives import Incarnation
from magnetar_core.wire import service_pb2 as pb

Txn = tuple[int, int]
NO_TXN: Txn = (0, 0)


class Asked(NamedTuple):
    """A request that an SDK has written."""

    client: Incarnation
    link: int
    request_id: int
    name: str
    body: Any
    at: float


class ClientWiretaps:
    """Tells its listeners of every request, answer and end of a link.

    Args:
        time: virtual seconds.
        taps: whatever listens.
    """

    def __init__(self, time: Callable[[], float], *taps: Any) -> None:
        self._time = time
        self._taps = taps
        # By link; others speak by hand.
        self._of_sdk: dict[int, Incarnation | None] = {}
        self._asked: dict[tuple[int, int], Asked] = {}
        self._sdk_name = magnetar.ClientConfig().client_name

    def on_written(self, link: int, client: Incarnation, frame: pb.Frame) -> None:
        """A client writes a frame."""
        for command in frame.commands:
            name = command.WhichOneof("body")
            if name is None:
                continue
            if link not in self._of_sdk:
                is_sdk = name == "hello" and command.hello.client_name == self._sdk_name
                self._of_sdk[link] = client if is_sdk else None
            if self._of_sdk[link] is None:
                return
            body = getattr(command, name)
            asked = Asked(client, link, command.request_id, name, body, self._time())
            if command.request_id:
                self._asked[link, command.request_id] = asked
            for tap in self._taps:
                tap.on_asked(asked)

    def on_heard(self, link: int, frame: pb.Frame) -> None:
        """A frame reaches a client."""
        client = self._of_sdk.get(link)
        if client is None:
            return
        for command in frame.commands:
            asked = self._asked.pop((link, command.request_id), None)
            name = command.WhichOneof("body")
            if name == "deliver":
                for tap in self._taps:
                    if hasattr(tap, "on_delivered"):
                        tap.on_delivered(client, command.deliver)
            if asked is None or name is None:
                continue
            for tap in self._taps:
                tap.on_answer(asked, name, getattr(command, name))

    def on_lost(self, link: int) -> None:
        """A client has closed a link, or was told that it broke."""
        if self._of_sdk.get(link) is not None:
            self._of_sdk[link] = None
            for request in [one for one in self._asked if one[0] == link]:
                del self._asked[request]
            for tap in self._taps:
                if hasattr(tap, "on_lost"):
                    tap.on_lost(link)


def txn_of(wire: Any) -> Txn:
    return (wire.most_bits, wire.least_bits)


def followed(send: Any) -> set[Txn]:
    """The transactions that a send names as those it comes after (rule k)."""
    return {txn_of(one) for one in send.follows_txn_ids}
