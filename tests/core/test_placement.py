"""Placement of partitions on shards."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar_core.membership.placement import (
    SERIAL_MAX,
    SHARDS_MAX,
    new_topic_id,
    serial_of,
    shard_of,
)

serials = st.integers(1, SERIAL_MAX)
shard_counts = st.integers(1, SHARDS_MAX)
topics = st.text(min_size=1, max_size=40)


@given(topics, serials)
def test_with_one_shard_the_id_is_the_serial_number(topic: str, serial: int) -> None:
    """Topics of clusters with one broker keep the ids that they have."""
    assert new_topic_id(topic, serial, 1) == serial
    assert shard_of(serial, 7) == 0


@given(topics, serials, shard_counts)
def test_an_id_fits_63_bits_and_tells_its_serial_number(
    topic: str, serial: int, shards: int
) -> None:
    topic_id = new_topic_id(topic, serial, shards)
    assert 0 < topic_id < 1 << 63
    assert serial_of(topic_id) == serial


@given(topics, serials, shard_counts)
def test_partitions_go_round_all_shards(topic: str, serial: int, shards: int) -> None:
    topic_id = new_topic_id(topic, serial, shards)
    round_trip = [shard_of(topic_id, partition) for partition in range(shards)]
    assert sorted(round_trip) == list(range(shards))
    assert shard_of(topic_id, shards) == shard_of(topic_id, 0)


@given(st.integers(0, (1 << 64) - 1), st.integers(0, (1 << 32) - 1))
def test_an_invented_id_still_names_a_shard(topic_id: int, partition: int) -> None:
    assert 0 <= shard_of(topic_id, partition) < SHARDS_MAX


def test_the_first_partitions_of_many_topics_spread() -> None:
    first = Counter(shard_of(new_topic_id(f"orders-{n}", n, 4), 0) for n in range(1, 401))
    assert set(first) == {0, 1, 2, 3}
    assert max(first.values()) < 2 * min(first.values())


def test_the_placement_of_a_name_never_changes() -> None:
    """Data lies where these numbers say: another function would look for it elsewhere."""
    assert new_topic_id("orders", 5, 4) == 3 << 51 | 2 << 40 | 5
    assert new_topic_id("payments", 1, 3) == 2 << 51 | 1 << 40 | 1


@pytest.mark.parametrize(("serial", "shards"), [(0, 1), (SERIAL_MAX + 1, 1), (1, 0), (1, 2049)])
def test_what_does_not_fit_is_refused(serial: int, shards: int) -> None:
    with pytest.raises(ValueError, match=r"serial|shards"):
        new_topic_id("orders", serial, shards)
