"""The directory and its copies, whatever is lost, late, or comes twice, and whoever restarts.

Source: docs/design/0008-cluster.md, The directory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import settings, strategies
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from magnetar_broker.topics.topic_directory import (
    LIVES_MAX,
    Contents,
    TopicDirectory,
    TopicDirectoryCopy,
    TopicDirectoryDistrusted,
    begin_life,
)
from magnetar_core.membership.placement import serial_of
from magnetar_core.wire import topic_pb2 as wire

CHANGES_MAX = 3


def record(serial: int, topic: str, created_at_ms: int = 0) -> wire.TopicRecord:
    return wire.TopicRecord(
        topic_id=serial, topic=topic, partitions=2, created_at_ms=created_at_ms or serial
    )


class First:
    """The first broker: what is durable, and what it does before that."""

    def __init__(self) -> None:
        self.lives = 0
        self.durable: tuple[dict[int, wire.TopicRecord], int] = ({}, 1)
        self.past: list[wire.DirectoryLife] = []
        self.restart()

    def restart(self, past: Sequence[wire.DirectoryLife] | None = None) -> None:
        """Begin a life after those in `past`: those that were told of, or all."""
        self.lives += 1
        self.directory = TopicDirectory(self.lives, changes_max=CHANGES_MAX)
        topics, self.next_serial = self.durable
        self.topics = dict(topics)
        self.accepted_losses = 0
        self.past = begin_life(self.past if past is None else past, self.lives, self.next_serial)

    def sync(self) -> None:
        self.durable = (dict(self.topics), self.next_serial)

    def create(self, topic: str) -> None:
        made = record(self.next_serial, topic, created_at_ms=100 * self.lives + self.next_serial)
        self.next_serial += 1
        self.topics[made.topic_id] = made
        self.directory.topic_changed(made.topic_id)

    def delete(self, topic_id: int) -> None:
        del self.topics[topic_id]
        self.directory.topic_changed(topic_id)

    def tell(self, life: int, revision: int) -> wire.CommandFollowDirectoryResponse:
        contents = Contents(
            topics=self.topics,
            next_serial=self.next_serial,
            accepted_losses=self.accepted_losses,
            coordinator_stores=(),
            lives=self.past,
        )
        return self.directory.tell(life, revision, contents)


class Follower:
    """A follower: its topics are as durable as its copy's account of them."""

    def __init__(self) -> None:
        self.durable: tuple[dict[int, wire.TopicRecord], int, int] = ({}, 1, 0)
        self.restart()

    def restart(self) -> None:
        topics, self.next_serial, followed_life = self.durable
        self.topics = dict(topics)
        self.copy = TopicDirectoryCopy(followed_life=followed_life)

    def sync(self) -> None:
        self.durable = (dict(self.topics), self.next_serial, self.copy.followed_life)

    def take(self, told: wire.CommandFollowDirectoryResponse) -> None:
        taken = self.copy.take(told, self.topics, self.next_serial)
        if taken is None:
            return
        for topic_id in taken.deleted:
            del self.topics[topic_id]
        for one in taken.created:
            assert one.topic not in [each.topic for each in self.topics.values()]
            self.topics[one.topic_id] = one
        self.next_serial = told.next_serial


class Asked(NamedTuple):
    link: int
    number: int
    life: int
    revision: int


class Told(NamedTuple):
    asked: Asked
    body: wire.CommandFollowDirectoryResponse
    # The first broker's life and revision: it leaves when that is durable.
    after: tuple[int, int]


class Following(RuleBasedStateMachine):
    """A follower, its first broker, and a network that keeps copies of everything."""

    def __init__(self) -> None:
        super().__init__()
        self.first = First()
        self.follower = Follower()
        self.deleted: set[int] = set()
        self.taken: set[int] = set()
        self.link = 0
        self.number = 0
        self.questions: list[Asked] = []
        self.answers: list[Told] = []
        self.synced: dict[int, int] = {}
        self.steps = 0

    @rule(topic=strategies.sampled_from("abcdef"))
    def create(self, topic: str) -> None:
        if topic not in [one.topic for one in self.first.topics.values()]:
            self.first.create(topic)

    @precondition(lambda self: self.first.topics)
    @rule(data=strategies.data())
    def delete(self, data: Any) -> None:
        self.first.delete(data.draw(strategies.sampled_from(sorted(self.first.topics))))

    @rule()
    def first_syncs(self) -> None:
        self.first.sync()
        self.synced[self.first.lives] = self.first.directory.revision
        known = set(self.first.topics)
        self.deleted |= {one for one in range(1, self.first.next_serial) if one not in known}

    @rule()
    def first_restarts(self) -> None:
        self.first.restart()
        self.break_link()

    @rule()
    def follower_syncs(self) -> None:
        self.follower.sync()

    @rule()
    def follower_restarts(self) -> None:
        self.follower.restart()
        self.taken = set(self.follower.topics)
        self.break_link()

    @rule()
    def break_link(self) -> None:
        self.link += 1
        self.follower.copy.link_is_up()
        self.ask()

    @rule()
    def ask(self) -> None:
        self.number += 1
        copy = self.follower.copy
        self.questions.append(Asked(self.link, self.number, copy.life, copy.revision))

    @precondition(lambda self: self.questions)
    @rule(data=strategies.data())
    def answer(self, data: Any) -> None:
        """Any question arrives, a copy or a late one, too."""
        asked = data.draw(strategies.sampled_from(self.questions))
        body = self.first.tell(asked.life, asked.revision)
        self.answers.append(Told(asked, body, (self.first.lives, self.first.directory.revision)))

    @precondition(lambda self: self.answers)
    @rule(data=strategies.data())
    def hear(self, data: Any) -> None:
        """Any answer arrives that has left: it is taken if it is the one that is waited for."""
        told = data.draw(strategies.sampled_from(self.answers))
        life, revision = told.after
        if self.synced.get(life, 0) < revision:
            return
        if (told.asked.link, told.asked.number) != (self.link, self.number):
            return
        self.follower.take(told.body)
        self.taken |= set(self.follower.topics)
        self.ask()

    @invariant()
    def nothing_is_lost_that_was_not_deleted(self) -> None:
        assert self.taken - self.deleted <= set(self.follower.topics)
        assert all(serial_of(one) < self.follower.next_serial for one in self.follower.topics)

    def teardown(self) -> None:
        """When all is well again, the copy has what the directory has."""
        self.first_syncs()
        for _ in range(2):
            copy = self.follower.copy
            self.follower.take(self.first.tell(copy.life, copy.revision))
        assert self.follower.topics == self.first.topics
        assert self.follower.next_serial == self.first.next_serial
        assert not self.first.directory.has_news(copy.life, copy.revision)


