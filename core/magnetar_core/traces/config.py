"""Settings of a server's traces."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from magnetar_core.config import InvalidConfig, check_numbers

_PATH = "/v1/traces"


@dataclass(frozen=True, slots=True, kw_only=True)
class TracesConfig:
    """Settings of the traces that a server makes.

    Attributes:
        traces_endpoint: address of the collector that gets the spans, by OTLP over HTTP, as
            http://127.0.0.1:4318. Empty: the server makes no spans. OpenTelemetry's own variables
            (OTEL_EXPORTER_OTLP_HEADERS, OTEL_RESOURCE_ATTRIBUTES, OTEL_SERVICE_NAME, ...) set the
            rest.
        traces_sample_ratio: part of the commands that begin a trace, from 0 (none) to 1 (all), if
            their client does not make traces. A client that makes traces decides whether they are
            recorded. Higher: more traces. Lower: less work for the server and the collector.
    """

    traces_endpoint: str = ""
    traces_sample_ratio: float = 0.01

    def __post_init__(self) -> None:
        check_numbers(self, may_be_zero=("traces_sample_ratio",))
        if not 0 <= self.traces_sample_ratio <= 1:
            raise InvalidConfig("traces_sample_ratio must be from 0 to 1")
        if self.traces_endpoint:
            self._check_endpoint()

    def _check_endpoint(self) -> None:
        try:
            parts = urlsplit(self.traces_endpoint)
            complete = parts.scheme in ("http", "https") and bool(parts.hostname)
            # Reading it checks it.
            complete = complete and parts.port != 0
        except ValueError:
            complete = False
        if not complete:
            raise InvalidConfig(
                "traces_endpoint is not the address of a collector; write http://HOST:PORT, as"
                " http://127.0.0.1:4318"
            )
        if parts.username is not None or parts.password is not None or parts.query:
            raise InvalidConfig(
                "traces_endpoint must have no password and no token in it, since settings are"
                " shown; name them in the variable OTEL_EXPORTER_OTLP_HEADERS"
            )

    @property
    def url(self) -> str:
        """URL to which spans are posted."""
        path = urlsplit(self.traces_endpoint).path
        return self.traces_endpoint if path.strip("/") else self.traces_endpoint.rstrip("/") + _PATH
