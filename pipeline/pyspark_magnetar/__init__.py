"""Found by its name: Spark registers the `DefaultSource` of every module that begins with pyspark_.

Source: PySpark, pyspark.sql.worker.lookup_data_sources.
"""

from magnetar_spark.data_source import MagnetarDataSource as DefaultSource

__all__ = ["DefaultSource"]
