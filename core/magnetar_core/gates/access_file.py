"""Access file: read at the start, and again when it changes while servers run.

If the new file is invalid, the previous rights stay in force, and a warning is logged. At the start
an invalid file is an error, since there are no previous rights.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from magnetar_core.access.policy import Policy, open_policy, parse_policy, permissive_policy
from magnetar_core.config import InvalidConfig
from magnetar_core.security.watched_file import FreshFile, WatchedFile

log = logging.getLogger(__name__)

ACCESS_FILE_BYTES_MAX = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessConfig:
    """Settings of access control.

    Attributes:
        access_file: TOML file with the roles of principals, and with what roles may do. The server
            reads it again when it changes. It refuses what the file does not grant. Empty: every
            client may do everything, except what only servers may do if server_principals is set.
        server_principals: principals of the cluster's own servers, separated by commas; a star at
            the end of a name stands for all names that begin so. Only they may end transactions at
            brokers, take incarnations, and follow the topics of the first broker. The access file
            may name more. Without an access file all other principals are administrators.
        audit_file: file to which each administrative action adds a line of JSON. Empty: with access
            control, these lines go to the server's log, from the logger magnetar.audit.
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
        return tuple(name for name in names if name)

    @property
    def is_on(self) -> bool:
        """Whether any client can be refused."""
        return bool(self.access_file or self.servers)


class Access:
    """Rights as the settings and the access file have them now.

    Attributes:
        file: the access file; None without.
        policy: returns who may do what.

    Args:
        now_ms: of a monotonic clock.
    Raises:
        InvalidConfig: the access file cannot be read, or used.
    """

    def __init__(self, config: AccessConfig, now_ms: Callable[[], float]) -> None:
        self.file: WatchedFile[Policy] | None = None
        self.policy: Callable[[], Policy]
        if config.access_file:
            self.file = watched_policy(config.access_file, config.servers)
            self.policy = FreshFile(self.file, now_ms).content
            return
        if config.is_on:
            log.warning(
                "server_principals is set and access_file is not: every client that is not a "
                "server is an administrator, who may read, write and delete everything; name an"
                " access_file to say who may do what"
            )
        policy = open_policy(config.servers) if config.is_on else permissive_policy()
        self.policy = lambda: policy


def watched_policy(file: str, servers: Iterable[str] = ()) -> WatchedFile[Policy]:
    """Read an access file.

    Args:
        servers: further principals that are servers of the cluster.
    Raises:
        InvalidConfig: it cannot be read, or used.
    """
    names = tuple(servers)
    return WatchedFile(
        file,
        lambda content: parse_policy(content.decode()).with_servers(names),
        bytes_max=ACCESS_FILE_BYTES_MAX,
    )
