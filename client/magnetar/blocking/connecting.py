"""Connects to a cluster, without asyncio."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING

from magnetar import connecting
from magnetar.blocking.client import Client
from magnetar.blocking.loop_thread import LoopThread
from magnetar.client import Client as AsyncClient
from magnetar.config import ClientConfig
from magnetar.environment import check_sockets
from magnetar.link import in_process
from magnetar.link.addresses import addresses_of
from magnetar_core.clock import Clock
from magnetar_core.security.link_security import TlsFiles, Token
from magnetar_core.transport.transport import Transport

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider


def connect(
    address: str | Sequence[str],
    *,
    transport: Callable[[], Transport] | None = None,
    clock: Clock | None = None,
    random: Random | None = None,
    config: ClientConfig | None = None,
    tls: TlsFiles | None = None,
    token: Token | None = None,
    traces: bool | TracerProvider = False,
) -> Client:
    """Connect to a cluster by the address of a broker, "host:port", or of several.

    Any broker of the cluster names the others. The first one that answers is used. With several
    addresses, the client finds the cluster while one of these brokers is away.

    Args:
        address: "host:port", "host:port,host:port", or a list of addresses.
        transport: makes the transport, on the client's own thread; gRPC unless given.
        clock, random: the machine's unless given.
        config: the client's settings.
        tls: the files for TLS, which are read again for each link; plain text unless given.
        token: a token (JWT), or a function that returns a fresh one for each link; it is called on
            the client's own thread.
        traces: whether to make spans (OpenTelemetry) of transactions and of what belongs to them;
            they go to the TracerProvider that the program has set, or to the one that is given.
    Raises:
        InvalidArgument: a text is not an address, another program listens at all of them, a file
            for TLS cannot be read, or OpenTelemetry is not installed.
        AuthenticationFailed: the TLS handshake failed, or the server refuses the credentials.
        LogUnavailable: no server could be reached within bootstrap_timeout_ms, or none answered
            within operation_timeout_ms. The error names the cause for each address.
        ClusterMismatch: the brokers refuse this client.
        UnsupportedEnvironment: something has replaced the process's clock, or its sockets.
    """
    check_sockets()
    loop = LoopThread()

    async def work() -> AsyncClient:
        return await connecting.connect(
            address,
            transport=None if transport is None else transport(),
            clock=clock,
            random=random,
            config=config,
            tls=tls,
            token=token,
            traces=traces,
        )

    try:
        client = loop.wait(work())
        loop.serve(client._opened)
        made = Client(loop, client)
        here = in_process.server_at(addresses_of(address)) if transport is None else None
        if here is not None:
            here.note_blocking(client._opened, made)
        return made
    except BaseException:
        loop.close()
        raise
