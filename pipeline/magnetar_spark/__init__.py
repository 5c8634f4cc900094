"""A source and a sink for Spark, exactly once, for streaming queries and batches.

    spark.readStream.format("magnetar").option("magnetar.bootstrap.servers", "127.0.0.1:6650")...
    frame.writeStream.format("magnetar").option("topic", "delays")...

Spark finds the format by itself (`pyspark_magnetar`). If it does not, for example in a session that
was started before the package was installed, call `register(spark)`.
Guarantees and options: docs/spark.md.
"""

from magnetar_spark.data_source import MagnetarDataSource
from magnetar_spark.errors import OffsetsLost, OptionError, SinkError
from magnetar_spark.registration import register

__all__ = ["MagnetarDataSource", "OffsetsLost", "OptionError", "SinkError", "register"]
