"""Addresses of shards in a view. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

from magnetar_cluster.directory.view import KINDS, MemberName, ShardName, View
from magnetar_core.membership.placement import SHARDS_MAX
from magnetar_core.membership.shard_address import ShardAddress, ShardPlace

_NAME = re.compile(rf"({'|'.join(KINDS)})-(0|[1-9]\d{{0,3}})", re.ASCII)


class Whereabouts(NamedTuple):
    """Addresses of a shard; one that names no server means that the shard has no owner.

    Attributes:
        kafka_address, kafka_external_address: of its owner's port for Kafka's clients.
    """

    address: ShardAddress
    external_address: ShardAddress | None
    kafka_address: str = ""
    kafka_external_address: str = ""

    @property
    def is_known(self) -> bool:
        """Whether the shard has an owner."""
        return bool(self.address.server)


def shard_named(name: str) -> ShardName | None:
    """Return the shard with this name, such as broker-3; None for any other name."""
    found = _NAME.fullmatch(name)
    if found is None or int(found[2]) >= SHARDS_MAX:
        return None
    return ShardName(found[1], int(found[2]))


def where_is(view: View, shard: ShardName) -> Whereabouts:
    """Return where a shard is."""
    owner = view.shard_owners.get(shard)
    member = view.members.get(MemberName(shard.kind, owner.member)) if owner else None
    if owner is None or member is None:
        return Whereabouts(ShardAddress("", ShardPlace(shard.number, 0)), None)
    place = ShardPlace(shard.number, owner.epoch)
    external = member.external_address
    return Whereabouts(
        ShardAddress(member.address, place),
        ShardAddress(external, place) if external else None,
        member.kafka_address,
        member.kafka_external_address,
    )
