"""Past members of groups: late copies of their joins are recognised, also after a deletion.

Pure. A copy travels to a server's process, and does not outlive it: nothing of this is stored.
Source: docs/design/0001-protocol.md, Late copies.
"""

from __future__ import annotations

from typing import NamedTuple

# How many departed members of a group are remembered, and of how many deleted groups.
PAST_MEMBERS_MAX = 1_000
DELETED_GROUPS_MAX = 100


class PastMember(NamedTuple):
    """Numbers that a member had reached when it left, or was replaced."""

    join_epoch: int
    heartbeat_number: int


class PastMembers:
    """Members of one group that left or were replaced, the latest last."""

    def __init__(self) -> None:
        self._members: dict[str, PastMember] = {}

    def note(self, member_id: str, past: PastMember) -> None:
        """Note that a member is gone."""
        self._members[member_id] = past
        if len(self._members) > PAST_MEMBERS_MAX:
            del self._members[next(iter(self._members))]

    def find(self, member_id: str) -> PastMember | None:
        """Return the record of a member that is gone."""
        return self._members.get(member_id)

    def back(self, member_id: str) -> PastMember | None:
        """Note that a member has joined again; return what was known of it."""
        return self._members.pop(member_id, None)


class DeletedGroups:
    """Past members of the groups that were deleted last, by the groups' names."""

    def __init__(self) -> None:
        self._groups: dict[str, PastMembers] = {}

    def note(self, name: str, past_members: PastMembers) -> None:
        """Note that a group is deleted."""
        self._groups[name] = past_members
        if len(self._groups) > DELETED_GROUPS_MAX:
            del self._groups[next(iter(self._groups))]

    def past_members(self, name: str) -> PastMembers:
        """Return the past members of a group that is made, or made anew."""
        return self._groups.get(name) or PastMembers()

    def made(self, name: str) -> None:
        """Note that a group of the name exists."""
        self._groups.pop(name, None)
