"""A directory in the memory of one process: one state, and handles that members use it through.

Source: docs/design/0009-owners.md, The directory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Protocol, TypeVar

from magnetar_cluster.directory.cluster_directory import ClusterDirectoryUnavailable, LeaseId
from magnetar_cluster.directory.cluster_directory_state import (
    Claim,
    ClusterDirectoryState,
    Drain,
    FixFormat,
    Grant,
    Join,
    NoteDurable,
    Pin,
    ReadMark,
    Release,
    Renew,
    Request,
    Revoke,
)
from magnetar_cluster.directory.view import Format, Member, MemberName, ShardName, View
from magnetar_storage.durable_mark import DurableMark

Answer = TypeVar("Answer")


class Service(Protocol):
    """Receiver of a handle's requests."""

    async def ask(self, request: Request[Answer]) -> Answer:
        """Return the answer to a request.

        Raises:
            ClusterDirectoryUnavailable: no answer came; the request may have had its effect.
            LeaseExpired: the request's lease has ended.
        """
        ...

    def watch(self) -> AsyncGenerator[View, None]:
        """See Directory.watch."""
        ...


class MemoryService:
    """A directory's state, with timers that end its leases.

    Args:
        now_ms: the directory's clock; its members may have others.
    """

    def __init__(self, now_ms: Callable[[], float]) -> None:
        self.state = ClusterDirectoryState()
        self._now_ms = now_ms
        self._shown = self.state.view
        self._changed = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    async def ask(self, request: Request[Answer]) -> Answer:
        """Return the answer to a request. Raises: LeaseExpired."""
        try:
            return self.state.apply(self._now_ms(), request)
        finally:
            self._show()

    async def watch(self) -> AsyncGenerator[View, None]:
        """See Directory.watch."""
        seen = -1
        while True:
            while seen == self.state.view.revision:
                await self._changed.wait()
            view = self.state.view
            seen = view.revision
            yield view

    def close(self) -> None:
        """Stop ending leases."""
        if self._timer is not None:
            self._timer.cancel()

    def _show(self) -> None:
        """Wake those who watch, and set the timer for the next lease that ends."""
        if self.state.view is not self._shown:
            self._shown = self.state.view
            self._changed.set()
            self._changed = asyncio.Event()
        self.close()
        at_ms = self.state.next_end_ms()
        if at_ms is not None:
            wait_s = max(at_ms - self._now_ms(), 0) / 1000
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._expire)

    def _expire(self) -> None:
        self.state.expire(self._now_ms())
        self._show()


class MemoryDirectory:
    """A handle on a directory; implements Directory.

    Args:
        service: the directory, or whatever lies between it and this member.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._closed = False

    async def format(self, wanted: Format | None) -> Format | None:
        """See Directory.format."""
        return await self._ask(FixFormat(wanted))

    async def grant(self, duration_ms: int) -> LeaseId:
        """See Directory.grant."""
        return await self._ask(Grant(duration_ms))

    async def renew(self, lease: LeaseId) -> None:
        """See Directory.renew."""
        await self._ask(Renew(lease))

    async def revoke(self, lease: LeaseId) -> None:
        """See Directory.revoke."""
        await self._ask(Revoke(lease))

    async def join(self, lease: LeaseId, name: MemberName, member: Member) -> bool:
        """See Directory.join."""
        return await self._ask(Join(lease, name, member))

    async def claim(self, lease: LeaseId, shard: ShardName, member: str) -> int | None:
        """See Directory.claim."""
        return await self._ask(Claim(lease, shard, member))

    async def release(self, shard: ShardName, epoch: int) -> None:
        """See Directory.release."""
        await self._ask(Release(shard, epoch))

    async def drain(self, name: MemberName, *, draining: bool) -> None:
        """See Directory.drain."""
        await self._ask(Drain(name, draining))

    async def pin(self, shard: ShardName, member: str) -> None:
        """See Directory.pin."""
        await self._ask(Pin(shard, member))

    async def note_durable(self, shard: ShardName, epoch: int, mark: DurableMark) -> bool:
        """See Directory.note_durable."""
        return await self._ask(NoteDurable(shard, epoch, mark))

    async def durable_mark(self, shard: ShardName) -> DurableMark | None:
        """See Directory.durable_mark."""
        return await self._ask(ReadMark(shard))

    async def watch(self) -> AsyncGenerator[View, None]:
        """See Directory.watch."""
        async with aclosing(self._service.watch()) as views:
            async for view in views:
                self._require_open()
                yield view

    async def close(self) -> None:
        """Stop asking."""
        self._closed = True

    async def _ask(self, request: Request[Answer]) -> Answer:
        self._require_open()
        return await self._service.ask(request)

    def _require_open(self) -> None:
        if self._closed:
            raise ClusterDirectoryUnavailable("the directory was closed here; open another one")
