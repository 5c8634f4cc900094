"""Spark's half of the measurement: a process of its own, which says on standard output what it did.

`python -m benchmarks.spark_job JSON`; each line of its answer is a JSON object.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from benchmarks.streaming import batches_of, rows_and_seconds


def main() -> None:
    told = json.loads(sys.argv[1])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master(told["master"])
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    from magnetar_spark import register

    register(spark)
    for job in told["jobs"]:
        print(json.dumps({"name": job["name"], **measured(spark, job, told)}), flush=True)
    spark.stop()


def measured(spark: SparkSession, job: dict[str, Any], told: dict[str, Any]) -> dict[str, float]:
    """Rows and seconds of the last batches."""
    checkpoint = Path(told["directory"]) / job["name"].replace(" ", "-")
    frame = source(spark, job)
    writer = frame.writeStream.option("checkpointLocation", str(checkpoint))
    if job["sink"] is None:
        writer = writer.format("noop")
    else:
        writer = writer.format("magnetar").options(**job["sink"])
    batches = batches_of(writer, told["batches"], endless=job["source"] is None)
    rows, seconds = rows_and_seconds(batches[-told["batches_counted"] :])
    return {"rows": rows, "seconds": seconds}


def source(spark: SparkSession, job: dict[str, Any]) -> DataFrame:
    if job["source"] is None:
        return (
            spark.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", str(job["rows_per_batch"]))
            .option("numPartitions", "2")
            .load()
        )
    frame = (
        spark.readStream.format("magnetar")
        .options(**job["source"])
        .option("maxOffsetsPerTrigger", str(job["rows_per_batch"]))
        .load()
    )
    return frame


main()
