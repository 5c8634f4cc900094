"""Clients as people see them, and causes of ends that name a client."""

from __future__ import annotations

from magnetar_coordinator.metadata.transaction import Cause, EndCause
from magnetar_core.access.principal import ANONYMOUS
from magnetar_core.server.commands import Reply


def by_hand(reply: Reply) -> Cause:
    """Return the cause of an end by a client that does not work in the transaction."""
    return Cause(EndCause.BY_HAND, _caller(reply))


def taken_over(reply: Reply) -> Cause:
    """Return the cause of an abort by another instance, or by another run."""
    return Cause(EndCause.TAKEN_OVER, _caller(reply))


def host_of(origin: str) -> str:
    """Return a client's machine without the prefix that gRPC gives it: "ipv4:10.0.0.7"."""
    return origin.removeprefix("ipv4:").removeprefix("ipv6:")


def _caller(reply: Reply) -> str:
    """Return who sent a command, such as "magnetar-cli at 10.0.0.7 (alice)"."""
    name = reply.session.client_name if reply.session is not None else ""
    text = f"{name or 'a client'} at {host_of(reply.origin)}"
    return text if reply.principal == ANONYMOUS else f"{text} ({reply.principal.name})"
