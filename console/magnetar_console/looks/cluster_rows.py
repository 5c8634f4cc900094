"""Rows of servers, leases and shards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol, TypeAlias

from magnetar import ClusterMember, ClusterMembers
from magnetar_console.seen import Row
from magnetar_core.membership.shard_address import server_of


class Shard(NamedTuple):
    """A shard, as a broker tells of it.

    Attributes:
        epoch: of the ownership; None: a server that keeps its partitions.
    """

    kind: str
    name: str
    address: str
    epoch: int | None


class Watched(Protocol):
    """Findings about a server; see ServerWatch."""

    answers: bool | None
    since_ms: int
    reason: str
    members: ClusterMembers | None
    told_ms: int


# By kind and address.
Watches: TypeAlias = Mapping[tuple[str, str], Watched]


def server_rows(
    watches: Watches, shards: Iterable[Shard], members: ClusterMembers | None
) -> Iterator[tuple[str, Row]]:
    """Yield the row of each server, and of members that are not alive, by key.

    Args:
        members: None: servers do not tell of members.
    """
    listed = members.members if members is not None else ()
    by_address = {(one.kind, one.address): one for one in listed}
    has: dict[tuple[str, str], list[str]] = {}
    for shard in shards:
        has.setdefault((shard.kind, server_of(shard.address)), []).append(shard.name)
    for key, watch in watches.items():
        kind, address = key
        yield (
            f"{kind}/{address}",
            {
                "kind": kind,
                "address": address,
                "answers": watch.answers,
                "since_ms": watch.since_ms,
                "reason": watch.reason,
                "shards": sorted(has.get(key, ()), key=_number),
                **_of_member(by_address.get(key)),
            },
        )
    for one in listed:
        if not one.address:
            yield (
                f"{one.kind}/{one.name}",
                {
                    "kind": one.kind,
                    "address": one.name,
                    "answers": False,
                    "since_ms": 0,
                    "reason": "it is not alive",
                    "shards": [],
                    **_of_member(one),
                },
            )


def lease_rows(watches: Watches) -> Iterator[tuple[str, Row]]:
    """Yield the lease of each server that has told of one, by its key.

    That of a server that is away stays, and gets older. These rows change all the time, so that
    they are small.
    """
    for (kind, address), watch in watches.items():
        told = watch.members
        if told is not None and told.lease is not None:
            yield (
                f"{kind}/{address}",
                {
                    "server": f"{kind}/{address}",
                    "renewed_ms": watch.told_ms - told.lease.age_ms,
                    "silent_age_ms": told.lease.silent_age_ms,
                    "duration_ms": told.lease.duration_ms,
                },
            )


def shard_rows(
    shards: Iterable[Shard],
    since_ms: Mapping[str, int],
    watches: Watches,
    members: ClusterMembers | None,
) -> Iterator[tuple[str, Row]]:
    """Yield the row of each shard, by its name.

    Args:
        since_ms: when owners changed last, in milliseconds since the Unix epoch; missing: not
            known.
    """
    listed = {one.name: one for one in (members.shards if members is not None else ())}
    for shard in shards:
        server = server_of(shard.address)
        watch = watches.get((shard.kind, server))
        phases = watch.members.phases if watch is not None and watch.members is not None else {}
        told = listed.get(shard.name)
        yield (
            shard.name,
            {
                "name": shard.name,
                "kind": shard.kind,
                "server": server,
                "epoch": shard.epoch,
                "since_ms": since_ms.get(shard.name, 0),
                "phase": phases.get(shard.name, ""),
                "moves_to": told.moves_to if told is not None else "",
                "pinned_to": told.pinned_to if told is not None else "",
            },
        )


def _of_member(one: ClusterMember | None) -> Row:
    """Return the part of a server's row that other members tell."""
    return {
        "member": one.name if one is not None else "",
        "draining": one is not None and one.is_draining,
        "leaving": one is not None and one.is_leaving,
        "refused": list(one.refused) if one is not None else [],
    }


def _number(name: str) -> tuple[int, str]:
    digits = name.rpartition("-")[2]
    return (int(digits) if digits.isdigit() else 0, name)
