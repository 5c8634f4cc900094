"""Spark with servers that ask for certificates, tokens, and proofs of transactions."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.system.secured import secured_servers

from magnetar import blocking
from magnetar_spark.clients import close_all

# What its tasks do without Spark is tested beside the servers, in `make test`.
pytestmark = [pytest.mark.chaos, pytest.mark.soak]

VALUES = [b"%d" % number for number in range(400)]


def test_a_stream_and_a_batch_carry_their_proofs(spark: SparkSession, tmp_path: Path) -> None:
    """Driver and executors are processes of their own, and each has to know the proof."""
    with secured_servers(tmp_path) as secured:
        tls, token = secured.tls("executor"), tmp_path / "alice.token"
        token.write_text(secured.token("alice"))
        options = secured.spark_options(tls, token)
        with blocking.connect(
            secured.address, tls=secured.tls(), token=secured.token("alice")
        ) as client:
            for topic in ("in", "out", "batch"):
                client.admin.topics.create(topic, partitions=4)
            producer = client.create_producer("in")
            with client.transaction() as txn:
                for value in VALUES:
                    producer.enqueue(value, key=value, txn=txn)
            source = {**options, "subscribe": "in", "startingOffsets": "earliest"}

            query = (
                spark.readStream.format("magnetar")
                .options(**source, maxOffsetsPerTrigger="150")
                .load()
                .select("key", "value")
                .writeStream.format("magnetar")
                .options(**options, topic="out")
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .trigger(availableNow=True)
                .start()
            )
            assert query.awaitTermination(300)
            frame = spark.read.format("magnetar").options(**source).load().select("key", "value")
            frame.write.format("magnetar").options(**options, topic="batch").mode("append").save()

            for topic in ("out", "batch"):
                found = Counter(one.value for at in range(4) for one in client.read(topic, at))
                assert found == Counter(VALUES)
        close_all()
