"""Target of a group whose topics lie on several brokers: the part that one broker assigns. Pure.

Source: docs/design/0008-cluster.md, Groups without a group coordinator.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from magnetar_broker.assignment.assignment import assign, preferred
from magnetar_core.ids import PartitionName


class Interest(NamedTuple):
    """Topics and partitions to which the members of a group subscribe, among existing ones.

    Attributes:
        partitions: the partitions of all these topics.
        wanted: ids of the topics of each member.
        hosted: those of the partitions that this broker assigns; None: all of them.
    """

    partitions: tuple[PartitionName, ...]
    wanted: Mapping[str, frozenset[int]]
    hosted: frozenset[PartitionName] | None = None

    @property
    def assignable(self) -> Collection[PartitionName]:
        """The partitions that this broker assigns."""
        return self.partitions if self.hosted is None else self.hosted


def target_at_one_of_many(
    interest: Interest, places: Mapping[str, str]
) -> dict[PartitionName, str]:
    """Return this broker's part of the target, which all brokers compute alike.

    Brokers that know the same members and topics agree without a word, whatever each of them has
    assigned before. While they differ, a partition still has a single owner: at its own broker.

    Args:
        interest: names what this broker assigns.
        places: the name of each member's place. A static member's next self has the same place,
            and so the same partitions.
    """
    assert interest.hosted is not None
    members = {places[one]: one for one in interest.wanted}
    wanted = {place: interest.wanted[member_id] for place, member_id in members.items()}
    target = assign(interest.partitions, wanted, preferred(interest.partitions, wanted))
    return {one: members[place] for one, place in target.items() if one in interest.hosted}
