"""Listens at clients of the SDK, and knows when a member of a group has left a partition.

The next owner waits for the heartbeat that says so: it leaves at once, and not when the next one is
due (docs/design/0003-groups.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NoReturn

from tests.simulation.client_wiretap import Asked

from magnetar.testing.lives import Incarnation

# Heartbeats about what was lost leave this far from each other; and a moment until one leaves.
TOLD_SECONDS_MAX = 0.1 + 0.02

# With its number, and where: topic id and partition.
Consumer = tuple[Incarnation, int, int, int]
# Of a broker: by link, group and id.
MemberKey = tuple[int, str, str]


@dataclass
class _Member:
    """A member of a group, as its client speaks of it.

    Attributes:
        left_at: since when a heartbeat is due, because a partition was left; None: it is not.
        held: partitions that it says it has; by topic id and number.
        assigned: partitions that the last answer has assigned.
    """

    left_at: float | None = None
    held: set[tuple[int, int]] = field(default_factory=set)
    assigned: set[tuple[int, int]] = field(default_factory=set)


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
        self._members: dict[MemberKey, _Member] = {}
        # Whose each consumer of a group's partition is.
        self._owners: dict[Consumer, MemberKey] = {}

    def on_asked(self, asked: Asked) -> None:
        body = asked.body
        if asked.name == "subscribe" and body.HasField("member"):
            self._owners[_consumer(asked)] = _key(asked, body.member, body.subscription)
        elif asked.name == "group_heartbeat":
            key = (asked.link, body.group, body.member_id)
            member = self._members.setdefault(key, _Member())
            if member.left_at is not None and asked.at > member.left_at + TOLD_SECONDS_MAX:
                late_s = asked.at - member.left_at
                text = f"{asked.client.name} says {late_s:.3f} s late that it has left a partition"
                self._violation("time", text)
            member.left_at = None
            member.held = _partitions(body.held)
        elif asked.name in ("join_group", "leave_group"):
            self._starts_over((asked.link, body.group, body.member_id))

    def on_answer(self, asked: Asked, name: str, body: Any) -> None:
        if asked.name == "close_consumer" and name != "error":
            key = self._owners.pop(_consumer(asked), None)
            member = self._members.get(key) if key is not None else None
            if member is None or member.left_at is not None:
                return
            where = (asked.body.subscription.topic_id, asked.body.subscription.partition)
            # What was lost and is assigned again was not given up.
            if where in member.held and where not in member.assigned:
                member.left_at = self._time()
        elif asked.name == "group_heartbeat":
            key = (asked.link, asked.body.group, asked.body.member_id)
            if (member := self._members.get(key)) is None:
                return
            if name == "error":
                # It waits before it asks again.
                del self._members[key]
                return
            member.assigned = _partitions(body.assigned)
            if member.left_at is not None:
                # It could not say so while another one was under way.
                member.left_at = self._time()

    def on_lost(self, link: int) -> None:
        for key in [one for one in self._members if one[0] == link]:
            del self._members[key]

    def _starts_over(self, key: MemberKey) -> None:
        """What it had is nobody's business any more."""
        self._members.pop(key, None)
        for consumer in [one for one, owner in self._owners.items() if owner == key]:
            del self._owners[consumer]


def _consumer(asked: Asked) -> Consumer:
    where = asked.body.subscription
    return (asked.client, asked.body.consumer_id, where.topic_id, where.partition)


def _key(asked: Asked, member: Any, subscription: Any) -> MemberKey:
    return (asked.link, subscription.subscription, member.member_id)


def _partitions(held: Iterable[Any]) -> set[tuple[int, int]]:
    return {(one.partition.topic_id, one.partition.partition) for one in held}
