"""Links between shards: to a name, wherever its shard is at the moment.

Source: docs/design/0009-owners.md, Addresses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from magnetar_cluster.directory.view import ShardName, View
from magnetar_cluster.directory.whereabouts import shard_named, where_is
from magnetar_core.membership.shard_address import ShardAddress
from magnetar_core.transport.frames import Carried
from magnetar_core.transport.transport import Link, LinkClosed, Transport


class _Conversation:
    """A link to a shard, or an attempt at one."""

    def __init__(self, shard: ShardName, address: ShardAddress) -> None:
        self.shard = shard
        self.address = address
        self.opening: asyncio.Task[Link] | None = None
        self.link: Link | None = None

    def end(self) -> None:
        """End it, because the shard is elsewhere."""
        if self.link is not None:
            self.link.close()
        elif self.opening is not None:
            self.opening.cancel()


class ClusterTransport:
    """Transport of a shard's server to others, whose addresses are names such as broker-3.

    A link to a former owner is closed when the view names another one, or none: it may be a server
    that sleeps, and its silence would be waited for.

    Args:
        transport: carries the links. It is this transport's own, and is closed with it.
        view: returns the latest view; its owner calls `owners_changed` with each later one.
    """

    def __init__(self, transport: Transport, view: Callable[[], View]) -> None:
        self._transport = transport
        self._view = view
        # A dict, since a set's order would differ from run to run.
        self._conversations: dict[_Conversation, None] = {}

    async def connect(
        self,
        address: str,
        service: str,
        on_frame: Callable[[Carried], None],
        on_closed: Callable[[], None],
    ) -> Link:
        """Open a conversation with the owner of a shard.

        Args:
            address: the shard's name.
        Raises:
            LinkClosed: no member has the shard at the moment, or its owner cannot be reached.
        """
        shard = shard_named(address)
        if shard is None:
            raise LinkClosed(f"{address!r} is not a shard of the cluster")
        where = where_is(self._view(), shard)
        if not where.is_known:
            raise LinkClosed(f"no member has {shard} at the moment")
        conversation = _Conversation(shard, where.address)

        def closed() -> None:
            self._conversations.pop(conversation, None)
            on_closed()

        opening = self._transport.connect(str(where.address), service, on_frame, closed)
        conversation.opening = asyncio.ensure_future(opening)
        self._conversations[conversation] = None
        try:
            conversation.link = link = await conversation.opening
        except asyncio.CancelledError:
            self._conversations.pop(conversation, None)
            # It may have ended at this very moment.
            conversation.opening.add_done_callback(_abandon)
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise LinkClosed(f"{shard} has another owner now") from None
        except BaseException:
            self._conversations.pop(conversation, None)
            raise
        if where_is(self._view(), shard).address != conversation.address:
            link.close()
        return link

    def owners_changed(self, view: View) -> None:
        """Close the links to shards that are elsewhere now."""
        for one in list(self._conversations):
            if where_is(view, one.shard).address != one.address:
                one.end()

    async def close(self) -> None:
        """End all conversations."""
        await self._transport.close()


def _abandon(opening: asyncio.Task[Link]) -> None:
    """Close a link whose caller no longer waits for it."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()
