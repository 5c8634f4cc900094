"""Mistakes in how the SDK follows shards that change their owner."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_ANY_BROKER = "client/magnetar/link/any_broker.py"
_CONNECTION = "client/magnetar/link/connection.py"
_IN_FLIGHT = "client/magnetar/link/in_flight.py"
_MEMBERS = "client/magnetar/link/members.py"
_SERVERS = "client/magnetar/link/servers.py"
_SESSION = "client/magnetar/link/session.py"
_SHARD = "client/magnetar/link/shard_connection.py"
_WATCH = "client/magnetar/link/owner_watch.py"

MUTANTS = (
    Mutant(
        name="former-owner-kept",
        file=_SERVERS,
        old='            self._drop(former, service, "another server has the shard now")',
        new="            self._connections.pop((former.address, service), None)",
        mistake="The link to a former owner that sleeps stays: what is under way there waits.",
    ),
    Mutant(
        name="owners-of-long-ago-kept",
        file=_SERVERS,
        old="        self._connections.pop((connection.address, service), None)\n",
        new="",
        mistake="A client that lives for a year keeps a connection for each ownership.",
    ),
    Mutant(
        name="moved-back-by-a-late-view",
        file=_SERVERS,
        old="        if not is_earlier(address, found.address) or found.connection.is_unreachable:",
        new="        if address:",
        mistake="A member that hears late sends the client back to a former owner.",
    ),
    Mutant(
        name="restored-directory-never-believed",
        file=_SERVERS,
        old=" or found.connection.is_unreachable:",
        new=":",
        mistake="After the directory was restored, clients wait for epochs that come much later.",
    ),
    Mutant(
        name="epochs-compared-as-texts",
        file=_MEMBERS,
        old="told.place.epoch < known.place.epoch",
        new="str(told.place.epoch) < str(known.place.epoch)",
        mistake="Epoch 100 counts as earlier than epoch 99.",
    ),
    Mutant(
        name="waiting-at-an-owner-that-hangs",
        file=_SHARD,
        old="            self._on_waiting()",
        new="            self._on_waiting  # noqa: B018",
        mistake="Whoever connects to a server that hangs looks nobody up until that fails.",
    ),
    Mutant(
        name="watchers-stay-at-the-former-owner",
        file=_SHARD,
        old="            stop()\n            self._watchers[number] =",
        new="            continue\n            self._watchers[number] =",
        mistake="After a move nobody hears that the new owner is away.",
    ),
    Mutant(
        name="addressees-of-former-owners-kept",
        file=_SHARD,
        old="                told.remove(former)\n",
        new="",
        mistake="A consumer remembers all connections that its partition ever had.",
    ),
    Mutant(
        name="change-while-asking-missed",
        file=_WATCH,
        old="            self._heard = True",
        new="            self._heard = False",
        mistake="A change that is told while the client asks is found by chance.",
    ),
    Mutant(
        name="hunt-without-pauses",
        file=_WATCH,
        old="                self._ask_within(self._backoff.next_ms())",
        new="                self._ask_within(0.0)",
        mistake="While nobody has a shard, its clients ask in a loop.",
    ),
    Mutant(
        name="hunt-of-one-question",
        file=_WATCH,
        old="                self._ask_within(self._backoff.next_ms())",
        new="                self.look()",
        mistake="Whoever waits for a shard looks for its owner once, and then seldom.",
    ),
    Mutant(
        name="always-the-same-one-asked",
        file=_ANY_BROKER,
        old="        turn %= len(self._order)",
        new="        turn = 0",
        mistake="A hunt asks the member that answered last, which hears late.",
    ),
    Mutant(
        name="servers-without-shards-asked-for-all",
        file=_ANY_BROKER,
        old="        return sorted(order, key=lambda one: not isinstance(one, ShardConnection))",
        new="        return order",
        mistake="A server that has no shard is asked for topics, and waited for.",
    ),
    Mutant(
        name="silence-unheard",
        file=_SESSION,
        old="                    self._on_silent()",
        new="                    self._listening = None",
        mistake="A request to an owner that sleeps waits until the link is given up.",
    ),
    Mutant(
        name="no-look-at-rest",
        file=_WATCH,
        old="            if self._is_hunting() or self._is_following():",
        new="            if self._is_hunting():",
        mistake="A consumer that asks nothing never notices that its owner sleeps.",
    ),
    Mutant(
        name="change-unheard",
        file=_CONNECTION,
        old="            self._on_owners_changed()\n",
        new="            pass\n",
        mistake="What servers tell of changes is not heard.",
    ),
    Mutant(
        name="nobody-is-connected-to",
        file=_CONNECTION,
        old="        if shard is not None and not shard.server:",
        new="        if shard is not None and shard.server is None:",
        mistake="The transport is asked for a server whose name is empty.",
    ),
    Mutant(
        name="attempt-at-the-former-owner-goes-on",
        file=_CONNECTION,
        old="        if self._connecting is not None and not self._waiters:",
        new="        if self._connecting is not None and self._waiters:",
        mistake="A former owner that wakes up gets a link that nobody uses or closes.",
    ),
    Mutant(
        name="batches-go-on-behind-those-in-flight",
        file=_IN_FLIGHT,
        old="                self._session = None\n                self._lose_flight()",
        new="                self._session = None\n                item.in_flight = False",
        mistake="After a move later batches go first, and those in flight never again.",
    ),
)
