"""Listens where frames enter and leave brokers, and knows which of them keeps what.

The name of a partition says where it lies: no broker speaks for the partition of another, and
none denies what exists. A coordinator takes Gone for "ended": said in the wrong place, it tears a
transaction (docs/design/0008-cluster.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

from tests.simulation.asked import Unanswered

from magnetar_core.membership.placement import shard_of
from magnetar_core.wire import common_pb2, topic_pb2
from magnetar_core.wire import service_pb2 as pb

# What says that there is no such thing.
DENIALS = (common_pb2.GONE, common_pb2.TOPIC_NOT_FOUND)
_BY_NAME = ("lookup", "describe_topic")
# The directory of the cluster lies at the broker of this shard.
FIRST = 0


class _Asked(NamedTuple):
    """A request on its way through a broker.

    Attributes:
        place: topic id, partition, and subscription, as far as it names them.
        known: ids of topics that have the name which it asks for, when it comes.
    """

    name: str
    body: Any
    place: tuple[int, int, str] | None
    known: tuple[int, ...]


class ClusterWiretap:
    """Args:
    brokers: their names, by shard.
    violation: ends the run; what is wrong, and text.
    broker_at: the name of the broker that an address names.
    """

    def __init__(
        self,
        brokers: Sequence[str],
        violation: Callable[[str, str], NoReturn],
        broker_at: Callable[[str], str] = str,
    ) -> None:
        self._brokers = brokers
        self._violation = violation
        self._broker_at = broker_at
        self._shards: dict[int, int] = {}
        self._asked = Unanswered[_Asked]()
        # Ids of topics that exist for certain, with their names; of which nothing is certain any
        # more; and deletions under way, by name. One that nobody answers is under way for ever.
        self._existing: dict[int, str] = {}
        self._doubtful: set[int] = set()
        self._deletions: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()

    def exists(self, topic_id: int) -> bool:
        """Whether it exists for certain."""
        return topic_id in self._existing

    def on_connected(self, link: int, server: str) -> None:
        """A link to a server begins."""
        if server in self._brokers:
            self._shards[link] = self._brokers.index(server)

    def on_request(self, link: int, frame: pb.Frame) -> None:
        """A frame is about to be handled by a server."""
        if link not in self._shards:
            return
        for command in frame.commands:
            name = command.WhichOneof("body")
            if not command.request_id or name is None:
                continue
            body = getattr(command, name)
            known = self._known(body.topic) if name in _BY_NAME else ()
            self._asked.add(link, command.request_id, _Asked(name, body, _place(body), known))
            if name == "delete_topic":
                self._deletion_asked(body.topic)

    def on_reply(self, link: int, frame: pb.Frame) -> None:
        """A frame leaves a server."""
        shard = self._shards.get(link)
        if shard is None:
            return
        for command in frame.commands:
            name = command.WhichOneof("body")
            asked = self._asked.take(link, command.request_id) if command.request_id else None
            if asked is None or name is None:
                continue
            answer = getattr(command, name)
            if asked.name == "delete_topic":
                self._deletions[asked.body.topic] -= 1
            if asked.place is not None:
                self._check_keeper(shard, asked, asked.place, name == "error", answer)
            elif name == "error":
                self._check_name(shard, asked, answer)
            elif asked.name in ("create_topic", "lookup", "describe_topic"):
                self._found(shard, asked, answer)

    def on_closed(self, link: int) -> None:
        """A server was told that a link is gone."""
        self._asked.forget(link)

    # Coordinators and followers.

    def on_said(self, link: int, speaker: object, frame: pb.Frame) -> None:
        """A server writes to another one: it knows where partitions lie."""
        shard = self._shards.get(link)
        for command in frame.commands:
            name = command.WhichOneof("body")
            place = _place(getattr(command, name)) if name is not None else None
            if shard is not None and place is not None:
                keeper = shard_of(place[0], place[1])
                if keeper != shard:
                    self._violation("cluster", f"{name} of {place} goes to {shard}, not {keeper}")
                self.counts["said to their brokers"] += 1

    # Answers.

    def _check_keeper(
        self, shard: int, asked: _Asked, place: tuple[int, int, str], refused: bool, answer: Any
    ) -> None:
        keeper = shard_of(place[0], place[1])
        text = f"{asked.name} of {place} at broker {shard}"
        if not refused:
            if keeper != shard:
                self._violation("cluster", f"{text} is answered, and broker {keeper} keeps it")
            return
        if answer.code == common_pb2.PARTITION_MOVED:
            self.counts["moved"] += 1
            if keeper == shard:
                self._violation("cluster", f"{text} is told that it lies elsewhere")
        elif keeper != shard:
            # Also of what was deleted, or never was: it does not know.
            if answer.code == common_pb2.GONE and keeper < len(self._brokers):
                self._violation("cluster", f"{text} is gone, as if it kept it: {answer.message}")
            self._check_exists(text, place[0], answer)
        elif not place[2] or answer.code != common_pb2.GONE:
            # Of what it keeps itself, a broker may say that a subscription is gone.
            self._check_exists(text, place[0], answer)

    def _check_exists(self, text: str, topic_id: int, answer: Any) -> None:
        if answer.code in DENIALS and topic_id in self._existing:
            self._violation("cluster", f"{text} is denied, and exists: {answer.message}")

    def _known(self, topic: str) -> tuple[int, ...]:
        return tuple(one for one, name in self._existing.items() if name == topic)

    def _check_name(self, shard: int, asked: _Asked, answer: Any) -> None:
        """Nobody denies a topic that exists. A follower may say what was true when it was asked."""
        if asked.name not in _BY_NAME or answer.code not in DENIALS:
            return
        known = self._known(asked.body.topic)
        if shard != FIRST:
            known = tuple(one for one in asked.known if one in known)
            self.counts["denied by followers"] += 1
        if known:
            text = f"{asked.body.topic} is denied by broker {shard}, and exists: {known}"
            self._violation("cluster", text)

    def _found(self, shard: int, asked: _Asked, answer: Any) -> None:
        topic, topic_id = asked.body.topic, answer.topic_id
        if asked.name == "lookup":
            self._check_addresses(topic_id, answer.broker_addresses)
        elif asked.name == "describe_topic":
            self._check_description(shard, answer)
        if shard != FIRST or topic_id in self._doubtful:
            return
        if self._deletions[topic] > 0:
            self._doubtful.add(topic_id)
        else:
            self._existing[topic_id] = topic

    def _check_addresses(self, topic_id: int, addresses: Sequence[str]) -> None:
        for partition, address in enumerate(addresses):
            keeper = self._brokers[shard_of(topic_id, partition)]
            if self._broker_at(address) != keeper:
                self._violation(
                    "cluster", f"{topic_id}/{partition} is said to be at {address}, not {keeper}"
                )

    def _check_description(
        self, shard: int, answer: topic_pb2.CommandDescribeTopicResponse
    ) -> None:
        """A broker describes the partitions that it keeps, all of them, and no others."""
        described = [one.partition for one in answer.partitions]
        kept = [
            number
            for number in range(answer.partition_count)
            if shard_of(answer.topic_id, number) == shard
        ]
        if described != kept:
            self._violation(
                "cluster", f"broker {shard} has {described} of {answer.topic}, and keeps {kept}"
            )

    def _deletion_asked(self, topic: str) -> None:
        self._deletions[topic] += 1
        for topic_id in [one for one, name in self._existing.items() if name == topic]:
            del self._existing[topic_id]
            self._doubtful.add(topic_id)


def _place(body: Any) -> tuple[int, int, str] | None:
    """The partition that a request names by its topic's id."""
    fields = body.DESCRIPTOR.fields_by_name
    for name in ("partition", "subscription"):
        field = fields.get(name)
        if field is not None and field.message_type is not None:
            wire = getattr(body, name)
            if wire.topic_id:
                return wire.topic_id, wire.partition, getattr(wire, "subscription", "")
    return None
