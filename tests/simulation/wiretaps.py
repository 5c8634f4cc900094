"""Several checkers that listen on the same wire; some of them to one server alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from magnetar_core.wire import service_pb2 as pb


class Named(Protocol):
    """Who speaks: one life of a server, which has its name."""

    @property
    def name(self) -> str: ...


class Wiretaps:
    """Several that listen on the same wire."""

    def __init__(self, *taps: Any) -> None:
        self._taps = list(taps)

    def add(self, tap: Any) -> None:
        self._taps.append(tap)

    def on_connected(self, link: int, server: str) -> None:
        """A link to a server begins."""
        for tap in self._taps:
            if hasattr(tap, "on_connected"):
                tap.on_connected(link, server)

    def on_request(self, link: int, frame: pb.Frame) -> None:
        for tap in self._taps:
            tap.on_request(link, frame)

    def on_doubtful_request(self, link: int, frame: pb.Frame) -> None:
        """As on_request, at a server that has lost its shard and has not noticed.

        It takes effect if nobody has opened the store since, and none otherwise.
        """
        for tap in self._taps:
            if hasattr(tap, "on_doubtful_request"):
                tap.on_doubtful_request(link, frame)

    def on_reply(self, link: int, frame: pb.Frame) -> None:
        for tap in self._taps:
            tap.on_reply(link, frame)

    def on_said(self, link: int, speaker: Named, frame: pb.Frame) -> None:
        """A server, in one of its lives, writes to another one."""
        for tap in self._taps:
            if hasattr(tap, "on_said"):
                tap.on_said(link, speaker, frame)

    def on_closed(self, link: int) -> None:
        """A server was told that a link is gone."""
        for tap in self._taps:
            if hasattr(tap, "on_closed"):
                tap.on_closed(link)

    def on_crash(self) -> None:
        """The server that they all listen to is gone."""
        for tap in self._taps:
            if hasattr(tap, "on_crash"):
                tap.on_crash()


class ServerWiretaps:
    """Checkers that know one server each: a frame goes to that of its link's server.

    What a broker keeps of its consumers, groups and producers, no other broker knows, and it is
    gone when this broker is, not when another one is.
    """

    def __init__(self, taps: Mapping[str, Wiretaps]) -> None:
        """Args: taps: by server; to servers without any, nobody listens."""
        self._by_server = taps
        self._by_link: dict[int, Wiretaps] = {}

    def on_connected(self, link: int, server: str) -> None:
        """A link to a server begins."""
        taps = self._by_server.get(server)
        if taps is not None:
            self._by_link[link] = taps
            taps.on_connected(link, server)

    def on_request(self, link: int, frame: pb.Frame) -> None:
        """A frame is about to be handled by a server."""
        taps = self._by_link.get(link)
        if taps is not None:
            taps.on_request(link, frame)

    def on_doubtful_request(self, link: int, frame: pb.Frame) -> None:
        """The same, at a server that has lost its shard and has not noticed."""
        taps = self._by_link.get(link)
        if taps is not None:
            taps.on_doubtful_request(link, frame)

    def on_reply(self, link: int, frame: pb.Frame) -> None:
        """A frame leaves a server."""
        taps = self._by_link.get(link)
        if taps is not None:
            taps.on_reply(link, frame)

    def on_closed(self, link: int) -> None:
        """A server was told that a link is gone."""
        taps = self._by_link.get(link)
        if taps is not None:
            taps.on_closed(link)

    def on_crash(self, server: str) -> None:
        """A server is gone."""
        taps = self._by_server.get(server)
        if taps is not None:
            taps.on_crash()
