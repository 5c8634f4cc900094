"""Spark's daemon for Python workers that imports what they need before it forks them.

A worker takes 0.5 s of processor time until it works, most of it for imports, and the tests start
hundreds. Those that run programs as users do have Spark's own daemon.
"""

from __future__ import annotations

import importlib

from pyspark.daemon import manager

IMPORTED_EARLY = (
    "magnetar_spark",
    "magnetar_spark.sink",
    "magnetar_spark.source",
    "pyarrow.compute",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark.worker",
    "tests.spark.faults",
)

if __name__ == "__main__":
    for name in IMPORTED_EARLY:
        importlib.import_module(name)
    manager()
