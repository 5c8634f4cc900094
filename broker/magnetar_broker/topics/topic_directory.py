"""Directory of topics: what the first broker tells, and what a follower takes of it. Pure.

The first broker counts revisions in its present life. A follower names the revision that it has,
and is told what changed since; one that names another life is told everything. A follower does not
take a directory that lacks what its copy has, unless that was deleted: it would delete partitions
that are whole.
Source: docs/design/0008-cluster.md, The directory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from magnetar_core.errors import LogUnavailable
from magnetar_core.membership.placement import serial_of
from magnetar_core.wire import topic_pb2 as wire

# How many lives are remembered: a follower that was away for more cannot compare them.
LIVES_MAX = 1_000
# How many changes are remembered; a follower that lacks more is told everything.
CHANGES_MAX = 10_000


class Unheard(LogUnavailable):
    """A follower does not know an object that a command names: the first broker may know it."""


class UnheardName(Unheard):
    """A follower does not know a topic that a command names without an id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """Contents of the directory, besides its revision.

    Attributes:
        topics: all topics, by id.
        next_serial: serial number of the next topic, or a lower bound of it.
        accepted_losses: how often an operator accepted that the directory lost data.
        coordinator_stores: the present store of each coordinator.
        lives: the first broker's lives, the present one last.
    """

    topics: Mapping[int, wire.TopicRecord]
    next_serial: int
    accepted_losses: int
    coordinator_stores: Iterable[wire.CoordinatorStore]
    lives: Iterable[wire.DirectoryLife] = ()


class TopicDirectory:
    """The first broker's account of what changed in its present life.

    Args:
        life: a random number, not 0.
    """

    def __init__(self, life: int, *, changes_max: int = CHANGES_MAX) -> None:
        self.life = life
        self.revision = 1
        # The id of a topic that was created, altered or deleted; None: another change. The last one
        # made the present revision.
        self._changes: deque[int | None] = deque(maxlen=changes_max)

    def topic_changed(self, topic_id: int) -> None:
        """Note that a topic was created, altered or deleted."""
        self._note(topic_id)

    def changed(self) -> None:
        """Note that something else changed."""
        self._note(None)

    def _note(self, change: int | None) -> None:
        self.revision += 1
        self._changes.append(change)

    def has_news(self, life: int, revision: int) -> bool:
        """Return whether there is anything to tell a follower that has this revision."""
        return (life, revision) != (self.life, self.revision)

    def tell(
        self, life: int, revision: int, contents: Contents
    ) -> wire.CommandFollowDirectoryResponse:
        """Return the changes for a follower that has this revision."""
        told = wire.CommandFollowDirectoryResponse(
            directory_life=self.life,
            revision=self.revision,
            next_serial=contents.next_serial,
            accepted_losses=contents.accepted_losses,
            coordinator_stores=contents.coordinator_stores,
        )
        behind = self.revision - revision
        if life != self.life or not 0 <= behind <= len(self._changes):
            told.all = True
            told.lives.extend(contents.lives)
            told.topics.extend(contents.topics.values())
            return told
        changed = [
            self._changes[place] for place in range(len(self._changes) - behind, len(self._changes))
        ]
        for topic_id in dict.fromkeys(changed):
            if topic_id is None:
                continue
            record = contents.topics.get(topic_id)
            if record is None:
                told.deleted_topic_ids.append(topic_id)
            else:
                told.topics.append(record)
        return told


