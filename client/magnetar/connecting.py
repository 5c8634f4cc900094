"""Connects to a cluster."""

from __future__ import annotations

from random import Random

from magnetar.client import Client
from magnetar.config import ClientConfig
from magnetar.link.runtime import Runtime
from magnetar_core.clock import Clock, SystemClock
from magnetar_core.transport import Transport


async def connect(
    address: str,
    *,
    transport: Transport | None = None,
    clock: Clock | None = None,
    random: Random | None = None,
    config: ClientConfig | None = None,
) -> Client:
    """Connect to a cluster through one of its brokers, "host:port".

    The client belongs to the event loop that runs now.

    Args:
        transport: owned by the client from now on; gRPC unless given.
        clock, random: the machine's unless given.
    Raises:
        LogUnavailable: nobody answers there in time.
        ClusterMismatch: it does not want this client.
    """
    if transport is None:
        from magnetar_core.grpc_transport import GrpcTransport

        transport = GrpcTransport()
    runtime = Runtime(
        transport, clock or SystemClock(), random or Random(), config or ClientConfig()
    )
    client = Client(address, runtime)
    try:
        await client.admin.cluster_info()
    except BaseException:
        await client.close()
        raise
    return client
