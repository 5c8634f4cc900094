"""Faults as data: a fault has a kind, a victim, and a duration."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from contextvars import Context
from random import Random
from typing import TYPE_CHECKING

from tests.simulation.links import SimulatedLink
from tests.simulation.owners.seats import AnyServer
from tests.simulation.short import owner_faults
from tests.simulation.short.calm import EVERYBODY, FOR_EVER
from tests.simulation.short.script import Fault

from magnetar.testing.envelope import singles
from magnetar_broker.keys import PAYLOAD_FAMILIES
from magnetar_core.wire import service_pb2 as pb

if TYPE_CHECKING:
    from tests.simulation.world import World

SYNC_SECONDS = 0.0004
# Copies travel for a while, but not for longer than a broker remembers an idle producer.
COPY_AGE_SECONDS_MAX = 0.8


class Striker:
    """Strikes when the steps of a script begin.

    A fault belongs to its step, or to the first behind it if that one is not there.
    """

    def __init__(self, world: World, faults: tuple[Fault, ...], steps: Iterable[int]) -> None:
        self._world = world
        self.struck: list[Fault] = []
        self._waiting: dict[int, list[Fault]] = {}
        present = sorted(steps)
        for fault in faults:
            at = bisect_left(present, fault.step)
            if at < len(present):
                self._waiting.setdefault(present[at], []).append(fault)

    def step_begins(self, number: int) -> None:
        """Faults of this step fall due. Clients come to their steps in any order."""
        for fault in self._waiting.pop(number, ()):
            # In nobody's name: it strikes also when who does the step is dead by then.
            self._world.loop.call_later(fault.delay_s, self._strike, fault, context=Context())

    def _strike(self, fault: Fault) -> None:
        world = self._world
        if world.network.quiet:
            return
        world.trace.event("fault", str(fault).strip())
        random = world.environment.random(f"fault/{fault.number}")
        if KINDS[fault.kind](world, random, **fault.arguments):
            self.struck.append(fault)
            world.network.faults[fault.kind] += 1


def crash(
    world: World,
    random: Random,
    *,
    server: str,
    power_loss: bool,
    in_write_s: float = 0.0,
    down_s: float,
) -> bool:
    """A server's process ends, perhaps in the middle of a write; then it comes back."""
    node = world.server(server)
    if node is None or not node.alive or not node.ready.is_set():
        return False
    node.restarts = False

    def fall() -> None:
        node.disk.sync_seconds = SYNC_SECONDS
        if not world.network.quiet:
            node.crash(power_loss=power_loss)
        world.loop.call_later(down_s, node.rise)

    world.calm.trouble([server], FOR_EVER)
    node.disk.sync_seconds = in_write_s or node.disk.sync_seconds
    world.loop.call_later(in_write_s * random.random(), fall)
    return True


def power_cut(world: World, random: Random, *, server: str, answers: int, down_s: float) -> bool:
    """The power goes the moment after a server has answered: what it said has to be stored.

    Args:
        answers: how many it gives before, from now on.
    """
    node = world.server(server)
    if node is None or not node.alive:
        return False

    def cut() -> None:
        crash(world, random, server=server, power_loss=True, down_s=down_s)

    world.power.after(server, answers, lambda: world.loop.call_soon(cut, context=Context()))
    return True


def away(world: World, random: Random, *, server: str, seconds: float, silent: bool) -> bool:
    """A server is gone for long: nobody listens there, or nobody answers at all."""
    if world.server(server) is None:
        return False
    if silent:
        world.excuse_cut_off([server], seconds)
        for other in world.node_names():
            world.network.partition(server, other, seconds)
        return True
    return crash(world, random, server=server, power_loss=False, down_s=seconds)


def client_crash(world: World, random: Random, *, client: str, down_s: float) -> bool:
    node = world.actor_node(client)
    if node is None or not node.alive or node.finished:
        return False
    world.calm.trouble([client], down_s)
    node.crash(restart_after=down_s)
    return True


def link(world: World, random: Random, *, client: str, server: str, late: bool) -> bool:
    """A link breaks; with late, what was written on it arrives after its successor's first."""
    found = _links(world, client, server)
    for one in found:
        world.calm.trouble([client])
        one.break_off(late=late)
    return bool(found)


def half_open(
    world: World, random: Random, *, client: str, server: str, way: str, seconds: float
) -> bool:
    """What is written on a link vanishes, one way or both, until it breaks."""
    found = _links(world, client, server)
    for one in found:
        world.calm.trouble([client], seconds)
        one.half_open = True
        one.to_server.blackhole |= way != "answers"
        one.to_client.blackhole |= way != "requests"
        world.loop.call_later(seconds, one.break_off)
    return bool(found)


def congestion(world: World, random: Random, *, client: str, server: str, seconds: float) -> bool:
    found = _links(world, client, server)
    for one in found:
        world.calm.trouble([client], seconds)
        one.congest(seconds)
    return bool(found)


