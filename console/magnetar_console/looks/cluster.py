"""Members and shards, and which servers answer."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from magnetar import Client, ClusterInfo, MagnetarError
from magnetar.link.members import BROKER, COORDINATOR, Member
from magnetar_console.looks.server_watch import ServerWatch
from magnetar_console.seen import Row, Seen
from magnetar_core.clock import Clock
from magnetar_core.membership.shard_address import ShardAddress, server_of
from magnetar_core.transport.transport import Transport

EVENTS_MAX: Final = 50
# A server that no shard names stays on the page for so long.
GONE_MS_MAX: Final = 10 * 60_000
SERVERS_MAX: Final = 200


class _Shard(NamedTuple):
    """A shard, as a broker tells of it; without epochs, a server that keeps its partitions."""

    kind: str
    name: str
    address: str
    epoch: int | None


class ClusterLook:
    """Asks a broker where the shards are, and watches each server that has some."""

    def __init__(self, new_transport: Callable[[], Transport], clock: Clock) -> None:
        self.period_s = 1.0
        self._new_transport = new_transport
        self._clock = clock
        self._transport: Transport | None = None
        self._watches: dict[tuple[str, str], ServerWatch] = {}
        self._info: ClusterInfo | None = None
        self._named_at_ms: dict[tuple[str, str], int] = {}
        self._shards: dict[str, _Shard] = {}
        self._since_ms: dict[str, int] = {}
        self._events: deque[Row] = deque(maxlen=EVENTS_MAX)
        self._event_count = 0
        self._answered: dict[tuple[str, str], bool] = {}

    async def look(self, client: Client) -> Seen:
        """Ask a broker; where none answers, tell what the watches of the servers say."""
        problems: tuple[str, ...] = ()
        try:
            self._info = await client.admin.cluster_info()
        except MagnetarError as error:
            if self._info is None:
                raise
            problems = (f"No broker tells where the shards are: {error}",)
        info = self._info
        self._note_shards({one.name: one for one in _shards(info)})
        await self._watch_servers()
        self._note_answers()
        cluster: Row = {
            "id": info.cluster_id,
            "version": info.server_version,
            "membership_version": info.membership_version,
            "moves": any(one.epoch is not None for one in self._shards.values()),
        }
        return Seen(
            {
                "cluster": {"it": cluster},
                "servers": {"/".join(key): self._server(key) for key in self._watches},
                "shards": {name: self._shard(one) for name, one in self._shards.items()},
                "events": {str(one["number"]): one for one in self._events},
            },
            problems,
        )

    async def close(self) -> None:
        """Stop watching the servers."""
        watches, self._watches = self._watches, {}
        transport, self._transport = self._transport, None
        await asyncio.gather(*(one.close() for one in watches.values()))
        if transport is not None:
            await transport.close()

    async def _watch_servers(self) -> None:
        if self._transport is None:
            self._transport = self._new_transport()
        now_ms = self._clock.wall_ms()
        for one in self._shards.values():
            server = server_of(one.address)
            if not server:
                continue
            key = (one.kind, server)
            self._named_at_ms[key] = now_ms
            if key not in self._watches and len(self._watches) < SERVERS_MAX:
                service = BROKER if one.kind == "broker" else COORDINATOR
                self._watches[key] = ServerWatch(self._transport, server, service, self._clock)
        for key in [key for key in self._watches if now_ms - self._named_at_ms[key] > GONE_MS_MAX]:
            await self._watches.pop(key).close()
            del self._named_at_ms[key]
            self._answered.pop(key, None)

    def _note_shards(self, found: dict[str, _Shard]) -> None:
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

    def _event(self, what: str, **facts: Any) -> None:
        self._event_count += 1
        row = {"number": self._event_count, "at_ms": self._clock.wall_ms(), "what": what}
        self._events.append(row | facts)

    def _server(self, key: tuple[str, str]) -> Row:
        kind, address = key
        watch = self._watches[key]
        shards = [
            one.name
            for one in self._shards.values()
            if (one.kind, server_of(one.address)) == (kind, address)
        ]
        return {
            "kind": kind,
            "address": address,
            "answers": watch.answers,
            "since_ms": watch.since_ms,
            "reason": watch.reason,
            "shards": sorted(shards, key=_number),
        }

    def _shard(self, one: _Shard) -> Row:
        return {
            "name": one.name,
            "kind": one.kind,
            "server": server_of(one.address),
            "epoch": one.epoch,
            "since_ms": self._since_ms.get(one.name, 0),
        }


def _number(name: str) -> tuple[int, str]:
    digits = name.rpartition("-")[2]
    return (int(digits) if digits.isdigit() else 0, name)


def _shards(info: ClusterInfo) -> Iterator[_Shard]:
    for number, one in enumerate(info.brokers):
        yield _shard("broker", number, one)
    for one in info.coordinators:
        yield _shard("coordinator", one.tcid or 0, one)


def _shard(kind: str, number: int, member: Member) -> _Shard:
    address = ShardAddress.parse(member.address)
    if address is None:
        return _Shard(kind, member.name, member.address, None)
    return _Shard(kind, f"{kind}-{number}", member.address, address.place.epoch)
