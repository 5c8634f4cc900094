"""Connects to a cluster, without asyncio."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from magnetar import connecting
from magnetar.blocking.client import Client
from magnetar.blocking.loop_thread import LoopThread
from magnetar.client import Client as AsyncClient
from magnetar.config import ClientConfig
from magnetar_core.clock import Clock
from magnetar_core.transport import Transport


def connect(
    address: str,
    *,
    transport: Callable[[], Transport] | None = None,
    clock: Clock | None = None,
    random: Random | None = None,
    config: ClientConfig | None = None,
) -> Client:
    """Connect to a cluster through one of its brokers, "host:port".

    Args:
        transport: makes the transport, on the client's own thread; gRPC unless given.
        clock, random: the machine's unless given.
        config: the client's settings.
    Raises:
        LogUnavailable: nobody answers there in time.
        ClusterMismatch: it does not want this client.
    """
    loop = LoopThread()

    async def work() -> AsyncClient:
        return await connecting.connect(
            address,
            transport=None if transport is None else transport(),
            clock=clock,
            random=random,
            config=config,
        )

    try:
        return Client(loop, loop.wait(work()))
    except BaseException:
        loop.close()
        raise
