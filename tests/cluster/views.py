"""Views that tests write by hand."""

from __future__ import annotations

from magnetar_cluster.directory.view import Member, MemberName, ShardName, ShardOwner, View

MEMBERS = {
    MemberName("broker", "a"): Member(address="a:6650", external_address="out:16650"),
    MemberName("broker", "b"): Member(address="b:6650"),
    MemberName("coordinator", "a"): Member(address="a:6651"),
}


def view(revision: int, /, **owners: tuple[str, int]) -> View:
    """A view with these owners, as broker_3=("a", 17)."""
    return View(
        revision=revision,
        members=MEMBERS,
        shard_owners={_shard(name): ShardOwner(*owner) for name, owner in owners.items()},
    )


def _shard(name: str) -> ShardName:
    kind, _, number = name.rpartition("_")
    return ShardName(kind, int(number))
