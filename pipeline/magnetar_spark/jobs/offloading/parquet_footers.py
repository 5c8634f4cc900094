"""Reads the footer of a Parquet file: how many rows it has, and which offsets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from magnetar_spark.jobs.offloading.directory import DirectoryError


@dataclass(frozen=True)
class Footer:
    """The footer of a Parquet file.

    Attributes:
        first_offset: the first offset; -1 without rows.
        last_offset: the last offset; -1 without rows.
    """

    row_count: int
    byte_count: int
    first_offset: int
    last_offset: int

    def fits(self, start: int, end: int) -> bool:
        """Whether these may be the messages of offsets from `start` to before `end`."""
        return (
            start <= self.first_offset <= self.last_offset < end
            and self.row_count <= self.last_offset - self.first_offset + 1
        )

    def __str__(self) -> str:
        return f"{self.row_count} messages, offsets {self.first_offset} to {self.last_offset}"


def read_footer(spark: SparkSession, url: str, byte_count: int) -> Footer:
    """Read the footer with Spark's reader, on any file system.

    Raises:
        DirectoryError: the file is not a Parquet file, or is cut short.
    """
    jvm: Any = spark._jvm
    configuration = spark.sparkContext._jsc.hadoopConfiguration()
    hadoop = jvm.org.apache.parquet.hadoop
    try:
        path = jvm.org.apache.hadoop.fs.Path(url)
        reader = hadoop.ParquetFileReader.open(
            hadoop.util.HadoopInputFile.fromPath(path, configuration)
        )
        try:
            count = int(reader.getRecordCount())
            bounds = [_offsets(block) for block in reader.getFooter().getBlocks()]
        finally:
            reader.close()
    except Py4JJavaError as error:
        raise DirectoryError(f"{url}: {error.java_exception}") from error
    if not bounds:
        return Footer(0, byte_count, -1, -1)
    return Footer(
        count, byte_count, min(first for first, _ in bounds), max(last for _, last in bounds)
    )


def _offsets(block: Any) -> tuple[int, int]:
    for column in block.getColumns():
        if column.getPath().toDotString() == "offset":
            statistics = column.getStatistics()
            return int(statistics.genericGetMin()), int(statistics.genericGetMax())
    raise DirectoryError("a file has no column 'offset'")
