"""Reads PEM files, and says what is wrong with them: TLS itself only says "failed"."""

from __future__ import annotations

import os
import re
import ssl
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from magnetar_core.config import InvalidConfig

Content = TypeVar("Content")

# What editors of Windows put before the text of a file.
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# Between blocks there may be any text, in any encoding.
BLOCK = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----.*?-----END \1-----", re.DOTALL)

# Of a file: when it was written, which one it is, and how long.
Stamp = tuple[int, int, int]


def stamp_of(file: str) -> Stamp | None:
    """Return a value that changes whenever a file does; None: there is no such file."""
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size


class RenewedFiles(Generic[Content]):
    """Common content of several files, read again when one of them has changed.

    Attributes:
        content: of the files when they could last be used.

    Args:
        files: their names.
        read: reads all of them.
    Raises:
        InvalidConfig: as read.
    """

    def __init__(self, files: Sequence[str], read: Callable[[], Content]) -> None:
        self._files = files
        self._read = read
        # Before they are read: what is written meanwhile is read again.
        self._stamps = self._look()
        self.content = read()

    def refresh(self) -> bool:
        """Look whether a file has changed; return whether the content is a new one.

        Raises:
            InvalidConfig: they have changed and cannot be used; what they said before stays. A file
                that is being written is looked at again the next time.
        """
        stamps = self._look()
        if stamps == self._stamps:
            return False
        self.content = self._read()
        self._stamps = stamps
        return True

    def _look(self) -> Sequence[Stamp | None]:
        return [stamp_of(file) for file in self._files]


def read_pair(
    certificate_file: str, key_file: str, context: ssl.SSLContext | None = None
) -> tuple[bytes, bytes]:
    """Return a certificate and its key.

    Args:
        context: shows this certificate from now on; None: none does.
    Raises:
        InvalidConfig: they cannot be read, or do not belong together.
    """
    certificate, key = _read_raw(certificate_file), _read_raw(key_file)
    for file, content in ((certificate_file, certificate), (key_file, key)):
        # OpenSSL reads the files itself, and would leave out what follows the mark.
        if content.startswith(_BYTE_ORDER_MARK):
            raise InvalidConfig(f"{file} begins with a byte order mark: save it without")
    try:
        # A password would be asked for at the terminal.
        (context or ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)).load_cert_chain(
            certificate_file, key_file, password=lambda: ""
        )
    except (ssl.SSLError, OSError, ValueError) as error:
        raise InvalidConfig(
            f"{certificate_file} and {key_file} are not a certificate and its key ({error}): both"
            " are PEM, belong together, and the key has no password"
        ) from None
    return certificate, key


def read_authorities(file: str, context: ssl.SSLContext | None = None) -> bytes:
    """Return certificates of authorities, without what may stand between them.

    Args:
        context: trusts these authorities from now on; None: none does.
    Raises:
        InvalidConfig: they cannot be read.
    """
    content = b"\n".join(block[0] for block in BLOCK.finditer(read(file)))
    try:
        trusting = context or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        trusting.load_verify_locations(cadata=content.decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        raise InvalidConfig(
            f"{file} has no certificates of authorities ({error}): it has to be PEM"
        ) from None
    return content


def read(file: str, bytes_max: int | None = None, *, is_secret: bool = False) -> bytes:
    """Return a file's content, without a byte order mark.

    Args:
        bytes_max: of a larger file, at least one byte more than that is returned; None: all of it.
        is_secret: only its owner and its group may have permissions.
    Raises:
        InvalidConfig: it cannot be read, or is a secret that all users of the machine may read.
    """
    at_most = None if bytes_max is None else bytes_max + 1 + len(_BYTE_ORDER_MARK)
    return _read_raw(file, at_most, is_secret=is_secret).removeprefix(_BYTE_ORDER_MARK)


def _read_raw(file: str, bytes_max: int | None = None, *, is_secret: bool = False) -> bytes:
    try:
        with Path(file).open("rb") as opened:
            if is_secret and os.fstat(opened.fileno()).st_mode & stat.S_IRWXO:
                raise InvalidConfig(
                    f"{file} is a secret, and all users of this machine may read it: change that "
                    f"with `chmod o= {file}`"
                )
            return opened.read() if bytes_max is None else opened.read(bytes_max)
    except OSError as error:
        raise InvalidConfig(
            f"{file} cannot be read: {error.strerror}; check the path and its permissions"
        ) from None
