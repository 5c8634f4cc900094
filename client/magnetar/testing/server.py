"""The test server: a cluster in memory, as a test starts, damages, asks and ends it."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import os
import threading
import warnings
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from functools import partial
from random import Random
from types import TracebackType
from typing import Any, Self, TypeVar

from magnetar import blocking
from magnetar.client import Client
from magnetar.config import ClientConfig
from magnetar.connecting import connect
from magnetar.errors import UsedAfterFork, WrongEventLoop
from magnetar.link import in_process
from magnetar.testing.commands import CommandName
from magnetar.testing.faults import Fault, Kind, checked_error, checked_times
from magnetar.testing.links import MemoryTransport
from magnetar.testing.shifted_time import FollowedLoop
from magnetar.testing.world import World
from magnetar_broker.config import BrokerConfig
from magnetar_coordinator.config import CoordinatorConfig
from magnetar_core.clock import Clock, SystemClock
from magnetar_core.config import NO_SETTING, InvalidConfig
from magnetar_core.errors import InvalidArgument, LogUnavailable, MagnetarError
from magnetar_core.process.forks import belongs_here

T = TypeVar("T")

SERVERS_MAX = 16
ADVANCE_S_MAX = 7 * 24 * 60 * 60.0
# A client that does not close within this time is left.
CLOSE_S_MAX = 10.0

# What servers of machines have, and these have not, by the names that people give to it.
NOT_HERE: Mapping[str, str] = {
    "access": "no rights: all clients may do everything",
    "address": "no address of a network: give `server.address` to the program",
    "data_dir": "no files: its rows are in memory, and restart() keeps them",
    "durability": "no operating system below it: all that it confirms survives restart()",
    "external_address": "no address of a network: give `server.address` to the program",
    "host": "no address of a network: give `server.address` to the program",
    "kafka_port": "no port for Kafka's clients",
    "listen": "no port: give `server.address` to the program",
    "metrics_port": "no metrics",
    "port": "no port: give `server.address` to the program",
    "store": "no object store: its rows are in memory",
    "tls": "no TLS: there is no network to protect",
    "token": "no rights: all clients may do everything",
    "tokens": "no rights: all clients may do everything",
}

_numbers = itertools.count(1)


class Server:
    """A cluster of real brokers and coordinators in this process, with its rows in memory.

        with magnetar.testing.Server() as server:
            client = magnetar.blocking.connect(server.address)

    It runs on a thread of its own, from the moment when it is made until close(). Programs reach it
    by its address, on any event loop and any thread of this process. All methods but those that say
    so may be called on any thread, in coroutines too.

    Args:
        brokers: how many there are, 1 to 16.
        coordinators: how many there are, 1 to 16.
        virtual_time: whether advance() lets time pass. Then the event loops of clients follow the
            cluster's time, also when it has ended.
        broker_settings: settings of the brokers, as docs/configuration.md has them.
        coordinator_settings: settings of the coordinators; two-phase commit is enabled unless they
            say otherwise.
        not_here: nothing: what real servers have, and this one does not, is refused by name.
    Raises:
        InvalidArgument: an argument is not what it should be, or names what is not here.
    """

    def __init__(
        self,
        *,
        brokers: int = 1,
        coordinators: int = 1,
        virtual_time: bool = False,
        broker_settings: Mapping[str, Any] | None = None,
        coordinator_settings: Mapping[str, Any] | None = None,
        **not_here: object,
    ) -> None:
        self._thread: threading.Thread | None = None
        for name in not_here:
            raise InvalidArgument(_refusal(name))
        if not isinstance(virtual_time, bool):
            raise InvalidArgument(f"virtual_time must be True or False, and not {virtual_time!r}")
        _check_count("brokers", brokers)
        _check_count("coordinators", coordinators)
        settings = (
            _checked_settings(BrokerConfig, "broker_settings", broker_settings),
            _checked_settings(CoordinatorConfig, "coordinator_settings", coordinator_settings),
        )
        host = f"memory-{os.getpid()}-{next(_numbers)}{in_process.SUFFIX}"
        try:
            self._world = World(host, brokers, coordinators, settings, Random())
        except InvalidConfig as error:
            raise InvalidArgument(str(error)) from None
        self._virtual_time = virtual_time
        self._is_forked = False
        self._lock = threading.RLock()
        # With the objects that programs have. A test may drop those: its clients end with this.
        self._clients: dict[in_process.OpenHere, object] = {}
        self._blocking_clients: dict[in_process.OpenHere, in_process.OpenBlocking] = {}
        belongs_here(self)
        self._ended: Future[None] = Future()
        self._thread = threading.Thread(
            target=_run, args=(self._world, self._ended), name="magnetar test server", daemon=True
        )
        self._thread.start()
        try:
            self._wait(self._world.start())
        except BaseException:
            self._stop()
            raise
        in_process.register(host, self)

    @property
    def address(self) -> str:
        """The address for programs: a text for `magnetar.connect` and `magnetar.blocking.connect`.

        No other process reaches it.
        """
        return self._world.addresses

    @property
    def names(self) -> list[str]:
        """The names of all servers: "broker-0", "coordinator-0", and so on."""
        return list(self._world.processes)

    async def connect(self, *, config: ClientConfig | None = None) -> Client:
        """Connect to it on the running event loop; the client is closed with the server.

        Args:
            config: the client's settings.
        """
        return await connect(self.address, config=config)

    def connect_blocking(self, *, config: ClientConfig | None = None) -> blocking.Client:
        """Connect to it without asyncio; the client is closed with the server.

        Args:
            config: the client's settings.
        """
        return blocking.connect(self.address, config=config)

    # Time.

    def advance(self, seconds: float) -> None:
        """Let time pass, with all that falls due in it, for the servers and for their clients.

        It is for threads that run no event loop; in a coroutine, await advance_async().

        Args:
            seconds: how much, up to 7 days. An hour takes about two seconds of the machine.
        Raises:
            InvalidArgument: it is not such a number, or the server has no virtual time.
            WrongEventLoop: an event loop runs on this thread, and clients on it would hang.
        """
        self._check_advance(seconds)
        if _running_loop() is not None:
            raise WrongEventLoop("this would stop the event loop: await server.advance_async()")
        self._wait(self._world.advance(seconds))

    async def advance_async(self, seconds: float) -> None:
        """Do the same as advance(), in a coroutine: the clients on its event loop go on."""
        self._check_advance(seconds)
        future = self._begin(self._world.advance(seconds))
        await asyncio.wrap_future(future)

    # Faults.

    def lose_answer(self, command: CommandName, times: int = 1) -> Fault:
        """Let a command take effect, and break the link before its answer leaves.

        Args:
            command: the command's name, such as "EndTxn".
            times: how many of those that come it strikes.
        Raises:
            InvalidArgument: there is no such command, or `times` is not a number from 1.
        """
        return self._arm(Kind.LOSE_ANSWER, command, times)

    def lose_request(self, command: CommandName, times: int = 1) -> Fault:
        """Break the link before a command takes effect. Args and Raises: as lose_answer()."""
        return self._arm(Kind.LOSE_REQUEST, command, times)

    def refuse(
        self, command: CommandName, error: MagnetarError | type[MagnetarError], times: int = 1
    ) -> Fault:
        """Answer a command with an error; it takes no effect.

        Args:
            command: the command's name.
            error: an error of magnetar.errors, or its class.
            times: how many of those that come it strikes.
        Raises:
            InvalidArgument: there is no such command, or another argument is not what it should be.
        """
        return self._arm(Kind.REFUSE, command, times, checked_error(error))

    def hold(self, command: CommandName, times: int = 1) -> Fault:
        """Let a command wait at the server, without effect, until `release()` of what is returned.

        Commands of the same name behind it on the same link wait, too.

        Args:
            command: the command's name.
            times: how many of those that come it strikes.
        Raises:
            InvalidArgument: there is no such command, or `times` is not a number from 1.
        """
        return self._arm(Kind.HOLD, command, times)

    def heal(self) -> None:
        """End all faults; what they hold goes on. Servers that are stopped stay so."""
        for fault in self._world.faults.end():
            fault.release()

    def fence(self, transactional_id: str) -> None:
        """Fence the producer of a transactional id, as another instance of it does.

        Its open transaction is aborted.

        Raises:
            TransactionalIdNotFound: no producer has used this id.
        """

        async def fence(client: Client) -> None:
            await client.admin.transactional_ids.describe(transactional_id)
            await client.transactional_producer(transactional_id).init()

        self._wait(self._world.ask(fence))

    # Servers.

    def stop(self, *names: str) -> None:
        """Kill servers, or all of them without names; their rows stay. Links to them break."""
        chosen = self._checked_names(names)

        async def stop() -> None:
            for name in chosen:
                self._world.processes[name].kill()

        self._wait(stop())

    def start(self, *names: str) -> None:
        """Start servers that are stopped, or all of them; wait until they take conversations.

        Raises:
            MagnetarError: one does not start, as a real one would not.
        """
        chosen = self._checked_names(names)

        async def start() -> None:
            for name in chosen:
                await self._world.processes[name].start()

        self._wait(start())

    def restart(self, *names: str) -> None:
        """Kill servers, or all of them without names, and start them again with their rows."""
        self.stop(*names)
        self.start(*names)

    def lose_store(self, *names: str) -> None:
        """Kill servers, and start them again with empty stores: their disks are lost.

        A broker refuses all commands then, as a real one does, until accept_loss().

        Raises:
            InvalidArgument: no server is named, or there is none of a name.
            MagnetarError: one does not start, as a real one would not.
        """
        if not names:
            raise InvalidArgument(f"name the servers that lose their stores: {self._listed}")
        chosen = self._checked_names(names)

        async def lose() -> None:
            for name in chosen:
                self._world.processes[name].lose_disk()

        self._wait(lose())
        self.start(*names)

    def accept_loss(self, *names: str) -> None:
        """Accept the loss, as `magnetar storage accept-loss --everything`, and start the servers.

        Raises:
            InvalidArgument: no server is named, or there is none of a name.
            MagnetarError: one does not start, as a real one would not.
        """
        if not names:
            raise InvalidArgument(f"name the servers that have lost their stores: {self._listed}")
        chosen = self._checked_names(names)

        async def accept() -> None:
            for name in chosen:
                await self._world.processes[name].accept_loss()

        self._wait(accept())
        self.start(*names)

    # Its end.

    def close(self) -> None:
        """End the cluster, and the clients that are still open. Repeating it is harmless.

        In a coroutine, use `async with` or aclose(): clients on the running event loop cannot send
        anything while this waits, so they are given up.
        """
        if self._is_closed:
            return
        self.heal()
        with self._lock:
            blocking_clients = list(self._blocking_clients.values())
        for one in blocking_clients:
            with suppress(MagnetarError):
                one.close()
        for opened in self._open_clients():
            _close(opened)
        self._stop()
        with self._lock:
            self._clients.clear()
            self._blocking_clients.clear()

    async def aclose(self) -> None:
        """Do the same as close(); clients on the running event loop close in order."""
        if not self._is_closed:
            self.heal()
            loop = asyncio.get_running_loop()
            for opened in self._open_clients():
                if opened.loop is loop:
                    await opened.close()
            await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, self.close))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "running"
        return f"<magnetar.testing.Server {self.address}: {state}>"

    def __del__(self, warn: Callable[..., None] = warnings.warn) -> None:
        if self._thread is not None and not self._is_closed and not self._is_forked:
            warn(f"unclosed {self!r}: call close()", ResourceWarning, stacklevel=2, source=self)
            with suppress(RuntimeError):
                self._world.loop.call_soon_threadsafe(self._world.loop.stop)

    # What clients call: see in_process.

    def attach(self) -> tuple[MemoryTransport, Clock]:
        """Return the transport and the clock for a client on the running event loop."""
        self._check()
        clock: Clock = SystemClock()
        if self._virtual_time:
            loop = asyncio.get_running_loop()
            followed = FollowedLoop(loop)
            clock = followed.clock
            self._world.loop.call_soon_threadsafe(self._world.followed.setdefault, loop, followed)
        return MemoryTransport(self._world.network), clock

    def note_client(self, opened: in_process.OpenHere, client: object) -> None:
        """Keep a client until it is closed, at the end of the cluster."""
        opened.belongs_to_test()
        with self._lock:
            self._clients = {one: kept for one, kept in self._clients.items() if one.is_open}
            self._clients[opened] = client

    def note_blocking(self, opened: in_process.OpenHere, client: in_process.OpenBlocking) -> None:
        """Keep a blocking client until it is closed, at the end of the cluster."""
        with self._lock:
            found = self._blocking_clients.items()
            self._blocking_clients = {one: kept for one, kept in found if one.is_open}
            self._blocking_clients[opened] = client

    def forked(self) -> None:
        """Note that this is the copy of a forked child."""
        self._is_forked = True

    # Inside.

    @property
    def _is_closed(self) -> bool:
        return self._ended.done()

    @property
    def _listed(self) -> str:
        return ", ".join(self.names)

    def _open_clients(self) -> list[in_process.OpenHere]:
        with self._lock:
            return [one for one in self._clients if one.is_open]

    def _arm(
        self, kind: Kind, command: CommandName, times: int, error: MagnetarError | None = None
    ) -> Fault:
        self._check()
        fault = Fault(kind, command, checked_times(times), error, self._release)
        self._world.faults.arm(fault)
        return fault

    def _release(self, fault: Fault) -> None:
        with suppress(RuntimeError):
            self._world.loop.call_soon_threadsafe(self._world.release, fault)

    def _checked_names(self, names: tuple[str, ...]) -> list[str]:
        for name in names:
            if name not in self._world.processes:
                raise InvalidArgument(f"{name!r} is not a server here; there are {self._listed}")
        return list(names) or self.names

    def _check_advance(self, seconds: object) -> None:
        if not self._virtual_time:
            raise InvalidArgument(
                "the time of this server is the machine's: use the fixture magnetar_virtual_server,"
                " or Server(virtual_time=True)"
            )
        is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if not is_number or not 0 <= seconds <= ADVANCE_S_MAX:  # type: ignore[operator]
            raise InvalidArgument(
                f"give seconds from 0 to {ADVANCE_S_MAX:.0f}, 7 days, and not {seconds!r}"
            )

    def _check(self) -> None:
        if self._is_forked:
            raise UsedAfterFork("this test server runs in the parent process; make one here")
        if self._is_closed:
            error = self._ended.exception()
            raise LogUnavailable("the test server is closed") if error is None else error

    def _begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Have something done on the servers' loop."""
        done: Future[T] = Future()

        def begin() -> None:
            task = self._world.loop.create_task(work)
            task.add_done_callback(partial(_settle, done))

        try:
            self._check()
            if threading.current_thread() is self._thread:
                raise WrongEventLoop("this is the test server's own thread")
            self._world.loop.call_soon_threadsafe(begin)
        except BaseException:
            work.close()
            raise
        # Also if the servers fail meanwhile.
        self._ended.add_done_callback(lambda _: _settle_at_end(done))
        return done

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return self._begin(work).result()
        except LogUnavailable:
            self._check()
            raise

    def _stop(self) -> None:
        with suppress(RuntimeError):
            self._world.loop.call_soon_threadsafe(self._world.network.break_all)
            self._world.loop.call_soon_threadsafe(self._world.loop.stop)
        if self._thread is not None:
            self._thread.join()
        # What a server has failed of is the test's to know.
        error = self._ended.exception()
        if error is not None:
            raise error


