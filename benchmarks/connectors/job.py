"""Spark's half: `python -m benchmarks.connectors.job TASK`, a task in JSON; a line for each answer.

A program of its own, for the Spark that both connectors have.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.streaming import batches_of, rows_and_seconds
from magnetar_spark import register


def main() -> None:
    """Run the task in the first argument."""
    task = json.loads(sys.argv[1])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.extraClassPath", task["class_path"])
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    register(spark)
    DOES[task["what"]](spark, task)
    spark.stop()


def speed(spark: SparkSession, task: dict[str, Any]) -> None:
    """Run all queries in turn, as often as the task says, and say how fast each was."""
    for topic in task["fill"]:
        _fill(spark, task["kafka"], **topic)
    for repetition in range(task["repeat"]):
        for query in task["queries"]:
            checkpoint = Path(task["directory"]) / "checkpoint"
            shutil.rmtree(checkpoint, ignore_errors=True)
            began_s = time.perf_counter()
            writer = _writer(_source(spark, task, query), task, query)
            writer = writer.option("checkpointLocation", str(checkpoint))
            batches = batches_of(writer, task["batches"], endless=query["source"] is None)
            rows, seconds = rows_and_seconds(batches[-task["batches_counted"] :])
            _, first_s = rows_and_seconds(batches[:1])
            _say(
                variant=query["variant"], system=query["system"], repetition=repetition,
                message_bytes=query["message_bytes"], rows=rows, seconds=seconds, first_s=first_s,
                all_s=time.perf_counter() - began_s,
            )  # fmt: skip


def copy(spark: SparkSession, task: dict[str, Any]) -> None:
    """Copy a topic into another, until it is killed, or to the end."""
    query = task["query"]
    writer = _writer(_source(spark, task, query), task, query)
    checkpoint = writer.option("checkpointLocation", task["checkpoint"])
    running = checkpoint.trigger(availableNow=True).start()
    running.awaitTermination()
    _say(done=True)


def count(spark: SparkSession, task: dict[str, Any]) -> None:
    """Say how many rows a topic has, and how many different ones."""
    rows = _reading(spark.read, task, task["system"], task["topic"]).select("value")
    found = rows.agg(F.count("*"), F.countDistinct("value")).collect()[0]
    _say(rows=found[0], different=found[1])


def numbers(spark: SparkSession, task: dict[str, Any]) -> None:
    """Write numbers, each once, into a topic of each system."""
    for system, topic in task["topics"].items():
        rows = spark.range(task["rows"], numPartitions=2)
        value = F.rpad(F.col("id").cast("string"), task["message_bytes"], " ").cast("binary")
        writer = rows.select(value.alias("value")).write.format(system)
        writer.options(**_sink(task, system, topic)).mode("append").save()
    _say(done=True)


def _fill(spark: SparkSession, address: str, *, topic: str, message_bytes: int, rows: int) -> None:
    frame = spark.range(rows, numPartitions=2).select(_payload(message_bytes))
    frame.write.format("kafka").options(
        **{"kafka.bootstrap.servers": address, "topic": topic}
    ).save()


def _payload(message_bytes: int) -> Any:
    return F.lit(bytes(message_bytes)).alias("value")


def _reading(reader: Any, task: dict[str, Any], system: str, topic: str, **more: str) -> DataFrame:
    server = {
        "kafka": {"kafka.bootstrap.servers": task["kafka"]},
        "magnetar": {"magnetar.bootstrap.servers": task["magnetar"]},
    }[system]
    options = {**server, "subscribe": topic, "startingOffsets": "earliest", **more}
    frame: DataFrame = reader.format(system).options(**options).load()
    return frame


def _source(spark: SparkSession, task: dict[str, Any], query: dict[str, Any]) -> DataFrame:
    if query["source"] is None:
        return (
            spark.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", str(query["rows_per_batch"]))
            .option("numPartitions", "2")
            .load()
            .select(_payload(query["message_bytes"]))
        )
    more = {"maxOffsetsPerTrigger": str(query["rows_per_batch"])}
    if query["values_only"] and query["system"] == "magnetar":
        more["columns"] = "value"
    frame = _reading(spark.readStream, task, query["system"], query["source"], **more)
    return frame.select("value") if query["values_only"] else frame


def _writer(frame: DataFrame, task: dict[str, Any], query: dict[str, Any]) -> Any:
    if query["sink"] is None:
        return frame.writeStream.format("noop")
    return frame.writeStream.format(query["system"]).options(
        **_sink(task, query["system"], query["sink"])
    )


def _sink(task: dict[str, Any], system: str, topic: str) -> dict[str, str]:
    name = f"{system}.bootstrap.servers"
    return {name: task[system], "topic": topic}


def _say(**answer: Any) -> None:
    print(json.dumps(answer), flush=True)


DOES = {"speed": speed, "copy": copy, "count": count, "numbers": numbers}

if __name__ == "__main__":
    main()
