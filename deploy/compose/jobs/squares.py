"""Squares the numbers of the topic `numbers` into the topic `squares`, exactly once.

The producer of compose.yaml sends the numbers. The checkpoint lies where driver and executors see
it: if this or a server is killed, each square is there once when it runs again.
"""

from __future__ import annotations

import os

from pyspark.sql import SparkSession

from magnetar import TopicExists, blocking

SERVERS = os.environ["MAGNETAR_BROKER"]

with blocking.connect(SERVERS.split(",")) as client:
    for topic in ("numbers", "squares"):
        try:
            client.admin.topics.create(topic, partitions=6)
        except TopicExists:
            pass

spark = SparkSession.builder.getOrCreate()
numbers = (
    spark.readStream.format("magnetar")
    .option("magnetar.bootstrap.servers", SERVERS)
    .option("subscribe", "numbers")
    .option("startingOffsets", "earliest")
    .load()
)
squares = numbers.selectExpr(
    "cast(cast(cast(value as string) as decimal(18)) * cast(cast(value as string) as decimal(18))"
    " as string) as value"
)
(
    squares.writeStream.format("magnetar")
    .option("magnetar.bootstrap.servers", SERVERS)
    .option("topic", "squares")
    .option("checkpointLocation", "/var/lib/magnetar/checkpoints/squares")
    .trigger(processingTime="2 seconds")
    .start()
    .awaitTermination()
)
