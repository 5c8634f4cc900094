"""`python -m benchmarks.transforms`: how fast `magnetar pipeline transform` is, format by format.

A query that computes one field of orders of about 100 bytes; Spark, its Python workers and the
servers share this machine. The first batch waits for Spark's plans and compilers, so that the
others are given by themselves.
"""

from __future__ import annotations

import json
import statistics
import threading
import time
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click
from fastavro import parse_schema, schemaless_writer
from rich.console import Console
from rich.table import Table

from benchmarks.servers import started
from magnetar import blocking
from magnetar_spark.jobs.spark_session import spark_session
from magnetar_spark.jobs.transforming.transform import Report, Request, transform

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 2
SQL = "SELECT _message, id, round(amount * 1.07, 2) AS total FROM input WHERE amount > 0"
TEXT_SQL = "SELECT _message, concat(text, '!') AS _value FROM input"
ITEM = "a tea of many herbs, from far away"
JSON = "id BIGINT NOT NULL, item STRING, amount DOUBLE"
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "item", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "note", "type": "string"},
    ],
}


def orders(payload_format: str, count: int) -> tuple[str | None, list[bytes]]:
    """Return the schema, and values."""
    records = [
        {"id": number, "item": ITEM, "amount": 2.5, "note": 30 * "-"} for number in range(count)
    ]
    if payload_format != "avro":
        schema = (
            "id BIGINT NOT NULL, item STRING, amount DOUBLE" if payload_format == "json" else None
        )
        return schema, [json.dumps(record).encode() for record in records]
    parsed = parse_schema(AVRO)
    values = []
    for one in records:
        data = BytesIO()
        schemaless_writer(data, parsed, one)
        values.append(data.getvalue())
    return json.dumps(AVRO), values


def measure(
    spark: SparkSession, directory: Path, payload_format: str, batches: int, rows: int
) -> list[float]:
    """Return the seconds of each batch."""
    schema, values = orders(payload_format, batches * rows)
    schema_path = None
    if schema is not None:
        schema_path = directory / "schema"
        schema_path.write_text(schema)
    with started() as servers:
        with blocking.connect(servers.address) as client:
            for topic in ("orders", "totals"):
                client.admin.topics.create(topic, partitions=PARTITIONS)
            with client.create_producer("orders") as producer:
                for partition in range(PARTITIONS):
                    producer.send_many(values[partition::PARTITIONS], partition=partition)
        moments = [time.perf_counter()]

        def ended(_: Report) -> None:
            moments.append(time.perf_counter())

        request = Request(
            servers=(servers.address,),
            input="orders",
            output="totals",
            checkpoint=str(directory / "checkpoint"),
            payload_format=payload_format,
            schema_path=None if schema_path is None else str(schema_path),
            sql=TEXT_SQL if payload_format == "text" else SQL,
            offsets_per_batch_max=rows,
        )
        report = transform(spark, request, stop=threading.Event(), on_batch=ended)
        assert report.written == batches * rows
    return [end - begin for begin, end in pairwise(moments)]


@click.command()
@click.option("--batches", default=8, show_default=True)
@click.option("--rows", multiple=True, type=int, default=(1_000, 100_000), help="Of a batch.")
@click.option("--format", "formats", multiple=True, type=str, default=("json", "avro", "text"))
def main(batches: int, rows: tuple[int, ...], formats: tuple[str, ...]) -> None:
    """Measure the transform of topics."""
    spark = spark_session("benchmark", "local[2]")
    table = Table("format", "rows of a batch", "first batch s", "others s", "rows/s of these")
    for payload_format in formats:
        for count in rows:
            with TemporaryDirectory() as directory:
                seconds = measure(spark, Path(directory), payload_format, batches, count)
            # The second one is still compiled.
            others = statistics.median(seconds[2:])
            table.add_row(
                payload_format,
                f"{count:,}",
                f"{seconds[0]:.1f}",
                f"{others:.2f}",
                f"{count / others:,.0f}",
            )
    Console(width=100).print(table)
    spark.stop()


if __name__ == "__main__":
    main()
