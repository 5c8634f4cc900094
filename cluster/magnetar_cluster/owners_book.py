"""Addresses of shards that change their owner, as an address book."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from magnetar_cluster.directory.view import View
from magnetar_cluster.directory.whereabouts import shard_named, where_is
from magnetar_core.membership.address_book import MemberAddress


class OwnersBook:
    """An AddressBook of owners.

    Args:
        view: returns the latest view.
    """

    def __init__(self, view: Callable[[], View]) -> None:
        self._view = view

    def find(self, member: MemberAddress) -> MemberAddress:
        """Return a shard with the addresses of its present owner; other names stay as they are."""
        shard = shard_named(member.name)
        if shard is None:
            return member
        where = where_is(self._view(), shard)
        external = where.external_address
        return replace(
            member,
            address=str(where.address),
            external_address=str(external) if external is not None else "",
            kafka_address=where.kafka_address,
            kafka_external_address=where.kafka_external_address,
        )
