"""Mistakes in topics, several brokers and memory."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.operations import Always, LeaveOut, Never, Put, Without

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "partition-elsewhere-is-gone",
        "magnetar_broker.topics.topics:Topics.partition",
        LeaveOut("self._check_shard(...)"),
        "A broker says Gone of another's partition, if it does not know the topic.",
    ),
    Mutant(
        "unheard-topic-is-gone",
        "magnetar_broker.topics.topics:Topics.partition",
        Never("self._shard and serial_of(topic_id) >= self.next_serial"),
        "A follower that has not heard of a new topic yet says that it was deleted.",
    ),
    Mutant(
        "told-before-durable",
        "magnetar_broker.topic_directory.keeper:TopicDirectoryKeeper._tell",
        Put("reply.send(told)", "self._replies.answer(...)"),
        "Followers hear of topics that a power loss takes back.",
    ),
    Mutant(
        "deletion-asks-nobody",
        "magnetar_broker.topic_directory.keeper:TopicDirectoryKeeper._delete_topic",
        Always("not asked"),
        "A topic is deleted while transactions are open at another broker.",
    ),
    Mutant(
        "tails-never-give-way",
        "magnetar_broker.budgets.memory_budget:tails_limit",
        Put("held_bytes + free_bytes", "held_bytes + free_bytes - excess_bytes"),
        "Tails keep what they have, whatever else needs memory.",
    ),
    Mutant(
        "late-topic-deletion-deletes",
        "magnetar_broker.commands.service:TAKING_EFFECT_ONCE",
        Without("'delete_topic'"),
        "A copy of a deletion deletes the topic that was made anew.",
    ),
    Mutant(
        "shard-of-the-topic",
        "magnetar_coordinator.ending.broker_placement:BrokerPlacement.address_of",
        Put("0", "participant.partition"),
        "All partitions of a topic count as lying where its first one does.",
    ),
    Mutant(
        "watermark-to-the-first-broker",
        "magnetar_coordinator.ending.brokers:Brokers._tell_watermark",
        Put("[*self._peers.values()][:1]", "self._peers.values(...)"),
        "The others never hear what has ended: what late-comers open there stays open.",
    ),
    Mutant(
        "made-before-followers-know",
        "magnetar_broker.topic_directory.keeper:TopicDirectoryKeeper._is_over",
        Always("all(...)"),
        "Whoever has made a topic does not find it at another broker.",
    ),
)
