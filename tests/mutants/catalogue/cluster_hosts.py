"""Mistakes about who shall have a shard, and who may speak for it."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_VIEW = "cluster/magnetar_cluster/view.py"
_WISH = "cluster/magnetar_cluster/wish.py"
_LEASE = "cluster/magnetar_cluster/lease.py"
_KEEPER = "cluster/magnetar_cluster/member_lease.py"
_PHASE = "cluster/magnetar_cluster/shard_phase.py"
_STATE = "cluster/magnetar_cluster/host_state.py"
_ATTEMPTS = "cluster/magnetar_cluster/shard_attempts.py"
_HOST = "cluster/magnetar_cluster/host.py"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        name="claims-before-it-has-joined",
        file=_STATE,
        old="        if self.lease is None or not self.joined:\n",
        new="        if self.lease is None:\n",
        mistake="A member that nobody sees has shards.",
    ),
    Mutant(
        name="speaks-from-the-answer-on",
        file=_KEEPER,
        old="            lease.renewed(sent_at_ms)",
        new="            lease.renewed(self._now_ms())",
        mistake="The lease counts from when the answer came, which may have been long under way.",
    ),
    Mutant(
        name="speaks-from-the-grant-on",
        file=_KEEPER,
        old="                lease.begun(number, sent_at_ms)",
        new="                lease.begun(number, self._now_ms())",
        mistake="A grant counts from when its answer came.",
    ),
    Mutant(
        name="speaks-for-the-whole-lease",
        file=_LEASE,
        old="duration_ms * 2 / 3",
        new="duration_ms * 1.3",
        mistake="A member speaks until others say that its lease has ended.",
    ),
    Mutant(
        name="lease-comes-back",
        file=_LEASE,
        old="        if self._ended or self._sent_at_ms is None:\n",
        new="        if self._sent_at_ms is None:\n",
        mistake="A lease that has ended is alive again when a late renewal is answered.",
    ),
    Mutant(
        name="renewals-wait-for-each-other",
        file=_KEEPER,
        old="            self._background.start(self._renew_once(lease))",
        new="            await self._renew_once(lease)",
        mistake="A slow directory makes a member silent.",
    ),
    Mutant(
        name="silence-is-not-told",
        file=_KEEPER,
        old="            self._silence = loop.call_later(wait_ms / 1000, self._check_speech)",
        new="            self._silence = loop.call_later(wait_ms, self._check_speech)",
        mistake="Conversations stay open at a member that may not answer.",
    ),
    Mutant(
        name="short-silence-is-not-told",
        file=_KEEPER,
        old="            self._check_speech()\n            lease.renewed(sent_at_ms)\n",
        new="            lease.renewed(sent_at_ms)\n",
        mistake="A claim that was answered in a silence of a moment is never opened.",
    ),
    Mutant(
        name="row-is-written-once",
        file=_HOST,
        old="        if self._state.lease is not None and not self._state.joined:\n",
        new="        if self._state.lease is not None and self._state.joined:\n",
        mistake="A member whose row was deleted has no part in the cluster any more.",
    ),
    Mutant(
        name="speaks-in-any-epoch",
        file=_STATE,
        old="            and held.epoch == epoch\n",
        new="",
        mistake="A former ownership speaks as soon as the member has the shard again.",
    ),
    Mutant(
        name="speaks-after-it-was-lost",
        file=_STATE,
        old="            and held.phase in SPEAKING\n",
        new="",
        mistake="A shard that ends goes on speaking under its member's lease.",
    ),
    Mutant(
        name="claim-deleted-before-the-store-is-closed",
        file=_PHASE,
        old="    (Phase.SERVING, PhaseEvent.HAND_OVER): Phase.CLOSING,",
        new="    (Phase.SERVING, PhaseEvent.HAND_OVER): Phase.RELEASING,",
        mistake="The next owner opens the store while the former one still writes to it.",
    ),
    Mutant(
        name="lost-opening-is-left-open",
        file=_PHASE,
        old="    (Phase.LOST_OPENING, PhaseEvent.OPENED): Phase.LOST,",
        new="    (Phase.LOST_OPENING, PhaseEvent.OPENED): Phase.GONE,",
        mistake="A shard that was lost while it was opened is never ended.",
    ),
    Mutant(
        name="failed-shard-keeps-its-claim",
        file=_PHASE,
        old="    (Phase.ENDING, PhaseEvent.ABANDONED): Phase.RELEASING,",
        new="    (Phase.ENDING, PhaseEvent.ABANDONED): Phase.GONE,",
        mistake="Somebody will see a claim that nobody serves.",
    ),
    Mutant(
        name="lost-shard-writes",
        file=_ATTEMPTS,
        old="outcome_of(running.abandon())",
        new="outcome_of(running.close())",
        mistake="What is in memory is saved before a lost shard ends.",
    ),
    Mutant(
        name="closing-goes-on-beside-abandoning",
        file=_ATTEMPTS,
        old="            closing.cancel()\n",
        new="",
        mistake="A handover that takes long delays the end of a shard that is lost.",
    ),
    Mutant(
        name="closing-without-a-limit",
        file=_ATTEMPTS,
        old="asyncio.timeout(self._settings.handover_ms_max / 1000)",
        new="asyncio.timeout(None)",
        mistake="A shard whose store does not answer is never given to anybody else.",
    ),
    Mutant(
        name="another-epoch-is-ours-too",
        file=_STATE,
        old="        if self.view.owners.get(shard) != Owner(self._name.name, held.epoch):\n",
        new="        owner = self.view.owners.get(shard)\n"
        "        if owner is None or owner.member != self._name.name:\n",
        mistake="The row names this member, so that the shard is its own.",
    ),
    Mutant(
        name="old-view-takes-a-new-claim-away",
        file=_STATE,
        old=" or held.epoch > self.view.revision:\n",
        new=":\n",
        mistake="A view from before the claim says that nobody has the shard.",
    ),
    Mutant(
        name="claim-is-not-compared-with-the-view",
        file=_STATE,
        old="        # The view may be later than the claim.\n"
        "        self._compare(action.shard, now_ms)\n",
        new="",
        mistake="A row that is gone by now is opened, and nothing will come that says so.",
    ),
    Mutant(
        name="cancelled-call-ends-the-task",
        file="cluster/magnetar_cluster/background.py",
        old="        if task is not None and task.cancelling():\n",
        new="        if task is not None:\n",
        mistake="Whoever asks a directory that cancels the call never asks again.",
    ),
    Mutant(
        name="views-go-back",
        file=_STATE,
        old="        if view.revision <= self.view.revision:\n",
        new="        if view == self.view:\n",
        mistake="What comes last is what holds.",
    ),
    Mutant(
        name="no-settling",
        file=_STATE,
        old="        return self._is_due(slot.elsewhere[1] + self._settings.settling_ms, now_ms)",
        new="        return True",
        mistake="Shards move whenever a member restarts.",
    ),
    Mutant(
        name="two-handovers-at-once",
        file=_STATE,
        old="        limit = self._settings.leaving_handovers_max if self.leaving else 1\n",
        new="        limit = self._settings.leaving_handovers_max\n",
        mistake="A new member pauses several shards at once.",
    ),
    Mutant(
        name="handover-ends-before-the-next-owner",
        file=_STATE,
        old="one.taken_by_ms is not None or (one.held is not None and one.held.handed_over)\n",
        new="one.held is not None and one.held.handed_over\n",
        mistake="The next handover begins while nobody has the shard of the last one.",
    ),
    Mutant(
        name="pins-wait-for-the-settling-time",
        file=_STATE,
        old="if self._name in self.view.draining or self.view.pins.get(shard) == wished:\n",
        new="if self._name in self.view.draining:\n",
        mistake="An administrator waits for what was asked for.",
    ),
    Mutant(
        name="drains-wait-for-the-settling-time",
        file=_STATE,
        old="if self._name in self.view.draining or self.view.pins.get(shard) == wished:\n",
        new="if self.view.pins.get(shard) == wished:\n",
        mistake="A drained member keeps its shards for a while.",
    ),
    Mutant(
        name="draining-member-claims",
        file=_VIEW,
        old=" and name not in self.draining and not member.leaving\n",
        new=" and not member.leaving\n",
        mistake="A member that shall give up its shards gets them back.",
    ),
    Mutant(
        name="leaving-member-is-wished",
        file=_VIEW,
        old=" and name not in self.draining and not member.leaving\n",
        new=" and name not in self.draining\n",
        mistake="Others wait for a member that stops to take its own shards.",
    ),
    Mutant(
        name="pin-to-the-dead",
        file=_WISH,
        old="for one in wanted if view.pins.get(one) in members}",
        new="for one in wanted if one in view.pins}",
        mistake="A shard that is pinned to a member that died waits for it.",
    ),
    Mutant(
        name="superseded-outcome-counts",
        file=_STATE,
        old="        if slot.action is not action:\n            return None\n",
        new="",
        mistake="The end of an attempt that was given up is taken for that of the present one.",
    ),
    Mutant(
        name="opens-after-silence",
        file=_STATE,
        old="                if self.lease is not None and self.lease.may_speak():\n",
        new="                if self.lease is not None:\n",
        mistake="A member that slept after its claim fences the next owner.",
    ),
    Mutant(
        name="abandoned-twice",
        file=_STATE,
        old=" and not abandoned_already:\n",
        new=":\n",
        mistake="A shard that is lost while it is let go of counts as gone before it is.",
    ),
    Mutant(
        name="unknown-row-stays",
        file=_STATE,
        old="owner.member == self._name.name and owner.epoch > slot.gone_epoch:\n",
        new="owner.member == self._name.name and owner.epoch < slot.gone_epoch:\n",
        mistake="A claim that arrived late keeps the shard from everybody while the lease lives.",
    ),
    Mutant(
        name="claim-is-asked-once",
        file=_ATTEMPTS,
        old='            _LOG.info("a claim of %s was not answered: %s", action.shard, error)\n'
        "            self._state.unanswered(action, self._now_ms())\n",
        new='            _LOG.info("a claim of %s was not answered: %s", action.shard, error)\n'
        "            self._state.claimed(action, None, self._now_ms())\n",
        mistake="A claim without an answer counts as refused; the row is found and deleted later.",
    ),
    Mutant(
        name="openings-without-pauses",
        file=_STATE,
        old="        slot.failures += 1\n",
        new="",
        mistake="A shard that cannot be opened is tried twice a second for ever.",
    ),
    Mutant(
        name="failures-are-never-forgotten",
        file=_STATE,
        old="        if served_ms >= self._settings.opening_pause_ms_max:\n",
        new="        if served_ms < 0:\n",
        mistake="A shard that failed now and then over a year waits for half a minute.",
    ),
    Mutant(
        name="early-end-is-forgotten",
        file=_STATE,
        old="            held.failed_early = True\n",
        new="",
        mistake="A shard that ended before its opening was complete counts as served.",
    ),
    Mutant(
        name="lease-revoked-before-the-end",
        file=_HOST,
        old="        self._attempts.end_begins()\n        self._keeper.give_up()\n",
        new="        self._attempts.end_begins()\n        await self._keeper.end()\n",
        mistake="Others open shards that this server has not let go of.",
    ),
    Mutant(
        name="leaving-without-a-directory-for-long",
        file=_HOST,
        old="            if silent_until_ms < ends_at_ms:",
        new="            if silent_until_ms < began_ms:",
        mistake="A server that is told to stop waits for a directory that is away.",
    ),
    Mutant(
        name="a-slow-opening-is-not-looked-at",
        file=_STATE,
        old="            self._look_at_opening(shard, slot, now_ms)\n",
        new="",
        mistake="A server that does not reach its store keeps a shard from all others.",
    ),
    Mutant(
        name="leaving-hands-over-one-by-one",
        file=_STATE,
        old="        limit = self._settings.leaving_handovers_max if self.leaving else 1\n",
        new="        limit = 1\n",
        mistake="A server with many shards is killed before it has handed them over.",
    ),
    Mutant(
        name="leaving-repeats-a-claim",
        file=_STATE,
        old="            self._withdraw(slot, now_ms)\n",
        new="",
        mistake="A server that is told to stop asks for one more shard until it is answered.",
    ),
    Mutant(
        name="leaving-forgets-a-claim-under-way",
        file=_STATE,
        old="        if self.leaving and slot.action is None:\n",
        new="        if self.leaving:\n",
        mistake="A claim that is granted to a server that stops is not given back.",
    ),
)
