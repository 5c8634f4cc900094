"""Planted bugs of owners that change. See `planted`.

Each is a mistake that somebody could make in good faith, and that docs/design/0009-owners.md
forbids. `python -m tests.simulation --short --planted NAME` counts the histories of the scenario
"owners that change" until it is found.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from tests.simulation.owners.fenced_store import FencedDisk
from tests.simulation.owners.opening import Opening
from tests.simulation.planted import watermark_not_stored
from tests.simulation.planted_groups import generation_not_stored
from tests.simulation.planting import Plant, replaced

from magnetar.link.servers import Servers
from magnetar_broker.broker import Broker
from magnetar_broker.transactions import index_rows
from magnetar_cli.servers import shard_servers
from magnetar_cluster.cluster_transport import ClusterTransport
from magnetar_cluster.directory_state import DirectoryState
from magnetar_cluster.host_state import HostState
from magnetar_cluster.lease import Lease
from magnetar_cluster.shard_attempts import ShardAttempts
from magnetar_cluster.view import ShardName, View
from magnetar_core.membership.shard_address import ShardPlace
from magnetar_core.server import leased
from magnetar_core.server.commands import Conversation
from magnetar_core.server.doors import Door, Doors
from magnetar_core.server.leased import LeasedCommands
from magnetar_storage.group_commit import GroupCommit
from magnetar_storage.ready_callbacks import guard


@contextmanager
def _all(*plants: AbstractContextManager[None]) -> Iterator[None]:
    with ExitStack() as stack:
        for plant in plants:
            stack.enter_context(plant)
        yield


def claims_outlive_leases() -> AbstractContextManager[None]:
    """A claim is not bound to its member's lease."""

    def end(self: DirectoryState, lease: int) -> None:
        del self._leases[lease]
        members = {name: row for name, row in self._members.items() if row[0] != lease}
        if len(members) < len(self._members):
            self._members = members
            self._changed()

    return replaced(DirectoryState, "_end", end)


def answers_unchecked() -> AbstractContextManager[None]:
    """Nobody looks at the lease where answers leave."""

    def accept(self: LeasedCommands, conversation: Conversation) -> Any:
        return self._commands.accept(conversation)

    return replaced(LeasedCommands, "accept", accept)


def links_unchecked() -> AbstractContextManager[None]:
    """Nobody looks at the lease where frames to other servers leave."""

    def write(self: Any, frame: Any) -> None:
        self._link.write(frame)

    return replaced(leased._LeasedLink, "write", write)


def handover_before_durable() -> AbstractContextManager[None]:
    """A handover answers what is parked, and does not wait for the group that it depends on."""
    original = Opening.close

    async def close(self: Opening) -> None:
        server = self.server
        commits: GroupCommit = (
            server.environment.commits if isinstance(server, Broker) else server._commits
        )
        for callback in [*commits._parked_sealed, *commits._parked_open]:
            guard(callback)
        commits.abandon()
        # The conversations end when all that has left.
        await asyncio.sleep(0)
        await original(self)

    return replaced(Opening, "close", close)


def two_owners() -> AbstractContextManager[None]:
    """The store fences nobody, and nobody looks at the lease."""
    return _all(store_does_not_fence(), lease_ignored())


def store_does_not_fence() -> AbstractContextManager[None]:
    """Whoever had a store open before goes on writing."""
    original = FencedDisk.__init__

    def init(self: FencedDisk, random: Any) -> None:
        original(self, random)
        self.fences = False

    return replaced(FencedDisk, "__init__", init)


def lease_ignored() -> AbstractContextManager[None]:
    """Who opened a shard speaks for it until the directory says otherwise."""

    def speaks(self: HostState, shard: ShardName, epoch: int) -> bool:
        held = self.slots[shard].held
        return held is not None and held.epoch == epoch

    return replaced(HostState, "speaks", speaks)


def epoch_not_compared() -> AbstractContextManager[None]:
    """A door lets everybody in who names its shard, in whichever epoch."""
    original = Doors.enter

    async def enter(self: Doors, place: ShardPlace | None) -> Door:
        if place is not None and place not in self._doors:
            place = next((one for one in self._doors if one.shard == place.shard), place)
        return await original(self, place)

    return replaced(Doors, "enter", enter)


