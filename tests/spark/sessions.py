"""Small Spark sessions."""

from __future__ import annotations

import os

from pyspark.sql import SparkSession

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "700m",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    # Tasks get several record batches.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20",
    "spark.sql.streaming.stopTimeout": "20s",
    # Plans run for less time than compiling them takes: an eighth of all processor time. Programs
    # that run as users' do compile theirs.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.python.daemon.module": "tests.spark.daemon",
}


def session(master: str, **more: str) -> SparkSession:
    builder = SparkSession.builder.master(master).appName("magnetar tests")
    for name, text in {**SETTINGS, **more}.items():
        builder = builder.config(name, text)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel(os.environ.get("SPARK_TEST_LOG", "OFF"))
    return made
