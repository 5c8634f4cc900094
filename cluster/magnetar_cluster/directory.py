"""The directory of a cluster, as its members use it: leases, claims and a watch.

Whoever implements it is linearizable: what one member has written, every later question of any
member sees. What is bound to a lease disappears with it.
Source: docs/design/0009-owners.md, The directory.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from magnetar_cluster.view import Format, Member, MemberName, ShardName, View
from magnetar_storage.durable_mark import DurableMark

# Of one grant; never given twice by the same directory.
LeaseId = int


class DirectoryUnavailable(ConnectionError):
    """The directory does not answer; what was asked may or may not have had its effect."""


class DirectoryWentBack(DirectoryUnavailable):
    """The directory is at an earlier state than before, and says nothing that counts any more.

    It was restored from a backup, or another one answers in its place. Shards may have owners that
    this member never heard of, and epochs are given again: whoever learned something from it
    earlier has to forget all of that, and begin anew. Every later question raises this, too.
    """


class LeaseExpired(Exception):
    """The lease is no more, and with it everything that was bound to it."""


class Directory(Protocol):
    """What members of a cluster agree on.

    Every method raises DirectoryUnavailable when no answer comes in time.
    """

    async def format(self, wanted: Format | None) -> Format | None:
        """Return the cluster's format; fix it as wanted if the cluster is new.

        Returns:
            What is fixed, which may differ from what was wanted. None: nothing is, or wanted.
        """
        ...

    async def grant(self, duration_ms: int) -> LeaseId:
        """Begin a lease, which ends when it is not renewed for this long."""
        ...

    async def renew(self, lease: LeaseId) -> None:
        """Begin the lease's duration anew.

        Raises:
            LeaseExpired: the lease has ended.
        """
        ...

    async def revoke(self, lease: LeaseId) -> None:
        """End a lease. Repeating it is harmless."""
        ...

    async def join(self, lease: LeaseId, name: MemberName, member: Member) -> bool:
        """Become a member until the lease ends; return False if the name is taken.

        Under the same lease the name is not taken: what the member says of itself is replaced.

        Raises:
            LeaseExpired: the lease has ended.
        """
        ...

    async def claim(self, lease: LeaseId, shard: ShardName, member: str) -> int | None:
        """Become the owner of a shard that has none, until the lease ends.

        Returns:
            The epoch of the ownership; None: another member has the shard. A claim whose answer was
            lost may be repeated under the same lease, and returns the epoch that it got.
        Raises:
            LeaseExpired: the lease has ended.
        """
        ...

    async def release(self, shard: ShardName, epoch: int) -> None:
        """Give up an ownership. Another epoch than the present one has no effect.

        For the owner alone, when nothing of the shard is open: whoever else calls it makes a second
        owner of a shard whose first one has yet to hear of it.
        """
        ...

    async def drain(self, name: MemberName, *, draining: bool) -> None:
        """Ask a member to give up its shards, or ask it no more. Outlives the member."""
        ...

    async def pin(self, shard: ShardName, member: str) -> None:
        """Wish a shard at a member; an empty name takes the wish back."""
        ...

    async def note_durable(self, shard: ShardName, epoch: int, mark: DurableMark) -> bool:
        """Keep how far the store of a shard is durable. Outlives the owner, and is in no view.

        Args:
            epoch: of the ownership under which it became durable; 0: the shard has no owner.
        Returns:
            False: the shard has another owner, or none. No effect.
        """
        ...

    async def durable_mark(self, shard: ShardName) -> DurableMark | None:
        """Return how far the store of a shard was durable; None: it is not known.

        Raises:
            StoreDamaged: the row cannot be understood.
        """
        ...

    def watch(self) -> AsyncGenerator[View, None]:
        """Return the present view, and then each later one; views in between may be left out.

        Iterating raises DirectoryUnavailable when the watch breaks, also when the directory cannot
        be heard any more while nothing changes; a new one begins anew. Whoever stops reading closes
        it (contextlib.aclosing).
        """
        ...

    async def close(self) -> None:
        """Ask nothing any more. Leases that were not revoked end by themselves."""
