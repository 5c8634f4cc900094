"""Marks of stores whose owners change: rows of the directory."""

from __future__ import annotations

from magnetar_cluster.directory.cluster_directory import ClusterDirectory
from magnetar_cluster.directory.view import ShardName
from magnetar_storage.durable_mark import DurableMark


class ShardMarkPlace:
    """The row with the mark of a shard's store; implements MarkPlace.

    Args:
        epoch: of the ownership that writes; 0: a person's command, while the shard has no owner.
    """

    is_required = False

    def __init__(self, directory: ClusterDirectory, shard: ShardName, epoch: int = 0) -> None:
        self._directory = directory
        self._shard = shard
        self._epoch = epoch

    async def read(self) -> DurableMark | None:
        """Return the mark; see `MarkPlace.read`."""
        return await self._directory.durable_mark(self._shard)

    async def write(self, mark: DurableMark) -> None:
        """Replace the mark. Without effect if the shard has another owner, who writes it now."""
        await self._directory.note_durable(self._shard, self._epoch, mark)

    def __str__(self) -> str:
        return f"etcd's mark of {self._shard}"