class TopicDirectoryDistrusted(Exception):
    """The first broker's directory lacks what the copy has. The message says what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """Steps of a follower: it deletes these topics, creates those, and alters others."""

    deleted: list[int] = field(default_factory=list)
    created: list[wire.TopicRecord] = field(default_factory=list)
    altered: list[wire.TopicRecord] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class TopicDirectoryCopy:
    """A follower's account of the directory; its topics are elsewhere.

    Attributes:
        life, revision: as it was told last on the present link; 0: nothing yet.
        directory_losses: losses of the directory that were accepted when it was taken last.
        losses: losses of the follower's own store that were accepted until now.
        own_losses: the same, when the directory was taken last.
        distrusted: it was refused, and not taken since.
        followed_life: the first broker's life in which it was taken last.
    """

    life: int = 0
    revision: int = 0
    directory_losses: int = 0
    losses: int = 0
    own_losses: int = 0
    distrusted: bool = False
    followed_life: int = 0

    def link_is_up(self) -> None:
        """Begin anew: the first broker may have another life."""
        self.life = self.revision = 0

    def take(
        self,
        told: wire.CommandFollowDirectoryResponse,
        known: Mapping[int, wire.TopicRecord],
        next_serial: int,
    ) -> Taken | None:
        """Take the changes that the first broker tells in answer to the present life and revision.

        None: the answer is to an earlier life or revision; the next question asks for everything.

        Args:
            known: the topics of the copy, by id.
            next_serial: the copy's.
        Raises:
            TopicDirectoryDistrusted: the directory is refused; the copy stays as it is.
        """
        if not told.all and told.directory_life != self.life:
            # No answer to what was asked: ask for everything.
            self.link_is_up()
            return None
        told_ids = {one.topic_id for one in told.topics}
        if told.all:
            deleted = [one for one in known if one not in told_ids]
        else:
            deleted = [one for one in dict.fromkeys(told.deleted_topic_ids) if one in known]
        created = [one for one in told.topics if one.topic_id not in known]
        changed = [
            one for one in told.topics if one.topic_id in known and one != known[one.topic_id]
        ]
        others = [one for one in changed if _differ(one, known[one.topic_id])]
        shrunk = [one for one in changed if one.partitions < known[one.topic_id].partitions]
        returned = [one for one in created if serial_of(one.topic_id) < next_serial]
        reason = self._distrust(told, next_serial, deleted, others + returned, shrunk)
        # After an accepted loss, this store no longer knows better than the first broker.
        if reason and self.losses <= self.own_losses:
            self.distrusted = True
            raise TopicDirectoryDistrusted(reason)
        self.life, self.revision = told.directory_life, told.revision
        self.followed_life = told.directory_life
        self.directory_losses, self.own_losses = told.accepted_losses, self.losses
        self.distrusted = False
        return Taken(
            deleted=deleted + [one.topic_id for one in others],
            created=created + others,
            altered=[one for one in changed if not _differ(one, known[one.topic_id])],
        )

    def _distrust(
        self,
        told: wire.CommandFollowDirectoryResponse,
        next_serial: int,
        deleted: list[int],
        strange: list[wire.TopicRecord],
        shrunk: list[wire.TopicRecord],
    ) -> str:
        if told.next_serial < next_serial:
            return (
                f"it would give out ids again: its next topic has the serial number"
                f" {told.next_serial}, here it is {next_serial}"
            )
        if strange:
            return f"it has a topic {strange[0].topic!r} under an id that another topic has or had"
        if shrunk:
            return f"its topic {shrunk[0].topic!r} has fewer partitions than here"
        if not told.all or not deleted:
            return ""
        lacking = f"it lacks {len(deleted)} topics that are known here"
        if told.accepted_losses > self.directory_losses:
            return f"{lacking}, and an operator has accepted that it lost data"
        lives = [one.life for one in told.lives]
        if self.followed_life in lives[:-1]:
            following = told.lives[lives.index(self.followed_life) + 1]
            if following.next_serial < next_serial:
                return (
                    f"{lacking}, and it went back to serial number {following.next_serial} since"
                    f" it was followed last, when it was at {next_serial}"
                )
        elif self.followed_life not in (0, *lives) and 0 < len(lives) < LIVES_MAX:
            return f"{lacking}, and does not know the time in which it was followed last"
        return ""


def begin_life(
    lives: Iterable[wire.DirectoryLife], life: int, next_serial: int
) -> list[wire.DirectoryLife]:
    """Return the first broker's lives, with the one that begins now."""
    begun = wire.DirectoryLife(life=life, next_serial=next_serial)
    return [*lives, begun][-LIVES_MAX:]


def _differ(one: wire.TopicRecord, other: wire.TopicRecord) -> bool:
    """Return whether two records with the same id are of different topics."""
    return (one.topic, one.created_at_ms) != (other.topic, other.created_at_ms)
