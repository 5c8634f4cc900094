"""Connects to a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING

from magnetar.client import Client
from magnetar.config import ClientConfig
from magnetar.environment import check_clock
from magnetar.link import in_process
from magnetar.link.addresses import addresses_of
from magnetar.link.cluster import Cluster
from magnetar.link.runtime import Runtime
from magnetar_core.clock import Clock, SystemClock
from magnetar_core.config import InvalidConfig
from magnetar_core.errors import InvalidArgument
from magnetar_core.process.allocator import reuse_large_blocks
from magnetar_core.security.link_security import LinkSecurity, TlsFiles, Token
from magnetar_core.transport.transport import Transport

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from magnetar.link.traces import ClientTraces


async def connect(
    address: str | Sequence[str],
    *,
    transport: Transport | None = None,
    clock: Clock | None = None,
    random: Random | None = None,
    config: ClientConfig | None = None,
    tls: TlsFiles | None = None,
    token: Token | None = None,
    traces: bool | TracerProvider = False,
) -> Client:
    """Connect to a cluster by the address of a broker, "host:port", or of several.

        async with await magnetar.connect("127.0.0.1:6650") as client:
            ...

    Any broker of the cluster names the others. The first one that answers is used. With several
    addresses, the client finds the cluster while one of these brokers is away.

    Batches are large blocks, so the process then keeps up to 64 MiB of freed memory for blocks to
    come (magnetar_core.process.allocator), unless it has chosen limits of glibc's allocator itself.

    Args:
        address: "host:port", "host:port,host:port", or a list of addresses.
        transport: the transport, which the client closes; by default gRPC.
        clock: the clock; by default the machine's.
        random: the source of randomness; by default the machine's.
        config: the settings; by default those of ClientConfig.
        tls: the files for TLS, which are read again for each link; by default plain text.
        token: a token (JWT), or a function that returns a fresh one for each link.
        traces: whether to make spans (OpenTelemetry) of transactions and of what belongs to them;
            they go to the TracerProvider that the program has set, or to the one that is given.
    Raises:
        InvalidArgument: a text is not an address, another program listens at all of them, a file
            for TLS cannot be read, or OpenTelemetry is not installed.
        AuthenticationFailed: the TLS handshake failed, or the server refuses the credentials.
        LogUnavailable: no server could be reached within bootstrap_timeout_ms, or none answered
            within operation_timeout_ms. The error names the cause for each address.
        ClusterMismatch: the brokers refuse this client.
        UnsupportedEnvironment: something has replaced the process's clock.
    """
    addresses = addresses_of(address, of_any_form=transport is not None)
    here = in_process.server_at(addresses) if transport is None else None
    if here is not None:
        if tls is not None or token is not None:
            raise InvalidArgument("a test server has neither TLS nor rights: give no tls or token")
        transport, own_clock = here.attach()
        clock = clock or own_clock
    elif transport is None:
        from magnetar_core.link.grpc_transport import GrpcTransport

        check_clock(asyncio.get_running_loop())
        reuse_large_blocks()
        transport = GrpcTransport(_security(tls, token))
    elif tls is not None or token is not None:
        raise InvalidArgument("tls and token belong to the transport of gRPC; give no other one")
    runtime = Runtime(
        transport,
        clock or SystemClock(),
        random or Random(),
        config or ClientConfig(),
        _traces(traces) if traces else None,
    )
    cluster = Cluster(addresses, runtime)
    client = Client(cluster)
    if here is not None:
        here.note_client(client._opened, client)
    try:
        await cluster.bootstrap()
    except BaseException:
        await client.close()
        raise
    return client


def _traces(provider: bool | TracerProvider) -> ClientTraces:
    try:
        from opentelemetry.trace import get_tracer_provider

        from magnetar.link.traces import ClientTraces
    except ImportError:
        raise InvalidArgument(
            "traces need OpenTelemetry, which is not installed: pip install 'magnetar[traces]'"
        ) from None
    return ClientTraces(get_tracer_provider() if provider is True else provider)


def _security(tls: TlsFiles | None, token: Token | None) -> LinkSecurity:
    found = LinkSecurity(tls, token)
    try:
        found.check()
    except InvalidConfig as error:
        raise InvalidArgument(str(error)) from None
    return found
