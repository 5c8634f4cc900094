"""Lets few files take the place of many small ones, with the same rows."""

from __future__ import annotations

from pyspark.sql import SparkSession

from magnetar_spark.jobs.iceberg.compaction import StoredFile, groups
from magnetar_spark.jobs.iceberg.data_files import discard, target_of
from magnetar_spark.jobs.iceberg.table import TablesFailed, TopicTable
from magnetar_spark.jobs.iceberg.tasks import write_together


def join_small_files(spark: SparkSession, table: TopicTable, file_bytes: int, *, run: str) -> int:
    """Write small files of a table together, and return how many they were.

    Args:
        file_bytes: about how large a file is at most.
        run: names the run that does it.
    Raises:
        TablesFailed: another program has changed the table, or its files differ from its metadata.
    """
    scans = {one.file.file_path: one for one in table.files_without_deletes()}
    chosen = groups(
        (
            StoredFile(path, repr(one.file.partition), one.file.file_size_in_bytes)
            for path, one in scans.items()
        ),
        file_bytes,
    )
    if not chosen:
        return 0
    written = write_together(
        spark,
        [[scans[one.path] for one in group] for group in chosen],
        table.table.metadata,
        target_of(table.table, file_bytes),
        name=f"{run}-joined",
    )
    old = [scans[one.path].file for group in chosen for one in group]
    if sum(one.record_count for one in old) != sum(one.rows for one in written):
        discard(table.table.io, [one.path for one in written])
        raise TablesFailed(
            f"files of {table.name} have other numbers of rows than it says: {table.name} is at"
            " the cut, and its small files were not joined"
        )
    table.replace(old, [table.stored(one.path) for one in written], run=run)
    return len(old)
