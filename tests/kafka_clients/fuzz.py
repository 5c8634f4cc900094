"""Requests of strangers: mutations of good frames of each request and version, at a real server.

    python -m tests.kafka_clients.fuzz 1000000

The server has to be there afterwards, has to answer a good request, and must not have grown.
Nothing that a client sends is a bug of the server, so its log has no traceback.
"""

from __future__ import annotations

import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from tests.core.ports import free_ports
from tests.kafka_clients.access_table import TABLE
from tests.system.processes import BROKER, COORDINATOR, Servers

from magnetar import blocking
from magnetar_kafka.wire import apis
from magnetar_kafka.wire.apis import Api
from magnetar_kafka.wire.codec import is_flexible, request_writer

# So many requests come on a connection. A request that cannot be read ends it.
ON_A_CONNECTION = 4
GROWTH_BYTES_MAX = 256 << 20
ANSWER_S = 60.0
PATIENCE_S = 0.5
# At which the server ends the connection.
THE_END = b"\xff\xff\xff\xff" + bytes(8)
LENGTHS = (0, 1, 0x7F, 0x80, 0xFF, 0xFFFF, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF)


def good_frame(api: Api, version: int, body: dict[str, Any]) -> bytes:
    """A request without its length."""
    out = bytearray(api.key.to_bytes(2, "big") + version.to_bytes(2, "big"))
    out += b"\x00\x00\x00\x07\x00\x04fuzz"
    if is_flexible(api, version):
        out.append(0)
    request_writer(api, version)(out, body)
    return bytes(out)


def corpus() -> list[bytes]:
    """A frame of each request and version of the table of rights."""
    sasl: tuple[Api, dict[str, Any], set[str]] = (
        apis.SASL_AUTHENTICATE,
        {"auth_bytes": b"n,,\x01auth=Bearer a.b.c\x01\x01"},
        set(),
    )
    return [
        good_frame(api, version, body)
        for api, body, _ in (*TABLE, sasl)
        for version in range(api.first, api.last + 1)
    ]


def mutated(random: Random, frames: list[bytes]) -> bytes:
    """A frame with its length; most are wrong somewhere."""
    frame = bytearray(random.choice(frames))
    for _ in range(random.choice((0, 1, 1, 1, 2, 3, 8))):
        kind = random.randrange(6)
        at = random.randrange(len(frame)) if frame else 0
        if kind == 0 and frame:
            frame[at] = random.randrange(256)
        elif kind == 1 and frame:
            frame[at] ^= 1 << random.randrange(8)
        elif kind == 2:
            width = random.choice((1, 2, 4))
            number = random.choice(LENGTHS) & (1 << 8 * width) - 1
            frame[at : at + width] = number.to_bytes(width, "big")
        elif kind == 3:
            del frame[at : at + random.choice((1, 2, 4, 20))]
        elif kind == 4:
            frame[at:at] = random.randbytes(random.choice((1, 2, 4, 20)))
        else:
            # The end of another request.
            other = random.choice(frames)
            frame[at:] = other[random.randrange(len(other)) :]
    length = len(frame)
    if random.random() < 0.02:
        length = random.choice(LENGTHS)
    return length.to_bytes(4, "big") + bytes(frame)


class FuzzedServers(Servers):
    """A broker with a port for Kafka's clients, to be fuzzed."""

    def __init__(self, directory: Path) -> None:
        (port,) = free_ports(1)
        self.kafka = ("127.0.0.1", port)
        settings = {"MAGNETAR_KAFKA_PORT": str(port), "MAGNETAR_KAFKA_REQUEST_TIMEOUT_MS": "500"}
        super().__init__(directory, settings, {BROKER: 1, COORDINATOR: 1})


def fuzz(servers: FuzzedServers, random: Random, count: int) -> Iterator[int]:
    """Send requests; yield how many were sent, now and then."""
    frames = corpus()
    sent = 0
    while sent < count:
        data = b"".join(mutated(random, frames) for _ in range(min(ON_A_CONNECTION, count - sent)))
        with socket.create_connection(servers.kafka, timeout=ANSWER_S) as connection:
            try:
                connection.sendall(data + THE_END)
                connection.settimeout(PATIENCE_S)
                while connection.recv(1 << 16):
                    pass
            except (ConnectionError, TimeoutError):
                # The server has ended it, as it may; or a fetch waits, as long as it was told to.
                pass
        sent += ON_A_CONNECTION
        yield sent


def is_answered(servers: FuzzedServers) -> bool:
    """Whether a good request gets its answer."""
    frame = good_frame(apis.API_VERSIONS, 0, {})
    with socket.create_connection(servers.kafka, timeout=ANSWER_S) as connection:
        connection.sendall(len(frame).to_bytes(4, "big") + frame)
        return len(connection.recv(8)) == 8


def resident_bytes(pid: int) -> int:
    """Return the memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    raise LookupError(pid)


def run(directory: Path, seed: int, count: int) -> tuple[int, int]:
    """Fuzz a server; return its memory before and after.

    Raises:
        AssertionError: it has ended, does not answer, has grown, or tells of a bug.
    """
    servers = FuzzedServers(directory)
    with servers.running():
        with blocking.connect(servers.address) as client:
            client.admin.topics.create("topic-a", partitions=2, exist_ok=True)
        random, pid = Random(seed), servers.pid(BROKER)
        before = 0
        for sent in fuzz(servers, random, count):
            if not before and sent >= min(count, 2_000):
                before = resident_bytes(pid)
        assert is_answered(servers)
        after = resident_bytes(pid)
        assert after - before < GROWTH_BYTES_MAX, (before, after)
        assert "a request of a Kafka client failed" not in servers.log(BROKER)
        servers.stop()
    return before, after


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        number = int(sys.argv[1])
        seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
        before, after = run(Path(directory) / "servers", seed, number)
        print(f"{number} requests, seed {seed}: {before >> 20} MiB before, {after >> 20} MiB after")
