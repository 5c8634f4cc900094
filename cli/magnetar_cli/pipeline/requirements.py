"""What jobs on Spark need of this machine."""

from __future__ import annotations

from importlib.util import find_spec

PACKAGES = ("pyspark", "pyarrow", "numpy", "magnetar_spark")


def missing() -> str | None:
    """What is not there, in a few words, and how to get it; None when nothing is missing."""
    for name in PACKAGES:
        if find_spec(name) is None:
            return f"no module {name} (pip install 'magnetar[spark]')"
    from magnetar_spark.jobs.java import missing_java

    return missing_java()