Following.TestCase.settings = settings(max_examples=200, stateful_step_count=40)
TestFollowing = Following.TestCase


def followed(*topics: str) -> tuple[First, Follower]:
    first, follower = First(), Follower()
    for topic in topics:
        first.create(topic)
    follower.take(first.tell(0, 0))
    assert follower.topics == first.topics
    return first, follower


def test_only_changes_are_told_as_long_as_they_are_remembered() -> None:
    first, follower = followed("a", "b")
    life, revision = follower.copy.life, follower.copy.revision
    first.create("c")
    first.delete(1)
    told = first.tell(life, revision)
    assert not told.all
    assert [one.topic for one in told.topics] == ["c"]
    assert list(told.deleted_topic_ids) == [1]
    # What was created and deleted since is not created.
    first.delete(3)
    assert not first.tell(life, revision).topics
    first.directory.changed()
    assert first.tell(life, revision).all
    assert first.tell(life, first.directory.revision + 1).all
    assert first.tell(life + 1, revision).all


def test_an_answer_of_another_life_is_followed_by_a_question_for_everything() -> None:
    first, follower = followed("a")
    first.restart()
    first.create("b")
    changes = first.tell(first.directory.life, 1)
    assert not changes.all
    follower.take(changes)
    assert [topic.topic for topic in follower.topics.values()] == ["a"]
    assert follower.copy.life == 0


def refused(follower: Follower, first: First, reason: str) -> None:
    before: Mapping[int, Any] = dict(follower.topics)
    with pytest.raises(TopicDirectoryDistrusted, match=reason):
        follower.take(first.tell(0, 0))
    assert follower.topics == before
    assert follower.copy.distrusted


def test_a_directory_whose_numbers_went_back_is_refused_for_good() -> None:
    first, follower = followed("a", "b")
    right, past_of_right = dict(first.topics), first.past
    first.durable = ({1: first.topics[1]}, 2)
    first.restart()
    refused(follower, first, "give out ids again")
    # Also when the numbers have passed by.
    first.create("c")
    refused(follower, first, "another topic has or had")
    first.delete(2)
    first.create("d")
    first.sync()
    first.restart()
    refused(follower, first, "went back to serial number 2")
    # The right one is put back, and goes on.
    first.durable = (right, 3)
    first.restart(past_of_right)
    first.create("g")
    first.delete(1)
    follower.take(first.tell(0, 0))
    assert [topic.topic for topic in follower.topics.values()] == ["b", "g"]
    assert not follower.copy.distrusted


def test_a_directory_that_went_back_and_came_as_far_again_is_refused() -> None:
    """Nobody was there to see its numbers go back."""
    first, follower = followed("a", "b")
    first.durable = ({1: first.topics[1]}, 2)
    first.restart()
    first.create("c")
    first.delete(2)
    first.create("d")
    refused(follower, first, "went back to serial number 2")
    # Its list of lives went back, too.
    first.sync()
    first.restart(past=())
    refused(follower, first, "does not know the time")


def test_lives_that_are_not_remembered_any_more_cannot_be_compared() -> None:
    first, follower = followed("a")
    first.sync()
    for _ in range(LIVES_MAX + 1):
        first.restart()
    assert len(first.past) == LIVES_MAX
    first.create("b")
    follower.take(first.tell(0, 0))
    assert follower.topics == first.topics


def test_a_directory_that_has_what_was_deleted_is_refused() -> None:
    first, follower = followed("a", "b")
    old = dict(first.topics)
    first.delete(1)
    follower.take(first.tell(follower.copy.life, follower.copy.revision))
    first.durable = (old, 3)
    first.restart()
    refused(follower, first, "another topic has or had")


def test_topics_that_a_directory_lost_were_not_deleted() -> None:
    first, follower = followed("a", "b")
    first.durable = ({1: first.topics[1]}, 1_000)
    first.restart()
    first.accepted_losses = 1
    refused(follower, first, "lost data")
    # If somebody accepts that this store lost data, it takes what it is told.
    follower.copy.losses = 1
    follower.take(first.tell(0, 0))
    assert follower.topics == first.topics
    # Once: from then on it knows better again.
    first.accepted_losses = 2
    del first.topics[1]
    refused(follower, first, "lost data")


def test_a_loss_that_concerned_no_topic_changes_nothing() -> None:
    first, follower = followed("a")
    first.durable = (dict(first.topics), 1_000)
    first.restart()
    first.accepted_losses = 1
    first.create("b")
    follower.take(first.tell(0, 0))
    assert follower.topics == first.topics
    first.delete(1)
    follower.take(first.tell(0, 0))
    assert follower.topics == first.topics
