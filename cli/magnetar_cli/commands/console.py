"""`magnetar console`: what happens in a cluster, live, in a browser."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING

import click

from magnetar_cli.servers.console_options import DEFAULT_PORT, require_console, value_options
from magnetar_cli.servers.options import PORT

if TYPE_CHECKING:
    from magnetar_console.settings import ConsoleSettings
    from magnetar_core.security.link_security import TlsFiles


@click.command()
@click.option(
    "--host",
    metavar="HOST",
    default="127.0.0.1",
    show_default=True,
    help="Listen on this address.",
)
@click.option(
    "--port",
    type=PORT,
    default=DEFAULT_PORT,
    show_default=True,
    help="Listen on this port. 0: the system chooses.",
)
@click.option(
    "--allow-remote", is_flag=True, help="Allow an address that other machines can reach."
)
@click.option(
    "--name",
    "names",
    metavar="HOST[:PORT]",
    multiple=True,
    help="A name by which browsers reach the console, such as that of a proxy; several are allowed."
    " All other names are refused.",
)
@click.option(
    "--allow-actions",
    is_flag=True,
    help="Let viewers end transactions by hand and drain servers, as far as the servers let them.",
)
@value_options
@click.option(
    "--share-certificate",
    is_flag=True,
    help="Show servers the certificate of --tls-certificate-file, for those that demand one. All"
    " who reach the console then have the rights of its principal, unless the servers check tokens"
    " and a viewer signs in.",
)
@click.option("--certificate-file", metavar="FILE", help="The certificate for HTTPS, as PEM.")
@click.option("--key-file", metavar="FILE", help="The key of that certificate, as PEM.")
@click.option(
    "--ready-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="When the console is ready, write its process id and address to this file, as JSON.",
)
@click.option("--supervised", is_flag=True, hidden=True)
def console(
    host: str,
    port: int,
    allow_remote: bool,
    names: tuple[str, ...],
    allow_actions: bool,
    schemas: tuple[str, ...],
    framing: str,
    share_certificate: bool,
    certificate_file: str | None,
    key_file: str | None,
    ready_file: Path | None,
    supervised: bool,
) -> None:
    """Show in a browser what happens in the cluster, live.

    It shows open transactions and whose they are, what readers do not see yet, topics,
    subscriptions, groups, servers and shards. If the servers ask for tokens, each viewer signs in
    with an own one; the token of --token-file is not used. Ctrl-C ends it.
    """
    require_console()
    from magnetar_cli.with_client import broker_addresses
    from magnetar_console.settings import ConsoleSettings
    from magnetar_core.process.observability import set_up_logging

    settings = ConsoleSettings(
        host=host,
        port=port,
        allow_remote=allow_remote,
        allow_actions=allow_actions,
        names=names,
        certificate_file=certificate_file or "",
        key_file=key_file or "",
        schemas=schemas,
        framed=framing == "confluent",
        shares_certificate=share_certificate,
    )
    tls = _tls(share_certificate=share_certificate)
    brokers = broker_addresses()
    set_up_logging(level="info", log_format="auto")
    try:
        asyncio.run(_serve(settings, brokers, tls, ready_file, supervised=supervised))
    finally:
        if ready_file is not None:
            ready_file.unlink(missing_ok=True)


async def _serve(
    settings: ConsoleSettings,
    brokers: Sequence[str],
    tls: TlsFiles | None,
    ready_file: Path | None,
    *,
    supervised: bool,
) -> None:
    from magnetar_cli.servers.ready import Ready, write_ready_file
    from magnetar_cli.standard_streams import output_not_needed
    from magnetar_console.serving import serving
    from magnetar_core.clock import SystemClock

    stop = asyncio.Event()
    _stop_on_signals(stop, supervised=supervised)
    async with serving(
        settings, brokers, tls=tls, clock=SystemClock(), random=SystemRandom()
    ) as address:
        ready = Ready(kind="console", name="console", pid=os.getpid(), address=address, metrics="")
        if ready_file is not None:
            write_ready_file(ready_file, asdict(ready))
        with output_not_needed():
            print(json.dumps(asdict(ready)) if supervised else f"ready: console at {address}")
        await stop.wait()


def _tls(*, share_certificate: bool) -> TlsFiles | None:
    """Return how servers are checked.

    The command's own token gives no rights, and its certificate only if that is asked for.
    """
    from magnetar_core.security.link_security import LinkConfig, TlsFiles

    links = LinkConfig.from_environment(os.environ)
    if share_certificate and not links.tls_client_certificate_file:
        raise click.UsageError(
            "--share-certificate needs one: magnetar --tls-certificate-file FILE --tls-key-file"
            " FILE console"
        )
    if not (links.tls or links.tls_ca_file):
        return None
    if not share_certificate:
        return TlsFiles(ca_file=links.tls_ca_file, server_name=links.tls_server_name)
    return TlsFiles(
        ca_file=links.tls_ca_file,
        server_name=links.tls_server_name,
        certificate_file=links.tls_client_certificate_file,
        key_file=links.tls_client_key_file,
    )


def _stop_on_signals(stop: asyncio.Event, *, supervised: bool) -> None:
    from magnetar_core.process.parent_watch import watch_parent

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    if supervised:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        watch_parent(stop.set)
    else:
        loop.add_signal_handler(signal.SIGINT, stop.set)
