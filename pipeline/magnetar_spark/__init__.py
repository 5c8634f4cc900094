"""Magnetar on Spark: an exactly-once source and sink, streaming and batch.

    spark.readStream.format("magnetar").option("magnetar.bootstrap.servers", "127.0.0.1:6650")...
    frame.writeStream.format("magnetar").option("topic", "delays")...

Spark finds the format by itself (`pyspark_magnetar`); where it does not, as with a session that was
started before the package was installed: `register(spark)`.
Guarantees and options: docs/spark.md.
"""

from magnetar_spark.data_source import MagnetarDataSource
from magnetar_spark.errors import OffsetsLost, OptionError, SinkError
from magnetar_spark.registration import register

__all__ = ["MagnetarDataSource", "OffsetsLost", "OptionError", "SinkError", "register"]
