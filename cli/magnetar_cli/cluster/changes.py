"""Changes that an administrator makes to a cluster: drains and pins, and how to wait for them.

All of it goes through the directory. Members see what changed there and act; a change outlives the
command that made it.
Source: docs/design/0009-owners.md, Placement of shards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass

from magnetar_cli.cluster.picture import shards_of
from magnetar_cluster.directory.cluster_directory import (
    ClusterDirectory,
    ClusterDirectoryUnavailable,
    ClusterDirectoryWentBack,
)
from magnetar_cluster.directory.view import KINDS, Format, MemberName, ShardName, View
from magnetar_cluster.directory.wish import wishes

# Between two attempts while the directory does not answer.
RETRY_S = 0.5

# Called with the number of shards that are in place, and with their total.
OnProgress = Callable[[int, int], None]


class WrongName(Exception):
    """A name that the cluster does not have; nothing was changed."""


class NobodyTakesShards(Exception):
    """No member could take the shards; nothing was changed."""


class CannotOpen(Exception):
    """A member could not open a shard, and leaves it to others."""


class NoCluster(Exception):
    """The directory does not know the cluster."""


@dataclass(frozen=True, slots=True)
class Known:
    """A cluster as the directory has it.

    Attributes:
        fixed: what was fixed when the cluster was made.
    """

    view: View
    fixed: Format


async def known(directory: ClusterDirectory) -> Known:
    """Read the directory.

    Raises:
        NoCluster: no server has made this cluster yet.
    """
    fixed = await directory.format(None)
    if fixed is None:
        raise NoCluster(
            "etcd does not have this cluster: is --cluster-id the id that its servers have? The "
            "first"
            " server that starts makes the cluster"
        )
    return Known(await present_view(directory), fixed)


async def present_view(directory: ClusterDirectory) -> View:
    """Return the current view."""
    async with aclosing(directory.watch()) as views:
        async for view in views:
            return view
    raise ClusterDirectoryUnavailable("the watch ended without a view")


def member_named(
    view: View, text: str, kind: str | None, *, also: Collection[MemberName] = ()
) -> MemberName:
    """Return the member that is called so.

    Args:
        kind: of the member; None: whichever has the name.
        also: members that need not be alive.
    Raises:
        WrongName: there is no such member, or one of each kind.
    """
    kinds = KINDS if kind is None else (kind,)
    every = {*view.members, *also}
    found = [one for one in (MemberName(each, text) for each in kinds) if one in every]
    if len(found) == 1:
        return found[0]
    if found:
        raise WrongName(f"a broker and a coordinator are called {text}; add --kind")
    names = ", ".join(sorted(one.name for one in every if one.kind in kinds))
    raise WrongName(
        f"no {kind or 'member'} of the cluster is called {text}; it has {names or 'none'}"
    )


def shard_named(fixed: Format, text: str) -> ShardName:
    """Return the shard that is called so, as broker-3.

    Raises:
        WrongName: there is no such shard.
    """
    for kind in KINDS:
        shards = fixed.shards(kind)
        for shard in shards:
            if str(shard) == text:
                return shard
    spans = (f"{each[0]} to {each[-1]}" for each in map(fixed.shards, KINDS) if each)
    raise WrongName(f"the cluster has no shard {text}; it has {' and '.join(spans)}")


async def begin_drain(
    directory: ClusterDirectory, view: View, name: MemberName, *, may_wait: bool
) -> None:
    """Ask a member to give up its shards.

    Args:
        view: the current one.
        may_wait: whether it is right that the shards stay until another member comes.
    Raises:
        NobodyTakesShards: all others of its kind are draining, or there are none.
    """
    others = view.takers(name.kind).keys() - {name}
    if not others and not may_wait and shards_of(view, name):
        raise NobodyTakesShards(
            f"no other {name.kind} could take the shards of {name.name}: start one first, or add"
            " --no-wait to drain it when one comes"
        )
    await directory.drain(name, draining=True)


async def end_drain(directory: ClusterDirectory, view: View, name: MemberName) -> bool:
    """Let a member have shards again; returns whether it was draining."""
    if name not in view.draining:
        return False
    await directory.drain(name, draining=False)
    return True


async def until_drained(
    directory: ClusterDirectory, name: MemberName, on_progress: OnProgress
) -> None:
    """Wait until a member has no shard."""
    total = 0

    def is_done(view: View) -> bool:
        nonlocal total
        left = len(shards_of(view, name))
        total = max(total, left)
        on_progress(total - left, total)
        return left == 0

    await until(directory, is_done)


async def pin(directory: ClusterDirectory, view: View, shard: ShardName, name: MemberName) -> None:
    """Pin a shard to a member.

    Raises:
        WrongName: the member takes no shards of this kind, or none at the moment.
        CannotOpen: it tried before and failed.
    """
    if name.kind != shard.kind:
        raise WrongName(f"{name.name} is a {name.kind}, and {shard} is of a {shard.kind}")
    member = view.members.get(name)
    if member is None or member.leaving:
        raise WrongName(f"{name.name} is not alive, or about to stop; start it first")
    if name in view.draining:
        raise WrongName(
            f"{name.name} is draining; `magnetar cluster drain {name.name} --undo` lets it have"
            " shards again"
        )
    _check_not_refused(view, shard, name)
    await directory.pin(shard, name.name)


def _check_not_refused(view: View, shard: ShardName, name: MemberName) -> None:
    member = view.members.get(name)
    if member is not None and shard.number in member.refused:
        raise CannotOpen(
            f"{name.name} could not open {shard}, and leaves it to others for some time; its log"
            " says why. Mend that, and start it again"
        )


async def until_moved(
    directory: ClusterDirectory, shard: ShardName, name: MemberName, on_progress: OnProgress
) -> None:
    """Wait until a member has a shard.

    Raises:
        CannotOpen: it tried and failed. The pin stays.
    """

    def is_done(view: View) -> bool:
        _check_not_refused(view, shard, name)
        owner = view.shard_owners.get(shard)
        has = owner is not None and owner.member == name.name
        on_progress(int(has), 1)
        return has

    await until(directory, is_done)


async def take_pins_back(directory: ClusterDirectory, view: View) -> list[ShardName]:
    """Take all pins back; returns the shards that had one."""
    pinned = sorted(view.pins)
    for shard in pinned:
        await directory.pin(shard, "")
    return pinned


async def until_balanced(
    directory: ClusterDirectory, fixed: Format, on_progress: OnProgress
) -> None:
    """Wait until every shard that can be opened is at its desired member."""

    def is_done(view: View) -> bool:
        wished = wishes(view, fixed)
        away = list(elsewhere(view, wished))
        on_progress(len(wished) - len(away), len(wished))
        return not away

    await until(directory, is_done)


def elsewhere(view: View, wished: Mapping[ShardName, str]) -> Iterable[ShardName]:
    """Return the shards that are not at their desired members."""
    for shard, member in wished.items():
        owner = view.shard_owners.get(shard)
        if owner is None or owner.member != member:
            yield shard


async def until(directory: ClusterDirectory, is_done: Callable[[View], bool]) -> None:
    """Look at each view until one is as desired, also after pauses of the directory."""
    while True:
        try:
            async with aclosing(directory.watch()) as views:
                async for view in views:
                    if is_done(view):
                        return
        except ClusterDirectoryWentBack:
            raise
        except ClusterDirectoryUnavailable:
            pass  # what was changed stays changed, and is seen when the directory is back
        await asyncio.sleep(RETRY_S)
