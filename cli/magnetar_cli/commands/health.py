"""`magnetar health`: asks servers by gRPC's health service whether they are healthy."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import click

from magnetar_cli.link_options import security
from magnetar_cli.types import json_option

SERVING = "SERVING"
# gRPC's health service: https://github.com/grpc/grpc-proto, grpc/health/v1/health.proto
CHECK = "/grpc.health.v1.Health/Check"
STATUSES = {0: "UNKNOWN", 1: SERVING, 2: "NOT_SERVING", 3: "SERVICE_UNKNOWN"}
# How many servers are asked at the same time.
QUESTIONS_MAX = 32


class Server(NamedTuple):
    """A server to check."""

    kind: str
    name: str
    address: str


@dataclass(frozen=True)
class Health:
    """The health of a server.

    Attributes:
        status: of gRPC's health service; NO ANSWER: the server did not answer.
        detail: why it did not answer.
    """

    kind: str
    name: str
    address: str
    status: str
    detail: str = ""


@click.command()
@click.argument("address", required=False, metavar="[HOST:PORT]")
@click.option(
    "--port",
    type=click.IntRange(1, 0xFFFF),
    envvar="MAGNETAR_PORT",
    help="The port of a server on this machine, instead of HOST:PORT.  [env: MAGNETAR_PORT]",
)
@click.option(
    "--timeout-s",
    type=click.FloatRange(0.1),
    default=3.0,
    show_default=True,
    help="How long to wait for each server.",
)
@json_option
def health(address: str | None, port: int | None, timeout_s: float, as_json: bool) -> None:
    """Check whether servers are healthy.

    With HOST:PORT or --port, the command checks that broker or coordinator, for health checks of
    containers and supervisors. Otherwise it checks all brokers and coordinators of the cluster that
    `magnetar --broker` names. The exit status is 0 if all checked servers are healthy, and 1
    otherwise.
    """
    from magnetar_cli.output import print_json, print_table

    single = address or (f"127.0.0.1:{port}" if port else None)
    if single is not None:
        found = check(Server("server", "", single), timeout_s)
        if as_json:
            print_json([found])
        elif found.detail:
            raise click.ClickException(f"{single} does not answer ({found.detail}); is it running?")
        else:
            click.echo(f"{single} {found.status}")
        raise click.exceptions.Exit(int(found.status != SERVING))
    servers, problem = members(timeout_s)
    with ThreadPoolExecutor(QUESTIONS_MAX) as executor:
        every = list(executor.map(lambda one: check(one, timeout_s), servers))
    if as_json:
        print_json(every)
    else:
        print_table(
            ("SERVER", "NAME", "ADDRESS", "STATUS"),
            [
                (one.kind, one.name, one.address, f"{one.status} {one.detail}".strip())
                for one in every
            ],
            empty="the cluster names no servers",
        )
    if problem:
        raise click.ClickException(f"the members of the cluster are not known: {problem}")
    raise click.exceptions.Exit(int(any(one.status != SERVING for one in every)))


def check(server: Server, timeout_s: float) -> Health:
    """Ask a server whether it is healthy."""
    from magnetar_core.link.grpc_transport import ask
    from magnetar_core.transport.transport import LinkClosed

    question = ask(server.address, CHECK, b"", security(), timeout_ms=timeout_s * 1_000)
    try:
        answer = asyncio.run(question)
    except LinkClosed as error:
        detail = str(error).removeprefix(f"cannot talk to {server.address}: ")
        return Health(*server, "NO ANSWER", detail)
    # HealthCheckResponse has a single field, which is left out when it is 0.
    return Health(*server, STATUSES.get(answer[-1] if answer else 0, "UNKNOWN"))


def members(timeout_s: float) -> tuple[Sequence[Server], str]:
    """Return all servers of the cluster that --broker names.

    Returns:
        The servers, and why others are not known; then they are those that --broker names.
    """
    from magnetar_cli.with_client import broker_addresses, with_client
    from magnetar_core.errors import MagnetarError
    from magnetar_core.transport.transport import LinkClosed

    named = broker_addresses()
    try:
        info = with_client(
            lambda client: client.admin.cluster_info(), operation_timeout_ms=timeout_s * 1_000
        )
    except (LinkClosed, MagnetarError) as error:
        return [Server("broker", "", one) for one in named], str(error)
    return [
        *(Server("broker", broker.name, broker.address) for broker in info.brokers),
        *(Server("coordinator", one.name, one.address) for one in info.coordinators),
    ], ""
