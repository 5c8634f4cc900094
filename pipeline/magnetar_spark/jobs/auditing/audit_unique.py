"""Finds messages of a topic that share a value that must be unique."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

from pyspark import StorageLevel
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from magnetar_spark.errors import OptionError
from magnetar_spark.jobs.auditing import audit_checks
from magnetar_spark.jobs.auditing.audit_checks import Finding
from magnetar_spark.jobs.auditing.audit_source import messages_of
from magnetar_spark.planning import Range


def check_unique(spark: SparkSession, expression: str) -> None:
    """Check the expression.

    Raises:
        OptionError: it is not an expression over the source's columns.
    """
    # PySpark logs what it raises, with the JVM's trace.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    try:
        _shared(spark, (), expression, ())
    except (AnalysisException, ParseException) as error:
        raise OptionError(f"--unique {expression!r}: {_said(error)}") from error


def shared(
    spark: SparkSession,
    servers: tuple[str, ...],
    expression: str,
    ranges: Sequence[Range],
    findings_max: int,
    later: Collection[str] | None = None,
) -> tuple[list[Finding], int]:
    """Return the first findings, and how many there are.

    Args:
        later: as for audit_source.checked_in().
    """
    found = _shared(spark, servers, expression, ranges, later)
    found.persist(StorageLevel.DISK_ONLY)
    try:
        total = found.count()
        some = found.orderBy("topic", "min").limit(findings_max).collect()
    finally:
        found.unpersist()
    return [
        Finding(
            audit_checks.DUPLICATE,
            one.topic,
            one.max.partition,
            one.max.offset,
            one.max.offset,
            detail=f"{one['count']} messages share {expression}; another one is at partition"
            f" {one.min.partition} offset {one.min.offset}",
        )
        for one in some
    ], total


def _shared(
    spark: SparkSession,
    servers: tuple[str, ...],
    expression: str,
    ranges: Sequence[Range],
    later: Collection[str] | None = None,
) -> DataFrame:
    """Return values that several messages share, by topic and value.

    Equal are values whose two 64-bit hashes are equal. Spark aggregates hashes, and puts what does
    not fit its memory on disk.
    """
    return (
        messages_of(spark, servers, ranges, later)
        .select(
            "topic",
            "partition",
            "offset",
            F.expr(expression).cast("string").alias("unique"),
        )
        .where(F.col("unique").isNotNull())
        .select(
            "topic",
            F.struct("partition", "offset").alias("place"),
            F.xxhash64("unique").alias("one"),
            F.xxhash64(F.lit("#"), "unique").alias("other"),
        )
        .groupBy("topic", "one", "other")
        .agg(F.count("*").alias("count"), F.min("place").alias("min"), F.max("place").alias("max"))
        .where("count > 1")
    )


def _said(error: PySparkException) -> str:
    """The first line, without the query's plan."""
    return " ".join(str(error).strip().partition("\n")[0].split()).rstrip("; ")
