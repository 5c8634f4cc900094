"""Log of commands that were answered late."""

from __future__ import annotations

import logging
from collections.abc import Callable

from magnetar_core.traces.spans import Span
from magnetar_core.traces.traceparent import trace_id_of

log = logging.getLogger(__name__)

# Between two lines about commands of the same kind.
SILENCE_MS = 1_000
# These commands wait for news: their answers take long on purpose.
PATIENT = frozenset({"follow_directory"})


class SlowOperations:
    """Logs commands whose answers took long: the command, its client, and its time.

    There is one line a second at most for each kind of command; it tells how many there were since
    the last one. A command that is never answered is never logged.

    Args:
        limit_ms: a command that takes longer is slow; 0: nothing is logged.
        now_ms: time that never goes back, in milliseconds.
    """

    def __init__(self, limit_ms: int, now_ms: Callable[[], float]) -> None:
        self._limit_ms = limit_ms
        self._now_ms = now_ms
        # Keys are kinds of commands: when the last line was written, and how many were slow since.
        self._lines: dict[str, tuple[float, int]] = {}

    def begun(self) -> float:
        """Return the time at which a command came, for answered()."""
        return self._now_ms() if self._limit_ms else 0.0

    def is_late(self, begun_ms: float) -> bool:
        """Return whether a command that came at a time is slow, if it is answered now."""
        return bool(self._limit_ms) and self._now_ms() - begun_ms > self._limit_ms

    def answered(
        self,
        name: str,
        origin: str,
        begun_ms: float,
        traceparent: bytes = b"",
        span: Span | None = None,
    ) -> None:
        """Note that a command was answered, or refused.

        Args:
            name: of the command's field in the envelope.
            origin: the client's machine.
            begun_ms: as begun() returned it.
            traceparent: what the client said of its span; empty: nothing.
            span: of the command, if this server makes traces.
        """
        if not self._limit_ms:
            return
        now_ms = self._now_ms()
        took_ms = now_ms - begun_ms
        if took_ms <= self._limit_ms or name in PATIENT:
            return
        logged_ms, unlogged = self._lines.get(name, (now_ms - SILENCE_MS, 0))
        if now_ms - logged_ms < SILENCE_MS:
            self._lines[name] = (logged_ms, unlogged + 1)
            return
        self._lines[name] = (now_ms, 0)
        context: dict[str, object] = {
            "peer": origin,
            "operation": name,
            "duration_ms": round(took_ms),
        }
        trace_id = trace_id_of(traceparent) if span is None else span.trace_id
        if trace_id:
            context["trace_id"] = trace_id
        log.warning(
            "slow: %s of %s was answered after %.0f ms%s; %d more of its kind since the last line",
            name,
            origin or "this process",
            took_ms,
            f", trace {trace_id}" if trace_id else "",
            unlogged,
            extra=context,
        )
