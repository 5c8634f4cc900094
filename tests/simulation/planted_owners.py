"""Planted bugs of owners that change. See `planted`.

Each is a mistake that somebody could make in good faith, and that docs/design/0009-owners.md
forbids. `python -m tests.simulation --profile "owners that change" --planted NAME` counts the
histories until it is found. Most are named mutants. The others are not operations on a
function of the product: they change the simulated store, or what happens between several functions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any

from tests.mutants.planting import planted
from tests.simulation.owners.fenced_store import FencedDisk
from tests.simulation.owners.opening import Opening
from tests.simulation.planting import Plant, replaced

from magnetar_broker.broker import Broker
from magnetar_cli.servers import shard_servers
from magnetar_cluster.hosting.host_state import HostState
from magnetar_storage.group_commit import GroupCommit
from magnetar_storage.ready_callbacks import guard


@contextmanager
def _all(*plants: AbstractContextManager[None]) -> Iterator[None]:
    with ExitStack() as stack:
        for plant in plants:
            stack.enter_context(plant)
        yield


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
    return _all(store_does_not_fence(), planted("lease-ignored"))


def store_does_not_fence() -> AbstractContextManager[None]:
    """Whoever had a store open before goes on writing."""
    original = FencedDisk.__init__

    def init(self: FencedDisk, random: Any) -> None:
        original(self, random)
        self.fences = False

    return replaced(FencedDisk, "__init__", init)


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


def opening_never_ends() -> AbstractContextManager[None]:
    """An opening goes on when its shard is lost."""
    return _all(
        replaced(HostState, "useless_openings", lambda self: []),
        replaced(shard_servers._ShardServer, "_lose", lambda self: None),
    )


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
    name: partial(planted, name)
    for name in (
        "claims-outlive-leases",
        "lease-looked-at-when-it-begins",
        "questions-without-lease",
        "lease-ignored",
        "another-epoch-enters",
        "watermark-not-stored",
        "generation-not-stored",
        "settled-ends-forgotten",
        "lease-counted-from-answer",
        "abandoned-groups-are-written",
        "client-stays",
        "links-stay",
        "released-while-open",
    )
} | {
    plant.__name__.replace("_", "-"): plant
    for plant in (
        handover_before_durable,
        two_owners,
        store_does_not_fence,
        old_manifest,
        opening_never_ends,
    )
}
