"""Connects to a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from magnetar.client import Client
from magnetar.config import ClientConfig
from magnetar.link.addresses import addresses_of
from magnetar.link.runtime import Runtime
from magnetar_core.clock import Clock, SystemClock
from magnetar_core.transport import Transport


async def connect(
    address: str | Sequence[str],
    *,
    transport: Transport | None = None,
    clock: Clock | None = None,
    random: Random | None = None,
    config: ClientConfig | None = None,
) -> Client:
    """Connect to a cluster by the address of a broker, "host:port", or of several.

        async with await magnetar.connect("127.0.0.1:6650") as client:
            ...

    Any broker of the cluster names the others. The first one that answers is used. With several
    addresses, the client finds the cluster while one of these brokers is away.

    Args:
        address: "host:port", "host:port,host:port", or a list of addresses.
        transport: the transport, which the client closes; by default gRPC.
        clock: the clock; by default the machine's.
        random: the source of randomness; by default the machine's.
        config: the settings; by default those of ClientConfig.
    Raises:
        InvalidArgument: a text is not an address.
        LogUnavailable: nobody answers at any of the addresses in time.
        ClusterMismatch: the brokers refuse this client.
    """
    addresses = addresses_of(address, of_any_form=transport is not None)
    if transport is None:
        from magnetar_core.grpc_transport import GrpcTransport

        transport = GrpcTransport()
    runtime = Runtime(
        transport, clock or SystemClock(), random or Random(), config or ClientConfig()
    )
    client = Client(addresses, runtime)
    try:
        await client.admin.cluster_info()
    except BaseException:
        await client.close()
        raise
    return client
