"""Identity of a cluster in handshakes: its id, and version and hash of its list. Pure.

Servers with different lists refuse each other: they would look for partitions in different places.
A client that knew an earlier list goes on with the new one. It keeps no list of its own, so that a
cluster grows without a restart of its clients.
Source: docs/design/0008-cluster.md, Clients.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from magnetar_core.errors import ClusterMismatch


class Named(Protocol):
    """Fields of a handshake that say to which cluster its sender belongs."""

    @property
    def cluster_id(self) -> str:
        """The id in the list of members; empty: the sender is a server, or does not know it."""

    @property
    def membership_version(self) -> int:
        """The version of the list."""

    @property
    def cluster_hash(self) -> str:
        """The hash of the list; empty: the sender does not know its cluster, or has no list."""


class ClusterIdentity(NamedTuple):
    """Identity of a cluster, as a server has it from its list, or a client from its servers."""

    cluster_id: str = ""
    membership_version: int = 0
    cluster_hash: str = ""

    @classmethod
    def of(cls, named: Named) -> ClusterIdentity:
        """Return the identity that a handshake or a configuration names."""
        return cls(named.cluster_id, named.membership_version, named.cluster_hash)

    def admits(self, other: ClusterIdentity) -> bool:
        """Return whether both are the same cluster: with the same list, or an earlier or later one.

        Two lists of the same version that differ are two clusters, or a mistake.
        """
        if not self.cluster_hash or not other.cluster_hash:
            return True
        if self.cluster_hash == other.cluster_hash:
            return True
        is_same_cluster = bool(self.cluster_id) and self.cluster_id == other.cluster_id
        return is_same_cluster and self.membership_version != other.membership_version

    def check(self, given: ClusterIdentity) -> None:
        """Check at a server that the sender of a handshake knows this cluster, or none yet.

        Raises:
            ClusterMismatch: it knows another cluster; or it is a server, and has another list.
        """
        if given.cluster_hash and (not self.cluster_hash or not self.admits(given)):
            raise ClusterMismatch(expected=self.cluster_hash, given=given.cluster_hash)

    def learned(self, told: ClusterIdentity, address: str) -> ClusterIdentity:
        """Return a client's knowledge of the cluster after a server has told its identity.

        Raises:
            ClusterMismatch: the server belongs to another cluster.
        """
        if not self.admits(told):
            raise ClusterMismatch(f"{address} belongs to another cluster than the first server")
        if not self.cluster_hash or told.membership_version > self.membership_version:
            return told if told.cluster_hash else self
        return self
