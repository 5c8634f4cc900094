"""Members, shards and leases, and which servers answer."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

from magnetar import Client, ClusterInfo, ClusterMembers, MagnetarError
from magnetar.link.members import BROKER, COORDINATOR, Member
from magnetar_console.looks.cluster_rows import Shard, lease_rows, server_rows, shard_rows
from magnetar_console.looks.server_watch import ServerWatch
from magnetar_console.pauses import CHANGES_PAUSE
from magnetar_console.seen import Row, Seen
from magnetar_core.clock import Clock
from magnetar_core.membership.shard_address import ShardAddress, server_of
from magnetar_core.transport.transport import Transport

EVENTS_MAX: Final = 50
# A server that no shard and no member names stays on the page for so long.
GONE_MS_MAX: Final = 10 * 60_000
SERVERS_MAX: Final = 200
# How long a look waits for a broker that is slow, before it tells what the watches know.
PATIENCE_S: Final = 0.25


class ClusterLook:
    """Asks a broker where the shards are, and watches each server that has some.

    Attributes:
        on_news: called when a server answers, or no longer does: it is time to look.
    """

    def __init__(self, new_transport: Callable[[], Transport], clock: Clock) -> None:
        self.period_s = 1.0
        self.pause_factor = CHANGES_PAUSE
        self.on_news: Callable[[], None] = lambda: None
        self._new_transport = new_transport
        self._clock = clock
        self._transport: Transport | None = None
        self._watches: dict[tuple[str, str], ServerWatch] = {}
        self._asking: asyncio.Task[ClusterInfo] | None = None
        self._info: ClusterInfo | None = None
        self._problem = ""
        self._named_at_ms: dict[tuple[str, str], int] = {}
        self._shards: dict[str, Shard] = {}
        self._since_ms: dict[str, int] = {}
        self._events: deque[Row] = deque(maxlen=EVENTS_MAX)
        self._event_count = 0
        self._answered: dict[tuple[str, str], bool] = {}
        self._draining: dict[tuple[str, str], bool] = {}

    async def look(self, client: Client) -> Seen:
        """Ask a broker; where none answers, tell what the watches of the servers say."""
        await self._ask(client)
        info = self._info
        assert info is not None
        self._note_shards({one.name: one for one in _shards(info)})
        members = self._members()
        await self._watch_servers(members)
        self._note_answers()
        self._note_drains(members)
        cluster: Row = {
            "id": info.cluster_id,
            "version": info.server_version,
            "membership_version": info.membership_version,
            "moves": any(one.epoch is not None for one in self._shards.values()),
            # Without it, leases and members without shards are not known.
            "tells_members": members is not None,
        }
        return Seen(
            {
                "cluster": {"it": cluster},
                "servers": dict(server_rows(self._watches, self._shards.values(), members)),
                "leases": dict(lease_rows(self._watches)),
                "shards": dict(
                    shard_rows(self._shards.values(), self._since_ms, self._watches, members)
                ),
                "events": {str(one["number"]): one for one in self._events},
            },
            (self._problem,) if self._problem else (),
        )

    async def _ask(self, client: Client) -> None:
        """Ask a broker where the shards are. A slow answer is for one of the next looks."""
        if self._asking is None:
            self._asking = asyncio.create_task(client.admin.cluster_info())
        patience_s = PATIENCE_S if self._info is not None else None
        await asyncio.wait({self._asking}, timeout=patience_s)
        if not self._asking.done():
            return
        asked, self._asking = self._asking, None
        try:
            self._info = asked.result()
            self._problem = ""
        except MagnetarError as error:
            if self._info is None:
                raise
            self._problem = f"No broker tells where the shards are: {error}"

    def _members(self) -> ClusterMembers | None:
        """Return the members, as the server describes them that is the most up to date."""
        told = [
            one.members for one in self._watches.values() if one.answers and one.members is not None
        ]
        return min(told, key=lambda one: one.view_age_ms, default=None)

    async def close(self) -> None:
        """Stop watching the servers."""
        asking, self._asking = self._asking, None
        if asking is not None:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        watches, self._watches = self._watches, {}
        transport, self._transport = self._transport, None
        await asyncio.gather(*(one.close() for one in watches.values()))
        if transport is not None:
            await transport.close()

    async def _watch_servers(self, members: ClusterMembers | None) -> None:
        if self._transport is None:
            self._transport = self._new_transport()
        now_ms = self._clock.wall_ms()
        named = {(one.kind, server_of(one.address)) for one in self._shards.values()}
        if members is not None:
            named |= {(one.kind, one.address) for one in members.members}
        for key in sorted(named):
            kind, server = key
            if not server:
                continue
            self._named_at_ms[key] = now_ms
            if key not in self._watches and len(self._watches) < SERVERS_MAX:
                service = BROKER if kind == "broker" else COORDINATOR
                self._watches[key] = ServerWatch(
                    self._transport, server, service, self._clock, self._heard
                )
        for key in [key for key in self._watches if now_ms - self._named_at_ms[key] > GONE_MS_MAX]:
            await self._watches.pop(key).close()
            del self._named_at_ms[key]
            self._answered.pop(key, None)

    def _heard(self) -> None:
        self.on_news()

    def _note_shards(self, found: dict[str, Shard]) -> None:
        now_ms = self._clock.wall_ms()
        for name, one in found.items():
            before = self._shards.get(name)
            if before is not None and before != one:
                self._since_ms[name] = now_ms
                self._event(
                    "moved",
                    shard=name,
                    before=server_of(before.address),
                    after=server_of(one.address),
                    epoch=one.epoch,
                )
        self._shards = found

    def _note_answers(self) -> None:
        for (kind, address), watch in self._watches.items():
            before = self._answered.get((kind, address))
            if watch.answers is None or watch.answers is before:
                continue
            if before is not None or not watch.answers:
                self._event("back" if watch.answers else "away", kind=kind, server=address)
            self._answered[kind, address] = watch.answers

    def _note_drains(self, members: ClusterMembers | None) -> None:
        for one in members.members if members is not None else ():
            key = (one.kind, one.name)
            before = self._draining.get(key, one.is_draining)
            if before is not one.is_draining:
                what = "draining" if one.is_draining else "takes shards"
                self._event(what, kind=one.kind, member=one.name, server=one.address)
            self._draining[key] = one.is_draining

    def _event(self, what: str, **facts: Any) -> None:
        self._event_count += 1
        row = {"number": self._event_count, "at_ms": self._clock.wall_ms(), "what": what}
        self._events.append(row | facts)


def _shards(info: ClusterInfo) -> Iterator[Shard]:
    for number, one in enumerate(info.brokers):
        yield _shard("broker", number, one)
    for one in info.coordinators:
        yield _shard("coordinator", one.tcid or 0, one)


def _shard(kind: str, number: int, member: Member) -> Shard:
    address = ShardAddress.parse(member.address)
    if address is None:
        return Shard(kind, member.name, member.address, None)
    return Shard(kind, f"{kind}-{number}", member.address, address.place.epoch)
