"""Desired placement: which member should own which shard. Pure.

It depends on the names of shards and of live members, on drains and pins, and on nothing else: not
on who has what. A shard that its member refuses, since it could not open it, belongs elsewhere, and
no other one moves for that. So members with the same view compute the same placement, whatever
happened before.
Source: docs/design/0009-owners.md, Placement of shards.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from hashlib import blake2b
from heapq import heapify, heappop, heapreplace
from typing import Final

from magnetar_cluster.directory.view import KINDS, Format, ShardName, View

HASH_BYTES: Final = 8
_ROUND: Final = 1 << 8 * HASH_BYTES
# Of each member. With fewer, a member's shards go to few others when it goes.
POINTS: Final = 64
# Whose points are kept in memory.
_MEMBERS_MAX: Final = 4_096


def wish(view: View, shards: Iterable[ShardName]) -> dict[ShardName, str]:
    """Return the member that should have each shard.

    Args:
        shards: all of one kind. If some were left out, the others would be placed elsewhere.
    Returns:
        Empty if no member may have shards: all drain, or leave, or there is none.
    """
    wanted = list(shards)
    kinds = {one.kind for one in wanted}
    members = {name.name for kind in kinds for name in view.takers(kind)}
    pins = {one: view.pins[one] for one in wanted if view.pins.get(one) in members}
    found = spread(wanted, members, pins) if members else {}
    return _without_refused(found, view, members)


def wishes(view: View, fixed: Format) -> Mapping[ShardName, str]:
    """Return the desired member of each shard; shards that no member may have are left out."""
    return {
        shard: member for kind in KINDS for shard, member in wish(view, fixed.shards(kind)).items()
    }


def may_differ(before: View, after: View) -> bool:
    """Return whether two views may differ in placement. Computing it costs far more than this.

    A claim makes a new view, and the placement stays.
    """
    return (
        before.members != after.members
        or before.draining != after.draining
        or before.pins != after.pins
    )


def spread(
    shards: Collection[ShardName], members: Collection[str], pins: Mapping[ShardName, str]
) -> dict[ShardName, str]:
    """Return a member for each shard, such that no other choice would be more even.

    A ring has some points of each member, and a shard looks for a member from its own point on
    (consistent hashing with bounded loads). Pairs of a shard and a point are taken in the order of
    their distance: a member takes a shard if it has fewer than its part, and one more while there
    are some left over. So a member that comes or goes moves few shards beside those that have to
    move, and few pairs are looked at.

    Args:
        members: at least one.
        pins: shards with a member of their own, which count among the member's part.
    """
    found = dict(pins)
    loads = dict.fromkeys(members, 0)
    for member in pins.values():
        loads[member] += 1
    part, left_over = _level(sorted(loads.values()), len(shards) - len(pins))
    ring = _Ring(members)
    # Of each shard that has no member yet: distance of the point that is its next choice, and that
    # point's place. Names differ, so that nothing behind them is compared.
    choices = [(*ring.first(shard), shard) for shard in shards if shard not in found]
    heapify(choices)
    while choices:
        distance, place, shard = choices[0]
        member = ring.members[place]
        if loads[member] > part or (loads[member] == part and not left_over):
            heapreplace(choices, (*ring.after(distance, place), shard))
            continue
        if loads[member] == part:
            left_over -= 1
        loads[member] += 1
        found[shard] = member
        heappop(choices)
    return found


def _without_refused(
    found: dict[ShardName, str], view: View, members: Collection[str]
) -> dict[ShardName, str]:
    """Give shards that their members refuse to others; nothing else moves.

    A shard that all refuse stays: one member has to try.
    """
    refusing = {
        (name.kind, number, name.name)
        for name, member in view.members.items()
        if member.refused
        for number in member.refused
    }
    if not refusing:
        return found
    ring = _Ring(members)
    for shard, member in found.items():
        if (shard.kind, shard.number, member) in refusing:
            others = [one for one in members if (shard.kind, shard.number, one) not in refusing]
            if others:
                found[shard] = ring.nearest(shard, others)
    return found


def _level(loads: list[int], free: int) -> tuple[int, int]:
    """Return how high free shards fill the members with the lowest loads, and what is left over.

    Args:
        loads: in ascending order; at least one.
    """
    filled = 0
    for count, load in enumerate(loads, start=1):
        filled += load
        part, left_over = divmod(filled + free, count)
        if count == len(loads) or part < loads[count]:
            break
    return part, left_over


class _Ring:
    """Points of members, and where shards begin to look for one.

    Attributes:
        members: of each point, in the order of the points.
    """

    def __init__(self, members: Iterable[str]) -> None:
        points = sorted((point, member) for member in members for point in _points(member))
        self._points = [point for point, _ in points]
        self.members = [member for _, member in points]

    def first(self, shard: ShardName) -> tuple[int, int]:
        """Return the next point from a shard's own on: how far it is away, and its place."""
        # Numbers have no spaces, so that no two shards have the same text.
        own = _number(f"{shard.kind} {shard.number}", 0)
        place = bisect_left(self._points, own) % len(self._points)
        return (self._points[place] - own) % _ROUND, place

    def after(self, distance: int, place: int) -> tuple[int, int]:
        """Return the next point after a point of the ring, as first() does."""
        after = (place + 1) % len(self._points)
        return distance + (self._points[after] - self._points[place]) % _ROUND, after

    def nearest(self, shard: ShardName, members: Collection[str]) -> str:
        """Return the first of some members of the ring that a shard finds."""
        distance, place = self.first(shard)
        while self.members[place] not in members:
            distance, place = self.after(distance, place)
        return self.members[place]


@lru_cache(_MEMBERS_MAX)
def _points(member: str) -> tuple[int, ...]:
    return tuple(_number(member, number) for number in range(POINTS))


def _number(name: str, number: int) -> int:
    digest = blake2b(name.encode(), digest_size=HASH_BYTES, salt=number.to_bytes(HASH_BYTES))
    return int.from_bytes(digest.digest())
