"""examples/spark_nightly.py, night after night: each order gets one bill."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from examples.spark_nightly import write_bills
from tests.spark.conftest import ROOT, environment_of_a_user
from tests.system.processes import Servers

from magnetar import blocking

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.chaos


def run(servers: Servers, checkpoint: Path) -> str:
    done = subprocess.run(
        [
            *(sys.executable, str(ROOT / "examples" / "spark_nightly.py")),
            *("orders", "bills", str(checkpoint)),
        ],
        env=environment_of_a_user() | {"MAGNETAR_BROKER": servers.address},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, (done.stdout, done.stderr[-4_000:])
    return done.stdout.strip()


def test_each_night_has_what_came_since(
    spark: SparkSession, servers: Servers, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    with blocking.connect(servers.address) as client:
        for topic in ("orders", "bills"):
            client.admin.topics.create(topic, partitions=2)
        producer = client.create_producer("orders")
        for number in range(50):
            producer.send(b"%d" % number, partition=number % 2)
        assert run(servers, checkpoint) == "50 orders"
        for number in range(50, 80):
            producer.send(b"%d" % number, partition=number % 2)
        with client.transaction() as txn:
            producer.send(b"80", partition=0, txn=txn)
        # This session stands for the next program: a checkpoint is all that they share.
        again = write_bills(spark, servers.address, "orders", "bills", str(checkpoint))
        assert again == 31
        bills = [one.value for partition in range(2) for one in client.read("bills", partition)]
    assert sorted(bills) == sorted(b"bill for %d" % number for number in range(81))
