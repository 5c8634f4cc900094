"""Objects that only commands print, with `--json`."""

from __future__ import annotations

from typing import TypedDict

from magnetar.admin.topic_descriptions import SubscriptionDescription
from magnetar_core.access.quotas import Quotas


class SubscriptionOfPartition(TypedDict):
    """A subscription of a partition."""

    partition: int
    subscription: SubscriptionDescription


class ContextRow(TypedDict):
    """A context: a cluster with a name.

    Attributes:
        is_current: whether commands talk to it, unless told otherwise.
        broker: the addresses of its brokers.
    """

    name: str
    is_current: bool
    broker: str
    tls: str | None
    tls_ca_file: str | None
    tls_certificate_file: str | None
    tls_key_file: str | None
    tls_server_name: str | None
    token_file: str | None


class PrincipalRoles(TypedDict):
    """Roles of the principals that a pattern of an access file means."""

    principal: str
    roles: list[str]


class ShownGrant(TypedDict):
    """Rights to the resources of a kind whose names fit a pattern.

    Attributes:
        resource: the kind.
        name: the pattern.
    """

    resource: str
    name: str
    operations: list[str]


class PrincipalRights(TypedDict):
    """Rights of a principal."""

    principal: str
    roles: list[str]
    grants: list[ShownGrant]
    quotas: Quotas
