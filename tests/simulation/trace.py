"""The trace of a run, in order: always as a digest, and as readable lines on demand."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from typing import TextIO

from magnetar.testing.envelope import Together, singles
from magnetar_core.wire import service_pb2 as pb

_HEAD = struct.Struct("<dI")


class Trace:
    """Args:
    time: virtual seconds.
    out: where readable lines go; None: nowhere, which is much faster.
    """

    def __init__(self, time: Callable[[], float], out: TextIO | None = None) -> None:
        self._time = time
        self._out = out
        self._hash = hashlib.blake2b(digest_size=16)

    @property
    def verbose(self) -> bool:
        return self._out is not None

    def digest(self) -> str:
        return self._hash.hexdigest()

    def event(self, kind: str, text: str) -> None:
        self._hash.update(f"{self._time()!r} {kind} {text}\n".encode())
        if self._out is not None:
            self._out.write(f"{self._time():12.6f} {kind:12} {text}\n")

    def frame(
        self,
        link: int,
        direction: str,
        client: str,
        server: str,
        data: bytes,
        together: Together,
    ) -> None:
        """A frame arrived."""
        self._hash.update(_HEAD.pack(self._time(), link))
        self._hash.update(data)
        if self._out is not None:
            for command in singles(pb.Frame.FromString(data), together).commands:
                name = command.WhichOneof("body") or "nothing"
                self._out.write(
                    f"{self._time():12.6f} #{link:<3} {client} {direction} {server} "
                    f"[{command.request_id}] {name} {_shorten(getattr(command, name, ''))}\n"
                )


def _shorten(message: object) -> str:
    text = " ".join(str(message).split())
    return text if len(text) <= 400 else text[:400] + " ..."
