"""Settings of servers for tests, which give settings and constants alike by their names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

from magnetar_broker.config import BrokerConfig
from magnetar_broker.constants import BrokerConstants
from magnetar_cluster.constants import HostConstants
from magnetar_cluster.host_settings import HostSettings
from magnetar_coordinator.config import CoordinatorConfig
from magnetar_coordinator.constants import CoordinatorConstants

ConfigT = TypeVar("ConfigT")


def broker_config(**values: Any) -> BrokerConfig:
    """Return the settings of a broker."""
    return _made(BrokerConfig, BrokerConstants, values)


def coordinator_config(**values: Any) -> CoordinatorConfig:
    """Return the settings of a coordinator."""
    return _made(CoordinatorConfig, CoordinatorConstants, values)


def host_settings(**values: Any) -> HostSettings:
    """Return the settings of a member that takes and keeps shards."""
    return _made(HostSettings, HostConstants, values)


def _made(
    kind: Callable[..., ConfigT], constants_kind: type[Any], values: dict[str, Any]
) -> ConfigT:
    names = {one.name for one in fields(constants_kind)}
    constants = {name: value for name, value in values.items() if name in names}
    settings = {name: value for name, value in values.items() if name not in names}
    return kind(**settings, constants=constants_kind(**constants))
