"""Assignment of partitions to the members of a group: uniform and sticky. Pure.

Source: KIP-848, Server Side Assignors (the uniform one); docs/design/0008-cluster.md, Groups.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from hashlib import blake2b

from magnetar_core.ids import PartitionName

HASH_BYTES = 8
HASH_MASK = (1 << 8 * HASH_BYTES) - 1
# An odd number without a pattern: 2 to the 64, divided by the golden ratio.
MULTIPLIER = 0x9E3779B97F4A7C15


def assign(
    partitions: Iterable[PartitionName],
    wanted: Mapping[str, frozenset[int]],
    owners: Mapping[PartitionName, str],
) -> dict[PartitionName, str]:
    """Assign every partition in which a member has interest to a member.

    No single move would make the assignment more even: members with the same topics differ by a
    single partition at most. A member keeps its partitions, unless it has two more than another
    member with interest in them.

    Args:
        wanted: ids of the topics that each member subscribes to. owners: the present owner of each
            partition, or the member that is preferred in its place.
    Returns:
        The member of each partition, without partitions in which no member has interest.
    """
    loads: dict[str, list[PartitionName]] = {member_id: [] for member_id in sorted(wanted)}
    free = []
    for partition in sorted(partitions, key=_order):
        owner = owners.get(partition)
        if owner is not None and partition.topic_id in wanted.get(owner, ()):
            loads[owner].append(partition)
        else:
            free.append(partition)
    for partition in free:
        takers = [one for one in loads if partition.topic_id in wanted[one]]
        if takers:
            loads[min(takers, key=lambda one: len(loads[one]))].append(partition)
    while _move_one(loads, wanted):
        pass
    return {partition: member_id for member_id, held in loads.items() for partition in held}


def preferred(
    partitions: Collection[PartitionName], wanted: Mapping[str, frozenset[int]]
) -> dict[PartitionName, str]:
    """Return the preferred member of each partition, for brokers that share a topic.

    None of them knows all present owners, and all of them must assign alike. So the preferred
    member depends on names alone: it has the highest hash with the partition (rendezvous). A member
    that comes takes partitions from each of the others, and one that goes leaves its own to them;
    all other partitions stay.

    Args:
        wanted: ids of the topics that each member subscribes to.
    """
    members = {one: _hash(one) for one in sorted(wanted)}
    takers = {
        topic_id: [one for one in members if topic_id in wanted[one]]
        for topic_id in dict.fromkeys(one.topic_id for one in partitions)
    }
    found: dict[PartitionName, str] = {}
    for partition in partitions:
        own = _hash(f"{partition.topic_id}/{partition.partition}")
        if takers[partition.topic_id]:
            found[partition] = max(
                takers[partition.topic_id],
                key=lambda one: (members[one] ^ own) * MULTIPLIER & HASH_MASK,
            )
    return found


def _hash(name: str) -> int:
    return int.from_bytes(blake2b(name.encode(), digest_size=HASH_BYTES).digest())


def _move_one(loads: dict[str, list[PartitionName]], wanted: Mapping[str, frozenset[int]]) -> bool:
    """Move a partition from the fullest member to the emptiest; return whether there was a move."""
    by_load = sorted(loads, key=lambda one: len(loads[one]))
    for giver in reversed(by_load):
        for taker in by_load:
            if len(loads[giver]) - len(loads[taker]) < 2:
                break
            for at in range(len(loads[giver]) - 1, -1, -1):
                if loads[giver][at].topic_id in wanted[taker]:
                    loads[taker].append(loads[giver].pop(at))
                    return True
    return False


def _order(partition: PartitionName) -> tuple[int, int]:
    return partition.topic_id, partition.partition
