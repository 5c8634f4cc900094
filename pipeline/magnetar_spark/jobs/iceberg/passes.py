"""Passes of a run: the messages to read, for which tables, and from which cut on."""

from __future__ import annotations

from dataclasses import dataclass, field

from magnetar import Cut
from magnetar_spark.jobs.iceberg.data_files import discard
from magnetar_spark.jobs.iceberg.lineage import is_before
from magnetar_spark.jobs.iceberg.table import TablesFailed, TopicTable
from magnetar_spark.jobs.iceberg.tasks import Written
from magnetar_spark.payloads.payload import Payload


@dataclass
class Topic:
    """A topic, its table of records, and perhaps one of messages that could not be decoded."""

    name: str
    payload: Payload
    records: TopicTable
    bad: TopicTable | None = None

    @property
    def tables(self) -> list[TopicTable]:
        """Both, in the order of their commits.

        The one of bad values comes first: a run that is killed in between loses none.
        """
        return [self.records] if self.bad is None else [self.bad, self.records]


@dataclass
class Pass:
    """One reading of a topic, for those of its tables that are at the same cut.

    Attributes:
        since: that cut; None: they have none yet. written: the files that were written.
    """

    topic: Topic
    tables: list[TopicTable]
    since: Cut | None
    written: Written = field(default_factory=Written)

    @property
    def is_first(self) -> bool:
        """Whether the table of records has no rows yet."""
        return self.since is None and self.topic.records in self.tables

    @property
    def must_move(self) -> bool:
        """Whether tables go to a new cut without a new row.

        A table has to have a cut. And while its cut was taken, transactions may have ended: their
        messages would be looked at again, and retention may have removed them then.
        """
        return self.since is None or any(
            one.begun_offset < one.end_offset
            for one in self.since.taken.topic(self.topic.name).partitions
        )

    def discard(self) -> None:
        """Remove the files that were written."""
        for table in self.tables:
            discard(table.table.io, [file.path for file in self.written.files[table.rows]])


def passes(topic: Topic, goal: Cut, *, is_last: bool) -> list[Pass]:
    """Return the passes over a topic, usually one for both of its tables.

    Args:
        is_last: whether tables that have no cut yet begin with this one.
    Raises:
        TablesFailed: a table is further than the last goal.
    """
    found: dict[str, Pass] = {}
    for table in topic.tables:
        # A table for bad values that is made later lacks none: the job did not go past them.
        since = table.cut or topic.records.cut
        if since is None:
            is_due = is_last
        elif is_last and since.taken.stamp > goal.taken.stamp:
            raise TablesFailed(
                f"{table.name} has a later cut than this one: roll it back, or leave --at out"
            )
        else:
            is_due = is_before(since, goal, topic.name) or (table.cut is None and is_last)
        if is_due:
            found.setdefault(str(since), Pass(topic, [], since)).tables.append(table)
    return list(found.values())
