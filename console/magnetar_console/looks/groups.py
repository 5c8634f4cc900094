"""Groups, their members and partitions."""

from __future__ import annotations

from typing import Final

from magnetar import Client
from magnetar_console.pauses import SCAN_PAUSE
from magnetar_console.seen import Row, Seen

GROUPS_MAX: Final = 5_000
PARTITIONS_MAX: Final = 2_000


class GroupsLook:
    """Lists the groups."""

    def __init__(self) -> None:
        self.period_s = 1.0
        self.pause_factor = SCAN_PAUSE

    async def look(self, client: Client) -> Seen:
        """Ask all brokers."""
        found = sorted(await client.admin.groups.list(), key=lambda one: one.group)
        problems = []
        if len(found) > GROUPS_MAX:
            problems.append(f"The first {GROUPS_MAX:,} of {len(found):,} groups are shown.")
        rows: dict[str, Row] = {
            one.group: {
                "name": one.group,
                "state": one.state.name,
                "generation": one.generation,
                "members": one.members,
                "partitions": one.partitions,
                "lag": one.lag,
            }
            for one in found[:GROUPS_MAX]
        }
        return Seen({"groups": rows}, tuple(problems))

    async def close(self) -> None:
        """Hold nothing."""


class GroupLook:
    """Describes one group."""

    def __init__(self, group: str) -> None:
        self.period_s = 1.0
        self.pause_factor = SCAN_PAUSE
        self._group = group

    async def look(self, client: Client) -> Seen:
        """Ask all brokers."""
        found = await client.admin.groups.describe(self._group)
        summary = found.summary
        names = {one.member_id: one.client_name or one.member_id for one in found.members}
        group: Row = {
            "name": summary.group,
            "state": summary.state.name,
            "generation": summary.generation,
            "lag": summary.lag,
            "two_phase": found.allow_two_phase_commit,
        }
        members: dict[str, Row] = {
            one.member_id: {
                "id": one.member_id,
                "instance_id": one.instance_id,
                "client": one.client_name,
                "topics": [*one.topics, *([one.topic_pattern] if one.topic_pattern else [])],
                "session_timeout_ms": one.session_timeout_ms,
                # By seconds: else every row would change with every look.
                "silent_s": one.silent_ms // 1_000,
                "partitions": one.partitions,
                "lag": one.lag,
            }
            for one in found.members
        }
        problems = []
        if len(found.partitions) > PARTITIONS_MAX:
            problems.append(
                f"The first {PARTITIONS_MAX:,} of {len(found.partitions):,} partitions are shown."
            )
        partitions: dict[str, Row] = {
            f"{one.topic}/{one.partition}": {
                "topic": one.topic,
                "partition": one.partition,
                "member": one.member_id,
                "client": names.get(one.member_id, one.member_id),
                "next": names.get(one.next_member_id, one.next_member_id),
                "generation": one.generation,
                "lag": one.lag,
                "pending": one.pending_ack_count,
                "awaited": [str(txn) for txn in one.awaited_txns[:5]],
            }
            for one in found.partitions[:PARTITIONS_MAX]
        }
        tables = {"group": {"it": group}, "members": members, "partitions": partitions}
        return Seen(tables, tuple(problems))

    async def close(self) -> None:
        """Hold nothing."""
