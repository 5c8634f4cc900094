"""The processes of a cluster on one machine: started in order, named, stopped in order.

A server that died is not started again: such a cluster shows how its shards move to others.
"""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import ascii_lowercase
from typing import Any

from magnetar_cli.cluster.local import etcd, object_server
from magnetar_cli.cluster.local.outside_server import OutsideServer
from magnetar_cli.cluster.local.programs import require_object_store
from magnetar_cli.link_options import security_variables
from magnetar_cli.servers.console_options import console_arguments
from magnetar_cli.servers.standalone_ports import free_ports
from magnetar_cli.servers.supervisor import PROGRAM, Child
from magnetar_cluster.directory.view import BROKER, COORDINATOR

HOST = "127.0.0.1"
CLUSTER_ID = "local"
ENVIRONMENT_FILE = "environment"
CONSOLE = "console"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Servers to start.

    Attributes:
        directory: of data and logs.
        brokers: how many members of this kind.
        coordinators: likewise.
        broker_shards: how many shards they share; fixed when the cluster is made.
        coordinator_shards: likewise.
        port: of the first broker; the others follow, then the coordinators. 0: the system chooses.
        etcd: addresses of one that runs already; None: one is started.
        store: the address of an object store that runs already; None: a server is started.
        lease_ms: a member that is silent for this long loses its shards.
        log_level: of brokers and coordinators.
        console_port: the port of a console; 0: the system chooses; None: there is no console.
        console_values: its options about values.
        settings: more variables for brokers and coordinators.
    """

    directory: Path
    brokers: int = 3
    coordinators: int = 2
    broker_shards: int = 6
    coordinator_shards: int = 4
    port: int = 0
    etcd: str | None = None
    store: str | None = None
    lease_ms: int = 3_000
    log_level: str = "info"
    console_port: int | None = None
    console_values: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A process, as the table shows it.

    Attributes:
        kind: "broker", "coordinator", "console", or empty for servers that are not Magnetar's.
        metrics: empty without an endpoint.
    """

    name: str
    kind: str
    pid: int
    address: str
    metrics: str
    log: Path


