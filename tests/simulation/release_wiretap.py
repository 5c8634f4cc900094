"""Listens at clients of the SDK, and knows when a member of a group has left a partition.

The next owner waits for the heartbeat that says so: it leaves at once, and not when the next one is
due (docs/design/0003-groups.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from tests.simulation.client_wiretap import Asked
from tests.virtual_loop import Incarnation

# Heartbeats about what was lost leave this far from each other; and a moment until one leaves.
TOLD_SECONDS_MAX = 0.1 + 0.02

# With its number, and where: topic id and partition.
Consumer = tuple[Incarnation, int, int, int]


@dataclass
class _Member:
    """A member of a group, as its client speaks of it.

    Attributes:
        link: of its last heartbeat.
        left_at: since when a heartbeat is due, because a partition was left; None: it is not.
    """

    link: int
    left_at: float | None = None


class ReleaseWiretap:
    """Args:
    time: virtual seconds.
    violation: ends the run; invariant and text.
    """

    def __init__(
        self, time: Callable[[], float], violation: Callable[[str, str], NoReturn]
    ) -> None:
        self._time = time
        self._violation = violation
        self._members: dict[tuple[Incarnation, str, str], _Member] = {}
        # Whose each consumer of a group's partition is.
        self._owners: dict[Consumer, tuple[Incarnation, str, str]] = {}

    def on_asked(self, asked: Asked) -> None:
        body = asked.body
        if asked.name == "subscribe" and body.HasField("member"):
            self._owners[_consumer(asked)] = _key(asked, body.member, body.subscription)
        elif asked.name == "group_heartbeat":
            key = (asked.client, body.group, body.member_id)
            member = self._members.setdefault(key, _Member(asked.link))
            if member.left_at is not None and asked.at > member.left_at + TOLD_SECONDS_MAX:
                late_s = asked.at - member.left_at
                text = f"{asked.client.name} says {late_s:.3f} s late that it has left a partition"
                self._violation("time", text)
            member.link, member.left_at = asked.link, None
        elif asked.name in ("join_group", "leave_group"):
            self._members.pop((asked.client, body.group, body.member_id), None)

    def on_answer(self, asked: Asked, name: str, body: Any) -> None:
        if asked.name == "close_consumer" and name != "error":
            key = self._owners.pop(_consumer(asked), None)
            member = self._members.get(key) if key is not None else None
            if member is not None and member.left_at is None:
                member.left_at = self._time()
        elif asked.name == "group_heartbeat":
            key = (asked.client, asked.body.group, asked.body.member_id)
            member = self._members.get(key)
            if member is None:
                return
            if name == "error":
                # It waits before it asks again.
                del self._members[key]
            elif member.left_at is not None:
                # It could not say so while another one was under way.
                member.left_at = self._time()

    def on_lost(self, link: int) -> None:
        for key in [key for key, one in self._members.items() if one.link == link]:
            del self._members[key]


def _consumer(asked: Asked) -> Consumer:
    where = asked.body.subscription
    return (asked.client, asked.body.consumer_id, where.topic_id, where.partition)


def _key(asked: Asked, member: Any, subscription: Any) -> tuple[Incarnation, str, str]:
    return (asked.client, subscription.subscription, member.member_id)
