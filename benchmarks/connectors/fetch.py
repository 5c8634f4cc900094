"""Gets a Spark for which there is a Kafka connector, with Magnetar beside it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.peers.fetch import (
    COPY_DEPENDENCIES,
    PEERS,
    ROOT,
    SOURCES,
    NotFetched,
    digest,
    is_made_of,
    sha256,
)

# The newest release of both.
SPARK = "4.2.0"
PYTHON = PEERS / "spark/bin/python"
_DESCRIPTION = SOURCES / "maven" / "spark_kafka.xml"
_JARS = PEERS / "spark-kafka"
_SHA256 = {
    f"spark-sql-kafka-0-10_2.13-{SPARK}.jar": (
        "64539c45e5d39f7ddb747312c239f38f5208d08c1a0ddf7d70beb2fbd9373705"
    ),
    f"spark-token-provider-kafka-0-10_2.13-{SPARK}.jar": (
        "641c7947afc8aa1189e433b7c2d305293993c8691bc1c2062d6d4f513b12518c"
    ),
    "kafka-clients-3.9.2.jar": "014b4ef36884478a932641818b080c36a8f8e2e92dc771e800c9d2694f4f83d8",
}


def fetch_spark() -> list[Path]:
    """Make an environment with Spark, and return the archives of its Kafka connector.

    Raises:
        NotFetched: a program failed, or an archive has another checksum.
    """
    marker = _JARS / ".fetched"
    if not is_made_of(marker, [_DESCRIPTION]):
        print("fetching Spark's Kafka connector", file=sys.stderr)
        _run(
            "mvn", "--batch-mode", "--quiet", "--strict-checksums", "--file", str(_DESCRIPTION),
            f"-Dmaven.repo.local={PEERS / 'maven'}", COPY_DEPENDENCIES,
            "-DincludeScope=runtime", f"-DoutputDirectory={_JARS}",
        )  # fmt: skip
        marker.write_text(digest([_DESCRIPTION]))
    for name, expected in _SHA256.items():
        found = sha256(_JARS / name)
        if found != expected:
            raise NotFetched(f"{_JARS / name} has SHA-256 {found}, and not {expected}")
    installed = PEERS / "spark/.installed"
    if not installed.exists() or installed.read_text() != SPARK:
        print(f"fetching Spark {SPARK}", file=sys.stderr)
        _run(sys.executable, "-m", "venv", str(PEERS / "spark"))
        _run(
            str(PYTHON), "-m", "pip", "install", "--quiet",
            f"pyspark=={SPARK}", "--editable", f"{ROOT}[spark]",
        )  # fmt: skip
        installed.write_text(SPARK)
    return sorted(_JARS.glob("*.jar"))


def _run(*command: str) -> None:
    try:
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    except FileNotFoundError as error:
        raise NotFetched(f"{command[0]} is not installed") from error
    except subprocess.CalledProcessError as error:
        raise NotFetched(f"{command[0]} failed with status {error.returncode}") from error
