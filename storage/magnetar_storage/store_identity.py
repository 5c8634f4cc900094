"""Identity of a store: a row with its owner, which each start compares first."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar_core.config import InvalidConfig
from magnetar_core.errors import ClusterMismatch
from magnetar_core.wire.record_pb2 import StoreIdentity
from magnetar_storage.store import Store

# This number increases when an older version cannot read the rows of this version.
FORMAT = 2
KEY = b"identity"
# Both servers keep it there.
IDENTITY_FAMILY = "meta"
# More losses than a store that is lost can have had: their number is not known.
LOSSES_OF_EVERYTHING = 1_000
# Of a ledger id: how many losses there may be between two restores.
_LOSS_BITS = 16


async def check_store_identity(
    store: Store,
    family: str,
    *,
    kind: str,
    member: str,
    membership_version: int,
    cluster_hash: str,
    brokers: Sequence[str] = (),
) -> bytes | None:
    """Compare the store's identity with the server that opens it.

    Args:
        family: the family of the row, whose key is KEY.
        cluster_hash: hash of the list of members; empty: not compared, and the store keeps its
            hash.
        brokers: names of the brokers in the order of the list; empty without a list.
    Returns:
        The row to write before the store is used; None when the store has it already.
    Raises:
        InvalidConfig: a later version wrote the store, it belongs to another server, or the list
            has lost or moved a broker.
        ClusterMismatch: it belongs to another cluster, or to a later list of members.
        StoreFailed: it cannot be read.
    """
    row = await store.get(family, KEY)
    stored = StoreIdentity.FromString(row) if row is not None else None
    if kind == "broker" and not brokers:
        brokers = (member,)
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
        # Empty: a store that a person made in place of a lost one.
        known = tuple(stored.brokers)
        _check_brokers(known, brokers)
        _check_cluster(stored, membership_version, cluster_hash)
        brokers = brokers or known
    identity = StoreIdentity(format=FORMAT, kind=kind, member=member, brokers=brokers)
    if cluster_hash:
        identity.membership_version = membership_version
        identity.cluster_hash = cluster_hash
    elif stored is not None:
        identity.membership_version = stored.membership_version
        identity.cluster_hash = stored.cluster_hash
    if stored is not None:
        identity.losses = stored.losses
        identity.restored_at_s = stored.restored_at_s
        identity.lost_tails = stored.lost_tails
    written = identity.SerializeToString(deterministic=True)
    return None if written == row else written


async def accepted_losses(store: Store, family: str) -> int:
    """Return how often a person decided to continue without lost data."""
    return (await _stored(store, family)).losses


async def all_losses(store: Store, family: str) -> int:
    """Return how often data was lost: by what a person accepted, or with a machine."""
    return _losses_of(await _stored(store, family))


async def ledger_of(store: Store, family: str) -> int:
    """Return the ledger id: higher after each loss, and after each restore."""
    return ledger_of_row(await store.get(family, KEY))


def ledger_of_row(row: bytes | None) -> int:
    """Return the ledger id that an identity makes; None: the store has none yet."""
    identity = StoreIdentity.FromString(row or b"")
    return ledger_after_restore(identity.restored_at_s) + _losses_of(identity)


def ledger_after_restore(restored_at_s: int) -> int:
    """Return the first ledger id of a store that was restored then; 0: that never was."""
    return 1 + (restored_at_s << _LOSS_BITS)


def with_losses_above(row: bytes, losses: int, ledger_id: int) -> bytes:
    """Return the identity of a store that has lost something, and may be an older copy.

    Args:
        losses: how many losses a person has accepted.
        ledger_id: the highest one that was in use: of other losses, or of a restore, that the copy
            does not know.
    """
    row = with_losses(row, losses, 0)
    identity = StoreIdentity.FromString(row)
    if identity.restored_at_s < ledger_id >> _LOSS_BITS:
        identity.restored_at_s = (ledger_id >> _LOSS_BITS) + 1
    else:
        identity.losses += max(0, ledger_id + 1 - ledger_of_row(row))
    return identity.SerializeToString(deterministic=True)


def with_losses(row: bytes, losses: int, lost_tails: int) -> bytes:
    """Return the identity of a store that has lost something.

    Args:
        losses: how many losses a person has accepted.
        lost_tails: how many times a machine went down, and took what was not synced.
    """
    identity = StoreIdentity.FromString(row)
    identity.losses += losses
    identity.lost_tails += lost_tails
    return identity.SerializeToString(deterministic=True)


async def _stored(store: Store, family: str) -> StoreIdentity:
    """Return the identity of a store; an empty one if it has none yet."""
    row = await store.get(family, KEY)
    return StoreIdentity.FromString(row) if row is not None else StoreIdentity()


def _losses_of(identity: StoreIdentity) -> int:
    return identity.losses + identity.lost_tails


def _check_brokers(known: Sequence[str], brokers: Sequence[str]) -> None:
    """Check that a broker has the place that it had, for its partitions lie on its disk.

    Source: docs/design/0008-cluster.md, Placement.
    """
    if not brokers and len(known) < 2:
        return
    for position, name in enumerate(known):
        if position < len(brokers) and brokers[position] == name:
            continue
        found = f"it has {', '.join(brokers)}" if brokers else "there is none"
        change = "moved" if name in brokers else "lost"
        raise InvalidConfig(
            f"this data directory was last used with the brokers {', '.join(known)}, and the list"
            f" of members has {change} {name} ({found}); partitions lie on the disk of {name}: put"
            f" it back as broker number {position + 1} of the list, and new brokers at the end"
        )


def _check_cluster(stored: StoreIdentity, version: int, cluster_hash: str) -> None:
    if not cluster_hash or not stored.cluster_hash or cluster_hash == stored.cluster_hash:
        return
    if stored.membership_version >= version:
        raise ClusterMismatch(
            f"this data directory was last used with version {stored.membership_version} of the"
            f" members and another content, not with version {version} as it is now; raise the"
            " version when the members change"
        )
