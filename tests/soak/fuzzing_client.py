"""A stranger who sends damaged and random messages, as a process of its own.

It reads what it needs as JSON from its input: addresses, the CA file, tokens, a seed, and how many
messages; when all are sent, it writes what it has sent.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict, dataclass, field
from random import Random
from typing import Any

import grpc
import grpc.aio
from tests.core.calls import credentials_of
from tests.soak.fuzzing import Fuzzer

from magnetar_core.security.link_security import LinkSecurity, TlsFiles

# Of a thousand messages.
REQUESTS, NO_GRPC = 150, 5
CONVERSATIONS = 8
FRAMES_OF_A_CONVERSATION = 60
# Some requests wait for what never comes.
REQUEST_S = 0.1


@dataclass
class Target:
    """Servers, and how to reach them.

    Attributes:
        addresses: of each service.
        ca_file: empty: plain text.
        tokens: of each principal.
    """

    addresses: dict[str, str]
    ca_file: str
    tokens: dict[str, str]

    def security(self, principal: str) -> LinkSecurity:
        tls = TlsFiles(ca_file=self.ca_file) if self.ca_file else None
        return LinkSecurity(tls, self.tokens[principal])

    def channel(self, service: str, principal: str) -> grpc.aio.Channel:
        tls = self.security(principal).tls
        options = (("grpc.use_local_subchannel_pool", 1),)
        address = self.addresses[service]
        if tls is None:
            return grpc.aio.insecure_channel(address, options)
        return grpc.aio.secure_channel(address, credentials_of(tls), options)

    def metadata(self, service: str, principal: str) -> Any:
        return self.security(principal).metadata(self.addresses[service])


@dataclass
class Sent:
    """Counts of sent frames and requests, and the codes of their answers."""

    frames: int = 0
    requests: int = 0
    others: int = 0
    codes: dict[str, int] = field(default_factory=dict)

    def add(self, more: Sent) -> None:
        self.frames += more.frames
        self.requests += more.requests
        self.others += more.others
        for code, count in more.codes.items():
            self.codes[code] = self.codes.get(code, 0) + count


class Attack:
    """A stranger who sends whatever it likes, in many conversations at once."""

    def __init__(self, servers: Target, seed: int) -> None:
        self._servers = servers
        self._random = Random(seed)
        self._fuzzer = Fuzzer(seed)
        self._principals = list(servers.tokens)
        self.sent = Sent()
        self._count = self._left = 0

    async def send(self, count: int) -> None:
        """Send so many messages."""
        self._count = self._left = count
        await asyncio.gather(
            *[
                part
                for service in self._servers.addresses
                for part in (
                    *[self._converse(service) for _ in range(CONVERSATIONS)],
                    self._ask(service),
                    self._knock(service),
                )
            ]
        )

    def _take(self) -> bool:
        self._left -= 1
        return self._left >= 0

    async def _converse(self, service: str) -> None:
        """Conversations, one after the other, on a connection that changes now and then."""
        while self._left > 0:
            principal = self._random.choice(self._principals)
            async with self._servers.channel(service, principal) as channel:
                for _ in range(10):
                    await self._conversation(channel, service, principal)

    async def _conversation(self, channel: grpc.aio.Channel, service: str, principal: str) -> None:
        method: Any = channel.stream_stream(f"/magnetar.v1.{service}/Exchange")
        call = method(metadata=self._servers.metadata(service, principal))
        # Some leave unread what they are told, and some go without a word.
        reading = None
        if self._random.random() < 0.8:
            reading = asyncio.get_running_loop().create_task(_read(call))
        try:
            for _ in range(self._random.randrange(1, FRAMES_OF_A_CONVERSATION)):
                if not self._take():
                    break
                self.sent.frames += 1
                await call.write(self._fuzzer.frame())
            if reading is not None and self._random.random() < 0.5:
                await call.done_writing()
                await asyncio.wait([reading], timeout=REQUEST_S)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            # The server ended it: the bytes were not a frame.
            pass
        finally:
            call.cancel()
            if reading is not None:
                await asyncio.gather(reading, return_exceptions=True)

    async def _ask(self, service: str) -> None:
        async with asyncio.TaskGroup() as group:
            for principal in self._principals:
                group.create_task(self._ask_as(service, principal))

    async def _ask_as(self, service: str, principal: str) -> None:
        async with self._servers.channel(service, principal) as channel:
            metadata = self._servers.metadata(service, principal)
            while self._left > 0:
                if self.sent.requests * 1_000 > self._count * REQUESTS:
                    return
                if not self._take():
                    return
                self.sent.requests += 1
                name, request = self._fuzzer.request(service)
                call: Any = channel.unary_unary(name)
                try:
                    await call(request, metadata=metadata, timeout=REQUEST_S)
                    code = "OK"
                except grpc.aio.AioRpcError as error:
                    code = error.code().name
                self.sent.codes[code] = self.sent.codes.get(code, 0) + 1

    async def _knock(self, service: str) -> None:
        """Make connections that do not speak gRPC."""
        host, _, port = self._servers.addresses[service].rpartition(":")
        count = self._left * NO_GRPC // 1_000 // 2
        for _ in range(count):
            if not self._take():
                return
            self.sent.others += 1
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(self._fuzzer.no_grpc())
            writer.close()
            try:
                await writer.wait_closed()
            except OSError:
                pass
            del reader


async def _read(call: Any) -> None:
    try:
        while isinstance(await call.read(), bytes):
            pass
    except (grpc.aio.AioRpcError, asyncio.CancelledError, asyncio.InvalidStateError):
        return


async def main() -> None:
    told = json.loads(sys.stdin.read())
    attack = Attack(Target(**told["target"]), told["seed"])
    await attack.send(told["count"])
    json.dump(asdict(attack.sent), sys.stdout)


if __name__ == "__main__":
    asyncio.run(main())
