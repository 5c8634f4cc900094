"""Mistakes about clusters of several brokers, most of which are harmless with one."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_TOPICS = "broker/magnetar_broker/topics/topics.py"
_DIRECTORY = "broker/magnetar_broker/topics/directory.py"
_KEEPER = "broker/magnetar_broker/topic_directory/keeper.py"
_FOLLOWER = "broker/magnetar_broker/topic_directory/follower.py"
_SERVICE = "broker/magnetar_broker/commands/service.py"
_PLACES = "coordinator/magnetar_coordinator/ending/directory.py"
_BROKERS = "coordinator/magnetar_coordinator/ending/brokers.py"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        name="shard-of-the-topic",
        file=_PLACES,
        old="shard_of(participant.topic_id, participant.partition)",
        new="shard_of(participant.topic_id, 0)",
        mistake="All partitions of a topic count as lying where its first one does.",
    ),
    Mutant(
        name="watermark-to-the-first-broker",
        file=_BROKERS,
        old="in self._peers.values():\n            peer.watermarks.tell(",
        new="in [*self._peers.values()][:1]:\n            peer.watermarks.tell(",
        mistake="The others never hear what has ended: what late-comers open there stays open.",
    ),
    Mutant(
        name="issued-to-the-first-broker",
        file=_BROKERS,
        old="in self._peers.values():\n            peer.link.send(",
        new="in [*self._peers.values()][:1]:\n            peer.link.send(",
        mistake="The others take new transactions for invented ones.",
    ),
    Mutant(
        name="gone-instead-of-moved",
        file=_TOPICS,
        old="        raise self._moved(PartitionName(name, number, topic.topic_id))",
        new='        raise Gone(f"{name} has no partition {number} here")',
        mistake="A broker says that a partition is gone, and it lies at another one.",
    ),
    Mutant(
        name="reset-keeps-what-was-deleted",
        file=_DIRECTORY,
        old="            deleted = [one for one in known if one not in told_ids]\n",
        new="            deleted: list[int] = []\n",
        mistake="What was deleted while a follower was away stays there for good.",
    ),
    Mutant(
        name="changes-taken-for-everything",
        file=_DIRECTORY,
        old="[one for one in dict.fromkeys(told.deleted_topic_ids) if one in known]",
        new="[one for one in known if one not in told_ids]",
        mistake="A follower drops all topics of which nothing was told, and their messages.",
    ),
    Mutant(
        name="made-before-followers-know",
        file=_KEEPER,
        old="all(one.revision >= wait.revision for one in followers if one.is_linked)",
        new="True",
        mistake="Whoever has made a topic does not find it at another broker.",
    ),
    Mutant(
        name="link-is-down-and-copy-current",
        file=_FOLLOWER,
        old="    def _on_down(self) -> None:\n        self.is_current = False\n",
        new="    def _on_down(self) -> None:\n",
        mistake="A follower that hears of nothing denies topics that were made meanwhile.",
    ),
    Mutant(
        name="one-follower-at-a-time",
        file=_KEEPER,
        old="                self._tell(*waiting)\n\n    def _is_over",
        new="                self._tell(*waiting)\n                break\n\n    def _is_over",
        mistake="Of several followers, the first one alone is told what is new.",
    ),
    Mutant(
        name="lookup-names-the-first-broker",
        file=_SERVICE,
        old="brokers[shard_of(topic.topic_id, number)].address",
        new="brokers[0].address",
        mistake="Each partition is said to be at the first broker.",
    ),
)
