"""A member's part in the ownership of shards: its lease, what it saw, and the shards it has.

Source: docs/design/0009-owners.md, Who shall have what; Zombies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from magnetar_cluster.directory import Directory
from magnetar_cluster.host_settings import HostSettings
from magnetar_cluster.shard_opener import ShardOpener
from magnetar_cluster.view import Format, Member, MemberName, ShardName, View


class Host:
    """Takes, opens, keeps and hands over shards of one kind, on behalf of one member.

    Attributes:
        view: the latest one; none yet has revision 0.
        on_view: called with each later view.
        on_speech: called with False when the member has to be silent: all conversations of its
            shards are to be ended at once, and none taken. Called with True when it may speak.

    Args:
        cluster_format: how many shards there are.
        name: of this member; its kind says which shards it takes.
        now_ms: a clock that counts sleep.
        random: for pauses.
    """

    def __init__(
        self,
        directory: Directory,
        opener: ShardOpener,
        settings: HostSettings,
        *,
        cluster_format: Format,
        name: MemberName,
        member: Member,
        now_ms: Callable[[], float],
        random: Random,
    ) -> None:
        self.view = View()
        self.on_view: list[Callable[[View], None]] = []
        self.on_speech: list[Callable[[bool], None]] = []

    async def start(self) -> None:
        """Begin. Returns at once: the directory need not answer yet."""
        raise NotImplementedError

    async def drain(self) -> None:
        """Hand over all shards, and leave.

        Returns when each shard has another owner, or nobody else is there to have it. It may be
        cancelled when that takes too long; close() then ends what is left.
        """
        raise NotImplementedError

    async def close(self) -> None:
        """End at once: abandon what is open, and give up the lease."""
        raise NotImplementedError

    def may_speak(self) -> bool:
        """Return whether the member's lease lets it speak at this moment."""
        raise NotImplementedError

    @property
    def shards(self) -> Mapping[ShardName, object]:
        """The shards that this member has or is about to have, with their states."""
        raise NotImplementedError
