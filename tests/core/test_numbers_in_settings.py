"""Every number among settings is above 0, unless 0 means something: no field is left out."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import pytest

from magnetar.config import ClientConfig, ConsumerConfig, ProducerConfig
from magnetar_broker.config import BrokerConfig
from magnetar_coordinator.config import CoordinatorConfig
from magnetar_core.config import InvalidConfig, ListenConfig
from magnetar_core.errors import InvalidArgument

# Where 0 is a setting of its own.
MAY_BE_ZERO: dict[Any, set[str]] = {
    BrokerConfig: {"tails_bytes_max", "free_space_floor_bytes"},
    CoordinatorConfig: {"tcid", "free_space_floor_bytes"},
    ListenConfig: {
        "port",
        "stream_port",
        "metrics_port",
        "connections_max",
        "stop_grace_ms",
        "slow_operation_ms",
    },
    ClientConfig: set(),
    ProducerConfig: {"linger_ms"},
    ConsumerConfig: {"ack_linger_ms", "nack_delay_ms"},
}
NUMBERS = [
    pytest.param(kind, field.name, id=f"{kind.__name__}.{field.name}")
    for kind in MAY_BE_ZERO
    for field in fields(kind)
    if field.type in ("int", "float", "int | None", "float | None")
]


@pytest.mark.parametrize(("kind", "name"), NUMBERS)
def test_a_number_is_above_zero(kind: Any, name: str) -> None:
    for wrong in (-1, -math.inf, math.nan):
        with pytest.raises((InvalidConfig, InvalidArgument), match=name):
            kind(**{name: wrong})
    if name in MAY_BE_ZERO[kind]:
        kind(**{name: 0})
    else:
        with pytest.raises((InvalidConfig, InvalidArgument), match=name):
            kind(**{name: 0})


def test_there_are_many() -> None:
    assert len(NUMBERS) > 70
