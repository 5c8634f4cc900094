"""Assignment of partitions to the members of a group: uniform and sticky. Pure.

Source: KIP-848, Server Side Assignors (the uniform one).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from magnetar_core.ids import PartitionName


def assign(
    partitions: Iterable[PartitionName],
    wanted: Mapping[str, frozenset[int]],
    owners: Mapping[PartitionName, str],
) -> dict[PartitionName, str]:
    """Assign every partition that any member wants to a member.

    No single move would make the assignment more even: members that want the same topics differ by
    a single partition at most. A member keeps its partitions, unless it has two more than another
    member that wants them.

    Args:
        wanted: ids of wanted topics, by member.
        owners: the present owner of each partition.
    Returns:
        The member of each partition, without partitions that nobody wants.
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
