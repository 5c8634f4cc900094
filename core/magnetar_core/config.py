"""Settings from outside, read once and checked once.

A component's settings are a frozen dataclass that checks itself when it is made; `configured` makes
one from the environment. Each scalar field is read from MAGNETAR_ and its name in capitals.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

PREFIX = "MAGNETAR_"
_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})

Settings = TypeVar("Settings")


class InvalidConfig(ValueError):
    """Settings that cannot work; the message says which, and what would."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenConfig:
    """Where a server listens.

    Attributes:
        port: 0 lets the operating system choose.
        allow_remote: needed for any address but loopback: whoever reaches the port may use it.
        metrics_port: of the Prometheus endpoint, on the same host; None: no endpoint.
        session_push_bytes_max: with more than this unread, a client is sent no more messages until
            it has read half of it. Higher: more throughput on slow networks. Lower: less memory.
        session_queue_bytes_max: a client that leaves more than this unread is disconnected.
            Higher: patience with slow networks. Lower: less memory at their mercy.
        stop_grace_ms: how long a stopping server waits for calls that are under way.
        tls_certificate_file, tls_key_file: PEM; both or neither. Without them all is plain text.
    """

    host: str = "127.0.0.1"
    port: int = 0
    allow_remote: bool = False
    metrics_port: int | None = None
    session_push_bytes_max: int = 8 << 20
    session_queue_bytes_max: int = 256 << 20
    stop_grace_ms: int = 2_000
    tls_certificate_file: str = ""
    tls_key_file: str = ""

    def __post_init__(self) -> None:
        for name in ("port", "metrics_port"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 0xFFFF:
                raise InvalidConfig(f"{name} is {value}; choose one from 1 to 65535, or 0 for any")
        if not is_loopback(self.host) and not self.allow_remote:
            raise InvalidConfig(
                f"listening on {self.host} lets other machines in; if that is meant, "
                f"say so with --allow-remote or {PREFIX}ALLOW_REMOTE=1, else use 127.0.0.1"
            )
        if self.session_push_bytes_max <= 0:
            raise InvalidConfig("session_push_bytes_max must be positive")
        if self.session_queue_bytes_max < self.session_push_bytes_max:
            raise InvalidConfig(
                "session_queue_bytes_max must be at least session_push_bytes_max: it bounds that,"
                " and the replies that come on top"
            )
        if self.stop_grace_ms < 0:
            raise InvalidConfig("stop_grace_ms must not be negative")
        if bool(self.tls_certificate_file) != bool(self.tls_key_file):
            raise InvalidConfig("tls_certificate_file and tls_key_file need each other: name both")


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def join_address(host: str, port: int) -> str:
    """ "host:port", with brackets around an IPv6 host."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def split_address(address: str) -> tuple[str, int]:
    """Read "host:port".

    Raises:
        InvalidConfig: not of that form.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 0xFFFF:
        raise InvalidConfig(f"{address!r} is not an address; write HOST:PORT, as 127.0.0.1:6650")
    return host.strip("[]"), int(port)


def configured(
    settings: type[Settings], environ: Mapping[str, str], /, **given: object
) -> Settings:
    """Make settings from the environment; what is given (and not None) wins over it.

    Raises:
        InvalidConfig: a variable is not of its field's type, or the settings refuse their values.
    """
    types = typing.get_type_hints(settings)
    values = {name: value for name, value in given.items() if value is not None}
    for field in dataclasses.fields(settings):  # type: ignore[arg-type]
        text = environ.get(PREFIX + field.name.upper())
        if text is None or field.name in values:
            continue
        read = _reader_of(types[field.name])
        if read is None:
            continue
        try:
            values[field.name] = read(text.strip())
        except ValueError as error:
            raise InvalidConfig(
                f"{PREFIX}{field.name.upper()} is {text!r}, which is {error}; correct or unset it"
            ) from None
    return settings(**values)


def _reader_of(annotation: Any) -> Any:
    alternatives = [one for one in typing.get_args(annotation) if one is not type(None)]
    if alternatives:
        annotation = alternatives[0] if len(alternatives) == 1 else None
    return {str: str, bool: _bool, int: _int, float: _float}.get(annotation)


def _bool(text: str) -> bool:
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise ValueError("neither true nor false")


def _int(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError("not a whole number") from None


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("not a number") from None
