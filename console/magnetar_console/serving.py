"""Runs a console: its port, its server, and an orderly end."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from random import Random
from typing import Final

import uvicorn

from magnetar import Client, connect
from magnetar_console.hub import client_config
from magnetar_console.looks.schema_files import shows_of
from magnetar_console.settings import ConsoleSettings
from magnetar_console.viewers import Viewers
from magnetar_console.web.app import Web
from magnetar_console.web.asking import Asking
from magnetar_console.web.pages import Pages
from magnetar_console.web.sessions import Sessions
from magnetar_core.clock import Clock
from magnetar_core.config import InvalidConfig
from magnetar_core.link.grpc_transport import GrpcTransport
from magnetar_core.security.link_security import LinkSecurity, TlsFiles

log = logging.getLogger("magnetar_console")

STOP_S_MAX: Final = 3
CLIENT_CONFIG: Final = client_config("magnetar-console")


@asynccontextmanager
async def serving(
    settings: ConsoleSettings,
    brokers: Sequence[str],
    *,
    tls: TlsFiles | None,
    clock: Clock,
    random: Random,
) -> AsyncIterator[str]:
    """Serve a console in this event loop; the value is its address for a browser.

    Args:
        brokers: addresses of the cluster.
        tls: files for links to servers. They have a certificate of the console only if the settings
            say that it is shared: otherwise all rights are those of viewers' tokens.
        random: a source that cannot be guessed: sessions depend on it.
    Raises:
        InvalidConfig: the port is in use, or a file cannot be read.
    """

    def new_transport(token: str | None) -> GrpcTransport:
        return GrpcTransport(LinkSecurity(tls, token))

    async def connect_with(token: str | None) -> Client:
        transport = new_transport(token)
        return await connect(brokers, transport=transport, config=CLIENT_CONFIG)

    shows = shows_of(settings.schemas, framed=settings.framed)
    listening = _listen(settings.host, settings.port)
    port = int(listening.getsockname()[1])
    run = f"{random.getrandbits(32):08x}"
    viewers = Viewers(connect_with, new_transport, clock, run, shows=shows)
    sessions = Sessions(
        f"magnetar-console-{port}",
        secure=settings.scheme == "https",
        clock=clock,
        random=random,
    )
    web = Web(
        viewers,
        sessions,
        Pages(
            ", ".join(brokers),
            allow_actions=settings.allow_actions,
            shares_certificate=settings.shares_certificate,
        ),
        hosts=settings.hosts(port),
        scheme=settings.scheme,
        asking=Asking(viewers, sessions, allow_actions=settings.allow_actions, shows=shows),
    )
    server = _Server(_config(web, settings))
    task = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        yield settings.address(port)
    finally:
        # The streams of events would keep it from ending.
        await viewers.close()
        server.should_exit = True
        await task


class _Server(uvicorn.Server):
    """A server that leaves signals to the program."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _config(web: Web, settings: ConsoleSettings) -> uvicorn.Config:
    config = uvicorn.Config(
        web.app,
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=STOP_S_MAX,
        ssl_certfile=settings.certificate_file or None,
        ssl_keyfile=settings.key_file or None,
    )
    try:
        config.load()
    except OSError as error:
        raise InvalidConfig(f"the files for HTTPS cannot be used: {error}") from error
    return config


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host.strip("[]"), port))
        listening.listen(128)
    except OSError as error:
        listening.close()
        raise InvalidConfig(
            f"the console cannot listen on {host}, port {port}: {error.strerror}; choose another"
            " with --port"
        ) from error
    return listening
