"""The base of `magnetar top`, which all its screens know: the hub, and the time that is shown."""

from __future__ import annotations

from abc import abstractmethod

from textual.app import App

from magnetar import Client
from magnetar_console.channel import Channel
from magnetar_console.hub import Hub
from magnetar_console.looks import view as views
from magnetar_console.looks.view import View
from magnetar_console.seen import Picture
from magnetar_console.terminal.words import Part, Parts
from magnetar_core.clock import Clock

CLUSTER_VIEW = View(views.CLUSTER)


class LiveApp(App[None]):
    """An app that shows a cluster.

    Args:
        hub: asks the cluster, with the rights of the person at the terminal.
        viewer: who aborts, for the log.
        allow_actions: whether transactions can be aborted.
        period_s: how often the cluster is asked, in seconds.

    Attributes:
        pictures: what was seen last of each view.
        message: a line above the keys, until the next key.
    """

    def __init__(
        self, hub: Hub, clock: Clock, *, viewer: str, allow_actions: bool, period_s: float
    ) -> None:
        # The terminal's own colours; and NO_COLOR then leaves none, instead of shades of grey.
        super().__init__(ansi_color=True)
        self.viewer = viewer
        self.allow_actions = allow_actions
        self.period_s = period_s
        self.pictures: dict[View, Picture] = {}
        self.message: Parts = ()
        self._hub = hub
        self._clock = clock
        self._paused_ms = 0

    @property
    def paused(self) -> bool:
        """Whether the screen stays as it is."""
        return self._paused_ms != 0

    @property
    def now_ms(self) -> int:
        """The time that is shown, in milliseconds since the Unix epoch."""
        return self._paused_ms or self._clock.wall_ms()

    @property
    def cluster(self) -> Picture | None:
        """The servers, as they were seen last; None: not yet."""
        return self.pictures.get(CLUSTER_VIEW)

    async def client(self) -> Client:
        """Return the connection to the cluster. Raises: MagnetarError, InvalidConfig."""
        return await self._hub.client()

    def channel(self, view: View) -> Channel:
        """Return the channel of a view."""
        channel = self._hub.channel(view)
        # A single person does not look at so many things at the same time.
        assert channel is not None
        return channel

    def say(self, text: str = "", kind: str = "") -> None:
        """Show a line above the keys, until the next key."""
        self.message = (Part(text, kind),) if text else ()
        self.draw()

    def action_pause(self) -> None:
        """Keep the screen as it is, or go on."""
        self._paused_ms = 0 if self._paused_ms else self._clock.wall_ms()
        self.say()

    @abstractmethod
    def draw(self) -> None:
        """Draw what was seen last, at the present time."""
