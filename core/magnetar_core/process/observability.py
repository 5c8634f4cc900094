"""Logs and metrics of a process. They never contain payloads.

Sans-I/O modules neither log nor count; their callers log and count the decisions.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, TextIO

from magnetar_core.config import InvalidConfig, join_address

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

LogFormat = Literal["auto", "text", "json"]
_TEXT_FORMAT = "%(asctime)s.%(msecs)03d %(levelname)-7s %(name)s: %(message)s"
_TEXT_TIME_FORMAT = "%H:%M:%S"


# Names that log calls give in `extra`. Each is a field of the JSON line, so that people can search
# for it.
CONTEXT_FIELDS = ("txn_id", "participant", "peer", "operation", "duration_ms", "trace_id")


_GRPC_LOGGER = "grpc._cython.cygrpc"


def _is_worth_a_line(record: logging.LogRecord) -> bool:
    """Return False where gRPC complains that a conversation was over when its end was to be told.

    This happens when a client hangs up while the server stops: nothing is lost.
    """
    return not record.getMessage().startswith("ExecuteBatchError raised in core by servicer method")


class JsonLines(logging.Formatter):
    """Log formatter that writes a JSON object per line, for log collectors."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as a line of JSON."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": record.process,
            "message": record.getMessage(),
        }
        for name in CONTEXT_FIELDS:
            if hasattr(record, name):
                line[name] = str(getattr(record, name))
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        return json.dumps(line, ensure_ascii=False)


def set_up_logging(
    *, level: str = "info", log_format: LogFormat = "auto", stream: TextIO | None = None
) -> None:
    """Send this process's log to a stream (standard error), and replace any earlier set-up.

    Args:
        level: the lowest level that is logged.
        log_format: "auto" writes text on a terminal, and JSON lines otherwise.
        stream: None: standard error.
    Raises:
        InvalidConfig: no such level or format.
    """
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise InvalidConfig(f"{level!r} is not a log level; choose debug, info, warning or error")
    if log_format not in ("auto", "text", "json"):
        raise InvalidConfig(f"{log_format!r} is not a log format; choose auto, text or json")
    target = stream if stream is not None else sys.stderr
    handler = logging.StreamHandler(target)
    if log_format == "text" or (log_format == "auto" and target.isatty()):
        handler.setFormatter(logging.Formatter(_TEXT_FORMAT, _TEXT_TIME_FORMAT))
    else:
        handler.setFormatter(JsonLines())
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(number)
    logging.getLogger(_GRPC_LOGGER).addFilter(_is_worth_a_line)


class MetricsEndpoint:
    """Prometheus endpoint on a thread of its own.

    Raises:
        InvalidConfig: the port is taken.
    """

    def __init__(self, registry: CollectorRegistry, *, host: str, port: int) -> None:
        from magnetar_core.process import descriptors, metrics_http

        try:
            connections_max = descriptors.shares().metrics
            self._server = metrics_http.serve(registry, host, port, connections_max)
        except OSError as error:
            raise InvalidConfig(
                f"metrics cannot be served at {join_address(host, port)}: {error.strerror}; "
                "choose another port"
            ) from error
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.address = join_address(host, self._server.server_port)

    def close(self) -> None:
        """Stop the endpoint, and wait for its thread."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
