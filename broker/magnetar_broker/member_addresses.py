"""Addresses that clients are given: they depend on how the client reaches this broker. Pure.

Members know each other by a single address. A client elsewhere, on the far side of a published port
or a gateway, may reach them by another address: it says how it reached the broker, and gets
addresses of the same kind.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from magnetar_broker.config import BrokerConfig
from magnetar_core.address_book import MemberAddress
from magnetar_core.config import InvalidConfig, is_loopback, split_address


def broker_address(config: BrokerConfig, reached_at: str) -> str:
    """Return the address at which the client shall reach this broker from now on."""
    if _is_outside(config, reached_at):
        return config.external_address
    return config.address


def brokers_as_reached(config: BrokerConfig, reached_at: str) -> list[MemberAddress]:
    """Return all brokers in the order of their shards; `address` is the one for the client."""
    own = MemberAddress(name=config.name, address=broker_address(config, reached_at))
    address_of = other_address(config, reached_at)
    return [
        own if one.name == config.name else replace(one, address=address_of(one))
        for one in config.brokers or (own,)
    ]


def other_address(config: BrokerConfig, reached_at: str) -> Callable[[MemberAddress], str]:
    """Return a function that chooses another server's address for the client."""
    if not _is_outside(config, reached_at):
        return lambda one: one.address
    return lambda one: one.external_address or one.address


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
