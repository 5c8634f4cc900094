"""Settings of a broker that depend on its constants."""

from __future__ import annotations

import pytest

from magnetar_broker.config import BrokerConfig
from magnetar_broker.constants import BrokerConstants
from magnetar_core.config import InvalidConfig
from magnetar_core.process.settings import names_of


def test_a_batch_that_is_accepted_may_be_opened() -> None:
    assert BrokerConfig().batch_body_bytes_max == BrokerConstants().batch_body_bytes_max
    assert BrokerConfig(batch_bytes_max=20 << 20).batch_body_bytes_max == 20 << 20


def test_a_default_timeout_is_never_above_the_longest() -> None:
    config = BrokerConfig(group_session_timeout_ms_max=2_000, group_rebalance_timeout_ms_max=3_000)
    assert config.group_session_timeout_ms_default == 2_000
    assert config.group_rebalance_timeout_ms_default == 3_000
    with pytest.raises(InvalidConfig, match="group_session_timeout_ms_max must be at least 1000"):
        BrokerConfig(group_session_timeout_ms_max=999)


def test_a_file_sets_no_constants_and_nothing_that_the_list_of_members_says() -> None:
    names = names_of(BrokerConfig)
    assert "memory_bytes" in names
    assert not {"constants", "name", "brokers", "membership_version", "cluster_hash"} & set(names)
    assert "tail_bytes_max" not in names
