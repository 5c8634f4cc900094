"""`magnetar log-level`: shows and changes the level of a running server's log."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click

from magnetar_cli.link_options import new_transport

if TYPE_CHECKING:
    from magnetar import Client
    from magnetar_core.frames import Carried
    from magnetar_core.grpc_transport import GrpcTransport

LEVELS = ("debug", "info", "warning", "error", "critical", "inherited")
SERVICES = ("Broker", "TransactionCoordinator")
ANSWER_TIMEOUT_S = 5.0


@click.command(name="log-level")
@click.argument("server", metavar="SERVER")
@click.argument("level", required=False, type=click.Choice(LEVELS))
@click.option(
    "--logger",
    default="",
    metavar="NAME",
    help="Only this logger, and those below it that have no level of their own."
    "  [default: all that have none]",
)
def log_level(server: str, level: str | None, logger: str) -> None:
    """Show or change the log level of a running server.

    SERVER is the name of a broker or a coordinator, as `magnetar health` shows it, or HOST:PORT.
    Without LEVEL nothing changes. The level "inherited", with --logger, takes back what was set for
    that logger.

    The change lasts until the server ends. It counts for the whole process, with all its shards.
    """
    before = _change(server, level or "", logger)
    what = logger or "the log"
    click.echo(f"{what}: {before}" if level is None else f"{what}: {level}; it was {before}")


def _change(server: str, level: str, logger: str) -> str:
    """Ask a server for a change, and return the level from before."""
    from magnetar_cli.session import with_client

    if ":" in server:
        addresses = [(server, service) for service in SERVICES]
        return asyncio.run(_set_log_level(addresses, level, logger))

    async def work(client: Client) -> str:
        return await _set_log_level(await _addresses(client, server), level, logger)

    # On the event loop of the client: gRPC complains about a second one in a process.
    return with_client(work)


async def _addresses(client: Client, server: str) -> list[tuple[str, str]]:
    """Return where a server is that has a name, and by which service it is asked."""
    info = await client.admin.cluster_info()
    found = [
        *((one.address, SERVICES[0]) for one in info.brokers if one.name == server),
        *((one.address, SERVICES[1]) for one in info.coordinators if one.name == server),
    ]
    if not found:
        names = ", ".join(one.name for one in (*info.brokers, *info.coordinators))
        raise click.ClickException(f"the cluster has no server {server!r}; it has {names}")
    return found


async def _set_log_level(addresses: list[tuple[str, str]], level: str, logger: str) -> str:
    from magnetar_core.transport import LinkClosed
    from magnetar_core.wire import common_pb2

    transport = new_transport()
    try:
        for address, service in addresses:
            try:
                answer = await _ask(
                    transport,
                    address,
                    service,
                    common_pb2.CommandSetLogLevel(level=level, logger=logger),
                )
            except LinkClosed as error:
                refusal = error
            else:
                return str(answer.previous_level)
        raise refusal
    finally:
        await transport.close()


async def _ask(transport: GrpcTransport, address: str, service: str, body: Any) -> Any:
    """Ask a server a question on a link of its own.

    Raises:
        LinkClosed: it does not answer, or has no such service.
        MagnetarError: it refuses.
    """
    from magnetar_core.errors import from_wire
    from magnetar_core.frames import FrameWriter
    from magnetar_core.transport import LinkClosed

    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def on_frame(frame: Carried) -> None:
        for one in frame.commands:
            if one.request_id == 1 and not answer.done():
                name = one.WhichOneof("body")
                answer.set_result((name, getattr(one, name)))

    def on_closed() -> None:
        if not answer.done():
            answer.set_exception(LinkClosed(f"{address} hung up before it answered"))

    link = await transport.connect(address, service, on_frame, on_closed)
    try:
        FrameWriter(link.write).send(body, 1)
        try:
            name, found = await asyncio.wait_for(answer, ANSWER_TIMEOUT_S)
        except TimeoutError:
            raise LinkClosed(f"{address} did not answer in {ANSWER_TIMEOUT_S:.0f} s") from None
    finally:
        link.close()
    if name == "error":
        raise from_wire(found)
    return found
