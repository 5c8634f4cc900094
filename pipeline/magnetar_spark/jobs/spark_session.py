"""Creates the Spark session of a job that has none."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import SparkSession

from magnetar_core.config import split_address
from magnetar_core.transport.transport import LinkClosed
from magnetar_spark.jobs.java import missing_java
from magnetar_spark.registration import register

# Of Spark's launcher: spark-submit has said where to run.
SUBMITTED = "PYSPARK_GATEWAY_PORT"
# A task may fail three times: without the second number it must not fail once.
MASTER_DEFAULT = "local[*,4]"
BYTES_PER_BATCH = "spark.sql.execution.arrow.maxBytesPerBatch"
# Of jobs that decode values.
DECODING_SETTINGS = {
    # Times in values have nothing to do with where this runs.
    "spark.sql.session.timeZone": "UTC",
    # By their number alone, which is Spark's rule, ten thousand large messages would go to a Python
    # worker together.
    BYTES_PER_BATCH: str(32 << 20),
}
# A server may be on its way up, but a person should soon be told that there is none.
FIND_ATTEMPTS = 5
FIND_PERIOD_S = 0.2
FIND_TIMEOUT_S = 5.0


class JavaMissing(RuntimeError):
    """Java is missing, or too old for Spark."""

    def __init__(self) -> None:
        super().__init__(
            "Spark needs Java 17 or later: install it, or set JAVA_HOME. "
            "docs/spark.md shows how to install it without root."
        )


@contextmanager
def settings(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """Change settings of a session while the block runs.

    A separate session would become the active session of the whole process.
    """
    before = {name: spark.conf.get(name, None) for name in wanted}
    try:
        for name, text in wanted.items():
            spark.conf.set(name, text)
        yield
    finally:
        for name, found in before.items():
            if found is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, found)


def find_broker(servers: tuple[str, ...]) -> None:
    """Check that a broker answers, before Spark starts, which takes seconds.

    Raises:
        LinkClosed: no broker answers.
    """
    for _ in range(FIND_ATTEMPTS):
        for address in servers:
            try:
                socket.create_connection(split_address(address), timeout=FIND_TIMEOUT_S).close()
                return
            except OSError:
                threading.Event().wait(FIND_PERIOD_S)
    raise LinkClosed(f"no broker answers at {' or '.join(servers)}")


def spark_session(name: str, master: str | None) -> SparkSession:
    """Return the existing session, or a new session. Call it before the first client: it forks.

    Args:
        name: the name of the application.
        master: where to run; None: where spark-submit says, or on this machine.
    Raises:
        JavaMissing: Java is missing, or too old.
    """
    builder = SparkSession.builder.appName(f"magnetar {name}")
    log_level = "ERROR"
    if SUBMITTED not in os.environ:
        # What goes wrong is raised here, and told once.
        log_level = "OFF"
        if missing_java() is not None:
            raise JavaMissing
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = builder.config("spark.ui.enabled", "false").config(
            "spark.ui.showConsoleProgress", "false"
        )
        builder = builder.master(master or MASTER_DEFAULT)
    elif master is not None:
        builder = builder.master(master)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel(log_level)
    register(made)
    return made
