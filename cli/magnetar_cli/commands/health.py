"""`magnetar health`: asks a server by gRPC's health service whether it is healthy."""

from __future__ import annotations

from typing import Any

import click


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
    help="How long to wait.",
)
@click.pass_context
def health(ctx: click.Context, address: str | None, port: int | None, timeout_s: float) -> None:
    """Check whether a server is healthy.

    The server is a broker or a coordinator: at HOST:PORT, at --port of this machine, or by default
    the broker that `magnetar --broker` names. The exit status is 0 if the server is healthy, and 1
    otherwise. The command is meant for health checks of containers and supervisors.
    """
    import grpc
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    asked = address or (f"127.0.0.1:{port}" if port else str(ctx.find_root().obj))
    with grpc.insecure_channel(asked) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        try:
            answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=timeout_s)
        except grpc.RpcError as error:
            # The call itself, too: only so it has a code.
            code = error.code().name.lower()
            raise click.ClickException(
                f"{asked} does not answer ({code}); is it running?"
            ) from None
    status = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
    click.echo(f"{asked} {status}")
    if answer.status != health_pb2.HealthCheckResponse.SERVING:
        raise click.exceptions.Exit(1)
