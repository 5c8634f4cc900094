"""`magnetar health`: whether one server serves, asked by gRPC's health service."""

from __future__ import annotations

from typing import Any

import click


@click.command()
@click.argument("address", required=False, metavar="[HOST:PORT]")
@click.option(
    "--port",
    type=click.IntRange(1, 0xFFFF),
    envvar="MAGNETAR_PORT",
    help="Of a server on this machine, in place of its address.  [env: MAGNETAR_PORT]",
)
@click.option(
    "--timeout-s", type=click.FloatRange(0.1), default=3.0, show_default=True, help="For an answer."
)
@click.pass_context
def health(ctx: click.Context, address: str | None, port: int | None, timeout_s: float) -> None:
    """Ask a server whether it serves: exit status 0 if so, 1 if not.

    A broker or a coordinator: the one at HOST:PORT, or at --port here, or else the broker that
    `magnetar --broker` names. Made for health checks of containers and supervisors.
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
