"""gRPC calls made by hand, where the stubs of gRPC say too little or too much."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health_pb2

from magnetar_core.security.link_security import TlsFiles

TIMEOUT_S = 5.0


def serving_status(channel: grpc.Channel, service: str) -> int:
    """What a server says about one of its services, or of itself when the name is empty."""
    ask = channel.unary_unary(
        "/grpc.health.v1.Health/Check",
        health_pb2.HealthCheckRequest.SerializeToString,
        health_pb2.HealthCheckResponse.FromString,
    )
    return int(ask(health_pb2.HealthCheckRequest(service=service), timeout=TIMEOUT_S).status)


def failed_call(error: grpc.RpcError) -> grpc.Call:
    """The call that an error stands for: one object, though the stubs say that none can be both."""
    both: Any = error
    assert isinstance(both, grpc.Call)
    return both


def credentials_of(tls: TlsFiles) -> grpc.ChannelCredentials:
    """What gRPC's own client talks TLS with."""
    files = (tls.ca_file, tls.key_file, tls.certificate_file)
    return grpc.ssl_channel_credentials(
        *(Path(file).read_bytes() if file else None for file in files)
    )
