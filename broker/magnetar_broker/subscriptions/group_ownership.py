"""Relation of a subscription to its group: the owner, and what each member may do.

Source: docs/design/0003-groups.md, Fencing.
"""

from __future__ import annotations

from collections.abc import Iterable

from magnetar_broker.assignment.group import Group, PartitionOwner
from magnetar_broker.transactions.transaction_index import OpenTransaction
from magnetar_core.errors import InvalidArgument, ResourceInUse, UnknownMember
from magnetar_core.ids import MemberName, PartitionName, TxnID


class GroupOwnership:
    """A group's ownership of a partition's cursor."""

    def __init__(self, group: Group, partition: PartitionName) -> None:
        self._group = group
        self._partition = partition

    @property
    def partition_owner(self) -> PartitionOwner | None:
        """The member that owns the partition now, if any."""
        return self._group.partition_owners.get(self._partition)

    def check(self, member: MemberName | None) -> None:
        """Check that a client may acknowledge here, or move the cursor.

        Args:
            member: None: the client is not a member; allowed while the group has no members.
        Raises:
            UnknownMember: as Group.check_partition_owner.
            FencedInstance: as Group.check_partition_owner.
            IllegalGeneration: as Group.check_partition_owner.
        """
        if member is not None:
            self._group.check_partition_owner(self._partition, member)
        elif self._group.members:
            raise UnknownMember(
                f"group {self._group.name!r} has members: only they act on its partitions"
            )

    def check_attach(self, member: MemberName | None) -> None:
        """Check that a consumer may attach.

        Raises:
            UnknownMember: the client is not a member, or as check.
            FencedInstance: as check.
            IllegalGeneration: as check.
        """
        if member is None:
            raise UnknownMember(
                f"subscription {self._group.name!r} belongs to a group: join it to receive from it"
            )
        self.check(member)

    def check_transactional(self, *, two_phase_commit: bool) -> None:
        """Check that the group takes acks of such a transaction.

        Raises:
            InvalidArgument: the transaction could hold the partition for ever.
        """
        if two_phase_commit and not self._group.allow_two_phase_commit:
            raise InvalidArgument(
                f"group {self._group.name!r} takes no acks in two-phase commit transactions, which"
                " can hold its partitions: join with allow_two_phase_commit"
            )

    def refuse_deletion(self) -> None:
        """Check that the group has no members.

        Raises:
            ResourceInUse: it has members.
        """
        if self._group.members:
            raise ResourceInUse(
                f"group {self._group.name!r} has {len(self._group.members)} members: stop them"
                " first"
            )

    def awaited(self, transactions: Iterable[OpenTransaction]) -> list[TxnID]:
        """Return transactions of earlier generations, for which the owner waits."""
        owner = self.partition_owner
        if owner is None:
            return []
        return [
            transaction.txn_id
            for transaction in transactions
            if transaction.member.generation < owner.generation
        ]

    def left_behind(self, transactions: Iterable[OpenTransaction]) -> list[TxnID]:
        """Return transactions of members that are no longer there."""
        members = self._group.members
        return [
            transaction.txn_id
            for transaction in transactions
            if transaction.member.member_id and transaction.member.member_id not in members
        ]
