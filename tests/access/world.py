"""A broker and a coordinator behind real gRPC servers with access control, and raw talk to them.

Clients show a token; the transports of the servers and of the SDK show none, and are anonymous.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message_factory import GetMessageClass
from google.rpc import status_pb2
from tests.tokens import Maker, jwks

from magnetar.testing.envelope import command
from magnetar_broker import keys
from magnetar_broker.broker import Broker
from magnetar_broker.config import BrokerConfig
from magnetar_coordinator.config import CoordinatorConfig
from magnetar_coordinator.coordinator import Coordinator
from magnetar_coordinator.metadata.records import FAMILIES
from magnetar_core.access.principal import ANONYMOUS
from magnetar_core.clock import SystemClock
from magnetar_core.config import ListenConfig
from magnetar_core.gates.access_file import AccessConfig
from magnetar_core.gates.gates import gates_of
from magnetar_core.link.grpc_transport import GrpcTransport
from magnetar_core.membership.address_book import MemberAddress
from magnetar_core.protocol_version import PROTOCOL_VERSION
from magnetar_core.security.link_security import PLAIN, TOKEN_KEY, TOKEN_SCHEME, LinkSecurity
from magnetar_core.server.commands import Gate, Reply
from magnetar_core.server.grpc_server import GrpcServer
from magnetar_core.wire import common_pb2, service_pb2
from magnetar_storage.memory.engine import MemoryDisk, MemoryStore

BROKER, COORDINATOR = "Broker", "TransactionCoordinator"
NO_ANSWER = frozenset({"flow", "txns_issued"})
Metadata = tuple[tuple[str, str], ...]
_MAKER = Maker()
_TIMEOUT_S = 30.0


class World:
    """Two servers; what a test needs of them.

    Args:
        listen: how servers ask who their clients are; None: for tokens of `credentials()`.
        security: of the servers' own links.
        proof_keys: the file of each service's keys of proofs.
    """

    def __init__(
        self,
        access: AccessConfig,
        directory: Path,
        listen: ListenConfig | None = None,
        security: LinkSecurity = PLAIN,
        proof_keys: Mapping[str, str] | None = None,
    ) -> None:
        self.now_ms = 0.0
        self._access = access
        self._listen = listen or _asking_for_tokens(directory)
        self._security = security
        self._proof_keys = proof_keys or {}
        # Commands that were looked at, with their principals: others were refused before.
        self.asked: list[tuple[str, str]] = []
        self._transports: list[GrpcTransport] = []
        self.servers: dict[str, GrpcServer] = {}
        self.components: dict[str, Any] = {}

    async def open(self) -> None:
        for service in (BROKER, COORDINATOR):
            keys_file = self._proof_keys.get(service, "")
            listen = replace(self._listen, txn_proof_keys_file=keys_file)
            gate = gates_of(self._access, listen, self)
            assert gate is not None
            self._note_what_passes(gate)
            self.servers[service] = GrpcServer(service, listen, gate=gate)
            await self.servers[service].open()
        await self._start(BROKER)
        await self._start(COORDINATOR)

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + int(self.now_ms)

    def monotonic_ms(self) -> float:
        return self.now_ms

    def address(self, service: str) -> str:
        return self.servers[service].address

    async def _start(self, service: str) -> None:
        transport = GrpcTransport(self._security)
        self._transports.append(transport)
        component: Any
        if service == BROKER:
            address = self.address(COORDINATOR)
            config = BrokerConfig(
                address=self.address(BROKER),
                coordinators=(MemberAddress(name="coordinator-0", address=address, tcid=0),),
            )
            store = MemoryStore(MemoryDisk(), keys.FAMILIES)
            component = Broker(config, store, transport, SystemClock(), Random(1), _fatal)
        else:
            component = Coordinator(
                CoordinatorConfig(
                    broker_addresses=(self.address(BROKER),), two_phase_commit_enabled=True
                ),
                MemoryStore(MemoryDisk(), FAMILIES),
                transport,
                SystemClock(),
                Random(2),
                _fatal,
            )
        await component.start()
        self.components[service] = component
        await self.servers[service].serve(component.server)

    def _note_what_passes(self, gate: Gate) -> None:
        admit = gate.admit

        def noting(name: str, command: Any, reply: Reply) -> Reply | None:
            self.asked.append((name, reply.principal.name))
            return admit(name, command, reply)

        gate.admit = noting  # type: ignore[method-assign]

    async def close(self) -> None:
        for server in self.servers.values():
            await server.close()
        for service in (COORDINATOR, BROKER):
            if service in self.components:
                await self.components[service].close()
        for transport in self._transports:
            await transport.close()


def _asking_for_tokens(directory: Path) -> ListenConfig:
    keys_file = directory / "token-keys.json"
    keys_file.write_text(jwks(_MAKER))
    return ListenConfig(stop_grace_ms=100, token_keys_file=str(keys_file), allow_anonymous=True)


def _fatal(error: BaseException) -> None:
    raise AssertionError(error)


@asynccontextmanager
async def world(
    access: AccessConfig,
    directory: Path,
    listen: ListenConfig | None = None,
    security: LinkSecurity = PLAIN,
    proof_keys: Mapping[str, str] | None = None,
) -> AsyncIterator[World]:
    """Run both servers; the directory gets the key of tokens."""
    one = World(access, directory, listen, security, proof_keys)
    try:
        await one.open()
        yield one
    finally:
        await one.close()


@lru_cache
def credentials(principal: str) -> Metadata:
    """The metadata of a principal's calls."""
    if principal == ANONYMOUS.name:
        return ()
    return ((TOKEN_KEY, TOKEN_SCHEME + token_of(principal)),)


