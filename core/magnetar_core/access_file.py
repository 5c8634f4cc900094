"""Access file: read at the start, and again when it changes while servers run.

A damaged new file changes nothing: the rights of before stay, and the log says so until the file
is mended. Only at the start it is an error, since there are no rights of before.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from magnetar_core.access.policy import (
    InvalidPolicy,
    Policy,
    open_policy,
    parse_policy,
    permissive_policy,
)
from magnetar_core.config import InvalidConfig

log = logging.getLogger(__name__)

# How long rights that were withdrawn in the file may still be used.
LOOK_INTERVAL_MS = 500
ACCESS_FILE_BYTES_MAX = 16 << 20
# Stands for the stamp of a file that could not be read.
_UNREADABLE: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessConfig:
    """Settings of who may do what.

    Attributes:
        access_file: a TOML file with the roles of principals, and what roles may do; read again
            when it changes. Whatever it does not grant is refused. Empty: whoever is let in may do
            everything, except for what is for servers only, if server_principals names those.
        server_principals: the principals of the cluster's own servers, several with commas between
            them; a star at the end of a name stands for every name that begins so. Nobody else may
            end transactions at brokers, take incarnations, or follow the directory. They count
            beside those that the access file has.
        audit_file: each administrative action adds a line of JSON to this file. Empty: with access
            control, the log of the server has these lines, from the logger magnetar.audit.
    """

    access_file: str = ""
    server_principals: str = ""
    audit_file: str = ""

    def __post_init__(self) -> None:
        for name in self.servers:
            if name == "*":
                raise InvalidConfig(
                    "server_principals has *, and not every principal is a server: name those"
                    " that are"
                )

    @property
    def servers(self) -> tuple[str, ...]:
        """The names among server_principals."""
        names = (one.strip() for one in self.server_principals.split(","))
        return tuple(one for one in names if one)

    @property
    def is_on(self) -> bool:
        """Whether anybody is refused anything."""
        return bool(self.access_file or self.servers)


class Access:
    """Rights as the settings and the access file have them now.

    Args:
        now_ms: of a monotonic clock.
    Raises:
        InvalidConfig: the access file cannot be read, or used.
    """

    def __init__(self, config: AccessConfig, now_ms: Callable[[], float]) -> None:
        self._config = config
        self._now_ms = now_ms
        self._path = Path(config.access_file) if config.access_file else None
        self._seen: tuple[int, ...] | None = None
        self._looked_at_ms = now_ms()
        # How often the file changed and could not be used.
        self.refused_count = 0
        self.read_count = 0
        try:
            self._policy = self._read()
        except (OSError, InvalidPolicy) as error:
            raise InvalidConfig(f"the access file {self._path} cannot be used: {error}") from error

    def policy(self) -> Policy:
        """Return who may do what."""
        if self._path is not None:
            now_ms = self._now_ms()
            if now_ms - self._looked_at_ms >= LOOK_INTERVAL_MS:
                self._looked_at_ms = now_ms
                self._look()
        return self._policy

    def _look(self) -> None:
        """Read the file again if it has changed."""
        before = self._seen
        try:
            if self._stamp() == before:
                return
            self._policy = self._read()
        except (OSError, InvalidPolicy) as error:
            if isinstance(error, OSError):
                self._seen = _UNREADABLE
            if self._seen != before:
                self.refused_count += 1
                log.error(
                    "the access file %s has changed and cannot be used; rights stay as they were:"
                    " %s",
                    self._path,
                    error,
                )
        else:
            log.warning("the access file %s has changed; its rights count from now on", self._path)

    def _read(self) -> Policy:
        if self._path is None:
            if not self._config.is_on:
                return permissive_policy()
            return open_policy(self._config.servers)
        # Before it is read: what is written meanwhile is read again.
        self._seen = self._stamp()
        with self._path.open("rb") as file:
            content = file.read(ACCESS_FILE_BYTES_MAX + 1)
        if len(content) > ACCESS_FILE_BYTES_MAX:
            raise InvalidPolicy(f"it has more than {ACCESS_FILE_BYTES_MAX} bytes")
        try:
            policy = parse_policy(content.decode())
        except UnicodeDecodeError as error:
            raise InvalidPolicy(f"it is not UTF-8: {error}") from error
        self.read_count += 1
        return policy.with_servers(self._config.servers)

    def _stamp(self) -> tuple[int, ...]:
        """Return what differs when somebody has written the file, or put another in its place."""
        assert self._path is not None
        found = os.stat(self._path)
        return found.st_mtime_ns, found.st_size, found.st_ino
