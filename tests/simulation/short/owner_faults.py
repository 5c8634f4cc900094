"""Faults of a cluster with owners, as data: they strike whoever has a shard at that moment."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context
from random import Random
from typing import TYPE_CHECKING

from tests.simulation.owners.members import MemberNode

if TYPE_CHECKING:
    from tests.simulation.world import World


def _victim(world: World, server: str) -> MemberNode | None:
    """The process that has a shard, and lives."""
    owners = world.owners
    seat = owners.seat_named(server) if owners is not None else None
    node = owners.owner_node(seat) if owners is not None and seat is not None else None
    return node if node is not None and node.alive else None


def member_killed(
    world: World, random: Random, *, server: str, down_s: float, for_good: bool
) -> bool:
    """A process dies. Args: for_good: another one takes its place, unless there are more."""
    node, owners = _victim(world, server), world.owners
    if node is None or owners is None:
        return False
    node.gone = for_good
    node.kill()

    def rise() -> None:
        if world.network.quiet:
            return
        if not node.gone:
            if not node.alive:
                node.start()
        elif not owners.others_alive(node):
            owners.add(node.kind).start()

    world.loop.call_later(down_s, rise, context=Context())
    return True


def member_frozen(
    world: World, random: Random, *, server: str, seconds: float, asking: bool
) -> bool:
    """Nothing of a process runs, at whatever instruction it is.

    Args:
        asking: that instruction lies between a question to the directory and the answer.
    """
    node, owners = _victim(world, server), world.owners
    if node is None or owners is None:
        return False
    owners.freeze(node, seconds, asking=asking)
    return True


def member_stopped(world: World, random: Random, *, server: str, down_s: float) -> bool:
    """A process is asked to end: it hands over what it has. Then it is started again."""
    node, owners = _victim(world, server), world.owners
    if node is None or owners is None:
        return False
    world.calm.trouble(owners.seats_at(node), 2.0)
    node.stop()

    def rise() -> None:
        # It may take its time; then it is killed, as supervisors do.
        if not world.network.quiet:
            node.kill()
            node.start()

    world.loop.call_later(down_s, rise, context=Context())
    return True


def member_joins(world: World, random: Random, *, of: str) -> bool:
    owners = world.owners
    if owners is None:
        return False
    owners.add(of).start()
    return True


def drained(world: World, random: Random, *, server: str, seconds: float) -> bool:
    """An administrator empties a member, for a while."""
    node, owners = _victim(world, server), world.owners
    if node is None or owners is None:
        return False
    world.calm.trouble(owners.seats_at(node), 2.0)
    owners.drain(node, draining=True)

    def again() -> None:
        owners.drain(node, draining=False)

    world.loop.call_later(seconds, again, context=Context())
    return True


def pinned(world: World, random: Random, *, server: str, member: int, seconds: float) -> bool:
    """An administrator wants a shard elsewhere. Args: member: by its number."""
    owners = world.owners
    seat = owners.seat_named(server) if owners is not None else None
    if owners is None or seat is None:
        return False
    nodes = [one for one in owners.members.values() if one.kind == seat.shard.kind]
    world.calm.trouble([seat.name], 2.0)
    owners.pin(seat.shard, nodes[member % len(nodes)])

    def no_more() -> None:
        owners.pin(seat.shard, None)

    world.loop.call_later(seconds, no_more, context=Context())
    return True


def directory_away(world: World, random: Random, *, seconds: float) -> bool:
    if world.owners is None:
        return False
    world.owners.directory_away(seconds)
    return True


def directory_cut(
    world: World, random: Random, *, server: str, direction: str, seconds: float
) -> bool:
    """A member does not reach the directory, or hears nothing of it, or neither."""
    node, owners = _victim(world, server), world.owners
    if node is None or owners is None:
        return False
    for way in ("to", "back"):
        if direction in (way, "both"):
            owners.cut(node, way, seconds)
    return True


def renewal_late(world: World, random: Random, *, server: str, seconds: float) -> bool:
    """The answer to a member's renewal comes late, and then it hears nothing more."""
    node, owners = _victim(world, server), world.owners
    if node is None or owners is None:
        return False
    owners.answer_late(node, seconds)
    return True


def store_cut(world: World, random: Random, *, server: str, seconds: float) -> bool:
    """What a member writes to stores arrives only after a while."""
    node, owners = _victim(world, server), world.owners
    if node is None or owners is None:
        return False
    world.calm.trouble(owners.seats_at(node), seconds + 1.0)
    node.lose_store(seconds)
    return True


KINDS: dict[str, Callable[..., bool]] = {
    "member killed": member_killed,
    "member frozen": member_frozen,
    "member stopped": member_stopped,
    "member joins": member_joins,
    "drained": drained,
    "pinned": pinned,
    "directory away": directory_away,
    "directory cut": directory_cut,
    "renewal late": renewal_late,
    "store cut": store_cut,
}
