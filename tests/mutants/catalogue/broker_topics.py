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
    Mutant(
        "late-alteration-alters",
        "magnetar_broker.commands.service:TAKING_EFFECT_ONCE",
        Without("'alter_topic'"),
        "A copy of an alteration undoes a later one.",
    ),
    Mutant(
        "keys-move-unasked",
        "magnetar_broker.topics.alterations:altered",
        Never("not command.keys_move"),
        "Keys move to other partitions, and the caller has not said that they may.",
    ),
    Mutant(
        "partitions-vanish",
        "magnetar_broker.topics.alterations:altered",
        Never("command.partitions < topic.partitions"),
        "A topic is given fewer partitions, with all that was in the others.",
    ),
    Mutant(
        "new-subscription-while-growing",
        "magnetar_broker.subscriptions.subscriptions:Subscriptions.check_room",
        LeaveOut("self.refuse_sealed(...)"),
        "A subscription that comes after its broker has told misses the first messages of new"
        " partitions.",
    ),
    Mutant(
        "subscription-deleted-while-growing",
        "magnetar_broker.subscriptions.subscriptions:Subscriptions.delete",
        LeaveOut("self.refuse_sealed(...)"),
        "A subscription that was deleted comes back in new partitions, and keeps their messages.",
    ),
    Mutant(
        "growth-before-its-announcement",
        "magnetar_broker.topic_directory.growths:Survey._on_answer",
        Never("(body.topic_id, body.growing_to) != ..."),
        "A broker tells its subscriptions while it may still get others.",
    ),
    Mutant(
        "growth-without-the-others",
        "magnetar_broker.topic_directory.keeper:TopicDirectoryKeeper._grow",
        Always("not peers"),
        "A topic grows without the subscriptions of its partitions at other brokers.",
    ),
    Mutant(
        "new-partitions-without-subscriptions",
        "magnetar_broker.topics.topics:Topics._begin",
        LeaveOut("for name in record.subscriptions: ..."),
        "A subscription misses what comes to a new partition before its consumer does.",
    ),
    Mutant(
        "new-partitions-without-groups",
        "magnetar_broker.topic_directory.follower:TopicDirectoryFollower._take",
        LeaveOut("self._groups.carry(...)"),
        "A group without members misses what comes to a new partition at a follower.",
    ),
    Mutant(
        "new-partition-is-denied",
        "magnetar_broker.topics.topics:Topics.unless_complete",
        Always("self._are_complete"),
        "A follower that lags says that a new partition does not exist; a coordinator takes that"
        " for ended.",
    ),
    Mutant(
        "announcement-outlives-the-first-broker",
        "magnetar_broker.topic_directory.keeper:TopicDirectoryKeeper.recover",
        Never("topic.record.growing_to"),
        "A topic gets no subscription any longer, since the first broker died while it grew.",
    ),
    Mutant(
        "fewer-partitions-are-followed",
        "magnetar_broker.topics.topic_directory:TopicDirectoryCopy._distrust",
        LeaveOut("if shrunk: ..."),
        "A follower deletes partitions that an older first broker does not know.",
    ),
)
