"""Traces of a Kafka group at a cursor: a committed offset, and its generation. Pure.

Source: docs/design/0029-kafka-groups.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from magnetar_broker.dispatch.committed_offset import CommittedOffset
from magnetar_core.errors import IllegalGeneration
from magnetar_core.wire import record_pb2 as records


@dataclass(slots=True)
class Committing:
    """State of a Kafka group at a cursor, which may not exist yet.

    Attributes:
        generation: the highest one of the group that has come here; 0: none has.
        committed: None: nothing is committed, or the cursor was moved in another way since.
        made_by_commit: the cursor is there for the group alone.
    """

    generation: int = 0
    committed: CommittedOffset | None = None
    made_by_commit: bool = False

    def check(self, generation: int) -> None:
        """Refuse a generation that is over.

        Raises:
            IllegalGeneration: a later one has come here.
        """
        if generation < self.generation:
            raise IllegalGeneration(
                f"generation {generation} of the group is over: {self.generation} has come here",
                generation=self.generation,
            )

    def moved_otherwise(self) -> bool:
        """Forget the committed offset, since something else has moved the cursor.

        Returns:
            Whether anything changed.
        """
        if self.committed is None and not self.made_by_commit:
            return False
        self.committed, self.made_by_commit = None, False
        return True

    @classmethod
    def of_record(cls, record: records.SubscriptionRecord) -> Committing:
        """Return the state that put_into() has stored."""
        committed = None
        if record.HasField("committed"):
            committed = CommittedOffset.of_row(record.committed)
        return cls(record.group_generation, committed, record.made_by_commit)

    def put_into(self, record: records.SubscriptionRecord) -> None:
        """Put the state into the record of its subscription."""
        record.group_generation = self.generation
        record.made_by_commit = self.made_by_commit
        if self.committed is not None:
            record.committed.CopyFrom(self.committed.row())
