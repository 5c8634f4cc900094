"""Metrics of a server's conversations and file descriptors."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge

from magnetar_core.process import descriptors
from magnetar_core.server.grpc_server import GrpcServer

OPEN_FILES = "magnetar_open_files"
OPEN_FILES_MAX = "magnetar_open_files_max"


def tell_connections(registry: CollectorRegistry, server: GrpcServer) -> None:
    """Register the metrics of a server's conversations, and of its process's descriptors."""
    Gauge(
        "magnetar_conversations",
        "Conversations of clients and other servers.",
        registry=registry,
    ).set_function(lambda: server.conversation_count)
    silent = Counter(
        "magnetar_silent_conversations",
        "Conversations that were ended because no command came within handshake_timeout_ms.",
        registry=registry,
    )
    server.on_silent = silent.inc
    Gauge(
        OPEN_FILES,
        "Files and connections that the process has open; 0 where the system does not tell.",
        registry=registry,
    ).set_function(descriptors.open_count)
    Gauge(
        OPEN_FILES_MAX,
        "The limit of open files, which a server raises to the hard limit when it starts.",
        registry=registry,
    ).set_function(descriptors.limit)
