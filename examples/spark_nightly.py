"""A job for every night: what has come since the last run, each message once, and then it ends.

    pip install 'magnetar[server,spark]'        # and Java 17 or later
    magnetar standalone --data-dir ./data
    magnetar topics create orders --partitions 4
    magnetar topics create bills --partitions 4
    seq 1000 | magnetar produce orders
    python examples/spark_nightly.py orders bills ./nightly

The directory is the query's checkpoint: it remembers where the last run ended. If a run was killed,
the next one continues it. `MAGNETAR_BROKER` names another broker than the one on this machine.
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

from magnetar_spark import register

# A long night becomes several transactions.
OFFSETS_A_BATCH = 100_000


def write_bills(spark: SparkSession, address: str, orders: str, bills: str, checkpoint: str) -> int:
    """Write a bill for each order that came since the last run, and return how many came."""
    servers = {"magnetar.bootstrap.servers": address}
    query = (
        spark.readStream.format("magnetar")
        .options(**servers)
        .option("subscribe", orders)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", OFFSETS_A_BATCH)
        .load()
        .selectExpr("key", "concat('bill for ', cast(value AS string)) AS value")
        .writeStream.format("magnetar")
        .options(**servers)
        .option("topic", bills)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return sum(progress["numInputRows"] for progress in query.recentProgress)


def main() -> None:
    """Read the arguments, start Spark, and write the bills."""
    if len(sys.argv) != 4:
        sys.exit(f"usage: python {sys.argv[0]} ORDERS_TOPIC BILLS_TOPIC CHECKPOINT_DIRECTORY")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("nightly")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    # Spark finds the format by itself, except in an editable install.
    register(spark)
    address = os.environ.get("MAGNETAR_BROKER", "127.0.0.1:6650")
    print(f"{write_bills(spark, address, *sys.argv[1:]):,} orders")
    spark.stop()


if __name__ == "__main__":
    main()
