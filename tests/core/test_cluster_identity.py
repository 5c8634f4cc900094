"""Identity of a cluster: whom servers admit, and what clients learn."""

from __future__ import annotations

import pytest

from magnetar_core.errors import ClusterMismatch
from magnetar_core.membership.cluster_identity import ClusterIdentity

ONE = ClusterIdentity("orders", 1, "a")
GROWN = ClusterIdentity("orders", 2, "b")
FOREIGN = ClusterIdentity("payments", 2, "c")
ALIKE = ClusterIdentity("orders", 1, "d")
NO_LIST = ClusterIdentity()
SERVER_OF_ONE = ClusterIdentity(cluster_hash="a")
SERVER_OF_GROWN = ClusterIdentity(cluster_hash="b")


@pytest.mark.parametrize(
    ("server", "given"),
    [
        (ONE, NO_LIST),
        (ONE, ONE),
        (GROWN, ONE),
        (ONE, GROWN),
        (ONE, SERVER_OF_ONE),
        (NO_LIST, NO_LIST),
    ],
)
def test_a_client_of_the_same_cluster_is_served(
    server: ClusterIdentity, given: ClusterIdentity
) -> None:
    server.check(given)


@pytest.mark.parametrize(
    ("server", "given"),
    [
        (ONE, FOREIGN),
        (GROWN, FOREIGN),
        # The same version of another content: a mistake, or another cluster without a name.
        (ONE, ALIKE),
        # Servers with different lists would look for partitions in different places.
        (GROWN, SERVER_OF_ONE),
        (ONE, SERVER_OF_GROWN),
        # Who knows a cluster has come to a server that belongs to none.
        (NO_LIST, ONE),
        (ClusterIdentity("", 2, "b"), ClusterIdentity("", 1, "a")),
    ],
)
def test_others_are_refused(server: ClusterIdentity, given: ClusterIdentity) -> None:
    with pytest.raises(ClusterMismatch):
        server.check(given)


def test_a_client_learns_the_first_list_and_later_ones() -> None:
    known = NO_LIST.learned(NO_LIST, "a:1")
    assert known == NO_LIST
    known = known.learned(ONE, "a:1")
    assert known == ONE
    known = known.learned(GROWN, "a:1")
    assert known == GROWN
    # One of the servers has not been started again yet.
    assert known.learned(ONE, "a:2") == GROWN
    assert known.learned(NO_LIST, "a:3") == GROWN
    with pytest.raises(ClusterMismatch, match="a:4 belongs to another cluster"):
        known.learned(FOREIGN, "a:4")
    with pytest.raises(ClusterMismatch):
        ONE.learned(ALIKE, "a:5")
