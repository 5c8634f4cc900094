"""Brings Iceberg tables of topics to a cut: one moment over all of them.

What a table has is told by its own snapshots, so there is no checkpoint. A run reads what the new
cut has and the table's cut has not, writes files, and commits them.
Source: docs/design/0018-tables.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from py4j.protocol import Py4JJavaError
from pyiceberg.catalog import Catalog
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from magnetar import Cut
from magnetar_spark.clients import client_of
from magnetar_spark.data_source import MagnetarDataSource
from magnetar_spark.errors import OffsetsLost, OptionError
from magnetar_spark.jobs.failures import one_line
from magnetar_spark.jobs.iceberg.catalogs import CatalogChoice, open_catalog
from magnetar_spark.jobs.iceberg.columns import RESERVED, bad_schema, record_schema
from magnetar_spark.jobs.iceberg.data_files import WrittenFile, target_of
from magnetar_spark.jobs.iceberg.joining import join_small_files
from magnetar_spark.jobs.iceberg.lineage import goals, tag_of
from magnetar_spark.jobs.iceberg.passes import Pass, Topic, passes
from magnetar_spark.jobs.iceberg.table import TablesFailed, TopicTable
from magnetar_spark.jobs.iceberg.tasks import BAD, RECORDS, Written, write_messages
from magnetar_spark.jobs.job_cuts import cut_at
from magnetar_spark.jobs.spark_session import DECODING_SETTINGS, settings
from magnetar_spark.options.given import SERVERS
from magnetar_spark.options.source import NOW
from magnetar_spark.payloads.formats import payload_of
from magnetar_spark.sink import new_run_token

FILE_BYTES = 256 << 20
NAMESPACE = "magnetar"
_DAY_MS = 24 * 3600 * 1000


@dataclass(frozen=True, kw_only=True)
class Request:
    """Request to bring tables to a cut.

    Attributes:
        servers: brokers, "host:port".
        payload_format, schema_path, message_name, framed: see `payload_of`; of all topics.
        namespace: of all tables, with dots between its parts. A table has its topic's name.
        at: the token of a cut; NOW: take one.
        keeps_bad: whether values that cannot be decoded go to a table TOPIC_bad. Otherwise the
            first one ends the job, unless there is such a table already.
        accepts_all_bad: whether a new table's messages may all be such values.
        file_bytes: about how large a file is at most.
        tasks_min: with how many tasks to write at least, if there are messages for them.
        kept_ms: for how long the tag of a cut keeps its snapshots from expiring.
    """

    servers: tuple[str, ...]
    topics: tuple[str, ...]
    payload_format: str
    schema_path: str | None = None
    message_name: str | None = None
    framed: bool = False
    catalog: CatalogChoice = field(default_factory=CatalogChoice)
    namespace: str = NAMESPACE
    at: str = NOW
    keeps_bad: bool = False
    accepts_all_bad: bool = False
    file_bytes: int = FILE_BYTES
    tasks_min: int = 1
    kept_ms: int = 7 * _DAY_MS


@dataclass(frozen=True)
class TableReport:
    """Changes that a run has made to a table.

    Attributes:
        new_rows: how many it has added.
        new_files: how many files they are in.
        joined_files: how many small files it has written together.
        snapshot_id: of the commit that brought it to the cut; None: it was there.
    """

    table: str
    topic: str
    new_rows: int = 0
    new_files: int = 0
    joined_files: int = 0
    snapshot_id: int | None = None


@dataclass(frozen=True)
class Report:
    """Result of a run.

    Attributes:
        cut: the token of the cut at which all tables are.
        tag: the name of their snapshots' tag.
        read: how many messages it read; after a run that was killed, some of them again.
        bad: how many of them could not be decoded.
    """

    cut: str
    tag: str
    read: int
    bad: int
    tables: tuple[TableReport, ...]

    @property
    def is_all_bad(self) -> bool:
        """Whether it read something, and could decode nothing."""
        return 0 < self.read == self.bad


def tables(
    spark: SparkSession,
    request: Request,
    on_progress: Callable[[str, int, int], None] = lambda *_: None,
) -> Report:
    """Bring a table for each topic to a cut.

    Args:
        on_progress: is told what is done now, how many topics are done, and of how many.
    Raises:
        OptionError: the request is not valid, or a table has other columns.
        TablesFailed: tables are not at the cut. Tables that are at it stay there.
        JobError: the job cannot work at this cut.
        TopicNotFound: a topic is not there.
        MagnetarError: the servers cannot be reached.
    """
    if len(set(request.topics)) < len(request.topics):
        raise OptionError("a topic is named twice")
    client = client_of(request.servers)
    for topic in request.topics:
        client.admin.topics.list_offsets(topic)
    run = _Run(spark, request, open_catalog(request.catalog), on_progress)
    run.open(client.admin.cluster_info().cluster_id)
    cut = cut_at(client, request.at, request.topics)
    try:
        with settings(spark, DECODING_SETTINGS):
            for goal in goals([(table.topic, table.cut) for table in run.tables], cut):
                run.bring(goal, is_last=goal == cut)
            run.join_small_files()
    except (PySparkException, Py4JJavaError) as error:
        raise TablesFailed(_said(one_line(str(error)))) from error
    return run.report(cut)


def _said(text: str) -> str:
    """Return the cause of an error in Spark, and what to do."""
    if text.startswith((OffsetsLost.__name__, OptionError.__name__)):
        return (
            f"what has come since a table's cut cannot be read: {text.partition(': ')[2]}. Nothing"
            " was committed at the new cut. Tables of another --namespace begin with what is there"
            " now"
        )
    return f"a task failed: {text}"


class _Run:
    """A run of the job."""

    def __init__(
        self,
        spark: SparkSession,
        request: Request,
        catalog: Catalog,
        on_progress: Callable[[str, int, int], None],
    ) -> None:
        self._spark = spark
        self._request = request
        self._catalog = catalog
        self._on_progress = on_progress
        self._run = new_run_token()
        self._topics: list[Topic] = []
        self._reports: dict[str, TableReport] = {}
        self._read = self._bad = 0

    @property
    def tables(self) -> list[TopicTable]:
        return [table for topic in self._topics for table in topic.tables]

    def open(self, cluster_id: str) -> None:
        """Look at all tables, and make those that are not there, with all columns.

        Raises:
            OptionError: a schema cannot be used, or a table has other columns.
            TablesFailed: a table is not this job's.
        """
        request = self._request
        schemas = {}
        for name in request.topics:
            payload = payload_of(
                request.payload_format,
                topic=name,
                schema_path=request.schema_path,
                message_name=request.message_name,
                framed=request.framed,
                reserved=RESERVED,
            )
            schemas[name] = record_schema(payload.schema)
            self._topics.append(Topic(name, payload, self._table(name, name, RECORDS)))
        # Nothing is made or changed before it is known of all whether it can be.
        for topic in self._topics:
            topic.records.load()
            topic.records.check_schema(schemas[topic.name])
            bad = self._table(topic.name, f"{topic.name}_{BAD}", BAD)
            bad.load()
            if bad.is_there or request.keeps_bad:
                topic.bad = bad
        for topic in self._topics:
            topic.records.prepare(schemas[topic.name], cluster_id)
            if topic.bad is not None:
                topic.bad.prepare(bad_schema(), cluster_id)
        for table in self.tables:
            # Refuses what could not be written, before anything is read.
            target_of(table.table, request.file_bytes)
            self._reports[table.name] = TableReport(table.name, table.topic)

    def _table(self, topic: str, name: str, rows: str) -> TopicTable:
        return TopicTable(self._catalog, (*self._request.namespace.split("."), name), topic, rows)

    def bring(self, goal: Cut, *, is_last: bool) -> None:
        """Bring tables to a cut: first all files, then all commits.

        Args:
            is_last: whether tables that have no cut yet begin with this one.
        Raises:
            TablesFailed: a table cannot be brought there, or what was read must not go into it.
        """
        due = [one for topic in self._topics for one in passes(topic, goal, is_last=is_last)]
        try:
            for done, one in enumerate(due):
                self._on_progress(f"reading {one.topic.name}", done, len(due))
                one.written = self._write(one, goal)
                self._judge(one)
        except BaseException:
            for one in due:
                one.discard()
            raise
        if is_last and not any(one.written.read or one.must_move for one in due):
            return
        for one in due:
            self._read += one.written.read
            self._bad += one.written.bad
            for table in one.tables:
                self._on_progress(f"committing {table.name}", len(due), len(due))
                self._commit(table, one.written.files[table.rows], goal)

    def join_small_files(self) -> None:
        """Write small files together, table by table."""
        for table in self.tables:
            if self._reports[table.name].new_files:
                self._on_progress(f"joining files of {table.name}", 1, 1)
                count = join_small_files(
                    self._spark, table, self._request.file_bytes, run=self._run
                )
                before = self._reports[table.name]
                self._reports[table.name] = replace(before, joined_files=count)

    def report(self, cut: Cut) -> Report:
        """Return the report."""
        reports = tuple(self._reports[table.name] for table in self.tables)
        return Report(str(cut), tag_of(cut), self._read, self._bad, reports)

    def _write(self, one: Pass, goal: Cut) -> Written:
        request = self._request
        targets = {table.rows: target_of(table.table, request.file_bytes) for table in one.tables}
        return write_messages(
            self._messages(one, goal),
            one.topic.payload,
            records=targets.get(RECORDS),
            bad=targets.get(BAD),
            name=self._run,
            tasks=max(self._spark.sparkContext.defaultParallelism, request.tasks_min),
        )

    def _messages(self, one: Pass, goal: Cut) -> DataFrame:
        request = self._request
        options = {
            SERVERS: ",".join(request.servers),
            "subscribe": one.topic.name,
            "includeHeaders": "true",
            "minPartitions": str(request.tasks_min),
            "cut": str(goal),
        }
        if one.since is not None:
            options["since"] = str(one.since)
        return self._spark.read.format(MagnetarDataSource.name()).options(**options).load()

    def _judge(self, one: Pass) -> None:
        """Raises: TablesFailed: values that could not be decoded must not be left out."""
        written, request = one.written, self._request
        if not written.bad:
            return
        example = f"such as {written.example}. Nothing was committed at this cut"
        if one.topic.bad is None:
            raise TablesFailed(
                f"{written.bad:,} of {written.read:,} values of {one.topic.name!r} cannot be"
                f" decoded, {example}. With --keep-bad they go to a table of their own"
            )
        if one.is_first and written.bad == written.read and not request.accepts_all_bad:
            raise TablesFailed(
                f"none of the first {written.read:,} values of {one.topic.name!r} can be decoded,"
                f" {example}. Look whether they are {request.payload_format} of this schema; with"
                f" --accept-all-bad they go to {one.topic.bad.name}"
            )

    def _commit(self, table: TopicTable, files: Sequence[WrittenFile], goal: Cut) -> None:
        snapshot_id = table.add(
            [table.stored(file.path) for file in files],
            goal,
            run=self._run,
            kept_ms=self._request.kept_ms,
        )
        before = self._reports[table.name]
        self._reports[table.name] = replace(
            before,
            new_rows=before.new_rows + sum(file.rows for file in files),
            new_files=before.new_files + len(files),
            snapshot_id=snapshot_id,
        )
