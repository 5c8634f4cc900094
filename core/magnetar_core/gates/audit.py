"""Audit log: a line of JSON for each administrative action, whether it was carried out or refused.

It says who did what to what, from where, and what came of it. It has names, and never messages,
keys or tokens. An action that was begun and not answered, since the server ended, has no line.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from logging.handlers import WatchedFileHandler
from typing import Any

from magnetar_core.access.principal import Principal
from magnetar_core.config import InvalidConfig
from magnetar_core.errors import code_name
from magnetar_core.server.commands import Reply
from magnetar_core.wire import common_pb2

# A line shortens long names and lists this many at most: a client chooses both.
NAME_CHARACTERS_MAX = 300
NAMES_MAX = 20
DONE = "DONE"

Write = Callable[[str], object]


def audit_writer(file: str) -> Write:
    """Return a function that writes lines to a file, or to the log of the server without a file.

    A program that rotates logs may move the file away: the next line begins a new file.

    Raises:
        InvalidConfig: the file cannot be written.
    """
    if not file:
        return logging.getLogger("magnetar.audit").info
    try:
        handler = WatchedFileHandler(file, encoding="utf-8")
    except OSError as error:
        raise InvalidConfig(f"the audit file {file} cannot be written: {error}") from error
    handler.setFormatter(logging.Formatter("%(message)s"))
    # Each file has its own logger, and no other handler sees its lines.
    logger = logging.Logger(f"magnetar.audit {file}", logging.INFO)
    logger.addHandler(handler)
    return logger.info


class AuditLog:
    """Writes lines of the audit log.

    Args:
        write: takes a line, without its end.
        wall_ms: the wall clock.
    """

    def __init__(self, write: Write, wall_ms: Callable[[], int]) -> None:
        self._write = write
        self._wall_ms = wall_ms

    def audited(self, reply: Reply, action: str, resources: Iterable[str]) -> Reply:
        """Return a reply whose answer is noted."""
        names = list(resources)

        def respond(answer: Any) -> None:
            is_error = isinstance(answer, common_pb2.ServerError)
            outcome = code_name(answer.code) if is_error else DONE
            self.note(reply.principal, reply.origin, action, names, outcome)
            reply.repeat(answer)

        return reply.through(respond)

    def note(
        self,
        principal: Principal,
        origin: str,
        action: str,
        resources: Iterable[str],
        outcome: str,
    ) -> None:
        """Write a line.

        Args:
            outcome: DONE, or the name of an error's code.
        """
        names = [one[:NAME_CHARACTERS_MAX] for one in list(resources)[:NAMES_MAX]]
        time = datetime.fromtimestamp(self._wall_ms() / 1_000, UTC)
        line = {
            "time": time.isoformat(timespec="milliseconds"),
            "principal": principal.name[:NAME_CHARACTERS_MAX],
            "origin": origin,
            "action": action,
            "resources": names,
            "outcome": outcome,
        }
        self._write(json.dumps(line))
