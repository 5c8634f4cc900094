"""Mistakes about shards that come and go: who is let in, what leaves, and how they end."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_DOORS = "core/magnetar_core/server/doors.py"
_LEASED = "core/magnetar_core/server/leased.py"
_UNARY = "core/magnetar_core/server/grpc_unary.py"
_TRANSPORT = "core/magnetar_core/link/grpc_transport.py"
_LINKS = "cluster/magnetar_cluster/cluster_transport.py"
_WHERE = "cluster/magnetar_cluster/whereabouts.py"
_SHARDS = "cli/magnetar_cli/servers/shard_servers.py"
_METRICS = "cli/magnetar_cli/servers/shard_metrics.py"
_PUSH = "cli/magnetar_cli/servers/owners_push.py"
_ADDRESSES = "broker/magnetar_broker/commands/member_addresses.py"
_COMMIT = "storage/magnetar_storage/group_commit.py"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        name="another-epoch-enters",
        file=_DOORS,
        old="                while (door := self._doors.get(place)) is not None:\n",
        new=(
            "                while (\n"
            "                    door := {\n"
            "                        key.shard: one for key, one in self._doors.items()\n"
            "                    }.get(place.shard)\n"
            "                ) is not None:\n"
        ),
        mistake="A conversation reaches another ownership than the one that was meant.",
    ),
    Mutant(
        name="opens-what-was-shut",
        file=_DOORS,
        old="        if door is None:\n            raise BrokenInvariant(f",
        new="        if door is None:\n            door = self._doors[place] = Door()\n"
        "        if door is None:\n            raise BrokenInvariant(f",
        mistake="An opening that was too late lets conversations into a shard that is lost.",
    ),
    Mutant(
        name="shut-is-not-sharpened",
        file=_DOORS,
        old="self._doors.pop(place, None) or self._shutting.get(place)",
        new="self._doors.pop(place, None)",
        mistake="A shard that is lost while it is handed over goes on with its last answers.",
    ),
    Mutant(
        name="graceful-end-drops-answers",
        file=_DOORS,
        old="            if gracefully:\n                door.finish()",
        new="            if gracefully:\n                door.end()",
        mistake="A handover drops answers that were given.",
    ),
    Mutant(
        name="opening-waits-for-ever",
        file=_DOORS,
        old="async with asyncio.timeout(OPENING_WAIT_MS_MAX / 1_000):",
        new="async with asyncio.timeout(None):",
        mistake="A conversation waits for a shard that never opens.",
    ),
    Mutant(
        name="lease-looked-at-when-it-begins",
        file=_LEASED,
        old="            if not muted and self._may_speak():\n",
        new="            if not muted:\n",
        mistake="A server that slept goes on with its conversations.",
    ),
    Mutant(
        name="conversation-goes-on-after-a-gap",
        file=_LEASED,
        old="                muted = True\n",
        new="                muted = False\n",
        mistake="A conversation goes on although a frame of it was held back.",
    ),
    Mutant(
        name="unary-answers-without-lease",
        file=_LEASED,
        old="        return _LeasedHandlers(self._commands.handlers, self._leased)",
        new="        return self._commands.handlers",
        mistake="A server that slept answers unary calls.",
    ),
    Mutant(
        name="refusals-without-lease",
        file=_LEASED,
        old="        self._commands.refuse(error, self._leased(reply))",
        new="        self._commands.refuse(error, reply)",
        mistake="A server that slept denies what others have made meanwhile.",
    ),
    Mutant(
        name="questions-without-lease",
        file=_LEASED,
        old="        if not self._muted and self._may_speak():",
        new="        if not self._muted:",
        mistake="A server that slept tells brokers of ends and watermarks.",
    ),
    Mutant(
        name="silent-servers-take-conversations",
        file=_LEASED,
        old="        if not self._may_speak():\n            raise LogUnavailable(",
        new="        if self._may_speak is None:\n            raise LogUnavailable(",
        mistake="A client stays with a server that must not answer it.",
    ),
    Mutant(
        name="unary-calls-outlive-their-shard",
        file=_UNARY,
        old="            self.answer.set_result(LogUnavailable().to_wire())",
        new="            pass",
        mistake="A call waits for an answer of a shard that has gone.",
    ),
    Mutant(
        name="asks-a-server-without-a-name",
        file=_TRANSPORT,
        old="    if not shard.server:\n",
        new="    if not shard:\n",
        mistake="Somebody is asked for a shard that nobody has.",
    ),
    Mutant(
        name="links-to-former-owners-stay",
        file=_LINKS,
        old="            if where_is(view, one.shard).address != one.address:\n",
        new="            if not where_is(view, one.shard).is_known:\n",
        mistake="The silence of a server that sleeps is waited for, while another has the shard.",
    ),
    Mutant(
        name="attempts-at-former-owners-go-on",
        file=_LINKS,
        old="            self.opening.cancel()",
        new="            pass",
        mistake="An attempt at a server that sleeps takes its whole time.",
    ),
    Mutant(
        name="any-epoch-is-where-it-is",
        file=_WHERE,
        old="    place = ShardPlace(shard.number, owner.epoch)",
        new="    place = ShardPlace(shard.number, 1)",
        mistake="Addresses do not change when an owner does.",
    ),
    Mutant(
        name="reached-at-with-its-shard",
        file=_ADDRESSES,
        old="server_of(reached_at)",
        new="reached_at",
        mistake="A client on the far side of a gateway gets addresses that it cannot reach.",
    ),
    Mutant(
        name="failed-shard-speaks",
        file=_SHARDS,
        old="        return not self._failure.done() and self._ownership.may_speak()",
        new="        return self._ownership.may_speak()",
        mistake="A shard whose store has failed answers from memory that is ahead of it.",
    ),
    Mutant(
        name="view-from-before-the-claim",
        file=_SHARDS,
        old="        if view.revision >= epoch and (owner is None or owner.epoch != epoch):\n",
        new="        if owner is None or owner.epoch != epoch:\n",
        mistake="A view from before the claim ends the opening.",
    ),
    Mutant(
        name="fenced-handover-is-a-failure",
        file=_SHARDS,
        old="            if not isinstance(error, StoreFenced) and not isinstance(",
        new="            if isinstance(error, StoreFailed) or not isinstance(",
        mistake="A shard that somebody else has by now counts as one that failed.",
    ),
    Mutant(
        name="metrics-of-an-ownership-stay",
        file=_METRICS,
        old="            if number != shard or one is not registry\n",
        new="            if number != shard or one is registry\n",
        mistake="A shard that went is measured for good.",
    ),
    Mutant(
        name="last-change-is-not-told",
        file=_PUSH,
        old="call_later(PAUSE_SECONDS, self._tell)\n",
        new="call_later(\n            PAUSE_SECONDS, setattr, self, '_timer', None\n        )\n",
        mistake="Of several changes within a moment clients hear the first one only.",
    ),
    Mutant(
        name="abandoned-groups-are-written",
        file=_COMMIT,
        old="            self._task.cancel()\n        self._fail(StoreFailed(",
        new="            pass\n        self._fail(StoreFailed(",
        mistake="Who has lost a shard goes on writing to its store.",
    ),
)
