"""The hub of a token: one connection to the cluster, and a channel for each view of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType

from magnetar import (
    AuthenticationFailed,
    Client,
    ClientClosed,
    ClientConfig,
    ClusterMismatch,
    MagnetarError,
)
from magnetar_console.channel import Channel
from magnetar_console.looks.cluster import ClusterLook
from magnetar_console.looks.contents import Show
from magnetar_console.looks.view import View
from magnetar_console.looks.views import look_of
from magnetar_console.pauses import Scans
from magnetar_console.settings import CHANNELS_MAX
from magnetar_core.clock import Clock
from magnetar_core.transport.transport import Transport

# After these a connection has to be made again.
_OVER = (AuthenticationFailed, ClientClosed, ClusterMismatch)


def client_config(client_name: str) -> ClientConfig:
    """Return settings for the client of a hub.

    A person looks on: a server that is away should soon be shown as away.
    """
    return ClientConfig(
        client_name=client_name,
        connect_timeout_ms=2_000,
        bootstrap_timeout_ms=2_500,
        request_timeout_ms=3_000,
        operation_timeout_ms=3_000,
        close_timeout_ms=1_000,
    )


class Hub:
    """Asks the cluster once for any number of viewers with the same rights.

    Args:
        run: identifies the hub in the ids of events.
        period_s: how often each view is looked at; None: as often as the view is made for.
        shows: how the values of topics are shown; those of others by their look.
        scans: the views that share its servers; None: it has them for itself.

    Attributes:
        used: how often it was used: a number that rises.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[Client]],
        new_transport: Callable[[], Transport],
        clock: Clock,
        run: str,
        period_s: float | None = None,
        shows: Mapping[str, Show] = MappingProxyType({}),
        scans: Scans | None = None,
    ) -> None:
        self._connect = connect
        self._new_transport = new_transport
        self._clock = clock
        self._run = run
        self._period_s = period_s
        self._shows = shows
        self._scans = scans or Scans()
        self._opened: Client | None = None
        self._opening = asyncio.Lock()
        self._channels: dict[View, Channel] = {}
        self._made = 0
        self.used = 0

    @property
    def is_watched(self) -> bool:
        """Whether any view has a viewer."""
        return any(one.viewers for one in self._channels.values())

    @property
    def is_connected(self) -> bool:
        """Whether it has a connection to the cluster."""
        return self._opened is not None

    async def client(self) -> Client:
        """Return the connection to the cluster; the first call makes it. Raises: MagnetarError."""
        self.used += 1
        async with self._opening:
            if self._opened is None:
                self._opened = await self._connect()
            return self._opened

    async def check(self) -> None:
        """Ask the cluster something that every client may ask. Raises: MagnetarError."""
        try:
            await (await self.client()).admin.cluster_info()
        except MagnetarError as error:
            await self.failed(error)
            raise

    async def failed(self, error: Exception) -> None:
        """Take note of an error: after some the connection has to be made again."""
        if isinstance(error, _OVER):
            await self._drop()

    def channel(self, view: View) -> Channel | None:
        """Return the channel of a view; None: there are too many that have viewers."""
        self.used += 1
        channel = self._channels.get(view)
        if channel is None:
            if len(self._channels) >= CHANNELS_MAX and not self._leave_out_one():
                return None
            self._made += 1
            look = look_of(view, self._new_transport, self._clock, self._shows)
            if self._period_s is not None:
                look.period_s = self._period_s
            run = f"{self._run}-{self._made}"
            channel = self._channels[view] = Channel(
                look, self, self._clock, run, scans=self._scans
            )
            if isinstance(look, ClusterLook):
                look.on_news = channel.look_soon
        return channel

    async def close(self) -> None:
        """End all channels, and the connection."""
        await asyncio.gather(*(one.end() for one in self._channels.values()))
        await self._drop()

    async def _drop(self) -> None:
        client, self._opened = self._opened, None
        if client is not None:
            await client.close()

    def _leave_out_one(self) -> bool:
        idle = next((view for view, one in self._channels.items() if not one.viewers), None)
        if idle is None:
            return False
        del self._channels[idle]
        return True
