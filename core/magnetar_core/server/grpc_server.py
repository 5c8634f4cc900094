"""gRPC server of a component's commands: the stream, the unary forms, reflection and health.

The frames of a stream may move to a connection of their own: see the module `stream_offers`.

Both forms of a command end in the same handler. Until the component behind the server is ready
(recovery takes time), the port answers with LogUnavailable, and the health service with
NOT_SERVING. With shards that come and go, each has a door: see the module `doors`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

import grpc
import grpc.aio
from grpc_health.v1 import health
from grpc_health.v1.health_pb2 import HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import add_HealthServicer_to_server
from grpc_reflection.v1alpha import reflection

from magnetar_core.clock import Clock, SystemClock
from magnetar_core.config import InvalidConfig, ListenConfig, join_address
from magnetar_core.errors import MagnetarError
from magnetar_core.link.grpc_transport import ACCEPTED_KEY, GRPC_MESSAGE_BYTES_MAX, PACKAGE
from magnetar_core.process import descriptors
from magnetar_core.security.admission import Admission
from magnetar_core.security.conversation_watch import ConversationWatch
from magnetar_core.security.identity import Identity
from magnetar_core.security.server_tls import ServerTls
from magnetar_core.security.stream_tls import StreamCertificate
from magnetar_core.server.commands import CommandServer, Gate
from magnetar_core.server.doors import Door, Doors
from magnetar_core.server.grpc_calls import abort, place_of, stream_wish
from magnetar_core.server.grpc_session import Context, ServerSession
from magnetar_core.server.grpc_unary import UnaryCalls
from magnetar_core.traces.spans import ServerTraces
from magnetar_core.transport.slow_operations import SlowOperations
from magnetar_core.transport.stream_offers import OFFER_KEY, StreamOffers
from magnetar_core.wire import service_pb2

log = logging.getLogger(__name__)

# An idle client gets a keepalive ping after this interval, and must answer within the timeout.
KEEPALIVE_INTERVAL_MS = 10_000
KEEPALIVE_TIMEOUT_MS = 5_000
RECEIVE_LIMIT = "grpc.max_receive_message_length"
SERVER_OPTIONS: tuple[tuple[str, Any], ...] = (
    ("grpc.max_send_message_length", GRPC_MESSAGE_BYTES_MAX),
    (RECEIVE_LIMIT, GRPC_MESSAGE_BYTES_MAX),
    ("grpc.keepalive_time_ms", KEEPALIVE_INTERVAL_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # Flow control windows large enough for batches in flight.
    ("grpc.http2.lookahead_bytes", 4 << 20),
    ("grpc.http2.max_frame_size", 1 << 20),
    # A second server on the same port is a mistake, not a way to balance load.
    ("grpc.so_reuseport", 0),
    # Clients send keepalive pings even when no command is under way.
    ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_INTERVAL_MS // 2),
    ("grpc.http2.max_ping_strikes", 0),
)

# Connections to the port, unless connections_max says another number. Each takes up to 20 KB before
# anything is known about it.
CONNECTIONS_MAX: Final = 10_000
# For the health service: this process answers, whether it is ready or not.
LIVE = "live"


class GrpcServer:
    """gRPC server of a service on a port.

    Args:
        service: "Broker" or "TransactionCoordinator".
        config: the address, TLS files and limits.
        doors: of shards that come and go.
        gate: the gate that checks each command first; None: there is none.
        clock: decides when credentials have expired; the machine's unless given.
        traces: makes the spans of commands; None: there are none.
    Raises:
        InvalidConfig: a file that says who clients are cannot be read.
    """

    def __init__(
        self,
        service: str,
        config: ListenConfig,
        doors: Doors | None = None,
        gate: Gate | None = None,
        clock: Clock | None = None,
        traces: ServerTraces | None = None,
    ) -> None:
        self._name = f"{PACKAGE}.{service}"
        self._service = service_pb2.DESCRIPTOR.services_by_name[service]
        self._config = config
        self._doors = doors or Doors()
        self._gate = gate
        self._traces = traces
        clock = clock or SystemClock()
        self._admission = Admission(config, clock)
        self._stopping = False
        self._slow_operations = SlowOperations(config.slow_operation_ms, clock.monotonic_ms)
        self._sessions: set[ServerSession] = set()
        # Messages that flow by themselves, and memberships, are not asked for again.
        self._rights_watch = ConversationWatch(lambda: self._sessions, ServerSession.look)
        self._unary_calls = UnaryCalls(
            self._enter,
            self._gate,
            self._slow_operations,
            self._traces,
            answer_bytes_max=config.session_answer_bytes_max,
        )
        # None: it was not opened, or has none.
        self._streams: StreamOffers | None = None
        self._health = health.aio.HealthServicer()
        # None: it was not opened.
        self._server: grpc.aio.Server | None = None
        self.port = 0
        # Called when a conversation is ended because its client has sent nothing.
        self.on_silent: Callable[[], None] = _nothing

    @property
    def address(self) -> str:
        """The address at which the server listens, as "host:port"."""
        return join_address(self._config.host, self.port)

    async def open(self) -> None:
        """Take the port; afterwards `port` and `address` are known. Nothing is served yet.

        Raises:
            InvalidConfig: the port is taken, the certificate cannot be read, or the process may not
                open enough files for connections_max.
        """
        await self._set_health(serving=False)
        await self._health.set(LIVE, HealthCheckResponse.SERVING)
        connections_max = self._connections_max()
        server = grpc.aio.server(options=self._options(connections_max))
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(self._name, self._method_handlers()),)
        )
        add_HealthServicer_to_server(self._health, server)
        reflection.enable_server_reflection(
            (self._name, health.SERVICE_NAME, reflection.SERVICE_NAME), server
        )
        try:
            self.port = self._bind(server)
            if self._config.streams:
                self._streams = self._new_streams(connections_max)
                await self._streams.open()
        except BaseException:
            if self._streams is not None:
                self._streams.close()
            await _discard(server)
            raise
        await server.start()
        self._server = server
        self._admission.start()
        if self._gate is not None:
            self._rights_watch.start()

    async def serve(self, commands: CommandServer) -> None:
        """Begin to answer: the component behind this port has recovered.

        Args:
            commands: they answer clients that name no shard, while no shard is ready.
        """
        self._doors.open_own(commands)
        await self._set_health(serving=True)

    async def close(self) -> None:
        """Refuse new commands, send queued answers, and end every conversation."""
        if self._stopping:
            return
        self._stopping = True
        self._admission.close()
        self._rights_watch.close()
        self._doors.stop()
        if self._streams is not None:
            self._streams.close()
        await self._health.enter_graceful_shutdown()
        for session in list(self._sessions):
            session.finish()
        if self._server is not None:
            await self._server.stop(self._config.stop_grace_ms / 1_000)
        # gRPC cancels the calls that took too long, and does not wait until they have ended.
        for session in list(self._sessions):
            session.end()
            await session.wait_closed()

    @property
    def conversation_count(self) -> int:
        """The number of conversations."""
        return len(self._sessions)

    def push(self, body: Any) -> None:
        """Send a command to all conversations, unasked."""
        for session in list(self._sessions):
            session.push(body)

    def _connections_max(self) -> int:
        asked, room = self._config.connections_max, descriptors.shares().connections
        if asked > room:
            raise InvalidConfig(
                f"connections_max is {asked}, but with a limit of {descriptors.limit()} open files"
                f" there is room for {room} connections: raise the limit (ulimit -n), or choose at"
                " most that many"
            )
        return asked or min(CONNECTIONS_MAX, room)

    def _options(self, connections_max: int) -> list[tuple[str, Any]]:
        config = self._config
        options = {
            **dict(SERVER_OPTIONS),
            RECEIVE_LIMIT: config.frame_bytes_max,
            # For each address that the host has.
            "grpc.max_allowed_incoming_connections": connections_max,
            "grpc.server_handshake_timeout_ms": config.handshake_timeout_ms,
            # Idle is a connection without a call.
            "grpc.max_connection_idle_ms": config.handshake_timeout_ms,
        }
        return list(options.items())

    def _bind(self, server: grpc.aio.Server) -> int:
        config = self._config
        asked = join_address(config.host, config.port)
        try:
            if not config.tls_certificate_file:
                return server.add_insecure_port(asked)
            tls = ServerTls(
                config.tls_certificate_file, config.tls_key_file, config.tls_client_ca_file
            )
            return server.add_secure_port(asked, tls.credentials())
        except RuntimeError as error:
            raise InvalidConfig(
                f"cannot listen at {asked}: it is taken, or not an address of this machine; "
                "choose another port, or stop what uses it"
            ) from error

    def _new_streams(self, streams_max: int) -> StreamOffers:
        config = self._config
        certificate = None
        if config.tls_certificate_file:
            certificate = StreamCertificate(config.tls_certificate_file, config.tls_key_file)
        return StreamOffers(
            config.host,
            config.stream_port,
            config.frame_bytes_max,
            certificate,
            streams_max=streams_max,
            strangers_max=descriptors.shares().strangers,
        )

    async def _set_health(self, *, serving: bool) -> None:
        status = HealthCheckResponse.SERVING if serving else HealthCheckResponse.NOT_SERVING
        await self._health.set("", status)
        await self._health.set(self._name, status)

    def _method_handlers(self) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
        handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}
        for method in self._service.methods:
            if method.client_streaming:
                handlers[method.name] = grpc.stream_stream_rpc_method_handler(self._exchange)
            else:
                handlers[method.name] = self._unary_calls.handler(method)
        return handlers

    async def _exchange(self, _requests: object, context: Context) -> None:
        identity, door = await self._enter(context)
        leave: Callable[[], None] = _nothing
        try:
            if self._gate is not None:
                leave = self._gate.come(identity.principal)
            session = ServerSession(
                context,
                door,
                self._config,
                identity.principal,
                self._gate,
                self._slow_operations,
                self._traces,
                self.on_silent,
            )
        except MagnetarError as error:
            leave()
            await abort(context, error.to_wire())
            return
        self._sessions.add(session)
        self._admission.come(session, identity)
        door.come(session)
        metadata = [(ACCEPTED_KEY, self._name)]
        offer = None
        if self._streams is not None and stream_wish(context) == self._streams.wish:
            offer = self._streams.offer()
        if offer is not None:
            metadata.append((OFFER_KEY, offer.text))
        try:
            await context.send_initial_metadata(metadata)
            await session.run(offer)
        finally:
            self._sessions.discard(session)
            self._admission.leave(session)
            if offer is not None:
                offer.withdraw()
            session.close()
            door.leave(session)
            leave()

    async def _enter(self, context: grpc.aio.ServicerContext[Any, Any]) -> tuple[Identity, Door]:
        """Return who makes a call, and the door of the shard that it names. Both forms begin here.

        The call ends if it is not known who makes it, or if it may not enter.
        """
        try:
            identity = self._admission.identify(context)
            return identity, await self._doors.enter(place_of(context))
        except MagnetarError as error:
            await abort(context, error.to_wire())
            raise


async def _discard(server: grpc.aio.Server) -> None:
    """Give back what a server has that is not to serve.

    gRPC frees its ports only if it has run. And if it is deallocated without having stopped,
    grpcio (1.85) tells a debug log with a reference to it: a handler that keeps its records, as
    pytest's does, then crashes the process.
    """
    await server.start()
    await server.stop(None)


def _nothing() -> None:
    return
