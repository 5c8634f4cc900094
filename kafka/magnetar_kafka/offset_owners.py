"""Owners of partitions, as the coordinator of a group asks them about the group's offsets.

A partition of this process is asked at once, others by a link to the broker that has them. The
command carries the group's generation, and the owner compares it: a copy that arrives late is
refused there once a later generation has come.
Source: docs/design/0033-kafka-groups-over-brokers.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from random import Random
from types import MappingProxyType
from typing import Any, Self

from magnetar_broker.dispatch.committed_offset import CommittedOffset
from magnetar_core.errors import LogUnavailable, MagnetarError, from_wire
from magnetar_core.ids import PartitionName
from magnetar_core.link.broker_link import BROKER
from magnetar_core.link.link_settings import LinkSettings
from magnetar_core.membership.address_book import MemberAddress
from magnetar_core.membership.placement import shard_of
from magnetar_core.transport.transport import Transport
from magnetar_core.wire import group_pb2 as wire
from magnetar_kafka.server_link import ServerLink
from magnetar_kafka.shards import Shard, Shards, shard_of_group

# The requests behind it on the client's connection wait so long, its heartbeats among them: less
# than the shortest session.
ANSWER_DEADLINE_S = 3.0
_CALL_TOKEN_BITS = 64

Command = wire.CommandCommitOffsets | wire.CommandFetchOffsets | wire.CommandForgetOffsets


class BrokerLinks:
    """Links to the brokers of the cluster, one for each shard.

    Args:
        links: by the number of the shard; none: this process has all shards.
    """

    def __init__(self, links: Mapping[int, ServerLink] = MappingProxyType({})) -> None:
        self._links = links

    @classmethod
    def of(
        cls,
        members: Iterable[MemberAddress],
        transport: Transport,
        settings: LinkSettings,
        random: Random,
        *,
        own: int | None = None,
    ) -> Self:
        """Return links to brokers in the order of their shards.

        Args:
            own: the shard of this process, to which there is no link; None: its shards move.
        """
        return cls(
            {
                shard: ServerLink(
                    one, transport, settings, random, service=BROKER, title=f"broker {one.name}"
                )
                for shard, one in enumerate(members)
                if shard != own
            }
        )

    def start(self) -> None:
        """Begin to connect."""
        for one in self._links.values():
            one.start()

    async def close(self) -> None:
        """End all links."""
        for one in self._links.values():
            await one.close()

    async def ask(self, shard: int, command: Command | wire.CommandDescribeGroupMembers) -> Any:
        """Return a broker's answer.

        Raises:
            MagnetarError: as ServerLink.ask.
        """
        link = self._links.get(shard)
        if link is None:
            raise LogUnavailable(f"no broker has shard {shard} at the moment: ask again")
        return await link.ask(command, ANSWER_DEADLINE_S)


@dataclass(slots=True)
class Found:
    """Outcomes for partitions.

    Attributes:
        outcomes: by partition.
        errors: of the partitions that refused, or whose owner did not answer.
        away: shards that did not answer about all of their partitions, with the reason.
        shards: those of this process that have answered: what they say rests on them.
    """

    outcomes: dict[PartitionName, wire.OffsetOutcome] = field(default_factory=dict)
    errors: dict[PartitionName, MagnetarError] = field(default_factory=dict)
    away: dict[int, MagnetarError] = field(default_factory=dict)
    shards: list[Shard] = field(default_factory=list)

    def check(self) -> None:
        """Check that all have succeeded. Raises: MagnetarError: the first that has not."""
        for error in (*self.errors.values(), *self.away.values()):
            raise error


class OffsetOwners:
    """The owners of all partitions of the cluster."""

    def __init__(self, shards: Shards, brokers: BrokerLinks, random: Random) -> None:
        self._shards = shards
        self._brokers = brokers
        self._random = random

    async def commit(
        self, group: str, generation: int, offsets: Mapping[PartitionName, CommittedOffset]
    ) -> Found:
        """Commit offsets of a group, outside of transactions.

        Args:
            generation: the group's; owners that know a later one refuse.
        """
        commands: dict[int, Command] = {}
        for shard, names in self._by_shard(offsets).items():
            rows = [
                wire.PartitionOffset(partition=one.to_wire(), offset=offsets[one].row())
                for one in names
            ]
            commands[shard] = wire.CommandCommitOffsets(
                group=group, generation=generation, offsets=rows
            )
        return await self._ask(commands)

    async def fetch(self, group: str, generation: int, names: Iterable[PartitionName]) -> Found:
        """Return offsets of a group; owners refuse earlier generations from then on.

        Args:
            generation: 0: they refuse nothing because of this.
        """
        return await self._ask(
            {
                shard: wire.CommandFetchOffsets(
                    group=group, generation=generation, partitions=[one.to_wire() for one in some]
                )
                for shard, some in self._by_shard(names).items()
            }
        )

    async def fetch_all(self, group: str) -> Found:
        """Return all offsets that a group has."""
        command = wire.CommandFetchOffsets(group=group, of_all=True)
        return await self._ask(dict.fromkeys(range(self._shard_count), command))

    async def forget(self, group: str, names: Iterable[PartitionName]) -> Found:
        """Delete offsets of a group."""
        return await self._ask(
            {
                shard: wire.CommandForgetOffsets(
                    group=group,
                    partitions=[one.to_wire() for one in some],
                    call_token=self._call_token(),
                )
                for shard, some in self._by_shard(names).items()
            }
        )

    async def forget_all(self, group: str, *, expired: bool = False) -> Found:
        """Delete all offsets of a group.

        Args:
            expired: subscriptions that anything else has used stay.
        """
        return await self._ask(
            {
                shard: wire.CommandForgetOffsets(
                    group=group, of_all=True, expired=expired, call_token=self._call_token()
                )
                for shard in range(self._shard_count)
            }
        )

    # Members

    async def has_members_of_ours(self, group: str) -> bool:
        """Return whether a group has members of ours at a broker that answers.

        One that does not answer refuses commits as long as it has such members.
        """
        shards = range(self._shard_count)
        if any(one.access.has_members_of_ours(group) for one in self._shards.all()):
            return True
        command = wire.CommandDescribeGroupMembers(group=group)
        answers = await asyncio.gather(
            *(self._brokers.ask(one, command) for one in shards if not self._shards.numbered(one)),
            return_exceptions=True,
        )
        return any(not isinstance(one, BaseException) and one.members for one in answers)

    async def kafka_members(self, group: str) -> int:
        """Return how many clients of Kafka are members of a group.

        Raises:
            LogUnavailable: its coordinator is away.
        """
        command = wire.CommandDescribeGroupMembers(group=group)
        number = shard_of_group(group, max(1, self._shard_count))
        shard = self._shards.numbered(number)
        if shard is not None:
            answer = await shard.access.ask("describe_group_members", command, origin="")
        else:
            answer = await self._brokers.ask(number, command)
        return int(answer.kafka_members)

    @property
    def _shard_count(self) -> int:
        directory = self._shards.directory()
        return directory.access.shards if directory is not None else 0

    def _call_token(self) -> int:
        return self._random.getrandbits(_CALL_TOKEN_BITS)

    def _by_shard(self, names: Iterable[PartitionName]) -> dict[int, list[PartitionName]]:
        found: dict[int, list[PartitionName]] = {}
        for one in names:
            found.setdefault(shard_of(one.topic_id, one.partition), []).append(one)
        return found

    async def _ask(self, commands: Mapping[int, Command]) -> Found:
        """Ask owners, all at once; those of this process without waiting."""
        found = Found()
        elsewhere: dict[int, Command] = {}
        for number, command in commands.items():
            shard = self._shards.numbered(number)
            if shard is None:
                elsewhere[number] = command
                continue
            found.shards.append(shard)
            _take(found, _answered_by(shard, command).outcomes)
        answers = await asyncio.gather(
            *(self._brokers.ask(number, command) for number, command in elsewhere.items()),
            return_exceptions=True,
        )
        for (number, command), answer in zip(elsewhere.items(), answers, strict=True):
            if not isinstance(answer, BaseException):
                _take(found, answer.outcomes)
            elif not isinstance(answer, MagnetarError):
                raise answer
            else:
                names = _names_of(command)
                found.errors.update(dict.fromkeys(names, answer))
                if not names:
                    found.away[number] = answer
        return found


def _answered_by(shard: Shard, command: Command) -> Any:
    """Return the answer of a shard of this process."""
    offsets = shard.access.offsets
    if isinstance(command, wire.CommandCommitOffsets):
        return offsets.commit_all(command)
    if isinstance(command, wire.CommandFetchOffsets):
        return offsets.fetch_all(command)
    return offsets.forget_all(command)


def _names_of(command: Command) -> list[PartitionName]:
    """Return the partitions that a command names; empty: it is about all."""
    if isinstance(command, wire.CommandCommitOffsets):
        return [PartitionName.from_wire(one.partition) for one in command.offsets]
    return [PartitionName.from_wire(one) for one in command.partitions]


def _take(found: Found, outcomes: Iterable[wire.OffsetOutcome]) -> None:
    for one in outcomes:
        name = PartitionName.from_wire(one.partition)
        if one.HasField("error"):
            found.errors[name] = from_wire(one.error)
        else:
            found.outcomes[name] = one
