"""Alterations of a topic: which are allowed, and what its record is then. Pure.

A topic gets more partitions in two steps when other brokers keep some of its partitions. First its
record says to what number it grows, and while it does the topic gets no new subscription and loses
none. When the brokers of all its partitions know that and have told their subscriptions, the record
has the new number, with the subscriptions that begin at the beginning of the new partitions.
Source: docs/design/0025-topics-that-change.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from magnetar_core.errors import InvalidArgument, LogUnavailable
from magnetar_core.wire import topic_pb2 as wire

# Whether a subscription is the cursor of a group, by its name.
SubscriptionKinds = Mapping[str, bool]


def altered(
    topic: wire.TopicRecord, command: wire.CommandAlterTopic, *, partitions_max: int
) -> wire.TopicRecord:
    """Return the record of a topic as a command asks for it; an equal one if nothing changes.

    Args:
        partitions_max: how many partitions a topic may have.
    Raises:
        InvalidArgument: the topic would have fewer partitions, or too many, or more without a
            word that keys move.
        LogUnavailable: it is being given partitions.
    """
    if topic.growing_to:
        raise being_grown(topic)
    result = wire.TopicRecord()
    result.CopyFrom(topic)
    for name in ("retention_ms", "retention_bytes", "retain_unconsumed"):
        if command.HasField(name):
            setattr(result, name, getattr(command, name))
    if command.partitions in (0, topic.partitions):
        return result
    if command.partitions < topic.partitions:
        raise InvalidArgument(
            f"topic {topic.topic!r} has {topic.partitions} partitions, and cannot have fewer:"
            " create another topic, and copy what is to be kept"
        )
    if command.partitions > partitions_max:
        raise InvalidArgument(f"a topic has at most {partitions_max} partitions")
    if not command.keys_move:
        raise InvalidArgument(
            f"with {command.partitions} partitions in place of {topic.partitions}, most keys of"
            f" {topic.topic!r} lie in another partition from then on, and their order holds within"
            " each partition only: confirm it with keys_move (--keys-move)"
        )
    result.partitions = command.partitions
    return result


def being_grown(topic: wire.TopicRecord) -> LogUnavailable:
    """Return the error of what has to wait until a topic has its new partitions."""
    return LogUnavailable(
        f"topic {topic.topic!r} is being given {topic.growing_to} partitions: ask again"
    )


def announced(topic: wire.TopicRecord, partitions: int) -> wire.TopicRecord:
    """Return the record that says that a topic is being given partitions."""
    result = wire.TopicRecord()
    result.CopyFrom(topic)
    result.growing_to = partitions
    return result


def retracted(topic: wire.TopicRecord) -> wire.TopicRecord:
    """Return the record of a topic that is not given the partitions that were announced."""
    return announced(topic, 0)


def grown(wanted: wire.TopicRecord, partitions: Iterable[SubscriptionKinds]) -> wire.TopicRecord:
    """Return the record of a topic that has its new partitions.

    A subscription of some partitions only is not one of the topic: it would keep messages in the
    new ones that no consumer reads. A group always reads whole topics.

    Args:
        wanted: as altered() returned it.
        partitions: the subscriptions of each partition that the topic had before.
    """
    kinds = list(partitions)
    everywhere = set.intersection(*(set(one) for one in kinds)) if kinds else set()
    groups = {name for one in kinds for name, is_of_group in one.items() if is_of_group}
    result = wire.TopicRecord()
    result.CopyFrom(wanted)
    del result.subscriptions[:]
    del result.groups[:]
    result.subscriptions.extend(sorted(everywhere - groups))
    result.groups.extend(sorted(groups))
    return result
