"""Makes the format known to Spark sessions."""

from __future__ import annotations

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from magnetar_spark.data_source import MagnetarDataSource


def register(spark: SparkSession) -> None:
    """Make the format known to a session, unless Spark has found it by itself.

    Spark searches the path for modules whose names begin with pyspark_. It finds nothing in an
    editable install, and in a session that is older than the package. If Spark has found the
    format, registering it again would print a warning.
    """
    if not _is_known(spark):
        spark.dataSource.register(MagnetarDataSource)


def _is_known(spark: SparkSession) -> bool:
    try:
        manager = spark._jsparkSession.sessionState().dataSourceManager()
    except (AttributeError, PySparkException):
        return False  # Over Spark Connect, the server alone knows.
    return bool(manager.dataSourceExists(MagnetarDataSource.name()))