def partition(world: World, random: Random, *, client: str, server: str, seconds: float) -> bool:
    world.excuse_cut_off([client], seconds)
    world.network.partition(client, server, seconds)
    return True


def delays(world: World, random: Random, *, factor: float, seconds: float) -> bool:
    world.calm.trouble([EVERYBODY], seconds)
    world.network.delay_spike(factor, seconds)
    return True


def copies(
    world: World,
    random: Random,
    *,
    client: str,
    server: str,
    late_s: float,
    count: int,
    command: str = "",
) -> bool:
    """Requests arrive once more, perhaps on a link that took their link's place.

    Args:
        command: only those that hold this one.
    """
    links = _links(world, client, server)
    if not links:
        return False
    source = links[-1]
    young = world.loop.time() - COPY_AGE_SECONDS_MAX
    candidates = [data for written_at, data in source.recent if written_at >= young]
    if command:
        candidates = [data for data in candidates if _holds(data, command)]
    if not candidates:
        return False

    def arrive(data: bytes) -> None:
        onto = _links(world, client, server)
        if onto and not world.network.quiet and onto[-1].server.alive:
            onto[-1].arrive_again(data, same=onto[-1] is source)

    for _ in range(count):
        world.loop.call_later(late_s * random.random(), arrive, random.choice(candidates))
    return True


def _holds(data: bytes, command: str) -> bool:
    frame = singles(pb.Frame.FromString(data))
    return any(one.WhichOneof("body") == command for one in frame.commands)


def disk_failure(world: World, random: Random, *, server: str, what: str) -> bool:
    node = world.server(server)
    if node is None:
        return False
    world.calm.trouble([server], FOR_EVER)
    if what == "write":
        node.disk.fail_next_write()
    elif what == "sync":
        node.disk.fail_next_sync()
    return True


def disk_stall(world: World, random: Random, *, server: str, sync_s: float, seconds: float) -> bool:
    node = world.server(server)
    if node is None:
        return False
    world.calm.trouble([server], seconds + sync_s)
    node.disk.sync_seconds = sync_s
    world.loop.call_later(seconds, _set, node, "sync_seconds", SYNC_SECONDS)
    return True


def disk_full(world: World, random: Random, *, server: str, seconds: float) -> bool:
    node = world.server(server)
    if node is None:
        return False
    world.calm.trouble([server], seconds)
    node.fill_disk()
    world.loop.call_later(seconds, node.free_disk)
    return True


def damage(
    world: World,
    random: Random,
    *,
    topic: str,
    partition: int,
    count: int,
    way: str,
) -> bool:
    """The disk of a partition's broker damages rows of its messages, for good."""
    if world.skips_under_way:
        return False
    # Of several brokers, the one that keeps the partition has rows of it.
    struck = 0
    for broker in world.brokers:
        prefix = broker.damage.prefix_of(topic, partition)
        if prefix is not None:
            rows = broker.damage.strike(
                random, PAYLOAD_FAMILIES, count=count, way=way, prefix=prefix
            )
            struck += len(rows)
    return struck > 0


def no_rows(
    world: World, random: Random, *, server: str, count: int, crashes: bool, seconds: float
) -> bool:
    """A disk does not give rows of any kind, until somebody puts them back.

    Args:
        crashes: the server has to start without them, too.
    """
    node = world.server(server)
    if node is None:
        return False
    families = tuple(family for family in node.families if family not in PAYLOAD_FAMILIES)
    node.damage.strike_for_now(random, families, count=count)
    world.calm.trouble([server], FOR_EVER)
    world.calm.trouble([EVERYBODY], seconds)

    def put_back() -> None:
        node.damage.repair()
        if node.ready.is_set():
            world.calm.over(server)

    world.loop.call_later(seconds, put_back, context=Context())
    if crashes and node.alive:
        node.crash(power_loss=False)
    return True


def clock_jump(world: World, random: Random, *, node: str, jump_ms: int) -> bool:
    found = world.server(node) or world.actor_node(node)
    if found is None:
        return False
    found.clock.wall_offset_ms += jump_ms
    return True


def _set(node: AnyServer, attribute: str, value: float) -> None:
    setattr(node.disk, attribute, value)


def _links(world: World, client: str, server: str) -> list[SimulatedLink]:
    """Of one client, or of one server as somebody's client, to a server; oldest first."""
    return [
        one
        for one in world.network.links(client)
        if one.client_node == client and one.server_node == server
    ]


KINDS: dict[str, Callable[..., bool]] = {
    "crash": crash,
    "power cut": power_cut,
    "away": away,
    "client crash": client_crash,
    "link": link,
    "half-open": half_open,
    "congestion": congestion,
    "partition": partition,
    "delays": delays,
    "copies": copies,
    "disk failure": disk_failure,
    "disk stall": disk_stall,
    "disk full": disk_full,
    "damage": damage,
    "no rows": no_rows,
    "clock jump": clock_jump,
    **owner_faults.KINDS,
}