def old_manifest() -> AbstractContextManager[None]:
    """Who opens a store sees it as it was before the last write that became durable."""
    original_keep, original_lose = FencedDisk._keep, FencedDisk.lose_what_is_under_way

    def keep(self: FencedDisk, write_count: int) -> None:
        while self._undo and self.write_count - len(self._undo) < write_count:
            self.__dict__["_planted_last"] = self._undo.popleft()
        original_keep(self, write_count)

    def lose(self: FencedDisk) -> int:
        last = self.__dict__.pop("_planted_last", None)
        if last is not None:
            self._undo.appendleft(last)
            before = len(self._undo)
            for undo in [self._undo.pop() for _ in range(before)]:
                for family, key, value in reversed(undo):
                    table = self._writable(family)
                    if value is None:
                        table.delete(key)
                    else:
                        table.put(key, value)
        return original_lose(self)

    return _all(
        replaced(FencedDisk, "_keep", keep),
        replaced(FencedDisk, "lose_what_is_under_way", lose),
    )


def settled_ends_forgotten() -> AbstractContextManager[None]:
    """Who opens a shard reads what is open in it, and not what has ended."""
    original = index_rows.restore

    def restore(index: Any, txn_id: Any, ordinal: int, value: bytes) -> None:
        original(index, txn_id, ordinal, value)
        index.ended.pop(txn_id, None)

    return replaced(index_rows, "restore", restore)


def lease_counted_from_answer() -> AbstractContextManager[None]:
    """A renewed lease counts from when its answer came, not from when it was asked for."""

    def renewed(self: Lease, sent_at_ms: float) -> None:
        self._sent_at_ms = self._now_ms()

    return replaced(Lease, "renewed", renewed)


def abandon_writes() -> AbstractContextManager[None]:
    """A shard that is abandoned still writes what it has gathered."""
    return replaced(GroupCommit, "abandon", lambda self: None)


def client_stays() -> AbstractContextManager[None]:
    """A client stays with the owner that it found first."""
    return replaced(Servers, "_move", lambda self, following, service, address: None)


def links_stay() -> AbstractContextManager[None]:
    """A server stays with former owners of other shards, as long as they are silent."""

    def owners_changed(self: ClusterTransport, view: View) -> None:
        return

    return replaced(ClusterTransport, "owners_changed", owners_changed)


def opening_never_ends() -> AbstractContextManager[None]:
    """An opening goes on when its shard is lost."""
    return _all(
        replaced(HostState, "useless_openings", lambda self: []),
        replaced(shard_servers._ShardServer, "_lose", lambda self: None),
    )


def released_while_open() -> AbstractContextManager[None]:
    """A handover gives the claim back first, and closes the shard then."""
    original = ShardAttempts._close

    async def close(self: ShardAttempts, action: Any) -> None:
        await self._directory.release(action.shard, action.epoch)
        await original(self, action)

    return replaced(ShardAttempts, "_close", close)


def first_found(name: str, seeds: Iterable[int]) -> tuple[int, str] | None:
    """Plant a bug; return after how many histories it is found, and as what. None: never."""
    # Histories are made of scenarios, which know nothing of planted bugs.
    from tests.simulation.short.runner import run_history

    for count, seed in enumerate(seeds, start=1):
        with PLANTED_OWNERS[name]():
            outcome = run_history(seed, "owners that change", checks_servers=False)
        if outcome.failure is not None:
            return count, outcome.failure
    return None


PLANTED_OWNERS: dict[str, Plant] = {
    plant.__name__.replace("_", "-"): plant
    for plant in (
        claims_outlive_leases,
        answers_unchecked,
        links_unchecked,
        handover_before_durable,
        two_owners,
        store_does_not_fence,
        lease_ignored,
        epoch_not_compared,
        watermark_not_stored,
        generation_not_stored,
        old_manifest,
        settled_ends_forgotten,
        lease_counted_from_answer,
        abandon_writes,
        client_stays,
        links_stay,
        opening_never_ends,
        released_while_open,
    )
}
