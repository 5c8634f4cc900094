"""A client that lives as long as a command of the command line."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from magnetar_cli import event_loop
from magnetar_cli.contexts import chosen_broker
from magnetar_cli.link_options import new_transport

if TYPE_CHECKING:
    from magnetar import Client
    from magnetar_core.link.grpc_transport import GrpcTransport

Result = TypeVar("Result")

# A person waits for these, and servers that are down are better named than waited for.
OPERATION_TIMEOUT_MS = 10_000
# After an interrupt: commands flush what they send.
CLOSE_TIMEOUT_MS = 2_000
# A server may be on its way up, but a person should soon be told that there is none.
FIND_ATTEMPTS = 5
FIND_PERIOD_S = 0.2
# For all attempts together: one that hangs takes as long as it may.
FIND_TIMEOUT_S = 5.0


def with_client(
    work: Callable[[Client], Awaitable[Result]],
    *,
    broker: str | None = None,
    operation_timeout_ms: float = OPERATION_TIMEOUT_MS,
) -> Result:
    """Connect to the cluster that --broker names, do the work, and disconnect."""
    from magnetar import ClientConfig, connect

    addresses = broker_addresses(broker)
    config = ClientConfig(
        client_name="magnetar-cli",
        operation_timeout_ms=operation_timeout_ms,
        close_timeout_ms=CLOSE_TIMEOUT_MS,
    )

    async def run() -> Result:
        transport = new_transport()
        try:
            await _find(transport, addresses)
        except BaseException:
            await transport.close()
            raise
        async with await connect(addresses, transport=transport, config=config) as client:
            return await work(client)

    return event_loop.run(run())


def broker_addresses(given: str | None = None) -> tuple[str, ...]:
    """Return the addresses of the chosen cluster, or those in a text as --broker has it.

    Raises:
        InvalidConfig: the text is not such a list.
    """
    from magnetar.link.addresses import addresses_of
    from magnetar_core.config import InvalidConfig
    from magnetar_core.errors import InvalidArgument

    text = given if given is not None else chosen_broker()
    try:
        return addresses_of(text)
    except InvalidArgument as error:
        raise InvalidConfig(str(error)) from None


async def _find(transport: GrpcTransport, addresses: Sequence[str]) -> None:
    """Check quickly that a server listens: the client itself would try for a long time.

    It is enough that one of them does.

    Raises:
        LinkClosed: no server listens, or none answers in time.
        LinkRefused: TLS or credentials do not fit, at any of them.
    """
    from magnetar_core.transport.transport import LinkClosed, LinkRefused

    knocking = [asyncio.create_task(_knock(transport, address)) for address in addresses]
    refusals: list[LinkClosed] = []
    try:
        async with asyncio.timeout(FIND_TIMEOUT_S):
            for one in asyncio.as_completed(knocking):
                try:
                    await one
                except LinkClosed as error:
                    refusals.append(error)
                else:
                    return
            refused = all(isinstance(refusal, LinkRefused) for refusal in refusals)
            kind = LinkRefused if refused else LinkClosed
            raise kind("; ".join(str(refusal) for refusal in refusals))
    except TimeoutError:
        named = " and ".join(addresses)
        text = f"{named} did not answer within {FIND_TIMEOUT_S * 1_000:.0f} ms"
        raise LinkClosed(text) from None
    finally:
        for task in knocking:
            task.cancel()
        await asyncio.gather(*knocking, return_exceptions=True)


async def _knock(transport: GrpcTransport, address: str) -> None:
    from magnetar_core.transport.transport import LinkClosed

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
