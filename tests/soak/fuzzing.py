"""Damaged and random frames and requests, made cheaply from a pool of commands."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from google.protobuf.internal.encoder import _VarintBytes  # type: ignore[attr-defined]
from google.protobuf.message_factory import GetMessageClass
from tests.access.test_fuzz import BODIES, filled

from magnetar.testing.envelope import command
from magnetar_core.transport.frames import FIELD_OF_BODY
from magnetar_core.wire import service_pb2

POOL = 4_000
# An administrator would have the right to change levels of the log, or to hold writes for a backup.
_ADMINISTRATION = ("set_log_level", "hold_backup")
_COMMANDS_FIELD = b"\x0a"
_LENGTH = 2
_LARGE_BYTES = 1 << 20


class Fuzzer:
    """Maker of frames and requests."""

    def __init__(self, seed: int) -> None:
        self._random = random = Random(seed)
        kinds = [body for body in BODIES if FIELD_OF_BODY[body] not in _ADMINISTRATION]
        self._commands = [
            command(
                filled(random, random.choice(kinds)), random.getrandbits(20) | 1
            ).SerializeToString()
            for _ in range(POOL)
        ]
        self._methods = {
            name: [
                (f"/magnetar.v1.{name}/{method.name}", self._requests(method.input_type))
                for method in service.methods
                if not method.client_streaming
                and FIELD_OF_BODY[GetMessageClass(method.input_type)] not in _ADMINISTRATION
            ]
            for name, service in service_pb2.DESCRIPTOR.services_by_name.items()
        }
        self._damages: list[Callable[[bytes], bytes]] = [
            self._truncated,
            self._flipped,
            self._random_bytes,
            self._huge_length,
            self._unknown,
            self._nested,
            self._spliced,
        ]

    def frame(self) -> bytes:
        """Return a frame: six of seven have commands that can be read."""
        random = self._random
        parts = random.choices(self._commands, k=random.randrange(1, 6))
        found = b"".join(_field(part) for part in parts)
        if random.random() < 6 / 7:
            return found
        return random.choice(self._damages)(found)

    def request(self, service: str) -> tuple[str, bytes]:
        """Return a method and what it is asked."""
        random = self._random
        method, pool = random.choice(self._methods[service])
        found = random.choice(pool)
        if random.random() < 2 / 3:
            return method, found
        return method, random.choice(self._damages)(found)

    def no_grpc(self) -> bytes:
        """Return bytes for the port itself."""
        random = self._random
        beginnings = (
            b"",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01",
            b"GET / ",
        )
        return random.choice(beginnings) + random.randbytes(random.randrange(400))

    def _requests(self, of_type: object) -> list[bytes]:
        kind = GetMessageClass(of_type)  # type: ignore[arg-type]
        return [filled(self._random, kind).SerializeToString() for _ in range(20)]

    def _truncated(self, data: bytes) -> bytes:
        return data[: self._random.randrange(len(data) + 1)]

    def _flipped(self, data: bytes) -> bytes:
        found = bytearray(data)
        for _ in range(self._random.randrange(1, 9)):
            if found:
                found[self._random.randrange(len(found))] ^= 1 << self._random.randrange(8)
        return bytes(found)

    def _random_bytes(self, _: bytes) -> bytes:
        # Few are as large as that.
        size = _LARGE_BYTES if self._random.random() < 0.001 else 300
        return self._random.randbytes(self._random.randrange(size))

    def _huge_length(self, data: bytes) -> bytes:
        length: bytes = _VarintBytes(1 << self._random.randrange(20, 64))
        return data + _COMMANDS_FIELD + length + data

    def _unknown(self, data: bytes) -> bytes:
        """Add an unknown field, in the frame or in a command."""
        number = self._random.randrange(190, 1 << 20)
        field: bytes = _VarintBytes(number << 3 | _LENGTH) + _VarintBytes(3) + b"abc"
        return data + (field if self._random.random() < 0.5 else _field(field))

    def _nested(self, data: bytes) -> bytes:
        """Groups within groups, as deep as parsers give up."""
        depth = self._random.randrange(1, 5_000)
        return data + _field(b"\x0b" * depth)

    def _spliced(self, data: bytes) -> bytes:
        """The middle of one command within another."""
        other = self._random.choice(self._commands)
        at = self._random.randrange(len(data) + 1)
        return data[:at] + other[self._random.randrange(len(other) + 1) :] + data[at:]


def _field(command: bytes) -> bytes:
    length: bytes = _VarintBytes(len(command))
    return _COMMANDS_FIELD + length + command
