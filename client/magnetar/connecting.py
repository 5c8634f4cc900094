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
    """Connect to a cluster by the address of a broker, "host:port".

        async with await magnetar.connect("127.0.0.1:6650") as client:
            ...

    Args:
        address: the address of any broker of the cluster.
        transport: the transport, which the client closes; by default gRPC.
        clock: the clock; by default the machine's.
        random: the source of randomness; by default the machine's.
        config: the settings; by default those of ClientConfig.
    Raises:
        LogUnavailable: nobody answers at the address in time.
        ClusterMismatch: the broker refuses this client.
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
