"""Which addresses a client is given: it depends on how the client reaches this broker. Pure.

Members know each other by one address. A client elsewhere, on the far side of a published port or a
gateway, may reach them by another: it says how it reached the broker, and is answered in kind.
"""

from __future__ import annotations

from collections.abc import Callable

from magnetar_broker.config import BrokerConfig, MemberAddress
from magnetar_core.config import InvalidConfig, is_loopback, split_address


def broker_address(config: BrokerConfig, reached_at: str) -> str:
    """Where the caller reaches this broker, as it shall write it from now on."""
    if _is_outside(config, reached_at):
        return config.external_address
    return config.address


def coordinator_address(config: BrokerConfig, reached_at: str) -> Callable[[MemberAddress], str]:
    """How to tell a coordinator's address to the caller."""
    if not _is_outside(config, reached_at):
        return lambda one: one.address
    return lambda one: one.external_address or one.address


def _is_outside(config: BrokerConfig, reached_at: str) -> bool:
    """Whether the caller came through the broker's external address.

    127.0.0.1, localhost and ::1 are the same place, so they match each other. Where the members'
    own address is the one that was used, that is the answer.
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
