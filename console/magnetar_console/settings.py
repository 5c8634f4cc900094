"""Settings and limits of the console. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from magnetar_core.config import InvalidConfig, is_loopback, join_address

DEFAULT_PORT: Final = 8650

# How many event streams may be open at the same time, and how many of one hub's views.
VIEWERS_MAX: Final = 100
CHANNELS_MAX: Final = 64
# How many tokens have a connection to the cluster, and how many sessions there are.
HUBS_MAX: Final = 32
SESSIONS_MAX: Final = 256
# A session that is not used for so long has to sign in again.
SESSION_IDLE_MS: Final = 12 * 3_600_000
# A hub without viewers keeps its connection for so long, for the next page.
IDLE_S: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings:
    """Settings of a console.

    Attributes:
        host: the address of this machine to listen on.
        port: the port to listen on; 0: the system chooses.
        allow_remote: whether `host` may be an address that other machines can reach.
        allow_actions: whether viewers may end transactions, drain servers and rebalance;
            otherwise they can only look.
        names: further names, "host" or "host:port", by which browsers reach the console: those of
            a proxy, or of this machine.
        certificate_file, key_file: PEM files for HTTPS; both or neither.
        schemas: files with the schemas of topics whose values are in Avro, each as TOPIC=FILE.
        framed: whether these values begin with the number of their writer's schema.
        shares_certificate: whether servers are shown the certificate of the command. Then viewers
            who do not sign in have the rights of its principal, and those who do, too, where
            servers do not check tokens.
    """

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    allow_remote: bool = False
    allow_actions: bool = False
    names: tuple[str, ...] = field(default=())
    certificate_file: str = ""
    key_file: str = ""
    schemas: tuple[str, ...] = field(default=())
    framed: bool = False
    shares_certificate: bool = False

    def __post_init__(self) -> None:
        if bool(self.certificate_file) != bool(self.key_file):
            raise InvalidConfig("a certificate and its key need each other: name both files")
        if self.shares_certificate and not is_loopback(self.host):
            raise InvalidConfig(
                "with --share-certificate everyone who reaches the console has the rights of the"
                " certificate: listen on 127.0.0.1, behind a proxy that authenticates"
            )
        if not is_loopback(self.host) and not self.allow_remote:
            raise InvalidConfig(
                f"other machines can reach {self.host}: allow that with --allow-remote, or listen"
                " on 127.0.0.1 behind a proxy that authenticates"
            )
        if not is_loopback(self.host) and not self.names:
            raise InvalidConfig(
                "say by which name browsers reach the console, with --name: it refuses all others"
            )

    @property
    def scheme(self) -> str:
        """The scheme of its addresses."""
        return "https" if self.certificate_file else "http"

    def address(self, port: int) -> str:
        """Return the address for a browser.

        Args:
            port: the port on which the console listens.
        """
        host = self.host if is_loopback(self.host) else self.names[0].partition(":")[0]
        return f"{self.scheme}://{join_address(host, port)}/"

    def hosts(self, port: int) -> frozenset[str]:
        """Return the values that the header Host of a request may have.

        Any other name is one that another site has pointed at this machine (DNS rebinding).

        Args:
            port: the port on which the console listens.
        """
        own = [f"{one}:{port}" for one in ("127.0.0.1", "localhost", "[::1]")]
        if not is_loopback(self.host):
            own = []
        named = [one for name in self.names for one in (name, f"{name}:{port}")]
        return frozenset(one.lower() for one in (*own, *named))
