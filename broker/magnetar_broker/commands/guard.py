"""Guards decide whether a broker may serve, and refuse commands while it may not."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any, Protocol

from magnetar_core.errors import MagnetarError
from magnetar_core.server.commands import Handler, Item, Run


class Guard(Protocol):
    """Decides whether this broker may serve."""

    @property
    def may_refuse(self) -> bool:
        """Whether a conversation that begins now may come to be refused."""
        ...

    @property
    def always(self) -> Collection[str]:
        """The commands that are answered in any case."""
        ...

    def check(self, name: str, command: Any) -> None:
        """Check that a command may be served now.

        Raises:
            LogUnavailable: this broker may not serve.
        """


def guarded(guard: Guard, handlers: Mapping[str, Handler]) -> Mapping[str, Handler]:
    """Return handlers that refuse while this broker may not serve."""
    return {
        name: handler if name in guard.always else partial(_handle, guard, name, handler)
        for name, handler in handlers.items()
    }


def _handle(guard: Guard, name: str, handler: Handler, run: Run) -> None:
    served: list[Item] = []
    for command, reply in run.items:
        try:
            guard.check(name, command)
        except MagnetarError as error:
            run.failed(error, command, reply)
        else:
            served.append((command, reply))
    if served:
        handler(Run(served, run.failed))
