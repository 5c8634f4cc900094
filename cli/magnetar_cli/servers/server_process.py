"""Runs a server in this process: port, store, recovery, readiness, and an orderly end."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NoReturn, Protocol

from prometheus_client import CollectorRegistry

from magnetar_cli.servers.interruption import unless_stopped
from magnetar_cli.servers.open_store import Rows, open_store
from magnetar_cli.servers.ready import Ready, write_ready_file
from magnetar_cli.standard_streams import output_not_needed
from magnetar_core.clock import Clock, SystemClock
from magnetar_core.config import ListenConfig
from magnetar_core.gates.access_file import AccessConfig
from magnetar_core.gates.gates import gates_of
from magnetar_core.history.events import Server
from magnetar_core.history.history import History
from magnetar_core.link.grpc_transport import GrpcTransport
from magnetar_core.process.allocator import reuse_large_blocks
from magnetar_core.process.descriptors import raise_limit
from magnetar_core.process.observability import MetricsEndpoint
from magnetar_core.process.parent_watch import watch_parent
from magnetar_core.recording.config import HistoryConfig
from magnetar_core.recording.history_file import HistoryFile, open_history
from magnetar_core.recording.metrics import HistoryMetrics
from magnetar_core.security.certificate_metrics import tell_expiry
from magnetar_core.security.link_security import LinkSecurity
from magnetar_core.server.commands import CommandServer, Gate, Handler
from magnetar_core.server.connection_metrics import tell_connections
from magnetar_core.server.grpc_server import GrpcServer
from magnetar_core.server.membership_refusals import MEMBERSHIP_REFUSALS
from magnetar_core.traces.config import TracesConfig
from magnetar_core.traces.opening import open_traces
from magnetar_core.traces.spans import ServerTraces
from magnetar_core.transport.transport import Transport
from magnetar_core.version import VERSION
from magnetar_storage.store import Store, StoreFenced

log = logging.getLogger("magnetar_cli")

# New container objects, less those that were freed, between looks for cycles.
GARBAGE_THRESHOLD = 20_000
# sysexits.h, EX_SOFTWARE: the supervisor starts the process again.
EXIT_FATAL = 70


class Component(Protocol):
    """A broker or a coordinator."""

    @property
    def server(self) -> CommandServer:
        """The server's gRPC services."""
        ...

    async def start(self) -> None:
        """Recover, and begin to serve."""
        ...

    async def close(self) -> None:
        """Make everything durable, and stop serving."""
        ...

    def abandon(self) -> None:
        """Stop at once, and write nothing."""
        ...


@dataclass(slots=True, kw_only=True)
class World:
    """Surroundings of a component: clock, randomness, store, and the rest of the machine."""

    address: str
    store: Store
    transport: Transport
    clock: Clock
    random: Random
    registry: CollectorRegistry
    on_fatal: Callable[[BaseException], None]
    traces: ServerTraces | None = None
    history: History | None = None
    membership: Mapping[str, Handler] = field(default_factory=lambda: MEMBERSHIP_REFUSALS)
    gate: Gate | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerProcess:
    """The server that a process runs, and how.

    Attributes:
        links: how its links to other servers are secured.
        traces: which traces it makes.
        kafka: tells, when the server is ready, what Ready says about Kafka's clients.
        number: its shard, or TCID.
        history: where it writes the history of the protocol.
        supervised: whether a standalone process started this process. Then it reports readiness as
            JSON, the end of standard input means that the supervisor is gone, and the supervisor
            handles Ctrl-C.
    """

    service: str
    rows: Rows
    listen: ListenConfig
    build: Callable[[World], Component]
    access: AccessConfig
    links: LinkSecurity
    traces: TracesConfig
    history: HistoryConfig
    kafka: Callable[[], dict[str, str]] = dict
    number: int = 0
    supervised: bool = False
    ready_file: Path | None = None


def run(process: ServerProcess) -> None:
    """Serve until a signal."""
    reuse_large_blocks()
    run_coroutine(_serve(process))


