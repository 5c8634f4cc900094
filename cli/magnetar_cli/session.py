"""A client that lives as long as a command of the command line."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from magnetar import Client
    from magnetar_core.grpc_transport import GrpcTransport

Result = TypeVar("Result")

# A person waits for these, and servers that are down are better named than waited for.
OPERATION_TIMEOUT_MS = 10_000
# A server may be on its way up, but a person should hear soon that there is none.
FIND_ATTEMPTS = 5
FIND_PERIOD_S = 0.2
# For all attempts together: one that hangs takes as long as it may.
FIND_TIMEOUT_S = 5.0


def with_client(
    work: Callable[[Client], Awaitable[Result]], *, broker: str | None = None
) -> Result:
    """Connect to the broker that --broker names, do the work, and disconnect."""
    from magnetar import ClientConfig, connect
    from magnetar_core.config import split_address
    from magnetar_core.grpc_transport import GrpcTransport

    address = broker if broker is not None else click.get_current_context().find_root().obj
    split_address(address)
    config = ClientConfig(client_name="magnetar-cli", operation_timeout_ms=OPERATION_TIMEOUT_MS)

    async def run() -> Result:
        transport = GrpcTransport()
        try:
            await _find(transport, address)
        except BaseException:
            await transport.close()
            raise
        async with await connect(address, transport=transport, config=config) as client:
            return await work(client)

    return asyncio.run(run())


async def _find(transport: GrpcTransport, address: str) -> None:
    """Check quickly that a server listens: the client itself would try for a long time.

    Raises:
        LinkClosed: nobody listens, or nobody answers in time.
    """
    from magnetar_core.transport import LinkClosed

    try:
        async with asyncio.timeout(FIND_TIMEOUT_S):
            await _knock(transport, address)
    except TimeoutError:
        text = f"{address} did not answer within {FIND_TIMEOUT_S * 1_000:.0f} ms"
        raise LinkClosed(text) from None


async def _knock(transport: GrpcTransport, address: str) -> None:
    from magnetar_core.transport import LinkClosed

    for attempt in range(FIND_ATTEMPTS):
        try:
            link = await transport.connect(address, "Broker", lambda frame: None, lambda: None)
        except LinkClosed:
            if attempt + 1 == FIND_ATTEMPTS:
                raise
            await asyncio.sleep(FIND_PERIOD_S)
        else:
            link.close()
            return
