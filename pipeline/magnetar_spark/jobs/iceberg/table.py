"""A table in a catalog, and the commits that bring it from cut to cut.

Each commit names the snapshot that it is made on, so that of two runs one fails.
Source: Apache Iceberg, Table Spec: Optimistic Concurrency, Snapshots, Snapshot References.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.io.pyarrow import parquet_file_to_data_file
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table import Transaction as TableTransaction
from pyiceberg.table.update.snapshot import ManageSnapshots

from magnetar import Cut
from magnetar_core.errors import InvalidArgument, UnsupportedVersion
from magnetar_spark.jobs.failures import JobError, one_line
from magnetar_spark.jobs.iceberg.columns import TIME, check_change, day_of_storage
from magnetar_spark.jobs.iceberg.lineage import (
    CLUSTER,
    CUT,
    CUT_FILE,
    ROWS,
    RUN,
    TOKEN_LENGTH_MAX,
    TOPIC,
    CutForgotten,
    SnapshotFacts,
    last_told,
    tag_of,
)

Identifier = tuple[str, ...]
_RETRIES: Final = "commit.retry.num-retries"
# Each commit writes a metadata file. Without this, all of them would stay for good.
_PROPERTIES: Final = {
    "format-version": "2",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
    # The day of a file is told by them.
    f"write.metadata.metrics.column.{TIME}": "full",
}


class TablesFailed(JobError):
    """Tables could not be brought to a cut. Each is where it was, or there; run the job again."""


class TopicTable:
    """A table with rows of a topic.

    Args:
        catalog: where it is.
        identifier: its namespaces and its name.
        topic: whose rows it has.
        rows: which of them: "records" or "bad".
    """

    def __init__(self, catalog: Catalog, identifier: Identifier, topic: str, rows: str) -> None:
        self.identifier = identifier
        self.topic = topic
        self.rows = rows
        self._catalog = catalog
        self._table: Table | None = None
        self._cut: Cut | None = None

    @property
    def name(self) -> str:
        """The name as people write it."""
        return ".".join(self.identifier)

    @property
    def cut(self) -> Cut | None:
        """The cut that the table is at; None: it has none yet."""
        return self._cut

    @property
    def table(self) -> Table:
        """The table, as it was at the last look or after the last commit."""
        assert self._table is not None
        return self._table

    @property
    def is_there(self) -> bool:
        """Whether the catalog has it."""
        return self._table is not None

    def load(self) -> None:
        """Look whether the table is there, and where it is.

        Raises:
            TablesFailed: it was made by another program, or does not say up to which cut it has
                rows.
        """
        try:
            self._table = self._catalog.load_table(self.identifier)
        except NoSuchTableError:
            return
        told = self._table.properties
        if (told.get(TOPIC), told.get(ROWS)) != (self.topic, self.rows):
            raise TablesFailed(
                f"the table {self.name} was not made for {self.rows} of the topic {self.topic!r}:"
                " take another --namespace"
            )
        self._cut = self._last_cut()

    def check_schema(self, wanted: Schema) -> None:
        """Check that the table, if it is there, can have these columns.

        Raises:
            OptionError: it cannot.
        """
        if self._table is not None:
            check_change(self._table.schema(), wanted, self.name)

    def prepare(self, wanted: Schema, cluster_id: str) -> None:
        """Create the table with these columns, or give it those that it does not have.

        Raises:
            OptionError: it has others.
            TablesFailed: another program has just made it for another purpose.
        """
        if self._table is None:
            self._create(wanted, cluster_id)
        if check_change(self.table.schema(), wanted, self.name):
            with self.table.update_schema() as update:
                update.union_by_name(wanted)

    def _create(self, schema: Schema, cluster_id: str) -> None:
        self._catalog.create_namespace_if_not_exists(self.identifier[:-1])
        with suppress(TableAlreadyExistsError):
            self._catalog.create_table(
                self.identifier,
                schema,
                partition_spec=day_of_storage(schema),
                properties={
                    **_PROPERTIES,
                    TOPIC: self.topic,
                    ROWS: self.rows,
                    CLUSTER: cluster_id,
                },
            )
        self.load()

    def stored(self, path: str) -> DataFile:
        """Return the entry of the table for a file that was written for it."""
        return parquet_file_to_data_file(self.table.io, self.table.metadata, path)

    def add(self, files: Iterable[DataFile], cut: Cut, *, run: str, kept_ms: int) -> int:
        """Bring the table to a cut by adding files, and return the snapshot's id.

        Args:
            run: names the run that does it.
            kept_ms: for how long the snapshot's tag keeps it from expiring.
        Raises:
            TablesFailed: another program has changed the table, or the result is not known.
        """

        def change(transaction: TableTransaction) -> int:
            snapshot = transaction.update_snapshot(
                snapshot_properties={**self._told(cut), RUN: run}
            )
            with snapshot.merge_append() as append:
                for file in files:
                    append.append_data_file(file)
            tags = ManageSnapshots(transaction)
            tags.create_tag(append.snapshot_id, tag_of(cut), max_ref_age_ms=kept_ms).commit()
            return append.snapshot_id

        return self._commit(change)

    def files_without_deletes(self) -> list[FileScanTask]:
        """Return the files of the table that no deletes belong to."""
        return [one for one in self.table.scan().plan_files() if not one.delete_files]

    def replace(self, old: Sequence[DataFile], new: Sequence[DataFile], *, run: str) -> int:
        """Let files take the place of others with the same rows; see `add`."""
        assert self._cut is not None
        told = {**self._told(self._cut), RUN: run}

        def change(transaction: TableTransaction) -> int:
            with transaction.update_snapshot(snapshot_properties=told).overwrite() as overwrite:
                for one in old:
                    overwrite.delete_data_file(one)
                for one in new:
                    overwrite.append_data_file(one)
            return overwrite.snapshot_id

        return self._commit(change)

    def _commit(self, change: Callable[[TableTransaction], int]) -> int:
        table = self.table
        # Tried again, a change would be put on top of what another run has added. It is said to
        # this copy alone: others may try theirs as often as the table says.
        table.metadata.properties[_RETRIES] = "0"
        snapshot_id: int | None = None
        try:
            with table.transaction() as transaction:
                snapshot_id = change(transaction)
        except CommitFailedException as error:
            raise TablesFailed(
                f"another program has changed {self.name} meanwhile ({error}): nothing of this run"
                " counts there. Run the job again, one at a time"
            ) from error
        except Exception as error:
            # The answer may be lost, and the change made.
            if snapshot_id is None or not self._has(snapshot_id):
                raise TablesFailed(
                    f"{self.name} was not changed, or the catalog does not say so:"
                    f" {one_line(str(error))}. Run the job again, which looks where it is"
                ) from error
        # Where it is now may be further: another run goes on from the snapshot of this one.
        self.load()
        return snapshot_id

    def _has(self, snapshot_id: int) -> bool:
        try:
            found = self._catalog.load_table(self.identifier)
        except Exception:  # Of any catalog: it is why the question is asked.
            return False
        return found.snapshot_by_id(snapshot_id) is not None

    def _told(self, cut: Cut) -> dict[str, str]:
        """Return the properties that name a cut; a long token is in a file beside the metadata."""
        token = str(cut)
        if len(token) <= TOKEN_LENGTH_MAX:
            return {CUT: token}
        name = f"cut-{hashlib.sha256(token.encode()).hexdigest()}.txt"
        location = self.table.location_provider().new_metadata_location(name)
        with self.table.io.new_output(location).create(overwrite=True) as file:
            file.write(token.encode())
        return {CUT_FILE: location}

    def _last_cut(self) -> Cut | None:
        table = self.table
        snapshots = {
            one.snapshot_id: SnapshotFacts(
                one.parent_snapshot_id,
                one.summary.additional_properties if one.summary is not None else {},
            )
            for one in table.snapshots()
        }
        current = table.current_snapshot()
        try:
            told = last_told(snapshots, None if current is None else current.snapshot_id)
            if told is None:
                return None
            return Cut.parse(told[CUT] if CUT in told else self._read(told[CUT_FILE]))
        except CutForgotten:
            raise TablesFailed(
                f"the snapshots of {self.name} do not say up to which cut it has rows: the one that"
                " did has expired. Roll the table back to a snapshot that does, or drop it"
            ) from None
        except (InvalidArgument, UnsupportedVersion) as error:
            raise TablesFailed(f"the cut of {self.name} cannot be read: {error}") from error

    def _read(self, location: str) -> str:
        try:
            with self.table.io.new_input(location).open() as file:
                return file.read().decode()
        except OSError as error:
            raise TablesFailed(f"the cut of {self.name} is not at {location}: {error}") from error