def _run(world: World, ended: Future[None]) -> None:
    """Run the servers until they are told to stop."""
    asyncio.set_event_loop(world.loop)
    error: BaseException | None = None
    try:
        world.loop.run_forever()
        world.loop.check()
    except BaseException as failure:
        error = failure
    finally:
        with suppress(BaseException):
            world.network.break_all()
        world.loop.bury()
        asyncio.set_event_loop(None)
    if error is None:
        ended.set_result(None)
    else:
        ended.set_exception(error)


def _settle(done: Future[Any], task: asyncio.Task[Any]) -> None:
    if done.done():
        return
    if task.cancelled():
        done.cancel()
    elif (error := task.exception()) is not None:
        done.set_exception(error)
    else:
        done.set_result(task.result())


def _settle_at_end(done: Future[Any]) -> None:
    with suppress(InvalidStateError):
        done.set_exception(LogUnavailable("the test server was closed"))


def _close(opened: in_process.OpenHere) -> None:
    """Close a client on its event loop, wherever that is."""
    loop = opened.loop
    running = _running_loop()
    if loop.is_closed():
        return
    try:
        if loop is running or (not loop.is_running() and running is not None):
            opened.loop_ends()
        elif loop.is_running():
            asyncio.run_coroutine_threadsafe(opened.close(), loop).result(CLOSE_S_MAX)
        else:
            loop.run_until_complete(opened.close())
    except (RuntimeError, TimeoutError, MagnetarError):
        pass  # The loop ended meanwhile, or a callback of the program blocks it.


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _refusal(name: str) -> str:
    if name in NOT_HERE:
        return f"{name}: a test server has {NOT_HERE[name]}"
    return (
        f"{name} is not an argument of a test server; there are brokers, coordinators,"
        " virtual_time, broker_settings and coordinator_settings"
    )


def _check_count(name: str, count: object) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= SERVERS_MAX:
        raise InvalidArgument(f"{name} must be a whole number from 1 to {SERVERS_MAX}: {count!r}")


def _checked_settings(
    kind: type[Any], argument: str, settings: Mapping[str, Any] | None
) -> Mapping[str, Any]:
    if settings is None:
        return {}
    if not isinstance(settings, Mapping):
        raise InvalidArgument(f"{argument} must be a mapping of names to values: {settings!r}")
    known = {
        one.name: one
        for one in dataclasses.fields(kind)
        if one.metadata != NO_SETTING and one.name not in _OF_THE_CLUSTER
    }
    for name, value in settings.items():
        if name in NOT_HERE:
            raise InvalidArgument(_refusal(name))
        if name not in known:
            raise InvalidArgument(f"{argument}: there is no {name!r}; there are {sorted(known)}")
        default = known[name].default
        if type(default) is not type(value):
            raise InvalidArgument(
                f"{argument}: {name} is of type {type(default).__name__}, and not {value!r}"
            )
    return dict(settings)


# Settings that follow from the list of members.
_OF_THE_CLUSTER = {
    "brokers",
    "broker_addresses",
    "broker_names",
    "cluster_id",
    "constants",
    "coordinators",
}
