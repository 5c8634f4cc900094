"""Protocols of a shard's server: how a member opens it, closes it, and abandons it.

Source: docs/design/0009-owners.md, Placement of shards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from magnetar_cluster.directory.view import ShardName


class RunningShard(Protocol):
    """A shard that is open here."""

    async def close(self) -> None:
        """End the shard in order, for a handover.

        Takes no new conversations, ends the present ones after their answers, makes everything
        durable, closes the store. Cancelled, or when it raises, abandon() follows.
        """
        ...

    async def abandon(self) -> None:
        """End the shard at once, and write nothing: another member may have it.

        Also called after on_end, and while close() is under way or has failed: it lets go of
        what is left.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardOwnership:
    """Ownership of a shard, from a claim until it is lost or given up.

    Attributes:
        shard: the owned shard.
        epoch: no other ownership has the same one.
        may_speak: whether a frame may leave in the shard's name at this moment. Once the
            ownership is over it is never true again, also when the member has another lease.
        on_end: to be called once if the open shard ends by itself: its store was fenced, or
            failed.
    """

    shard: ShardName
    epoch: int
    may_speak: Callable[[], bool]
    on_end: Callable[[BaseException], None]


class ShardOpener(Protocol):
    """Opens shards; brokers and coordinators each have one."""

    async def open(self, ownership: ShardOwnership) -> RunningShard:
        """Open a shard's store, which fences its previous owner, recover it, and serve it.

        Cancelled when the shard is lost meanwhile, or the server ends at once; then nothing of the
        shard is left, either.

        Raises:
            Exception: the shard cannot be opened now. Nothing of it is left.
        """
        ...