class LocalCluster:
    """A cluster on this machine.

    Args:
        on_end: called when a process ended by itself, with its name, process id and status.
    """

    def __init__(
        self, plan: Plan, on_end: Callable[[str, int, int], None] = lambda *_: None
    ) -> None:
        self._plan = plan
        self._on_end = on_end
        self._outside: list[tuple[OutsideServer, str]] = []
        self._children: dict[str, list[Child]] = {BROKER: [], COORDINATOR: [], CONSOLE: []}
        self._watching: set[asyncio.Task[None]] = set()
        # All other settings are the cluster's own.
        self._variables: dict[str, str] = {
            "MAGNETAR_CLUSTER_ID": CLUSTER_ID,
            **security_variables(os.environ),
        }

    async def start(self) -> None:
        """Start everything, and wait until it is ready.

        Raises:
            InvalidConfig: a program or a package is missing.
            DidNotStart: etcd or the object server did not become ready.
            ChildFailed: a broker or coordinator did not.
        """
        plan = self._plan
        require_object_store()
        plan.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        ports = iter(free_ports(HOST, 2 + object_server.PORT_COUNT))
        if plan.etcd is None:
            port, peer_port = next(ports), next(ports)
            self._outside.append((etcd.etcd(plan.directory, port, peer_port), f"{HOST}:{port}"))
        self._variables["MAGNETAR_ETCD"] = plan.etcd or self._outside[0][1]
        if plan.store is None:
            own = [next(ports) for _ in range(object_server.PORT_COUNT)]
            server = object_server.object_server(plan.directory, own)
            self._outside.append((server, f"{HOST}:{own[0]}"))
            self._variables.update(object_server.environment(own[0]))
        self._variables["MAGNETAR_STORE"] = plan.store or f"s3://{object_server.BUCKET}/cluster"
        await asyncio.gather(*(one.start() for one, _ in self._outside))
        for one, _ in self._outside:
            self._watch(one.name, one.pid, one)
        # The first broker that starts makes the cluster. Coordinators need brokers.
        await asyncio.gather(*(self.add(BROKER) for _ in range(plan.brokers)))
        await asyncio.gather(*(self.add(COORDINATOR) for _ in range(plan.coordinators)))
        brokers = ",".join(one.ready["address"] for one in self._children[BROKER])
        self._variables["MAGNETAR_BROKER"] = brokers
        if plan.console_port is not None:
            await self._start_console(brokers.split(","), plan.console_port)
        self._write_environment()

    async def _start_console(self, brokers: Sequence[str], port: int) -> None:
        log = self._plan.directory / f"{CONSOLE}.log"
        arguments = console_arguments(brokers, port, self._plan.console_values)
        child = Child(CONSOLE, PROGRAM, arguments, self.environ(), log)
        self._children[CONSOLE].append(child)
        await child.start()
        self._watch(CONSOLE, child.ready["pid"], child)

    async def add(self, kind: str) -> Running:
        """Start another member, and wait until it is ready.

        Raises:
            ChildFailed: it did not become ready.
        """
        number = len(self._children[kind])
        # Members of a kind are called by letters, and shards by numbers.
        name = f"{kind}-{ascii_lowercase[number]}"
        log = self._plan.directory / f"{name}.log"
        child = Child(name, PROGRAM, self._arguments(kind, name, number), self.environ(), log)
        self._children[kind].append(child)
        await child.start()
        self._watch(name, child.ready["pid"], child)
        return self._running(kind, child)

    def environ(self) -> dict[str, str]:
        """Return the environment of the servers."""
        mine = {name: text for name, text in os.environ.items() if not name.startswith("MAGNETAR_")}
        return {**mine, **self._variables, **self._plan.settings}

    @property
    def variables(self) -> Mapping[str, str]:
        """Variables with which commands and further servers find the cluster."""
        return self._variables

    def running(self) -> list[Running]:
        """Return all processes that have not ended, in the order of their starts."""
        found = [
            Running(name=one.name, kind="", pid=one.pid, address=address, metrics="", log=one.log)
            for one, address in self._outside
            if one.is_running
        ]
        for kind, children in self._children.items():
            found += [self._running(kind, child) for child in children if child.is_running]
        return found

    async def stop(self) -> None:
        """Stop all processes: each before those that it needs."""
        for task in self._watching:
            task.cancel()
        for kind in (CONSOLE, COORDINATOR, BROKER):
            await asyncio.gather(*(one.stop() for one in self._children[kind]))
        await asyncio.gather(*(one.stop() for one, _ in self._outside))
        # It names ports that are closed by now.
        (self._plan.directory / ENVIRONMENT_FILE).unlink(missing_ok=True)

    def _arguments(self, kind: str, name: str, number: int) -> list[str]:
        plan = self._plan
        first = plan.port + (plan.brokers if kind == COORDINATOR else 0)
        # Members that are added later would have the ports of others.
        is_planned = number < (plan.brokers if kind == BROKER else plan.coordinators)
        port = first + number if plan.port and is_planned else 0
        return [
            *(kind, "--name", name, "--port", str(port), "--metrics-port", "0"),
            *("--broker-shards", str(plan.broker_shards)),
            *("--coordinator-shards", str(plan.coordinator_shards)),
            *("--lease-ms", str(plan.lease_ms)),
            *("--log-level", plan.log_level, "--log-format", "text", "--supervised"),
        ]

    def _running(self, kind: str, child: Child) -> Running:
        ready: dict[str, Any] = child.ready
        return Running(
            name=child.label,
            kind=kind,
            pid=ready["pid"],
            address=ready["address"],
            metrics=ready["metrics"],
            log=self._plan.directory / f"{child.label}.log",
        )

    def _watch(self, name: str, pid: int, process: Child | OutsideServer) -> None:
        async def tell() -> None:
            status = await process.wait()
            self._on_end(name, pid, status)

        task = asyncio.create_task(tell())
        self._watching.add(task)
        task.add_done_callback(self._watching.discard)

    def _write_environment(self) -> None:
        lines = [f"export {name}={shlex.quote(text)}" for name, text in self._variables.items()]
        (self._plan.directory / ENVIRONMENT_FILE).write_text("\n".join(lines) + "\n")
