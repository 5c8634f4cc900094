"""One cluster uses an address in an object store; a second one is refused, and hears of the first.

Source: docs/object_store.md, What it needs.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.storage.slate_stores import directory_of, place_in_bucket

from magnetar_core.config import InvalidConfig
from magnetar_storage.object_store.cluster_stamp import ClusterStamp, cluster_at, take_address
from magnetar_storage.object_store.shared_prefix import CLUSTER_STAMP
from magnetar_storage.object_store.url import ObjectStoreUrl

FIRST = ClusterStamp(cluster_id="orders", token="1f", etcd="10.0.0.1:2379")
MOVED = ClusterStamp(cluster_id="orders", token="1f", etcd="10.0.0.9:2379")
LISTED = ClusterStamp(cluster_id="orders")


def take(prefix: ObjectStoreUrl, cluster: ClusterStamp | None) -> None:
    asyncio.run(take_address(prefix, cluster))


@pytest.mark.parametrize("place", ["directory", "s3"])
def test_the_second_cluster_is_refused_and_the_first_goes_on(
    place: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    prefix = directory_of(tmp_path) if place == "directory" else place_in_bucket(request)
    take(prefix, FIRST)
    others = (
        ClusterStamp(cluster_id="orders", token="2e", etcd="10.0.0.2:2379"),
        ClusterStamp(cluster_id="invoices", token="1f", etcd="10.0.0.1:2379"),
        LISTED,
        None,
    )
    for other in others:
        with pytest.raises(InvalidConfig) as refused:
            take(prefix, other)
        assert (
            f"{prefix} belongs to the cluster 'orders' of etcd at 10.0.0.1:2379 (number 1f);"
            in str(refused.value)
        )
        assert (str(other) if other else "no cluster") in str(refused.value)
        assert CLUSTER_STAMP in str(refused.value), "what to do if the first one is gone"
    # Its etcd may have other members by now.
    take(prefix, MOVED)
    assert asyncio.run(cluster_at(prefix)) == FIRST


def test_a_cluster_without_etcd_is_known_by_its_id(tmp_path: Path) -> None:
    prefix = directory_of(tmp_path)
    # Servers without a list of members say nothing of a cluster.
    take(prefix, None)
    assert asyncio.run(cluster_at(prefix)) is None
    take(prefix, LISTED)
    take(prefix, LISTED)
    with pytest.raises(InvalidConfig, match="belongs to the cluster 'orders', without etcd;"):
        take(prefix, FIRST)


def test_of_clusters_that_come_at_once_one_has_the_address(tmp_path: Path) -> None:
    prefix = directory_of(tmp_path)
    clusters = [ClusterStamp(cluster_id=f"cluster-{number}") for number in range(8)]

    async def scenario() -> None:
        outcomes = await asyncio.gather(
            *(take_address(prefix, cluster) for cluster in clusters), return_exceptions=True
        )
        found = await cluster_at(prefix)
        assert found is not None
        assert [one for one, outcome in zip(clusters, outcomes, strict=True) if not outcome] == [
            found
        ]
        for outcome in filter(None, outcomes):
            assert f"belongs to the cluster '{found.cluster_id}'" in str(outcome)

    asyncio.run(scenario())


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"cluster_id": "a", "more": 1}'])
def test_a_stamp_that_cannot_be_read_is_refused(tmp_path: Path, content: bytes) -> None:
    prefix = directory_of(tmp_path)
    stamp = Path(prefix.directory, CLUSTER_STAMP)
    stamp.parent.mkdir()
    stamp.write_bytes(content)
    with pytest.raises(InvalidConfig, match="put back the object as it was"):
        take(prefix, FIRST)
    assert stamp.read_bytes() == content
