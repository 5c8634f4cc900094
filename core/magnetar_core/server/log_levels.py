"""Levels of a running server's log: the command that changes them.

A change counts for the whole process, whatever shards it has, and until the process ends.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from magnetar_core.errors import InvalidArgument
from magnetar_core.server.commands import Handler, Reply, each_of
from magnetar_core.wire import common_pb2

log = logging.getLogger(__name__)

LEVELS = ("debug", "info", "warning", "error", "critical")
# A logger that has no level of its own has that of its parent. The root has none.
INHERITED = "inherited"


def set_log_level(level: str, logger: str) -> str:
    """Set the level of a logger, and return what it was.

    Args:
        level: one of LEVELS; empty: nothing changes; "inherited", for any logger but the root: as
            its parent.
        logger: a logger that this process has; empty: the root.
    Raises:
        InvalidArgument: no such level, or no such logger. Nothing has changed.
    """
    # Loggers stay for good: a request must not make new ones.
    if logger and not isinstance(logging.root.manager.loggerDict.get(logger), logging.Logger):
        raise InvalidArgument(
            f"this server has no logger {logger!r}; use a logger name as it appears in the log, "
            "such as magnetar_core.server.grpc_server, or leave it out to set the level of all"
        )
    target = logging.getLogger(logger or None)
    before = logging.getLevelName(target.level).lower() if target.level else INHERITED
    if not level:
        return before
    allowed = (*LEVELS, INHERITED) if logger else LEVELS
    if level not in allowed:
        raise InvalidArgument(f"{level!r} is not a log level here; choose {', '.join(allowed)}")
    number = logging.NOTSET if level == INHERITED else logging.getLevelNamesMapping()[level.upper()]
    target.setLevel(number)
    return before


def _set_log_level(command: common_pb2.CommandSetLogLevel, reply: Reply) -> None:
    before = set_log_level(command.level, command.logger)
    if command.level:
        # As a warning: most levels show it.
        log.warning(
            "%s set the log level of %s to %s; it was %s",
            reply.origin or "this process",
            command.logger or "all loggers without their own",
            command.level,
            before,
        )
    reply.send(common_pb2.CommandSetLogLevelResponse(previous_level=before))


# Every server has these beside its own. They do not describe what a server stores.
LOG_LEVEL_HANDLERS: Mapping[str, Handler] = each_of({"set_log_level": _set_log_level})
