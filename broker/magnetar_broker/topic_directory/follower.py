"""Follower of the directory: any broker but the first one. It has a copy, and passes commands on.

It asks with FollowDirectory, and again as soon as it is answered; the first broker answers when
something has changed. The rows of this broker's partitions are written in the same batch as the
copy. A newer question takes the place of an older one, whose answer is then ignored.

Commands about topics and incarnations go to the first broker, and are answered when the copy has
what it answered. A command that names what the copy lacks waits while the first broker is asked.
Source: docs/design/0008-cluster.md, The directory.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Any

from magnetar_broker import keys
from magnetar_broker.coordinators.incarnations import not_taken
from magnetar_broker.coordinators.store_tokens import digest_of
from magnetar_broker.environment import Environment
from magnetar_broker.groups.groups import Groups
from magnetar_broker.replies import Replies
from magnetar_broker.topic_directory.guards import FollowerGuard, is_refusal
from magnetar_broker.topic_directory.peer import BrokerPeer
from magnetar_broker.topics.topic_directory import (
    TopicDirectoryCopy,
    TopicDirectoryDistrusted,
    Unheard,
    UnheardName,
)
from magnetar_broker.topics.topics import Topics
from magnetar_core.errors import (
    DataLoss,
    InvalidArgument,
    LogUnavailable,
    MagnetarError,
    from_wire,
)
from magnetar_core.link.link_questions import OnAnswer
from magnetar_core.server.commands import Handler, Reply, Run, each_of
from magnetar_core.transport.frames import detached
from magnetar_core.transport.spliced import byte_count_of
from magnetar_core.transport.transport import Transport
from magnetar_core.wire import record_pb2 as records
from magnetar_core.wire import topic_pb2 as wire

log = logging.getLogger(__name__)

# After a refusal, the first broker is asked again so much later.
REFUSED_RETRY_S = 1.0
# Commands that wait until the first broker has said whether their topic is new; larger ones, and
# those that come when so many wait, are to be sent again.
WAITING_MAX = 1_000
WAITING_BYTES_MAX = 64 << 10
# Their clients send them again, in order; a later one must not come before an earlier one.
_NEVER_WAITING = frozenset({"send", "publish"})

# Called when the copy has what the first broker had at the time of asking; or with an error.
OnCurrent = Callable[[MagnetarError | None], None]


class TopicDirectoryFollower:
    """A follower's part in the directory.

    Attributes:
        guard: decides whether this broker may serve.
        handlers: of the commands about topics and incarnations.
        is_current: whether the link is up, and the directory was taken on it.
    """

    def __init__(
        self,
        environment: Environment,
        topics: Topics,
        groups: Groups,
        transport: Transport,
        random: Random,
    ) -> None:
        config = environment.config
        self._environment = environment
        self._topics = topics
        self._groups = groups
        self.guard = FollowerGuard(config.brokers[0].name)
        self._commands = _PassedOn(environment, topics, self)
        self.handlers = self._commands.handlers
        self._random = random
        self._copy = TopicDirectoryCopy()
        self._row = records.DirectoryCopyRow()
        self._peer = BrokerPeer(
            config.brokers[0],
            config,
            transport,
            random,
            on_up=self._on_up,
            on_down=self._on_down,
        )
        self._ended = False
        self.is_current = False
        # The question whose answer is waited for.
        self._asked = 0
        # Callers who wait for the answer, and those who came later: their question is the next.
        self._asking: list[OnCurrent] = []
        self._waiting: list[OnCurrent] = []
        # The present store of each coordinator.
        self._stores: dict[int, wire.CoordinatorStore] = {}
        self._timer: asyncio.TimerHandle | None = None
        # The last one about the directory, so that it is told once.
        self._complaint = ""

    async def recover(self, losses: int) -> None:
        """Read the row of the copy; its topics are recovered already.

        Args:
            losses: how many losses of this store were accepted.
        """
        value = await self._environment.store.get(keys.META, keys.META_DIRECTORY_COPY)
        if value is not None:
            self._row = records.DirectoryCopyRow.FromString(value)
        if not self._row.store_token:
            self._row.store_token = f"{self._random.getrandbits(128):032x}"
            self._put_row()
        self._copy = TopicDirectoryCopy(
            directory_losses=self._row.directory_losses,
            own_losses=self._row.own_losses,
            losses=losses,
            followed_life=self._row.directory_life,
        )
        self.guard.recovered(is_accepted=self._row.accepted)

    def start(self) -> None:
        """Begin to follow, once the store's token is durable."""
        self._environment.when_durable(self._begin)

    def _begin(self) -> None:
        # A broker that is closed at once makes the token durable while it ends.
        if not self._ended:
            self._peer.start()

    def stop(self) -> None:
        """Break the link at once."""
        self._ended = True
        self._stop_timer()
        self._peer.stop()

    async def close(self) -> None:
        """Stop following."""
        self.stop()
        await self._peer.close()

    def may_have_incarnation(self, tcid: int) -> bool:
        """Return whether a coordinator may have taken an incarnation, as far as is known here."""
        return not self.is_current or tcid in self._stores

    def admit_store(self, tcid: int, incarnation: int, store_token: str) -> None:
        """Check that a coordinator's store took an incarnation, as far as is known here.

        Raises:
            Unheard: it is not the present store here; the first broker may know more.
            InvalidTxnState: nor is it at the first broker.
        """
        digest = digest_of(store_token)
        heard = self._environment.watermarks.of(tcid)
        if (heard.incarnation, heard.store_digest) == (incarnation, digest):
            return
        known = self._stores.get(tcid)
        if known is None or (known.incarnation, known.token_digest) != (incarnation, digest):
            unheard = Unheard(
                f"this broker does not know incarnation {incarnation} of coordinator {tcid}:"
                " ask again"
            )
            raise self._topics.unless_complete(unheard, not_taken(tcid, incarnation))

    def waiting_for_news(self, handlers: Mapping[str, Handler]) -> dict[str, Handler]:
        """Return handlers that ask the first broker about what the copy lacks."""
        return self._commands.waiting_for_news(handlers)

    def ask(self, body: Any, on_answer: OnAnswer) -> None:
        """Pass a command on to the first broker."""
        if self._copy.distrusted:
            on_answer("error", self._distrust().to_wire())
        else:
            self._peer.ask(body, on_answer)

    def catch_up(self, on_current: OnCurrent) -> None:
        """Call back when the copy has everything that the first broker has now."""
        if not self._peer.is_up or self._copy.distrusted:
            on_current(self._away())
            return
        self._waiting.append(on_current)
        if not self._asking:
            self._follow()

    def hurry(self) -> None:
        """Ask the first broker what is new, without waiting for it."""
        if not self._asking:
            self.catch_up(lambda error: None)

    def _on_up(self) -> None:
        self._copy.link_is_up()
        self._follow()

    def _on_down(self) -> None:
        self.is_current = False
        self._asked = 0
        self._stop_timer()
        self._give_up()

    def _give_up(self) -> None:
        """Answer all waiting callers: the first broker cannot be reached."""
        callers = [*self._asking, *self._waiting]
        self._asking, self._waiting = [], []
        for caller in callers:
            caller(self._away())

    def _away(self) -> MagnetarError:
        if self._copy.distrusted:
            return LogUnavailable(str(self._distrust()))
        return LogUnavailable(f"the first broker, {self._peer.name}, is away: ask again")

    def _distrust(self) -> MagnetarError:
        return DataLoss(
            f"the directory of {self._peer.name}, the first broker, lacks what is known here; the"
            " log of this broker says more"
        )

    def _follow(self) -> None:
        self._stop_timer()
        self._peer.forget(self._asked)
        # Callers that waited for the forgotten question wait for this one.
        self._asking += self._waiting
        self._waiting = []
        command = wire.CommandFollowDirectory(
            broker_name=self._environment.config.name,
            store_token=self._row.store_token,
            accepted_losses=self._copy.losses,
            directory_life=self._copy.life,
            revision=self._copy.revision,
            at_once=bool(self._asking),
        )
        self._asked = self._peer.ask(command, self._on_told)

    def _on_told(self, name: str, body: Any) -> None:
        if name == "error":
            error = from_wire(body)
            if is_refusal(error):
                self._refused(error)
            else:
                log.info("%s does not tell its directory: %s", self._peer.name, error)
            self._give_up()
            if self._peer.is_up:
                self._follow_later()
            return
        self._note_accepted()
        try:
            self._take(body)
        except TopicDirectoryDistrusted as error:
            self._complain(error)
            self._give_up()
            self._follow_later()
            return
        asking, self._asking = self._asking, []
        for one in asking:
            one(None)
        self._follow()

    def _take(self, told: wire.CommandFollowDirectoryResponse) -> None:
        copy, topics = self._copy, self._topics
        taken = copy.take(told, topics.by_id, topics.next_serial)
        if taken is None:
            return
        followed = topics.take(taken, next_serial=told.next_serial, may_have_rows=copy.losses > 0)
        self._change_row(
            directory_losses=copy.directory_losses,
            own_losses=copy.own_losses,
            directory_life=copy.followed_life,
        )
        self._groups.carry(followed.begun)
        for name in followed.topics:
            self._groups.topic_changed(name)
        self._stores = {store.tcid: store for store in told.coordinator_stores}
        if not self.is_current:
            self.is_current = True
            self._complaint = ""

    def _complain(self, reason: TopicDirectoryDistrusted) -> None:
        self.is_current = False
        self._copy.link_is_up()
        if self._complaint == str(reason):
            return
        self._complaint = str(reason)
        log.critical(
            "the directory of %s, the first broker, is no longer followed: %s. Its data"
            " directory is an older one, or was lost. This broker keeps its topics and serves them,"
            " and takes no new ones. Stop %s, and put its directory back; or go on with what it"
            " has, which deletes all other partitions here: stop this broker, and magnetar storage"
            " accept-loss --everything DATA_DIR",
            self._peer.name,
            reason,
            self._peer.name,
        )

    def _note_accepted(self) -> None:
        self.guard.accepted()
        self._change_row(accepted=True)

    def _refused(self, error: MagnetarError) -> None:
        self.is_current = False
        self.guard.refused(str(error))
        self._change_row(accepted=False)

    def _change_row(self, **fields: Any) -> None:
        before = self._row.SerializeToString(deterministic=True)
        for name, value in fields.items():
            setattr(self._row, name, value)
        if self._row.SerializeToString(deterministic=True) != before:
            self._put_row()

    def _put_row(self) -> None:
        self._environment.commits.batch.put(
            keys.META, keys.META_DIRECTORY_COPY, self._row.SerializeToString()
        )

    def _follow_later(self) -> None:
        self._stop_timer()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(REFUSED_RETRY_S, self._follow)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _PassedOn:
    """Commands that a follower passes on, and those that wait for what the first broker knows."""

    def __init__(
        self, environment: Environment, topics: Topics, follower: TopicDirectoryFollower
    ) -> None:
        self._topics = topics
        self._follower = follower
        self._replies = Replies(environment)
        self._waiting_count = 0
        self.handlers: Mapping[str, Handler] = each_of(
            {
                "create_topic": self._pass_on,
                "alter_topic": self._pass_on,
                "delete_topic": self._pass_on,
                "take_incarnation": self._pass_on,
                "follow_directory": self._refuse_follower,
            }
        )

    def _refuse_follower(self, command: wire.CommandFollowDirectory, reply: Reply) -> None:
        raise InvalidArgument("this is not the first broker: it keeps no directory to follow")

    def _pass_on(self, command: Any, reply: Reply) -> None:
        self._follower.ask(detached(command), lambda name, body: self._answered(name, body, reply))

    def _answered(self, name: str, body: Any, reply: Reply) -> None:
        refusal = from_wire(body) if name == "error" else None
        if refusal is not None and refusal.retriable:
            self._replies.refuse(refusal, reply)
            return

        def on_current(error: MagnetarError | None) -> None:
            if refusal is not None:
                # An answer that a topic exists makes the client use it.
                self._replies.refuse(refusal, reply)
            elif error is not None:
                self._replies.refuse(error, reply)
            else:
                self._replies.answer(reply, body)

        self._follower.catch_up(on_current)

    def waiting_for_news(self, handlers: Mapping[str, Handler]) -> dict[str, Handler]:
        """See TopicDirectoryFollower.waiting_for_news."""
        return {
            name: self._hurrying(handler) if name in _NEVER_WAITING else self._waiting(handler)
            for name, handler in handlers.items()
        }

    def _hurrying(self, handler: Handler) -> Handler:
        """Return a handler that refuses what is unheard of, and asks what is new meanwhile."""

        def handle(run: Run) -> None:
            def failed(error: Exception, command: Any, reply: Reply) -> None:
                if isinstance(error, Unheard):
                    self._follower.hurry()
                    if isinstance(error, UnheardName) and self._follower.is_current:
                        # A send by name alone would come again for ever: it is denied without
                        # asking.
                        self._handle_told(handler, Run([(command, reply)], run.failed))
                        return
                run.failed(error, command, reply)

            handler(Run(run.items, failed))

        return handle

    def _waiting(self, handler: Handler) -> Handler:
        """Return a handler whose commands wait, if they name what is unheard of."""

        def handle(run: Run) -> None:
            def failed(error: Exception, command: Any, reply: Reply) -> None:
                if isinstance(error, Unheard):
                    is_full = self._waiting_count >= WAITING_MAX
                    if not is_full and byte_count_of(command) <= WAITING_BYTES_MAX:
                        self._wait(handler, command, reply)
                        return
                    self._follower.hurry()
                run.failed(error, command, reply)

            handler(Run(run.items, failed))

        return handle

    def _wait(self, handler: Handler, command: Any, reply: Reply) -> None:
        waiting = detached(command)
        self._waiting_count += 1

        def on_current(error: MagnetarError | None) -> None:
            self._waiting_count -= 1
            if error is not None:
                self._replies.refuse(error, reply)
            else:
                self._replies.handle(partial(self._handle_told, handler), waiting, reply)

        self._follower.catch_up(on_current)

    def _handle_told(self, handler: Handler, run: Run) -> None:
        """Handle commands, and deny what is not known here."""
        with self._topics.complete():
            handler(run)