def run_coroutine(work: Coroutine[Any, Any, None]) -> None:
    """Run a server, with uvloop if it is installed, and with as many open files as allowed."""
    raise_limit()
    try:
        import uvloop
    except ImportError:
        asyncio.run(work)
        return
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work)


async def _serve(process: ServerProcess) -> None:
    stop = asyncio.Event()
    stop_on_signals(stop, supervised=process.supervised)
    kind, name = process.rows.kind, process.rows.name
    log.info("%s %s of Magnetar %s is starting", kind, name, VERSION)
    registry = CollectorRegistry()
    tell_expiry(registry, process.listen.tls_certificate_file)
    clock = SystemClock()
    gate = gates_of(process.access, process.listen, clock)
    closing: list[Callable[[], Awaitable[None]]] = []
    # It ends last: others make spans until they have ended.
    traces = open_traces(process.traces, kind, name, registry)
    if traces is not None:
        closing.append(partial(asyncio.to_thread, traces.close))
    server_traces = None if traces is None else traces.server
    server = GrpcServer(process.service, process.listen, gate=gate, traces=server_traces)
    tell_connections(registry, server)
    try:
        await server.open()
        metrics = ""
        if process.listen.metrics_port is not None:
            endpoint = MetricsEndpoint(
                registry, host=process.listen.host, port=process.listen.metrics_port
            )
            metrics = f"http://{endpoint.address}/metrics"
            closing.append(lambda: asyncio.to_thread(endpoint.close))
        # Replaying the log takes a while: meanwhile the health service says NOT_SERVING.
        store = await unless_stopped(open_store(process.rows, registry, _die), stop)
        if store is None:
            return
        closing.append(store.close)
        history_file = open_history(
            process.history,
            Server(kind, process.number),
            name,
            clock.wall_ms,
            HistoryMetrics(registry),
        )
        if history_file is not None:
            closing.append(partial(_close, history_file))
        transport = GrpcTransport(process.links)
        closing.append(transport.close)
        world = World(
            address=server.address,
            store=store,
            transport=transport,
            clock=clock,
            random=Random(),
            registry=registry,
            on_fatal=_die,
            traces=server_traces,
            history=None if history_file is None else history_file.history,
            gate=gate,
        )
        component = process.build(world)
        closing.append(component.close)
        if await unless_stopped(_started(component), stop) is None:
            return
        spare_the_collector()
        await server.serve(component.server)
        ready = Ready(
            kind=kind,
            name=name,
            pid=os.getpid(),
            address=server.address,
            metrics=metrics,
            **process.kafka(),
        )
        announce(ready, process.ready_file, supervised=process.supervised)
        await stop.wait()
        log.info("%s %s is stopping", kind, name)
    finally:
        await server.close()
        for close in reversed(closing):
            await close()


async def _close(history_file: HistoryFile) -> None:
    history_file.close()


async def _started(component: Component) -> Component:
    await component.start()
    return component


def spare_the_collector() -> None:
    """Reference counts free what a request leaves behind; the collector only looks for cycles.

    By default it looks through everything young after 700 new objects, and through tens of
    thousands of open and ended transactions again and again: a tenth of a busy server's time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE_THRESHOLD, 20, 50)


def announce(ready: Ready, ready_file: Path | None, *, supervised: bool) -> None:
    """Say that the server is ready."""
    if ready_file is not None:
        write_ready_file(ready_file, asdict(ready))
    if supervised:
        print(json.dumps(asdict(ready)), flush=True)
    else:
        with output_not_needed():
            print(ready.line())
    log.info(ready.line())


def stop_on_signals(stop: asyncio.Event, *, supervised: bool) -> None:
    """Set the event when the process is told to stop."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    if not supervised:
        loop.add_signal_handler(signal.SIGINT, stop.set)
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    watch_parent(stop.set)


def _die(error: BaseException) -> NoReturn:
    """Memory ran ahead of what is durable: only a new start, from what is durable, is right."""
    # A traceback of where another owner was noticed would not help an operator.
    where = None if isinstance(error, StoreFenced) else error
    log.critical("storage failed; the process ends: %s", error, exc_info=where)
    logging.shutdown()
    sys.stderr.flush()
    os._exit(EXIT_FATAL)
