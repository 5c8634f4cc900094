"""`magnetar log-level`: shows and changes the level of a running server's log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from magnetar_cli import event_loop
from magnetar_cli.link_options import new_transport

if TYPE_CHECKING:
    from magnetar import Client

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
    from magnetar_cli.with_client import with_client

    if ":" in server:
        addresses = [(server, service) for service in SERVICES]
        return event_loop.run(_set_log_level(addresses, level, logger))

    async def work(client: Client) -> str:
        return await _set_log_level(await _addresses(client, server), level, logger)

    return with_client(work)


async def _addresses(client: Client, server: str) -> list[tuple[str, str]]:
    """Return where a server is that has a name, and by which service it is asked."""
    info = await client.admin.cluster_info()
    found = [
        *((broker.address, SERVICES[0]) for broker in info.brokers if broker.name == server),
        *((one.address, SERVICES[1]) for one in info.coordinators if one.name == server),
    ]
    if not found:
        names = ", ".join(one.name for one in (*info.brokers, *info.coordinators))
        raise click.ClickException(f"the cluster has no server {server!r}; it has {names}")
    return found


async def _set_log_level(addresses: list[tuple[str, str]], level: str, logger: str) -> str:
    from magnetar_cli.server_link import ServerLink
    from magnetar_core.transport.transport import LinkClosed
    from magnetar_core.wire import common_pb2

    command = common_pb2.CommandSetLogLevel(level=level, logger=logger)
    transport = new_transport()
    try:
        for address, service in addresses:
            try:
                link = await ServerLink.open(
                    transport, address, service, answer_timeout_s=ANSWER_TIMEOUT_S
                )
                try:
                    return str((await link.ask(command)).previous_level)
                finally:
                    link.close()
            except LinkClosed as error:
                refusal = error
        raise refusal
    finally:
        await transport.close()
