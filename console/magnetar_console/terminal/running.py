"""Runs `magnetar top` in this terminal, and gives the terminal back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from magnetar import Client, connect
from magnetar_console.hub import Hub, client_config
from magnetar_console.terminal.app import Top
from magnetar_core.clock import Clock
from magnetar_core.transport.transport import Transport

CLIENT_CONFIG: Final = client_config("magnetar-top")


def new_hub(
    brokers: Sequence[str],
    new_transport: Callable[[], Transport],
    clock: Clock,
    *,
    period_s: float,
) -> Hub:
    """Return a hub for one person.

    Args:
        new_transport: makes a transport to servers, with the rights of the person.
        period_s: how often the cluster is asked, in seconds.
    """

    async def connected() -> Client:
        return await connect(brokers, transport=new_transport(), config=CLIENT_CONFIG)

    return Hub(connected, new_transport, clock, "top", period_s)


async def show(
    brokers: Sequence[str],
    new_transport: Callable[[], Transport],
    clock: Clock,
    *,
    viewer: str,
    allow_actions: bool,
    period_s: float,
) -> list[str]:
    """Show the cluster until the person ends it. Return what was changed, in sentences.

    Args:
        brokers, new_transport, period_s: as for `new_hub`.
        viewer: who aborts, for the log.
    """
    hub = new_hub(brokers, new_transport, clock, period_s=period_s)
    app = Top(
        hub,
        clock,
        brokers=", ".join(brokers),
        viewer=viewer,
        allow_actions=allow_actions,
        period_s=period_s,
    )
    try:
        # Without the mouse, which stays with the terminal: a TxnID can be copied.
        await app.run_async(mouse=False)
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            # Textual ends without an error when it is cancelled.
            raise asyncio.CancelledError
    finally:
        await hub.close()
    return app.done
