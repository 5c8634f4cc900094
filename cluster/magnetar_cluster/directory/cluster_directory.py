"""The directory of a cluster, as its members use it: leases, claims and a watch.

Implementations are linearizable: a write of one member is seen by every later question of any
member. Rows that are bound to a lease disappear with it.
Source: docs/design/0009-owners.md, The directory.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from magnetar_cluster.directory.view import Format, Member, MemberName, ShardName, View
from magnetar_storage.durable_mark import DurableMark

# Of one grant; never given twice by the same directory.
LeaseId = int


class ClusterDirectoryUnavailable(ConnectionError):
    """The directory does not answer; what was asked may or may not have had its effect."""


class ClusterDirectoryWentBack(ClusterDirectoryUnavailable):
    """The directory is at an earlier state than before: its answers no longer count.

    It was restored from a backup, or another one answers in its place. Shards may have owners that
    this member does not know, and epochs are given again: a member has to forget all that it
    learned from it, and begin anew. Every later question raises this, too.
    """


class LeaseExpired(Exception):
    """The lease has ended, and with it everything that was bound to it."""


class ClusterDirectory(Protocol):
    """Agreement of a cluster's members.

    Every method raises ClusterDirectoryUnavailable when no answer comes in time.
    """

    async def format(self, wanted: Format | None) -> Format | None:
        """Return the cluster's format; fix it as given if the cluster is new.

        Returns:
            The fixed format, which may differ from the given one. None: none is fixed, or given.
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

        For the owner alone, when nothing of the shard is open: any other caller would make a second
        owner of a shard whose first one does not know of it yet.
        """
        ...

    async def drain(self, name: MemberName, *, draining: bool) -> None:
        """Ask a member to give up its shards, or stop asking it. Outlives the member."""
        ...

    async def pin(self, shard: ShardName, member: str) -> None:
        """Pin a shard to a member; an empty name removes the pin."""
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

        Iterating raises ClusterDirectoryUnavailable when the watch breaks, also when the directory
        is out of reach while nothing changes; a new one begins anew. A caller that stops reading
        closes it (contextlib.aclosing).
        """
        ...

    async def close(self) -> None:
        """Stop asking. Leases that were not revoked end by themselves."""
