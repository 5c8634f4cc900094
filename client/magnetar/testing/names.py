"""Names and addresses of the servers of a test cluster. Pure."""

from __future__ import annotations

from magnetar_core.membership.membership import CoordinatorMember, Member, Membership


def broker_names(count: int) -> list[str]:
    """Return the names of brokers; the place of each is its shard."""
    return [f"broker-{shard}" for shard in range(count)]


def coordinator_names(count: int) -> list[str]:
    """Return the names of coordinators; the place of each is its TCID."""
    return [f"coordinator-{tcid}" for tcid in range(count)]


def membership_of(cluster: str, host: str, brokers: int, coordinators: int) -> Membership:
    """Return the list of members of a test cluster.

    Args:
        cluster: the cluster's id.
        host: what the members' addresses end with.
        brokers: how many there are.
        coordinators: how many there are.
    """
    return Membership(
        cluster_id=cluster,
        brokers=tuple(
            Member(name=name, address=f"{name}.{host}:1") for name in broker_names(brokers)
        ),
        coordinators=tuple(
            CoordinatorMember(name=name, address=f"{name}.{host}:1", tcid=tcid)
            for tcid, name in enumerate(coordinator_names(coordinators))
        ),
    )
