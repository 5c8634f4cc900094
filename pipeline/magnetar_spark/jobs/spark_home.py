"""A home for Spark in which its Python library is no archive.

Spark puts `python/lib/pyspark.zip` of its home before everything else on the path of each Python
process that it starts. Python keeps no compiled modules of an archive, so that each of these
processes compiles the library anew: two thirds of the time that it takes to start, and a query
waits for eight of them before its first batch. In a home without the archive they find the same
library where this process does, compiled.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

HOME = "SPARK_HOME"
# What Spark's scripts look for there.
_PARTS = ("bin", "sbin", "jars")


def home_without_archive(directory: Path) -> dict[str, str]:
    """Make such a home, of links, for Spark on this machine.

    Args:
        directory: for the home; it must stay for as long as Spark runs.
    Returns:
        What to set in the environment of Spark's driver: nothing, where somebody has chosen a home
        or where PySpark was not installed with Spark inside.
    """
    found = find_spec("pyspark")
    if HOME in os.environ or found is None or found.origin is None:
        return {}
    package = Path(found.origin).parent
    if not all((package / part).is_dir() for part in _PARTS):
        return {}
    home = directory / "spark-home"
    home.mkdir(exist_ok=True)
    for part in _PARTS:
        link = home / part
        if not link.is_symlink():
            link.symlink_to(package / part, target_is_directory=True)
    return {HOME: str(home)}
