"""Mistakes about brokers that share a directory: who keeps, knows and tells what."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_TOPICS = "broker/magnetar_broker/topics/topics.py"
_DIRECTORY = "broker/magnetar_broker/topics/directory.py"
_KEEPER = "broker/magnetar_broker/topic_directory/keeper.py"
_FOLLOWER = "broker/magnetar_broker/topic_directory/follower.py"
_PASSING = "broker/magnetar_broker/topic_directory/follower.py"
_STORES = "broker/magnetar_broker/topic_directory/rows.py"
_PARTITION = "broker/magnetar_broker/topics/partition.py"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        name="partition-elsewhere-is-gone",
        file=_TOPICS,
        old="                self._check_shard(PartitionName(name, number, topic_id))\n",
        new="",
        mistake="A broker says Gone of another's partition, if it does not know the topic.",
    ),
    Mutant(
        name="unheard-topic-is-gone",
        file=_TOPICS,
        old="                if self._shard and serial_of(topic_id) >= self.next_serial:",
        new="                if False:",
        mistake="A follower that has not heard of a new topic yet says that it was deleted.",
    ),
    Mutant(
        name="unknown-name-while-alone",
        file=_PASSING,
        old=(
            "            self._waiting_count -= 1\n            if error is not None:\n"
            "                self._replies.refuse(error, reply)\n"
        ),
        new=(
            "            self._waiting_count -= 1\n            if False:\n"
            "                self._replies.refuse(error, reply)\n"
        ),
        mistake="A follower says that there is no such topic while nobody could tell it.",
    ),
    Mutant(
        name="unheard-name-is-denied",
        file=_TOPICS,
        old="        return self.unless_complete(unheard, denial)\n",
        new="        return denial\n",
        mistake="A follower denies a topic that was made while its link was silent.",
    ),
    Mutant(
        name="send-by-name-to-nothing-is-repeated",
        file=_PASSING,
        old="if not isinstance(error, UnheardName) or not self._follower.is_current:",
        new="if True:",
        mistake="Who publishes to a name that does not exist is told to ask again, for ever.",
    ),
    Mutant(
        name="accepted-loss-deletes-everywhere",
        file=_DIRECTORY,
        old="        if told.accepted_losses > self.directory_losses:",
        new="        if False:",
        mistake="Topics that the first broker lost are deleted at the others.",
    ),
    Mutant(
        name="distrust-ends-with-the-numbers",
        file=_DIRECTORY,
        old="            if following.next_serial < next_serial:\n",
        new="            if False:\n",
        mistake="An older directory is followed when its numbers have passed by.",
    ),
    Mutant(
        name="changes-one-short",
        file=_DIRECTORY,
        old="        for place in range(len(self._changes) - behind, len(self._changes)):",
        new="        for place in range(len(self._changes) - behind + 1, len(self._changes)):",
        mistake="A follower is not told the first change that it lacks.",
    ),
    Mutant(
        name="told-before-durable",
        file=_KEEPER,
        old="        self._replies.answer(reply, told)",
        new="        reply.send(told)",
        mistake="Followers hear of topics that a power loss takes back.",
    ),
    Mutant(
        name="deletion-asks-nobody",
        file=_KEEPER,
        old="        if not asked:\n",
        new="        if True:\n",
        mistake="A topic is deleted while transactions are open at another broker.",
    ),
    Mutant(
        name="deletion-again-after-a-restart",
        file=_KEEPER,
        old="        if self._past_calls.topic_of(command.call_token) is not None:",
        new="        if False:",
        mistake="A copy that a follower passes on deletes what was made anew since.",
    ),
    Mutant(
        name="deletion-does-not-look-again",
        file=_KEEPER,
        old="            found = self._topics.to_delete(topic.name, topic.topic_id)\n",
        new="            found = topic\n",
        mistake="What was opened here while others were asked is not seen.",
    ),
    Mutant(
        name="incarnation-unknown-while-alone",
        file=_FOLLOWER,
        old="        return not self.is_current or tcid in self._stores",
        new="        return tcid in self._stores",
        mistake="A follower that was told nothing yet takes a coordinator for an invented one.",
    ),
    Mutant(
        name="empty-store-is-accepted",
        file=_STORES,
        old="            if accepted_losses <= known.get(store_token, 0):",
        new="            if accepted_losses < known.get(store_token, 0):",
        mistake="A broker whose directory has vanished serves from an empty store.",
    ),
    Mutant(
        name="waiting-commit-outlives-its-partition",
        file=_PARTITION,
        old="        for asked in self.waiting_ends.take_all():\n",
        new="        for asked in ():\n",
        mistake="A commit that waited on a deleted partition is found incomplete.",
    ),
)
