"""A home for Spark whose Python library is not an archive.

Spark puts `python/lib/pyspark.zip` of its home at the front of the path of each Python process that
it starts. Python keeps no compiled modules of an archive, so each of these processes compiles the
library again: two thirds of its start time. A query waits for eight such processes before its first
batch. In a home without the archive they find the library where this process does, compiled.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

HOME = "SPARK_HOME"
# What Spark's scripts look for there.
_PARTS = ("bin", "sbin", "jars")


def home_without_archive(directory: Path) -> dict[str, str]:
    """Make such a home, out of links, for Spark on this machine.

    Args:
        directory: where to make it; it must stay while Spark runs.
    Returns:
        The environment variables to set for Spark's driver. Empty if a home is chosen already, or
        if PySpark was installed without Spark inside.
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
