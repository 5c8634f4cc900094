"""Whose store it is: a row that is compared at each start, before anything else is read."""

from __future__ import annotations

from magnetar_core.config import InvalidConfig
from magnetar_core.errors import ClusterMismatch
from magnetar_core.wire.record_pb2 import StoreIdentity
from magnetar_storage.store import Store

# Raised when an older version could not read what this one writes.
FORMAT = 1
KEY = b"identity"


async def check_store_identity(
    store: Store,
    family: str,
    *,
    kind: str,
    member: str,
    membership_version: int,
    cluster_hash: str,
) -> bytes | None:
    """Hold the store against who opens it.

    Args:
        family: where the row lies, under KEY.
        cluster_hash: of the members; empty: not compared, and the store keeps the one it has.
    Returns:
        The row to write before the store is used, or None when it has it.
    Raises:
        InvalidConfig: it was written by a later version, or belongs to another server.
        ClusterMismatch: it belongs to another cluster, or to a later list of members.
        StoreFailed: it cannot be read.
    """
    row = await store.get(family, KEY)
    stored = StoreIdentity.FromString(row) if row is not None else None
    if stored is not None:
        if stored.format > FORMAT:
            raise InvalidConfig(
                f"this data directory has format {stored.format}, and this version reads up to"
                f" {FORMAT}; start the version that wrote it, or a later one"
            )
        if (stored.kind, stored.member) != (kind, member):
            raise InvalidConfig(
                f"this data directory belongs to the {stored.kind} {stored.member!r}, not to the"
                f" {kind} {member!r}; give each server a directory of its own"
            )
        _check_cluster(stored, membership_version, cluster_hash)
    identity = StoreIdentity(format=FORMAT, kind=kind, member=member)
    if cluster_hash:
        identity.membership_version = membership_version
        identity.cluster_hash = cluster_hash
    elif stored is not None:
        identity.membership_version = stored.membership_version
        identity.cluster_hash = stored.cluster_hash
    if stored is not None:
        identity.losses = stored.losses
    written = identity.SerializeToString(deterministic=True)
    return None if written == row else written


async def accepted_losses(store: Store, family: str) -> int:
    """How often somebody decided to go on without what the store had lost."""
    row = await store.get(family, KEY)
    return StoreIdentity.FromString(row).losses if row is not None else 0


def _check_cluster(stored: StoreIdentity, version: int, cluster_hash: str) -> None:
    if not cluster_hash or not stored.cluster_hash or cluster_hash == stored.cluster_hash:
        return
    if stored.membership_version >= version:
        raise ClusterMismatch(
            f"this data directory was last used with version {stored.membership_version} of the"
            f" members and another content, not with version {version} as it is now; raise the"
            " version when the members change"
        )
