"""Decides what a member of a group does next, without doing it. Pure.

It turns answers to heartbeats into instructions for each partition, and time and the application's
calls into the next command. The membership sends the commands and follows the instructions.
Source: docs/design/0003-groups.md, Members and The client; KIP-848, Consumer Group Heartbeat.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from magnetar.groups.holding import Held, Holding, HoldingEvent
from magnetar.groups.member_phase import MACHINE, MemberEvent, MemberPhase
from magnetar.messaging.receiving.partition_ownership import Settling
from magnetar_core.ids import PartitionName

# After a partition was lost, heartbeats follow each other no faster than this: broker and member
# may disagree for a moment.
LOSS_BEAT_SPACING_MS = 100


class Command(Enum):
    """The next command to send."""

    JOIN = auto()
    HEARTBEAT = auto()
    LEAVE = auto()


@dataclass(frozen=True, slots=True)
class Assigned:
    """The partition is assigned since that generation: attach."""

    partition: PartitionName
    since: int


@dataclass(frozen=True, slots=True)
class Revoked:
    """The group asks for the partition back: stop taking its messages."""

    partition: PartitionName


@dataclass(frozen=True, slots=True)
class Kept:
    """The group no longer asks for the partition back: go on."""

    partition: PartitionName


@dataclass(frozen=True, slots=True)
class Release:
    """All messages of the partition are settled: confirm acks, detach, then call `released`."""

    partition: PartitionName
    since: int


@dataclass(frozen=True, slots=True)
class Lost:
    """The partition belongs to another member: drop everything of it."""

    partition: PartitionName
    since: int


Instruction = Assigned | Revoked | Kept | Release | Lost


class MemberState:
    """The state of a member. Times are milliseconds of a clock that does not jump."""

    def __init__(
        self, *, max_poll_interval_ms: float, now_ms: float, receiving_count: int = 0
    ) -> None:
        """A member that has not joined yet.

        Args:
            now_ms: when the application has received last; it counts as there until then.
            receiving_count: how many calls of receive are under way.
        """
        self.phase = MemberPhase.JOINING
        # Of the last answer; 0: not a member.
        self.generation = 0
        # Partitions that it will get once others have released them.
        self.coming = 0
        self._held: dict[PartitionName, Held] = {}
        self._max_poll_interval_ms = max_poll_interval_ms
        self._interval_ms = math.inf
        self._beat_sent_ms = now_ms
        self._beat_due_ms = now_ms
        # Calls of receive that are under way, and when the last one ended.
        self._receiving_count = receiving_count
        self._received_ms = now_ms

    # What it is asked.

    def next_command(self, now_ms: float) -> Command | None:
        """Return the command to send now; None until an event, or until wakes_at_ms."""
        if self.phase is MemberPhase.JOINING:
            return Command.JOIN
        if self.phase is MemberPhase.LEAVING:
            return Command.LEAVE
        if self.phase is MemberPhase.MEMBER and now_ms >= self._beat_due_ms:
            return Command.HEARTBEAT
        return None

    @property
    def wakes_at_ms(self) -> float:
        """When time alone changes something."""
        if self.phase is not MemberPhase.MEMBER:
            return math.inf
        return min(self._beat_due_ms, self._poll_due_ms)

    @property
    def held(self) -> dict[PartitionName, int]:
        """The partitions it has, and since which generation, for the heartbeat."""
        return {partition: held.since for partition, held in self._held.items()}

    def since(self, partition: PartitionName) -> int | None:
        """The generation since which it has this partition; None: it does not have it."""
        held = self._held.get(partition)
        return None if held is None else held.since

    def holds(self, partition: PartitionName, since: int) -> bool:
        """Whether it has this partition, and keeps it."""
        held = self._held.get(partition)
        return held is not None and held.since == since and held.state is Holding.HELD

    @property
    def revoked(self) -> tuple[PartitionName, ...]:
        """The partitions that the group asks back and that the member has not begun to release."""
        return tuple(
            partition for partition, held in self._held.items() if held.state is Holding.REVOKED
        )

    # Events from the group.

    def sent(self, now_ms: float) -> None:
        """Note that a command is under way; later announcements need another command."""
        self._beat_sent_ms = now_ms
        self._beat_due_ms = now_ms + self._interval_ms

    def joined(
        self,
        generation: int,
        interval_ms: float,
        assigned: Mapping[PartitionName, int],
        coming: int,
        now_ms: float,
    ) -> list[Instruction]:
        """Note that the group has accepted the member. The first heartbeat follows at once."""
        if self.phase is not MemberPhase.JOINING:
            return []
        self._move(MemberEvent.JOINED)
        instructions = self.answered(generation, interval_ms, assigned, coming)
        self._beat_due_ms = now_ms
        return instructions

    def answered(
        self,
        generation: int,
        interval_ms: float,
        assigned: Mapping[PartitionName, int],
        coming: int,
    ) -> list[Instruction]:
        """Take the assignment from the answer to a heartbeat.

        Args:
            assigned: the partitions, with the generation since which each belongs to this member.
        """
        if self.phase is not MemberPhase.MEMBER:
            return []
        self.generation = generation
        self.coming = coming
        self._interval_ms = interval_ms
        self._beat_due_ms = min(self._beat_due_ms, self._beat_sent_ms + interval_ms)
        instructions: list[Instruction] = []
        for partition, held in list(self._held.items()):
            since = assigned.get(partition)
            if since is not None and since != held.since:
                # Lost meanwhile, and got again: two ownerships.
                self._drop(partition, HoldingEvent.LOST)
                instructions.append(Lost(partition, held.since))
            elif since is None and held.state is Holding.HELD:
                held.move(HoldingEvent.ASKED_BACK)
                # A member that waits for more is done with the messages that it had.
                held.done = self._receiving_count > 0
                instructions.append(Revoked(partition))
            elif since is not None and held.state is Holding.REVOKED:
                held.move(HoldingEvent.KEPT)
                held.done = False
                instructions.append(Kept(partition))
        for partition, since in assigned.items():
            if partition not in self._held:
                self._held[partition] = Held(since)
                instructions.append(Assigned(partition, since))
        return instructions

    def announced(self, now_ms: float) -> None:
        """Note a change in the group, or a broken link: send a heartbeat."""
        self._beat_due_ms = now_ms

    def unknown(self) -> list[Instruction]:
        """Note that the group does not know the member: join again."""
        self._move(MemberEvent.UNKNOWN)
        return self._drop_all()

    def left(self) -> None:
        """Note that the group has heard that the member leaves."""
        self._move(MemberEvent.LEFT)

    def end(self) -> list[Instruction]:
        """Note that this member will never be one again."""
        self._move(MemberEvent.ENDED)
        return self._drop_all()

    # Events from the member's own side.

    def come_back(self, now_ms: float) -> None:
        """Note that the application is back: a member that had to leave joins again."""
        if self.phase in (MemberPhase.LEAVING, MemberPhase.AWAY):
            self._move(MemberEvent.CAME_BACK)
            self._received_ms = now_ms

    def receive_begins(self, now_ms: float) -> None:
        """Note that the application asks for more: it has finished the batch before."""
        self._receiving_count += 1
        self.come_back(now_ms)
        for held in self._held.values():
            held.done = held.state is Holding.REVOKED

    def receive_ends(self, now_ms: float) -> None:
        """Note that the application got messages, or stopped waiting."""
        self._receiving_count -= 1
        self._received_ms = now_ms

    def received(self, now_ms: float) -> None:
        """Note that the application has received messages of an earlier receive one by one."""
        self._received_ms = now_ms

    def review(self, settling: Callable[[PartitionName], Settling]) -> list[Instruction]:
        """Return which of the revoked partitions can be released now."""
        instructions: list[Instruction] = []
        for partition, held in self._held.items():
            if held.state is Holding.REVOKED:
                is_held, in_transactions = settling(partition)
                if not in_transactions and (held.done or not is_held):
                    held.move(HoldingEvent.SETTLED)
                    instructions.append(Release(partition, held.since))
        return instructions

    def released(self, partition: PartitionName, since: int, now_ms: float) -> None:
        """Note that a partition was released; a heartbeat tells the group at once."""
        held = self._held.get(partition)
        if held is not None and held.since == since and held.state is Holding.RELEASING:
            self._drop(partition, HoldingEvent.RELEASED)
            self._beat_due_ms = now_ms

    def lost(self, partition: PartitionName, since: int, now_ms: float) -> list[Instruction]:
        """Note that the broker has given the partition to another member."""
        held = self._held.get(partition)
        if held is None or held.since != since:
            return []
        self._drop(partition, HoldingEvent.LOST)
        soon_ms = max(now_ms, self._beat_sent_ms + LOSS_BEAT_SPACING_MS)
        self._beat_due_ms = min(self._beat_due_ms, soon_ms)
        return [Lost(partition, since)]

    def tick(self, now_ms: float) -> list[Instruction]:
        """Note that time has passed. If the application does not come back, the member leaves."""
        if self.phase is not MemberPhase.MEMBER or now_ms < self._poll_due_ms:
            return []
        self._move(MemberEvent.OVERDUE)
        return self._drop_all()

    @property
    def _poll_due_ms(self) -> float:
        if self._receiving_count:
            return math.inf
        return self._received_ms + self._max_poll_interval_ms

    def _drop_all(self) -> list[Instruction]:
        self.generation = 0
        self.coming = 0
        lost: list[Instruction] = [Lost(partition, since) for partition, since in self.held.items()]
        for partition in list(self._held):
            self._drop(partition, HoldingEvent.LOST)
        return lost

    def _drop(self, partition: PartitionName, event: HoldingEvent) -> None:
        self._held.pop(partition).move(event)

    def _move(self, event: MemberEvent) -> None:
        self.phase = MACHINE.next(self.phase, event)

    def check(self) -> None:
        """Check the invariants."""
        assert self._receiving_count >= 0
        assert self.phase is MemberPhase.MEMBER or not self._held
        assert (self.generation > 0) == (self.phase is MemberPhase.MEMBER)