def token_of(principal: str) -> str:
    return _MAKER.token(principal, lasts_s=86_400)


def write_access(path: Path, principals: Mapping[str, list[str]], roles: str = "") -> AccessConfig:
    """Write an access file, and return settings that name it."""
    lines = ["[principals]"]
    lines += [f'"{name}" = {given}' for name, given in principals.items()]
    path.write_text("\n".join(lines).replace("'", '"') + "\n" + roles)
    return AccessConfig(access_file=str(path))


class RawClient:
    """A client of a server, that says who it is.

    Args:
        channel: one of its own, which the client closes; None: plain text, and the token of
            `principal`.
        metadata: of calls on this channel.
    """

    def __init__(
        self,
        world: World,
        service: str,
        principal: str = ANONYMOUS.name,
        *,
        channel: grpc.aio.Channel | None = None,
        metadata: Metadata = (),
    ) -> None:
        self.service = service
        self._channel = channel or grpc.aio.insecure_channel(world.address(service))
        self._metadata = credentials(principal) if channel is None else metadata

    async def __aenter__(self) -> RawClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()

    async def unary(self, body: Any) -> Any:
        """Call a method; return its answer, or its error as a ServerError."""
        name = type(body).__name__.removeprefix("Command")
        method = service_pb2.DESCRIPTOR.services_by_name[self.service].methods_by_name[name]
        call: Any = self._channel.unary_unary(
            f"/magnetar.v1.{self.service}/{name}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=GetMessageClass(method.output_type).FromString,
        )
        try:
            return await call(body, metadata=self._metadata, timeout=_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            return error_of(error)

    async def stream(self, body: Any) -> Any:
        """Send a command on a stream of its own; return its answer, or None if it has none."""
        async with asyncio.timeout(_TIMEOUT_S):
            (answer,) = await self._exchange([body])
            return answer

    async def stream_all(self, bodies: Sequence[Any]) -> list[Any]:
        """Send commands in one conversation; return the answer to each, or None if it has none."""
        async with asyncio.timeout(_TIMEOUT_S):
            return await self._exchange(bodies)

    async def _exchange(self, bodies: Sequence[Any]) -> list[Any]:
        method: Any = self._channel.stream_stream(
            f"/magnetar.v1.{self.service}/Exchange",
            request_serializer=service_pb2.Frame.SerializeToString,
            response_deserializer=service_pb2.Frame.FromString,
        )
        call: Any = method(metadata=self._metadata)
        answers: dict[int, Any] = {}
        # The answer to the last says that those before it were looked at.
        last = common_pb2.CommandHello(protocol_version=PROTOCOL_VERSION, client_name="raw")
        commands = [command(body, at) for at, body in enumerate((*bodies, last), 1)]
        awaited = {one.request_id for one in commands if one.WhichOneof("body") not in NO_ANSWER}
        try:
            await call.write(service_pb2.Frame(commands=commands))
            while not awaited <= answers.keys():
                read: Any = await call.read()
                for one in read.commands:
                    if one.request_id:
                        answers[one.request_id] = getattr(one, one.WhichOneof("body"))
        finally:
            call.cancel()
        return [answers.get(at) for at in range(1, len(bodies) + 1)]

    async def ask(self, body: Any, form: str) -> Any:
        """Ask in a form: "unary" or "stream"."""
        return await (self.unary(body) if form == "unary" else self.stream(body))


def error_of(error: grpc.aio.AioRpcError) -> common_pb2.ServerError:
    """Return our error, that travels as a detail of gRPC's."""
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            assert isinstance(value, bytes)
            told = common_pb2.ServerError()
            status_pb2.Status.FromString(value).details[0].Unpack(told)
            return told
    raise error


def is_refused(answer: Any) -> bool:
    """Whether an answer says that a right is missing."""
    return isinstance(answer, common_pb2.ServerError) and answer.code in (
        common_pb2.AUTHORIZATION_FAILED,
        common_pb2.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    )
