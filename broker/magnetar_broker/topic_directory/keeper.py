"""Keeper of the directory: the first broker. A broker that is alone is the first one, too.

A creation or deletion is answered when the linked followers know of it, a second later at most. A
deletion first asks the other brokers whether anything is open there.
Source: docs/design/0008-cluster.md, The directory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Any

from magnetar_broker import keys
from magnetar_broker.coordinators.coordinator_sessions import CoordinatorSessions
from magnetar_broker.coordinators.incarnations import Incarnations
from magnetar_broker.coordinators.store_tokens import works_with_another
from magnetar_broker.environment import Environment
from magnetar_broker.groups.groups import Groups
from magnetar_broker.replies import Replies
from magnetar_broker.topic_directory.growths import Survey, Told, not_told
from magnetar_broker.topic_directory.guards import EmptyStoreGuard
from magnetar_broker.topic_directory.peer import BrokerPeer
from magnetar_broker.topic_directory.rows import BrokerStores, PastCalls
from magnetar_broker.topics.alterations import announced, grown, retracted
from magnetar_broker.topics.topic_directory import Contents, TopicDirectory, begin_life
from magnetar_broker.topics.topics import Topic, Topics
from magnetar_core.errors import (
    InvalidArgument,
    LogUnavailable,
    MagnetarError,
    QuotaExceeded,
    ResourceInUse,
    TopicNotFound,
    from_wire,
)
from magnetar_core.membership.placement import shard_of
from magnetar_core.server.commands import CommandSession, Handler, Reply, each_of
from magnetar_core.transport.transport import Transport
from magnetar_core.wire import record_pb2 as records
from magnetar_core.wire import topic_pb2 as wire

# How long an answer waits for followers that are linked.
FOLLOWERS_WAIT_S = 1.0

Done = Callable[[], None]


class _Follower:
    """A follower: its present conversation, and the question that waits for news."""

    def __init__(self, on_change: Done) -> None:
        self._on_change = on_change
        self._session: CommandSession | None = None
        # The highest revision that it has, in the present life of the directory.
        self.revision = 0
        self.waiting: tuple[wire.CommandFollowDirectory, Reply] | None = None

    @property
    def is_linked(self) -> bool:
        """Whether it follows now."""
        return self._session is not None and not self._session.closed

    def is_at(self, session: CommandSession) -> None:
        """Note the conversation in which it asked last."""
        if self._session is not session:
            if self._session is not None:
                self._session.unlisten(self)
            self._session = session
            session.listen(self)

    def session_writable(self, writable: bool) -> None:
        """Ignore the event: answers are small, and rare."""

    def session_closed(self) -> None:
        """Note that its answer is no longer awaited."""
        self._on_change()


class _Wait:
    """An answer that waits until followers have a revision."""

    def __init__(self, revision: int, done: Done) -> None:
        self.revision = revision
        self.done = done
        self.timer: asyncio.TimerHandle | None = None


class TopicDirectoryKeeper:
    """The first broker's part in the directory.

    Attributes:
        guard: decides whether this broker may serve.
        handlers: of the commands about topics and incarnations.
    """

    # It makes the topics, so it knows all of them.
    is_current = True

    def __init__(
        self,
        environment: Environment,
        topics: Topics,
        groups: Groups,
        incarnations: Incarnations,
        coordinators: CoordinatorSessions,
        transport: Transport,
        random: Random,
    ) -> None:
        config = environment.config
        self._environment = environment
        self._topics = topics
        self._groups = groups
        self._incarnations = incarnations
        self._coordinators = coordinators
        self._stores = BrokerStores(environment)
        self.guard = EmptyStoreGuard(config, incarnations)
        self._replies = Replies(environment)
        self._directory = TopicDirectory(random.getrandbits(63) | 1)
        self._losses = 0
        self._lives: list[wire.DirectoryLife] = []
        others = list(enumerate(config.brokers))[1:]
        self._followers = {one.name: _Follower(self._look_at_waits) for _, one in others}
        self._peers = {shard: BrokerPeer(one, config, transport, random) for shard, one in others}
        self._waits: dict[_Wait, None] = {}
        # Of topics that grow, by their ids.
        self._surveys: dict[int, Survey] = {}
        self._past_calls = PastCalls(environment)
        self.handlers: Mapping[str, Handler] = each_of(
            {
                "create_topic": self._create_topic,
                "alter_topic": self._alter_topic,
                "delete_topic": self._delete_topic,
                "take_incarnation": self._take_incarnation,
                "follow_directory": self._follow_directory,
            }
        )

    async def recover(self, losses: int) -> None:
        """Read the rows, and begin a life of the directory; the topics are recovered already.

        Args:
            losses: how many losses of the store were accepted.
        """
        await self._incarnations.recover()
        await self._stores.recover()
        is_new = not self._topics.by_id and self._topics.next_serial == 1
        self.guard.recovered(is_empty=is_new and not losses)
        self._losses = losses
        for topic in self._topics.all():
            if topic.record.growing_to:
                self._topics.alter(retracted(topic.record))
        if not self._followers:
            return
        await self._past_calls.recover()
        row = records.DirectoryLivesRow()
        value = await self._environment.store.get(keys.META, keys.META_DIRECTORY_LIVES)
        if value is not None:
            row.ParseFromString(value)
        self._lives = begin_life(row.lives, self._directory.life, self._topics.next_serial)
        row = records.DirectoryLivesRow(lives=self._lives)
        self._environment.commits.batch.put(
            keys.META, keys.META_DIRECTORY_LIVES, row.SerializeToString()
        )

    def start(self) -> None:
        """Begin to connect to the other brokers."""
        for peer in self._peers.values():
            peer.start()

    def stop(self) -> None:
        """Break all links at once."""
        for survey in self._surveys.values():
            survey.cancel()
        for peer in self._peers.values():
            peer.stop()

    async def close(self) -> None:
        """End all waits, and close the links."""
        for wait in list(self._waits):
            self._end(wait)
        for survey in self._surveys.values():
            survey.cancel()
        for peer in self._peers.values():
            await peer.close()

    def waiting_for_news(self, handlers: Mapping[str, Handler]) -> dict[str, Handler]:
        """Return the handlers unchanged: a topic that this broker does not know does not exist."""
        return dict(handlers)

    # Creations

    def _create_topic(self, command: wire.CommandCreateTopic, reply: Reply) -> None:
        known = self._past_calls.topic_of(command.call_token)
        if known is not None:
            self._replies.answer(reply, wire.CommandCreateTopicResponse(topic_id=known))
            return
        topic = self._topics.existing(command) if command.exist_ok else None
        if topic is None:
            topic = self._topics.create(command)
            self._groups.topic_changed(topic.name)
            self._directory.topic_changed(topic.topic_id)
        self._note_call(command.call_token, topic)
        answer = wire.CommandCreateTopicResponse(topic_id=topic.topic_id)
        self._answer_when_followed(reply, answer)

    # Alterations

    def _alter_topic(self, command: wire.CommandAlterTopic, reply: Reply) -> None:
        known = self._past_calls.topic_of(command.call_token)
        if known is not None:
            self._replies.answer(reply, wire.CommandAlterTopicResponse(topic_id=known))
            return
        topic = self._topics.of_id(command.topic, command.topic_id)
        wanted = self._topics.altered(topic, command)
        if command.dry_run:
            answer = wire.CommandAlterTopicResponse(topic_id=topic.topic_id)
            self._replies.answer(reply, answer)
        elif wanted.partitions == topic.record.partitions:
            self._alter(wanted, command.call_token, reply)
        else:
            self._grow(topic, wanted, command.call_token, reply)

    def _alter(self, record: wire.TopicRecord, call_token: int, reply: Reply) -> None:
        topic = self._topics.get(record.topic)
        if record != topic.record:
            self._put(record)
        self._note_call(call_token, topic)
        answer = wire.CommandAlterTopicResponse(topic_id=topic.topic_id)
        self._answer_when_followed(reply, answer)

    def _put(self, record: wire.TopicRecord) -> None:
        self._groups.carry(self._topics.alter(record))
        self._groups.topic_changed(record.topic)
        self._directory.topic_changed(record.topic_id)

    def _grow(self, topic: Topic, wanted: wire.TopicRecord, call_token: int, reply: Reply) -> None:
        """Give a topic partitions when the brokers of its present ones know that it grows."""
        peers = {peer.name: peer for peer in self._peers_of(topic)}
        if not peers:
            self._finish_growth(topic.record, wanted, {}, call_token, reply)
            return
        growing = announced(topic.record, wanted.partitions)
        self._put(growing)
        self._tell_followers()
        revision = self._directory.revision

        def on_told(told: Told | MagnetarError) -> None:
            self._surveys.pop(topic.topic_id, None)
            if isinstance(told, MagnetarError):
                self._retract(growing)
                self._replies.refuse(told, reply)
                return
            try:
                self._finish_growth(growing, wanted, told, call_token, reply)
            except Exception as error:
                self._retract(growing)
                self._replies.fail(error, reply)

        def on_followed() -> None:
            for name in peers:
                follower = self._followers[name]
                if not follower.is_linked or follower.revision < revision:
                    on_told(not_told(growing, name, "it is away"))
                    return
            survey = self._surveys[topic.topic_id] = Survey(growing, peers, on_told)
            survey.start()

        self._when_followed(on_followed)

    def _finish_growth(
        self,
        before: wire.TopicRecord,
        wanted: wire.TopicRecord,
        told: Told,
        call_token: int,
        reply: Reply,
    ) -> None:
        """Give a topic partitions, with the subscriptions of those that it has.

        Args:
            before: the topic's record; it may be deleted since.
            told: the subscriptions of the partitions at other brokers.
        """
        topic = self._topics.of_id(before.topic, before.topic_id)
        kinds = dict(told)
        for partition in topic.partitions:
            kinds[partition.name.partition] = {
                one.name.subscription: one.group_ownership is not None
                for one in partition.subscriptions
            }
        missing = [one for one in range(before.partitions) if one not in kinds]
        if missing:
            raise LogUnavailable(f"no broker has told of partition {missing[0]}: ask again")
        result = grown(wanted, kinds.values())
        limit = self._environment.config.subscriptions_max
        count = len(result.subscriptions) + len(result.groups)
        if count > limit:
            raise QuotaExceeded(
                f"the new partitions of {before.topic!r} would have {count} subscriptions: delete"
                " some, or raise subscriptions_max",
                subscriptions_max=limit,
            )
        self._alter(result, call_token, reply)

    def _retract(self, growing: wire.TopicRecord) -> None:
        """Take an announcement back, if the topic still has it."""
        topic = self._topics.lookup(growing.topic)
        if topic is not None and topic.record == growing:
            self._put(retracted(growing))
            self._tell_followers()

    def _peers_of(self, topic: Topic) -> list[BrokerPeer]:
        """Return the other brokers that keep partitions of a topic."""
        shards = {shard_of(topic.topic_id, number) for number in range(topic.record.partitions)}
        return [peer for shard, peer in self._peers.items() if shard in shards]

    # Deletions, incarnations

    def _delete_topic(self, command: wire.CommandDeleteTopic, reply: Reply) -> None:
        if self._past_calls.topic_of(command.call_token) is not None:
            self._replies.answer(reply, wire.CommandDeleteTopicResponse())
            return
        topic = self._topics.to_delete(command.topic, command.topic_id)
        asked = self._peers_of(topic)
        if not asked:
            self._delete(topic, command.call_token, reply)
            return
        # The first refusal answers.
        left = dict.fromkeys(peer.name for peer in asked)

        def on_answer(peer: str, name: str, body: Any) -> None:
            if peer not in left:
                return
            error = _refusal_of(topic, peer, name, body)
            if error is not None:
                left.clear()
                self._replies.refuse(error, reply)
                return
            del left[peer]
            if not left:
                self._delete_asked(topic, command.call_token, reply)

        for peer in asked:
            peer.ask(wire.CommandDescribeTopic(topic=topic.name), partial(on_answer, peer.name))

    def _delete_asked(self, topic: Topic, call_token: int, reply: Reply) -> None:
        """Delete a topic after the other brokers were asked: meanwhile much may have happened."""
        try:
            found = self._topics.to_delete(topic.name, topic.topic_id)
        except Exception as error:
            self._replies.fail(error, reply)
            return
        self._delete(found, call_token, reply)

    def _delete(self, topic: Topic, call_token: int, reply: Reply) -> None:
        self._topics.delete(topic)
        self._note_call(call_token, topic)
        self._groups.topic_changed(topic.name)
        self._directory.topic_changed(topic.topic_id)
        self._answer_when_followed(reply, wire.CommandDeleteTopicResponse())

    def _note_call(self, call_token: int, topic: Topic) -> None:
        if self._followers:
            self._past_calls.note(call_token, topic.topic_id)

    def _take_incarnation(self, command: wire.CommandTakeIncarnation, reply: Reply) -> None:
        tcid, token = command.tcid, command.store_token
        is_new = self._incarnations.find(tcid, token) is None
        if is_new and self._incarnations.has(tcid) and self._coordinators.is_linked(tcid):
            raise LogUnavailable(works_with_another(f"coordinator {tcid}"))
        taken = self._incarnations.take(tcid, token)
        answer = wire.CommandTakeIncarnationResponse(incarnation=taken)
        if is_new:
            self._directory.changed()
            self._answer_when_followed(reply, answer)
        else:
            self._replies.answer(reply, answer)

    def may_have_incarnation(self, tcid: int) -> bool:
        """Return whether a coordinator took an incarnation here."""
        return self._incarnations.has(tcid)

    def admit_store(self, tcid: int, incarnation: int, store_token: str) -> None:
        """Check that a coordinator's store took an incarnation here.

        Raises:
            InvalidTxnState: it did not.
        """
        if self._incarnations.admit(tcid, incarnation, store_token):
            self._directory.changed()
            self._tell_followers()

    # Followers

    def _follow_directory(self, command: wire.CommandFollowDirectory, reply: Reply) -> None:
        follower = self._followers.get(command.broker_name)
        if follower is None:
            raise InvalidArgument(
                f"{command.broker_name!r} is not among the brokers that follow this one"
            )
        self._stores.introduce(
            command.broker_name,
            command.store_token,
            command.accepted_losses,
            is_linked=follower.is_linked,
        )
        if reply.session is None:
            # A unary call comes from a person or a tool, not from a follower.
            self._tell(command, reply)
            return
        earlier, follower.waiting = follower.waiting, None
        follower.is_at(reply.session)
        if command.directory_life != self._directory.life:
            follower.revision = 0
        else:
            follower.revision = max(follower.revision, command.revision)
        if earlier is not None:
            # The follower asks anew, or this is a copy: then the answer lets it ask again.
            self._tell(*earlier)
        has_news = self._directory.has_news(command.directory_life, command.revision)
        if command.at_once or has_news:
            self._tell(command, reply)
        else:
            follower.waiting = (command, reply)
        self._look_at_waits()

    def _tell(self, command: wire.CommandFollowDirectory, reply: Reply) -> None:
        topics = self._topics
        contents = Contents(
            topics=topics.by_id,
            next_serial=topics.next_serial,
            accepted_losses=self._losses,
            coordinator_stores=self._incarnations.stores(),
            lives=self._lives,
        )
        told = self._directory.tell(command.directory_life, command.revision, contents)
        # Followers are told only about durable changes.
        self._replies.answer(reply, told)

    def _answer_when_followed(self, reply: Reply, answer: Any) -> None:
        """Tell the followers what is new, and answer when those that are linked have it."""
        self._tell_followers()
        self._when_followed(partial(self._replies.answer, reply, answer))

    def _when_followed(self, done: Done) -> None:
        """Call when the linked followers have what is there now, or a second has passed."""
        wait = _Wait(self._directory.revision, done)
        self._waits[wait] = None
        if not self._is_over(wait):
            loop = asyncio.get_running_loop()
            wait.timer = loop.call_later(FOLLOWERS_WAIT_S, self._end, wait)
        self._look_at_waits()

    def _tell_followers(self) -> None:
        for follower in self._followers.values():
            waiting, follower.waiting = follower.waiting, None
            if waiting is not None:
                self._tell(*waiting)

    def _is_over(self, wait: _Wait) -> bool:
        followers = self._followers.values()
        return all(
            follower.revision >= wait.revision for follower in followers if follower.is_linked
        )

    def _look_at_waits(self) -> None:
        for wait in [one for one in self._waits if self._is_over(one)]:
            self._end(wait)

    def _end(self, wait: _Wait) -> None:
        if wait.timer is not None:
            wait.timer.cancel()
        if wait in self._waits:
            del self._waits[wait]
            wait.done()


def _refusal_of(topic: Topic, peer: str, name: str, body: Any) -> MagnetarError | None:
    """Return why a topic may not be deleted, as another broker describes it; None: it may."""
    if name == "error":
        error = from_wire(body)
        if isinstance(error, TopicNotFound):
            return None  # That broker has not learned of the topic, so it was not used there.
        return LogUnavailable(
            f"{peer} does not say whether transactions are open on {topic.name!r}: ask again"
            f" ({error})"
        )
    if body.topic_id != topic.topic_id:
        return LogUnavailable(f"{peer} knows another topic {topic.name!r} yet: ask again")
    for one in body.partitions:
        pending = sum(
            each.pending_txn_count or each.pending_ack_count for each in one.subscriptions
        )
        if one.open_txn_count or pending:
            return ResourceInUse(
                f"{one.open_txn_count} transactions are open on partition {one.partition} of"
                f" {topic.name!r} at {peer}, and {pending} have acknowledged there: end them first"
            )
    return None
