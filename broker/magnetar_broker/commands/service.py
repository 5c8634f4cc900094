"""Commands of the broker: the table of handlers, and handlers about the cluster and its topics.

A handler runs whole, without waiting; its answer leaves when everything applied so far is durable.
The few handlers that read the log answer from a task.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Protocol

from magnetar_broker.budgets.parked_bytes import ParkedBytes
from magnetar_broker.commands.cluster_responses import ClusterResponses
from magnetar_broker.commands.guard import Guard, guarded
from magnetar_broker.commands.read_commands import ANSWER_SIZES, ReadCommands
from magnetar_broker.commands.send_commands import SendCommands
from magnetar_broker.commands.subscription_commands import SubscriptionCommands
from magnetar_broker.commands.views import describe_topic
from magnetar_broker.coordinators.coordinator_sessions import CoordinatorSessions
from magnetar_broker.coordinators.orphan_resolver import OrphanResolver
from magnetar_broker.coordinators.transaction_commands import AdmitStore, TransactionCommands
from magnetar_broker.coordinators.unannounced import NAMING_TXNS, Unannounced
from magnetar_broker.environment import Environment
from magnetar_broker.groups.group_commands import GroupCommands
from magnetar_broker.groups.group_offsets import GroupOffsets
from magnetar_broker.groups.groups import Groups
from magnetar_broker.groups.offset_commands import OffsetCommands
from magnetar_broker.replies import Replies
from magnetar_broker.topics.topics import Topics
from magnetar_core.errors import MagnetarError
from magnetar_core.membership.placement import shard_of
from magnetar_core.server.commands import (
    AnswerSizes,
    CommandSession,
    Conversation,
    Handler,
    Reply,
    each_of,
)
from magnetar_core.server.log_levels import LOG_LEVEL_HANDLERS
from magnetar_core.server.repeats import Repeats
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import topic_pb2 as wire
from magnetar_storage.backup_commands import BACKUP_ANSWER_SIZES, BackupCommands
from magnetar_storage.backup_source import BackupSource

# Commands with a call_token.
TAKING_EFFECT_ONCE = (
    "create_topic",
    "alter_topic",
    "delete_topic",
    "subscribe",
    "seek",
    "unsubscribe",
    "leave_group",
    "delete_group",
    "forget_offsets",
    "skip_damaged",
)


class TopicDirectoryCommands(Protocol):
    """Handlers of commands that change the directory."""

    @property
    def handlers(self) -> Mapping[str, Handler]:
        """The handler of each command field."""
        ...

    def waiting_for_news(self, handlers: Mapping[str, Handler]) -> dict[str, Handler]:
        """Return handlers that wait for news of topics of which this broker has not heard."""
        ...


class BrokerServer:
    """Answers conversations and unary calls."""

    def __init__(
        self,
        environment: Environment,
        topics: Topics,
        groups: Groups,
        group_offsets: GroupOffsets,
        coordinators: CoordinatorSessions,
        orphan_resolver: OrphanResolver,
        directory: TopicDirectoryCommands,
        guard: Guard,
        admit_store: AdmitStore,
        random: Random,
        backup: BackupSource,
    ) -> None:
        self._guard = guard
        self._environment = environment
        self._topics = topics
        self._cluster = ClusterResponses(environment.config, environment.addresses)
        self._replies = Replies(environment)
        self.answer_sizes: AnswerSizes = {**ANSWER_SIZES, **BACKUP_ANSWER_SIZES}
        parked_bytes = ParkedBytes(environment.config)
        unannounced = Unannounced(environment, self._replies, parked_bytes)
        handlers: dict[str, Handler] = {
            **each_of(
                {
                    "hello": self._hello,
                    "get_cluster_info": self._get_cluster_info,
                    "list_topics": self._list_topics,
                    "describe_topic": self._describe_topic,
                    "lookup": self._lookup,
                }
            ),
            **directory.handlers,
            **SendCommands(environment, topics, self._replies, random, parked_bytes).handlers,
            **ReadCommands(environment.store, topics, self._replies).handlers,
            **SubscriptionCommands(environment, topics, self._replies).handlers,
            **TransactionCommands(
                environment,
                topics,
                coordinators,
                admit_store,
                orphan_resolver,
                unannounced,
                self._replies,
            ).handlers,
            **GroupCommands(environment, groups, self._replies).handlers,
            **OffsetCommands(group_offsets, self._replies).handlers,
            **BackupCommands(backup, "broker", environment.config.name, environment.spawn).handlers,
        }
        for name in NAMING_TXNS:
            handlers[name] = unannounced.waiting_for_announcement(handlers[name])
        self._handlers = {
            **directory.waiting_for_news(handlers),
            **LOG_LEVEL_HANDLERS,
            **environment.membership,
        }
        repeats = Repeats()
        for name in TAKING_EFFECT_ONCE:
            self._handlers[name] = repeats.once(self._handlers[name])
        # The log is needed most while something is wrong.
        self._guarded = {**guarded(guard, self._handlers), **LOG_LEVEL_HANDLERS}

    @property
    def handlers(self) -> Mapping[str, Handler]:
        """The handler of each command field. Most refuse while the broker may not serve."""
        return self._guarded if self._guard.may_refuse else self._handlers

    @property
    def may_serve(self) -> bool:
        """Whether the guard lets this broker serve now."""
        try:
            self._guard.check("", None)
        except MagnetarError:
            return False
        return True

    def accept(self, conversation: Conversation) -> CommandSession:
        """Begin a conversation."""
        return CommandSession(self.handlers, conversation, self.refuse, self.answer_sizes)

    def refuse(self, error: MagnetarError, reply: Reply) -> None:
        """Send an error when everything is durable that it depends on."""
        self._replies.refuse(error, reply)

    # Conversations and the cluster

    def _hello(self, command: common.CommandHello, reply: Reply) -> None:
        self._replies.answer(reply, self._cluster.hello(command, reply))

    def _get_cluster_info(self, command: wire.CommandGetClusterInfo, reply: Reply) -> None:
        self._replies.answer(reply, self._cluster.cluster_info(command))

    # Topics

    def _list_topics(self, command: wire.CommandListTopics, reply: Reply) -> None:
        summaries = [
            wire.TopicSummary(
                topic=topic.name, topic_id=topic.topic_id, partitions=topic.record.partitions
            )
            for topic in sorted(self._topics.all(), key=lambda one: one.name)
        ]
        self._replies.answer(reply, wire.CommandListTopicsResponse(topics=summaries))

    def _describe_topic(self, command: wire.CommandDescribeTopic, reply: Reply) -> None:
        topic = self._topics.get(command.topic)
        name = self._environment.config.name
        self._replies.answer(reply, describe_topic(topic, name, command.txns_max))

    def _lookup(self, command: wire.CommandLookup, reply: Reply) -> None:
        topic = self._topics.get(command.topic)
        brokers = self._cluster.brokers(command.reached_at)
        self._replies.answer(
            reply,
            wire.CommandLookupResponse(
                topic_id=topic.topic_id,
                broker_addresses=[
                    brokers[shard_of(topic.topic_id, number)].address
                    for number in range(topic.record.partitions)
                ],
            ),
        )
