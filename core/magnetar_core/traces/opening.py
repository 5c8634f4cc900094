"""Begins the traces of a server, if its settings ask for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar_core.config import InvalidConfig
from magnetar_core.traces.config import TracesConfig

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from magnetar_core.traces.exporting import ExportedTraces


def open_traces(
    config: TracesConfig, kind: str, name: str, registry: CollectorRegistry
) -> ExportedTraces | None:
    """Begin the traces of a server; None if settings ask for none, and nothing is imported.

    Args:
        kind: "broker" or "coordinator".
        name: of the server.
        registry: gets the metrics.
    Raises:
        InvalidConfig: OpenTelemetry is not installed.
    """
    if not config.traces_endpoint:
        return None
    try:
        from magnetar_core.traces.exporting import ExportedTraces
    except ImportError as error:
        raise InvalidConfig(
            f"traces_endpoint needs OpenTelemetry, which is not installed ({error}):"
            " pip install 'magnetar[traces]', or start without it"
        ) from error
    return ExportedTraces(config, kind, name, registry)
