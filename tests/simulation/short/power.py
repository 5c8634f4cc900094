"""The power of a server, cut the moment after it has answered somebody.

Between an answer and the write that it depends on lies less than a millisecond, which chance alone
does not meet. Whoever answers too early has nothing of it when the power comes back (rule a).
"""

from __future__ import annotations

from collections.abc import Callable

from magnetar_core.wire import service_pb2 as pb

# Answers to nothing that anybody stores.
IDLE = ("hello_response", "deliver", "error")


class Power:
    """Listens to what servers answer.

    Args:
        server_of: the server at the end of a link, by the link's number; None: it is gone.
    """

    def __init__(self, server_of: Callable[[int], str | None]) -> None:
        self._server_of = server_of
        self._waiting: dict[str, tuple[int, Callable[[], object]]] = {}

    def after(self, server: str, answers: int, cut: Callable[[], object]) -> None:
        """Cut when so many more answers and one have left. A server waits for one cut at most."""
        self._waiting[server] = (answers, cut)

    def on_request(self, link: int, frame: pb.Frame) -> None:
        return

    def on_reply(self, link: int, frame: pb.Frame) -> None:
        if not self._waiting or all(
            command.WhichOneof("body") in IDLE for command in frame.commands
        ):
            return
        server = self._server_of(link)
        found = self._waiting.get(server) if server is not None else None
        if found is None or server is None:
            return
        answers, cut = found
        if answers:
            self._waiting[server] = (answers - 1, cut)
            return
        del self._waiting[server]
        cut()
