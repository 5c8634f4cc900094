"""Desired placement: which member should own which shard. Pure.

It depends on the names of shards and of live members, on drains and pins, and on nothing else: not
on who has what. A shard that its member refuses, since it could not open it, belongs elsewhere, and
no other one moves for that. So members with the same view compute the same placement, whatever
happened before.
Source: docs/design/0009-owners.md, Placement of shards.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from hashlib import blake2b

from magnetar_cluster.directory.view import KINDS, Format, ShardName, View

HASH_BYTES = 8


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

    Pairs of a shard and a member are hashed, and the highest ones come first (rendezvous with
    bounded loads): a member takes a shard if it has fewer than its part, and one more while there
    are some left over. So a member that comes or goes moves few shards beside those that have to
    move.

    Args:
        members: at least one.
        pins: shards with a member of their own, which count among the member's part.
    """
    found = dict(pins)
    loads = dict.fromkeys(members, 0)
    for member in pins.values():
        loads[member] += 1
    part, left_over = _level(sorted(loads.values()), len(shards) - len(pins))
    pairs = [(_hash(one, member), one, member) for one in shards for member in members]
    for _, shard, member in sorted(pairs, reverse=True):
        if shard in found or loads[member] > part:
            continue
        if loads[member] == part:
            if not left_over:
                continue
            left_over -= 1
        loads[member] += 1
        found[shard] = member
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
    for shard, member in found.items():
        if (shard.kind, shard.number, member) in refusing:
            others = [one for one in members if (shard.kind, shard.number, one) not in refusing]
            if others:
                found[shard] = max(others, key=lambda one: _hash(shard, one))
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


def _hash(shard: ShardName, member: str) -> int:
    # Numbers have no spaces, so that no two pairs have the same text.
    text = f"{shard.kind} {shard.number} {member}".encode()
    return int.from_bytes(blake2b(text, digest_size=HASH_BYTES).digest())
