"""Spark's half of the measurement: a process of its own, which says on standard output what it did.

`python -m benchmarks.spark_job JSON`; each line of its answer is a JSON object.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession


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
    if job["source"] is None:
        # It has no end: stop it after as many batches as the others have.
        query = writer.start()
        while len(query.recentProgress) < told["batches"] and query.isActive:
            time.sleep(0.05)
        query.stop()
    else:
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
    progress = [one for one in query.recentProgress if one.numInputRows]
    counted = progress[: told["batches"]][-told["batches_counted"] :]
    rows = sum(one.numInputRows for one in counted)
    seconds = sum(one.durationMs["triggerExecution"] for one in counted) / 1000
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
