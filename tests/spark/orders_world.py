"""Orders in JSON, a cluster and a schema for them: what jobs decode in tests."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import pytest
from pyspark.sql import SparkSession
from tests.system.processes import Servers

from magnetar import blocking
from magnetar_spark.clients import close_all

ORDERS = "id BIGINT NOT NULL, item STRING, amount DOUBLE, tags ARRAY<STRING>"


def order(number: int, **more: object) -> bytes:
    return json.dumps({"id": number, "item": f"tea {number}", "amount": 2.5, **more}).encode()


class OrdersWorld:
    """A cluster for all tests of a file: topics of its own for each of them."""

    def __init__(self, spark: SparkSession, servers: Servers, directory: Path) -> None:
        self.spark = spark
        self.address = servers.address
        self.client = blocking.connect(servers.address)
        self.directory = directory
        self.schema = directory / "orders.ddl"
        self.schema.write_text(ORDERS)
        self._count = 0

    @classmethod
    @contextmanager
    def of_a_file(
        cls, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
    ) -> Iterator[Self]:
        servers = Servers(tmp_path_factory.mktemp("servers"))
        servers.start()
        made = cls(spark, servers, tmp_path_factory.mktemp("world"))
        yield made
        made.client.close()
        close_all()
        servers.stop()

    def new_name(self) -> str:
        self._count += 1
        return f"orders-{self._count}"

    def send(self, name: str, values: Iterable[bytes]) -> None:
        with self.client.create_producer(name) as producer:
            for number, value in enumerate(values):
                producer.send(
                    value,
                    b"key %d" % number,
                    properties={"from": "shop"},
                    event_time_ms=1_000 + number,
                    partition=number % 2,
                )
