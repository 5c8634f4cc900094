"""Decisions of a member about its shards, from its lease and the views that it saw. Pure.

Its driver reports what has happened, and then asks for decisions. For each shard at most one
attempt is under way; its outcome is awaited before the next one.
Source: docs/design/0009-owners.md, Placement of shards.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from magnetar_cluster.directory.view import MemberName, ShardName, ShardOwner, View
from magnetar_cluster.directory.wish import may_differ, wish
from magnetar_cluster.host_settings import HostSettings
from magnetar_cluster.hosting.host_actions import Abandon, Action, Claim, Close, Open, Release
from magnetar_cluster.hosting.lease import Lease
from magnetar_cluster.hosting.shard_phase import OWNED, SPEAKING, HeldShard, ShardEvent, ShardPhase
from magnetar_cluster.hosting.unopenable_shards import UnopenableShards
from magnetar_core.backoff import Randomness, delay_ms


@dataclass(slots=True)
class Slot:
    """Knowledge of a member about one shard, which any member may have.

    Attributes:
        held: what the member has of it; None: nothing.
        action: the attempt that is under way; None: none is.
        unanswered: claims or releases in a row whose answers were lost.
        again_at_ms: when the next of them may begin.
        failures: openings and runs in a row that failed.
        reason: of the last failure; empty: it was opened since, and has not failed.
        claim_after_ms: when the shard may be claimed again.
        gone_epoch: all ownerships of this member up to this epoch have ended.
        elsewhere: the other member that should have it, and since when; None: no other.
        taken_by_ms: until when the next owner of a shard that was handed over is waited for.
        overdue: why its opening is no longer waited for; empty: it is.
    """

    held: HeldShard | None = None
    action: Action | None = None
    unanswered: int = 0
    again_at_ms: float = 0.0
    failures: int = 0
    reason: str = ""
    claim_after_ms: float = 0.0
    gone_epoch: int = 0
    elsewhere: tuple[str, float] | None = None
    taken_by_ms: float | None = None
    overdue: str = ""


class HostState:
    """One member's decisions about all shards of its kind.

    Attributes:
        view: the latest one that was seen.
        lease: the member's lease; None: it has none.
        joined: whether the member's row was written under this lease, and was not seen to be gone.
        leaving: whether the member is about to stop: it claims nothing from now on.
        slots: of all shards.
        wakes_at_ms: when to ask for decisions again though nothing has happened; None: never.
    """

    def __init__(
        self,
        name: MemberName,
        shards: Iterable[ShardName],
        settings: HostSettings,
        random: Randomness,
    ) -> None:
        self.view = View()
        self.lease: Lease | None = None
        self.joined = False
        self.leaving = False
        self.slots = {shard: Slot() for shard in shards}
        self.wakes_at_ms: float | None = None
        self._name = name
        self._settings = settings
        self._random = random
        self._wish: dict[ShardName, str] = {}
        self._unopenable_shards = UnopenableShards(settings, random)

    @property
    def refused(self) -> tuple[int, ...]:
        """The numbers of the shards that the member refuses, in order."""
        return self._unopenable_shards.numbers

    def speaks(self, shard: ShardName, epoch: int) -> bool:
        """Return whether frames may leave in the name of an ownership at this moment."""
        held = self.slots[shard].held
        return (
            held is not None
            and held.epoch == epoch
            and held.phase in SPEAKING
            and self.lease is not None
            and self.lease.may_speak()
        )

    def is_empty(self) -> bool:
        """Return whether the member has no shard, and all shards that it had were taken."""
        return all(slot.held is None and slot.taken_by_ms is None for slot in self.slots.values())

    def has_shards(self) -> bool:
        """Return whether anything is left of any shard."""
        return any(slot.held is not None for slot in self.slots.values())

    # The member as a whole.

    def lease_begun(self, lease: Lease) -> None:
        """The member has a lease, and no row under it yet."""
        self.lease = lease
        self.joined = False

    def row_written(self) -> None:
        """The member's row is written under its lease."""
        self.joined = self.lease is not None

    def lease_ended(self, now_ms: float) -> None:
        """The lease is over, and with it everything that the member had."""
        if self.lease is not None:
            self.lease.end()
        self.lease = None
        self.joined = False
        for slot in self.slots.values():
            self._take_away(slot, now_ms)

    def saw(self, view: View, now_ms: float) -> bool:
        """Take a view; return False for one that is not later than the last one."""
        if view.revision <= self.view.revision:
            return False
        if may_differ(self.view, view):
            self._wish = wish(view, self.slots)
        self.view = view
        if self._name not in view.members:
            # Also a view from before the member joined; joining again is harmless.
            self.joined = False
        for shard in self.slots:
            self._compare(shard, now_ms)
        return True

    def useless_openings(self) -> list[int]:
        """Return the epochs of openings that are to end: they are lost, or take too long."""
        return [
            slot.held.epoch
            for slot in self.slots.values()
            if slot.held is not None
            and (slot.held.phase is ShardPhase.LOST_OPENING or slot.overdue)
        ]

    def leave(self) -> None:
        """Note that the member stops soon. It gives up its shards when its row says so, too."""
        self.leaving = True

    # Outcomes of attempts.

    def claimed(self, action: Claim, epoch: int | None, now_ms: float) -> None:
        """A claim was answered.

        Args:
            epoch: None: another member has the shard.
        """
        slot = self._answered(action)
        if slot is None or slot.held is None:
            return
        if epoch is None:
            # The view lags behind; until it has caught up, the claim would be refused again.
            slot.claim_after_ms = now_ms + self._settings.constants.directory_pause_ms_max
            self._move(slot, ShardEvent.REFUSED, now_ms)
            return
        slot.held.epoch = epoch
        wanted = self._wish.get(action.shard) == self._name.name and not self.leaving
        self._move(slot, ShardEvent.GRANTED if wanted else ShardEvent.UNWANTED, now_ms)
        # The view may be later than the claim.
        self._compare(action.shard, now_ms)

    def opened(self, action: Open, now_ms: float) -> None:
        """A shard is open."""
        slot = self._answered(action)
        if slot is None or slot.held is None:
            return
        failed = slot.held.failed_early
        self._move(slot, ShardEvent.OPENED, now_ms)
        if slot.held.phase is not ShardPhase.SERVING:
            return
        if failed:
            self._fail(action.shard, slot, slot.reason, now_ms)
            self._move(slot, ShardEvent.FAILED, now_ms)
        else:
            slot.reason = ""
            self._unopenable_shards.opened(action.shard)

    def not_opened(self, action: Open, reason: str, now_ms: float) -> None:
        """A shard could not be opened, and nothing is left of it."""
        slot = self._answered(action)
        if slot is None or slot.held is None:
            return
        if slot.held.phase is ShardPhase.OPENING:
            self._fail(action.shard, slot, slot.overdue or reason, now_ms)
        self._move(slot, ShardEvent.NOT_OPENED, now_ms)

    def failed(self, shard: ShardName, epoch: int, reason: str, now_ms: float) -> bool:
        """Note that an open shard has ended by itself; return False if that has no effect."""
        slot = self.slots[shard]
        held = slot.held
        if held is None or held.epoch != epoch:
            return False
        if held.phase is ShardPhase.OPENING and not held.failed_early:
            held.failed_early = True
            slot.reason = reason
            return True
        if not held.can(ShardEvent.FAILED):
            return False
        self._fail(shard, slot, reason, now_ms)
        self._move(slot, ShardEvent.FAILED, now_ms)
        return True

    def closed(self, action: Close, now_ms: float) -> None:
        """A shard's store is closed, and everything in it durable."""
        slot = self._answered(action)
        if slot is not None:
            self._move(slot, ShardEvent.CLOSED, now_ms)

    def not_closed(self, action: Close, now_ms: float) -> None:
        """A shard could not be closed in order, or not in time."""
        slot = self._answered(action)
        if slot is not None:
            self._move(slot, ShardEvent.NOT_CLOSED, now_ms)

    def abandoned(self, action: Abandon, now_ms: float) -> None:
        """Note that a shard is closed."""
        slot = self._answered(action)
        if slot is not None:
            self._move(slot, ShardEvent.ABANDONED, now_ms)

    def released(self, action: Release, now_ms: float) -> None:
        """The directory has deleted a claim."""
        slot = self._answered(action)
        if slot is not None:
            self._move(slot, ShardEvent.RELEASED, now_ms)

    def unanswered(self, action: Claim | Release, now_ms: float) -> None:
        """A claim's or release's answer was lost; it may have had its effect."""
        slot = self._answered(action)
        if slot is not None:
            slot.again_at_ms = now_ms + delay_ms(
                slot.unanswered,
                self._settings.constants.directory_pause_ms_min,
                self._settings.constants.directory_pause_ms_max,
                self._random,
            )
            slot.unanswered += 1

    # Decisions.

    def decide(self, now_ms: float) -> list[Action]:
        """Return the attempts that have to begin now."""
        self.wakes_at_ms = None
        again_at_ms = self._unopenable_shards.again_at_ms
        if again_at_ms is not None and self.refused and self._is_due(again_at_ms, now_ms):
            self._unopenable_shards.try_one(self._part_without_unopenable(), now_ms)
            # Not earlier than that: more may be refused.
            self._is_due(self._unopenable_shards.again_at_ms or now_ms, now_ms)
        for shard, slot in self.slots.items():
            self._look_for_owner(shard, slot, now_ms)
        handovers = sum(
            one.taken_by_ms is not None or (one.held is not None and one.held.handed_over)
            for one in self.slots.values()
        )
        limit = self._settings.constants.leaving_handovers_max if self.leaving else 1
        actions: list[Action] = []
        for shard, slot in self.slots.items():
            self._withdraw(slot, now_ms)
            if slot.held is None:
                self._look_at_free(shard, slot, now_ms)
            elif (
                slot.held.phase is ShardPhase.SERVING
                and self._shall_go(shard, slot, now_ms)
                and handovers < limit
            ):
                handovers += 1
                slot.held.handed_over = True
                self._move(slot, ShardEvent.HAND_OVER, now_ms)
            if slot.held is not None and slot.action is None:
                slot.action = self._attempt(shard, slot, slot.held, now_ms)
                if slot.action is not None:
                    actions.append(slot.action)
            self._look_at_opening(shard, slot, now_ms)
        return actions

    def _part_without_unopenable(self) -> set[ShardName]:
        """Return the shards that this member would have if it refused none."""
        row = self.view.members.get(self._name)
        if row is None:
            return set()
        members = {**self.view.members, self._name: replace(row, refused=())}
        wished = wish(replace(self.view, members=members), self.slots)
        return {shard for shard, member in wished.items() if member == self._name.name}

    def _withdraw(self, slot: Slot, now_ms: float) -> None:
        """Stop claiming when the member is about to stop.

        A claim whose answer was lost may have been written. Then the view says so, sooner or later,
        and the member deletes it; or else the end of the lease does.
        """
        held = slot.held
        if held is None or held.phase is not ShardPhase.CLAIMING:
            return
        if self.leaving and slot.action is None:
            self._move(slot, ShardEvent.WITHDRAWN, now_ms)

    def _look_at_free(self, shard: ShardName, slot: Slot, now_ms: float) -> None:
        """Begin with a shard that is closed here, if this member should have it."""
        if self.lease is None or not self.joined:
            return
        owner = self.view.shard_owners.get(shard)
        if owner is not None:
            # The answer to the claim was lost. Only this member can give it back while the lease
            # lives.
            if owner.member == self._name.name and owner.epoch > slot.gone_epoch:
                slot.held = HeldShard(ShardPhase.RELEASING, now_ms, epoch=owner.epoch)
        elif (
            self._wish.get(shard) == self._name.name
            and not self.leaving
            and self._is_due(slot.claim_after_ms, now_ms)
        ):
            slot.held = HeldShard(ShardPhase.CLAIMING, now_ms)
            slot.taken_by_ms = None

    def _shall_go(self, shard: ShardName, slot: Slot, now_ms: float) -> bool:
        """Return whether a shard that the member serves is to be handed over now."""
        me = self.view.members.get(self._name)
        if self.leaving and me is not None and me.leaving:
            return True
        wished = self._wish.get(shard)
        if wished is None or wished == self._name.name:
            slot.elsewhere = None
            return False
        if slot.elsewhere is None or slot.elsewhere[0] != wished:
            slot.elsewhere = wished, now_ms
        if self._name in self.view.draining or self.view.pins.get(shard) == wished:
            return True
        return self._is_due(slot.elsewhere[1] + self._settings.settling_ms, now_ms)

    def _look_for_owner(self, shard: ShardName, slot: Slot, now_ms: float) -> None:
        """End the wait for the next owner of a shard that was handed over."""
        if slot.taken_by_ms is None:
            return
        owner = self.view.shard_owners.get(shard)
        taken = owner is not None and owner.epoch > slot.gone_epoch
        nobody_else = self._wish.get(shard) in (None, self._name.name)
        if taken or nobody_else or self._is_due(slot.taken_by_ms, now_ms):
            slot.taken_by_ms = None

    def _look_at_opening(self, shard: ShardName, slot: Slot, now_ms: float) -> None:
        """Give up an opening that takes too long, if another member can have the shard."""
        held = slot.held
        if (
            held is None
            or held.phase is not ShardPhase.OPENING
            or slot.action is None
            or slot.overdue
        ):
            return
        longest_ms = self._settings.opening_ms_max
        if not self._is_due(held.since_ms + longest_ms, now_ms):
            return
        if any(
            name != self._name and shard.number not in member.refused
            for name, member in self.view.takers(shard.kind).items()
        ):
            slot.overdue = f"it was not open after {longest_ms} ms"
            slot.failures = max(slot.failures, self._settings.constants.opening_failures_max - 1)

    def _attempt(
        self, shard: ShardName, slot: Slot, held: HeldShard, now_ms: float
    ) -> Action | None:
        """Return the action that a phase asks for; None: there is none, or not yet."""
        match held.phase:
            case ShardPhase.CLAIMING:
                # A claim whose answer was lost waits for the member's row, as the first one did.
                lease = self.lease.id if self.lease is not None and self.joined else None
                if lease is not None and self._is_due(slot.again_at_ms, now_ms):
                    return Claim(shard, lease)
            case ShardPhase.OPENING if self.leaving:
                self._move(slot, ShardEvent.NOT_OPENED, now_ms)
                return self._attempt(shard, slot, held, now_ms)
            case ShardPhase.OPENING:
                # Opening fences the owner of the shard: by now that may be the next owner.
                if self.lease is not None and self.lease.may_speak():
                    return Open(shard, held.epoch)
            case ShardPhase.CLOSING:
                return Close(shard, held.epoch)
            case ShardPhase.ENDING | ShardPhase.LOST:
                return Abandon(shard, held.epoch, held.phase is ShardPhase.LOST)
            case ShardPhase.RELEASING:
                if self._is_due(slot.again_at_ms, now_ms):
                    return Release(shard, held.epoch)
        return None

    # Changes.

    def _answered(self, action: Action) -> Slot | None:
        """Note that an attempt is over; None: it was superseded, and its outcome means nothing."""
        slot = self.slots[action.shard]
        if slot.action is not action:
            return None
        slot.action = None
        return slot

    def _compare(self, shard: ShardName, now_ms: float) -> None:
        """Give up an ownership that the view denies."""
        held = self.slots[shard].held
        # A view that is older than the claim does not know of it.
        if held is None or held.phase not in OWNED or held.epoch > self.view.revision:
            return
        if self.view.shard_owners.get(shard) != ShardOwner(self._name.name, held.epoch):
            self._take_away(self.slots[shard], now_ms)

    def _take_away(self, slot: Slot, now_ms: float) -> None:
        held = slot.held
        if held is None or not held.can(ShardEvent.TAKEN):
            return
        never_opened = held.phase is ShardPhase.OPENING and slot.action is None
        self._move(slot, ShardEvent.TAKEN, now_ms)
        if never_opened:
            self._move(slot, ShardEvent.NOT_OPENED, now_ms)

    def _move(self, slot: Slot, event: ShardEvent, now_ms: float) -> None:
        held = slot.held
        assert held is not None
        abandoned_already = held.phase is ShardPhase.ENDING and event is ShardEvent.TAKEN
        held.move(event, now_ms)
        # An opening is cancelled, and awaited. What is let go of already is awaited, too: a second
        # attempt would find nothing, and call the shard gone. Everything else is superseded.
        if held.phase is not ShardPhase.LOST_OPENING and not abandoned_already:
            slot.action = None
        slot.unanswered = 0
        slot.again_at_ms = 0.0
        slot.overdue = ""
        if held.phase is ShardPhase.GONE:
            slot.gone_epoch = max(slot.gone_epoch, held.epoch)
            slot.held = None
            slot.elsewhere = None
            if held.handed_over and self.lease is not None:
                slot.taken_by_ms = now_ms + self._settings.handover_ms_max

    def _fail(self, shard: ShardName, slot: Slot, reason: str, now_ms: float) -> None:
        """Note a failed opening or run, before the phase changes."""
        held = slot.held
        assert held is not None
        served_ms = now_ms - held.since_ms if held.phase is ShardPhase.SERVING else 0.0
        if served_ms >= self._settings.constants.opening_pause_ms_max:
            slot.failures = 0
        slot.reason = reason
        slot.claim_after_ms = now_ms + delay_ms(
            slot.failures,
            self._settings.constants.opening_pause_ms_min,
            self._settings.constants.opening_pause_ms_max,
            self._random,
        )
        slot.failures += 1
        self._unopenable_shards.failed(shard, slot.failures, now_ms)

    def _is_due(self, at_ms: float, now_ms: float) -> bool:
        """Return whether a moment has come; if not, note to be asked again then."""
        if now_ms >= at_ms:
            return True
        if self.wakes_at_ms is None or at_ms < self.wakes_at_ms:
            self.wakes_at_ms = at_ms
        return False
