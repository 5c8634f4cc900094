"""Checks whether this machine has what jobs on Spark need."""

from __future__ import annotations

from importlib.util import find_spec

PACKAGES = ("pyspark", "pyarrow", "numpy", "magnetar_spark")


def missing() -> str | None:
    """Return which requirement is missing and how to get it; None if none is."""
    for name in PACKAGES:
        if find_spec(name) is None:
            return f"no module {name} (pip install 'magnetar[spark]')"
    from magnetar_spark.jobs.java import missing_java

    return missing_java()
