"""Addresses that clients are given: they depend on how the client reaches this broker. Pure.

Members know each other by a single address. A client elsewhere, on the far side of a published port
or a gateway, may reach them by another address: it says how it reached the broker, and gets
addresses of the same kind.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from magnetar_broker.config import BrokerConfig
from magnetar_core.config import InvalidConfig, is_loopback, split_address
from magnetar_core.membership.address_book import AddressBook, MemberAddress, found
from magnetar_core.membership.shard_address import server_of


class AddressesGiven:
    """Addresses of the cluster's servers, as clients are given them.

    Args:
        book: knows where servers are now.
    """

    def __init__(self, config: BrokerConfig, book: AddressBook) -> None:
        self._config = config
        self._book = book

    def brokers(self, reached_at: str) -> list[MemberAddress]:
        """Return all brokers in the order of their shards; `address` is the one for the client."""
        config = self._config
        own = MemberAddress(
            name=config.name, address=config.address, external_address=config.external_address
        )
        known = [own if one.name == config.name else one for one in config.brokers or (own,)]
        return self._given(known, reached_at)

    def coordinators(self, reached_at: str) -> list[MemberAddress]:
        """Return all coordinators; `address` is the one for the client."""
        return self._given(self._config.coordinators, reached_at)

    def _given(self, known: Iterable[MemberAddress], reached_at: str) -> list[MemberAddress]:
        members = found(self._book, known)
        if not _is_outside(self._config, server_of(reached_at)):
            return members
        return [
            replace(member, address=member.external_address or member.address) for member in members
        ]


def _is_outside(config: BrokerConfig, reached_at: str) -> bool:
    """Return whether the client came through the broker's external address.

    127.0.0.1, localhost and ::1 are the same place, so they match each other. If the client used
    the members' own address, it gets that address.
    """
    external = config.external_address
    if not external or not reached_at or reached_at == config.address:
        return False
    if reached_at == external:
        return True
    try:
        host, port = split_address(reached_at)
        external_host, external_port = split_address(external)
    except InvalidConfig:
        return False
    return port == external_port and is_loopback(host) and is_loopback(external_host)
