"""Mistakes in the broker's groups."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_GROUP = "broker/magnetar_broker/assignment/group.py"
_GROUP_TARGET = "broker/magnetar_broker/assignment/group_target.py"
_GROUPS = "broker/magnetar_broker/groups/groups.py"
_GROUP_ROWS = "broker/magnetar_broker/assignment/group_rows.py"
_OWNERSHIP = "broker/magnetar_broker/subscriptions/ownership.py"
_INCARNATIONS = "broker/magnetar_broker/coordinators/incarnations.py"
_SESSIONS = "broker/magnetar_broker/coordinators/coordinator_sessions.py"

MUTANTS = (
    Mutant(
        name="stale-generation-acks",
        file=_GROUP,
        old="        if name.generation < owner.generation:\n            raise",
        new="        if name.generation < owner.generation - 1:\n            raise",
        mistake="A member may act with the generation before the one in which it got a partition.",
    ),
    Mutant(
        name="any-member-acks",
        file=_GROUP,
        old="        if owner is None or owner.member_id != name.member_id:",
        new="        if owner is None:",
        mistake="Every member of a group may acknowledge on every partition.",
    ),
    Mutant(
        name="replaced-instance-keeps-generation",
        file=_GROUP,
        old="        self.generation += 1\n        self._part_with(old)",
        new="        self._part_with(old)",
        mistake="A new instance with the old one's id does not raise the generation.",
    ),
    Mutant(
        name="released-without-being-asked",
        file=_GROUP,
        old="            if held.get(partition) != self.owners[partition].generation:",
        new="            if partition not in held or len(held) > 2:",
        mistake="A member that holds much is taken to have released what it was asked for.",
    ),
    Mutant(
        name="given-before-released",
        file=_GROUP,
        old="            if partition not in self.owners:\n                given",
        new=(
            "            if partition not in self.owners or len(self.members) > 2:\n"
            "                given"
        ),
        mistake="With three members, a partition is given away before its owner has released it.",
    ),
    Mutant(
        name="each-broker-spreads-its-own",
        file=_GROUP_TARGET,
        old="assign(interest.partitions, wanted, preferred(interest.partitions, wanted))",
        new="assign(interest.hosted, wanted, preferred(interest.hosted, wanted))",
        mistake="Each broker spreads its own partitions evenly, and all of them together do not.",
    ),
    Mutant(
        name="no-forgiveness-after-restart",
        file=_GROUP,
        old="        self.forgive(now_ms)\n        return self.topics_changed(interest, now_ms)",
        new="        return self.topics_changed(interest, now_ms)",
        mistake="After a restart every member is overdue at once, and is expelled.",
    ),
    Mutant(
        name="expelled-keeps-partition",
        file=_GROUP,
        old=(
            "                del self.owners[partition]\n"
            "                change.given[partition] = None\n"
            "\n"
            "    def _part_with"
        ),
        new="                change.given[partition] = None\n\n    def _part_with",
        mistake="Who was expelled still owns its partitions.",
    ),
    Mutant(
        name="nobody-aborts-after-restart",
        file=_GROUPS,
        old=(
            "            self._departed[group.name] = self._now_ms()\n            if group.members:"
        ),
        new="            if group.members:",
        mistake="After a broker's restart nobody asks to abort what departed members left.",
    ),
    Mutant(
        name="left-behind-asked-once",
        file=_GROUPS,
        old="        self._departed[group.name] = self._now_ms() + LEFT_BEHIND_PERIOD_MS\n",
        new=(
            "        self._departed[group.name] = self._now_ms() + 1_000_000 * "
            "LEFT_BEHIND_PERIOD_MS\n"
        ),
        mistake="What departed members left is asked for once: a lost question is not repeated.",
    ),
    Mutant(
        name="change-told-before-durable",
        file=_GROUPS,
        old="                self._environment.when_durable(word)",
        new="                word()",
        mistake="Members hear of a new assignment before it is durable.",
        unseen_because=(
            "the word has its member ask, and says nothing else. The answer to that waits until the"
            " change is durable, and a broker that has started anew meanwhile answers what it knows"
        ),
    ),
    Mutant(
        name="generation-not-stored",
        file=_GROUP_ROWS,
        old="        generation=group.generation,\n        allow_two_phase_commit=group.allow",
        new="        allow_two_phase_commit=group.allow",
        mistake="After a restart generations begin anew.",
    ),
    Mutant(
        name="group-row-written-once",
        file=_GROUPS,
        old=(
            "        if change.reassigned:\n"
            "            self._environment.metrics.group_rebalances.inc()\n"
            "            self._write(group)"
        ),
        new=(
            "        if change.reassigned:\n"
            "            self._environment.metrics.group_rebalances.inc()"
        ),
        mistake="A group's row is written when somebody joins, and not when somebody goes.",
    ),
    Mutant(
        name="owner-waits-for-nobody",
        file=_OWNERSHIP,
        old=(
            "        return [one.txn_id for one in transactions if one.member.generation < "
            "owner.generation]"
        ),
        new=(
            "        return [\n"
            "            one.txn_id\n"
            "            for one in transactions\n"
            "            if one.member.generation + 1 < owner.generation\n"
            "        ]"
        ),
        mistake="A new owner does not wait for what its direct predecessor left open.",
    ),
    Mutant(
        name="strangers-act-beside-members",
        file=_OWNERSHIP,
        old="        elif self._group.members:\n            raise",
        new="        elif len(self._group.members) > 1:\n            raise",
        mistake="Beside a single member, who is no member may acknowledge.",
    ),
    Mutant(
        name="nothing-left-behind",
        file=_OWNERSHIP,
        old="            if one.member.member_id and one.member.member_id not in members\n",
        new="            if one.member.member_id and not members\n",
        mistake="What a departed member left is aborted only once the group is empty.",
    ),
    Mutant(
        name="two-phase-holds-group",
        file=_OWNERSHIP,
        old="        if two_phase_commit and not self._group.allow_two_phase_commit:",
        new="        if two_phase_commit and not self._group.members:",
        mistake="A transaction that never expires may hold a group's partition.",
    ),
    Mutant(
        name="incarnation-taken-twice",
        file=_INCARNATIONS,
        old="        if row.store_token == store_token:",
        new="        if row.store_token[:1] == store_token[:1]:",
        mistake=(
            "Tokens of stores are compared by their beginning: a new store gets the old "
            "incarnation."
        ),
    ),
    Mutant(
        name="incarnation-not-stored",
        file=_INCARNATIONS,
        old="        self._rows[tcid] = taken\n        self._environment",
        new=(
            "        self._rows[tcid] = taken\n"
            "        if row is not None:\n"
            "            return taken.incarnation\n"
            "        self._environment"
        ),
        mistake="A coordinator's second incarnation is kept in memory only.",
    ),
    Mutant(
        name="first-session-of-coordinator",
        file=_SESSIONS,
        old="            self._sessions[tcid] = session",
        new="            self._sessions.setdefault(tcid, session)",
        mistake=(
            "A coordinator is spoken to on the first of its links, which is gone after a crash."
        ),
    ),
    Mutant(
        name="late-join-accepted",
        file=_GROUP,
        old="            past is not None and 0 < newcomer.join_epoch <= past.join_epoch",
        new="            past is not None and 0 < newcomer.join_epoch < past.join_epoch",
        mistake="A late copy of a join brings a member back that has left.",
    ),
    Mutant(
        name="deleted-group-forgets-who-left",
        file=_GROUPS,
        old="        return Group(name, past_members=self._deleted.past_members(name))",
        new="        return Group(name)",
        mistake="A late copy of a join makes a deleted group anew, or joins the one made since.",
    ),
    Mutant(
        name="join-epoch-not-stored",
        file=_GROUP_ROWS,
        old=(
            "                join_epoch=one.join_epoch,\n"
            "            )\n"
            "            for one in group.members.values()"
        ),
        new="            )\n            for one in group.members.values()",
        mistake="A late copy of a join from before a restart brings a member back that has left.",
    ),
    Mutant(
        name="late-heartbeat-counts",
        file=_GROUP,
        old="        if 0 < number <= member.heartbeat_number:",
        new="        if 0 < number < member.heartbeat_number - 1:",
        mistake="A late copy of a heartbeat says that what is held now is not: it is given away.",
    ),
)
