"""Addresses of stores: `s3://BUCKET/PREFIX`, or `file:///DIRECTORY` for tests. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import urlsplit

from magnetar_core.config import InvalidConfig

_FORMS: Final = "write s3://BUCKET/PREFIX, or file:///DIRECTORY"
_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
# Object stores accept more, but escape it in different ways.
_NAME: Final = re.compile(r"[A-Za-z0-9_.=-]+")

# Variables with the address of the object server, of which the last one that is set counts; and
# what says that requests may go there without TLS.
_ENDPOINT_VARIABLES: Final = ("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3")
_ALLOW_HTTP_VARIABLE: Final = "AWS_ALLOW_HTTP"
_TRUE: Final = ("1", "true", "yes", "y", "on")


@dataclass(frozen=True, slots=True)
class ObjectStoreUrl:
    """Address of the objects of a store.

    Attributes:
        scheme: "s3" or "file".
        bucket: the bucket; empty for a directory.
        path: the prefix of all objects, without slashes at its ends.
    """

    scheme: str
    bucket: str
    path: str

    @classmethod
    def parse(cls, text: str) -> ObjectStoreUrl:
        """Parse an address.

        Raises:
            InvalidConfig: the text has another form. It is not repeated when it could hold a
                password.
        """
        try:
            parts = urlsplit(text)
        except ValueError as error:
            raise InvalidConfig(f"the address of the store cannot be read: {_FORMS}") from error
        if "@" in parts.netloc or parts.query or parts.fragment:
            raise InvalidConfig(
                f"the address of the store has more than bucket and prefix: {_FORMS}; credentials"
                " come from the environment, as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            )
        if parts.scheme not in ("s3", "file"):
            raise InvalidConfig(f"{text!r} is not the address of a store: {_FORMS}")
        if parts.scheme == "s3" and not _BUCKET.fullmatch(parts.netloc):
            raise InvalidConfig(f"{text!r} names no bucket: {_FORMS}")
        if parts.scheme == "file" and (parts.netloc or not parts.path.strip("/")):
            raise InvalidConfig(f"{text!r} names no directory: {_FORMS}")
        url = cls(parts.scheme, parts.netloc, "")
        return url.below(*parts.path.strip("/").split("/")) if parts.path.strip("/") else url

    def below(self, *names: str) -> ObjectStoreUrl:
        """Return the address of a store below this one.

        Raises:
            InvalidConfig: a name has characters that not every object store keeps.
        """
        for name in names:
            if not _NAME.fullmatch(name) or set(name) == {"."}:
                raise InvalidConfig(
                    f"{name!r} cannot be part of a store's address: use letters, digits, and"
                    " any of . _ = - only"
                )
        return replace(self, path="/".join((*([self.path] if self.path else []), *names)))

    @property
    def above(self) -> ObjectStoreUrl:
        """The address that this one is below."""
        return replace(self, path=self.path.rpartition("/")[0])

    @property
    def root(self) -> str:
        """The address without its path."""
        return f"s3://{self.bucket}" if self.scheme == "s3" else "file:///"

    @property
    def is_local(self) -> bool:
        """Whether the store is a directory of this machine."""
        return self.scheme == "file"

    @property
    def directory(self) -> str:
        """The directory of a store on this machine."""
        return f"/{self.path}"

    def __str__(self) -> str:
        return f"file:///{self.path}" if self.is_local else f"{self.root}/{self.path}".rstrip("/")


def check_endpoint(url: ObjectStoreUrl, environ: Mapping[str, str]) -> None:
    """Check that requests can be sent to the object server that the environment names.

    Otherwise each of them would fail as if the server did not answer, for ever.

    Raises:
        InvalidConfig: they cannot. The address is not repeated, since it could hold a password.
    """
    names = [name for name in _ENDPOINT_VARIABLES if name in environ]
    if url.is_local or not names:
        return
    name = names[-1]
    scheme = _scheme_of(environ[name])
    if scheme not in ("http", "https"):
        raise InvalidConfig(
            f"{name} is not the address of an object server: write https://HOST:PORT, or"
            f" http://HOST:PORT and {_ALLOW_HTTP_VARIABLE}=true"
        )
    if scheme == "http" and environ.get(_ALLOW_HTTP_VARIABLE, "").lower() not in _TRUE:
        raise InvalidConfig(
            f"{name} begins with http://, and requests without TLS are not allowed: write https://,"
            f" or set {_ALLOW_HTTP_VARIABLE}=true if the network is trusted"
        )


def _scheme_of(address: str) -> str:
    """Return the scheme of a server's address; empty: it has none."""
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:
        return ""
    # urlsplit leaves spaces at the ends out.
    is_address = parts.hostname and port != 0 and not re.search(r"\s", address)
    return parts.scheme if is_address else ""
