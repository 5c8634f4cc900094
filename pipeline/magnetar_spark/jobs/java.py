"""Finds the Java that Spark would use on this machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

JAVA_VERSION_MIN = 17


ANSWER_S_MAX = 60.0


def missing_java() -> str | None:
    """Return why Spark has no Java; None if it has."""
    java = _java()
    if java is None:
        return f"no Java {JAVA_VERSION_MIN} (docs/spark.md says how to get one without root)"
    try:
        told = subprocess.run(
            [java, "-version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=ANSWER_S_MAX,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        return f"{java} does not run ({error})"
    version = java_version(told)
    if version is not None and version < JAVA_VERSION_MIN:
        return f"{java} is Java {version}, and Spark needs {JAVA_VERSION_MIN} or later"
    return None


def java_version(told: str) -> int | None:
    """Return the feature release in the output of `java -version`; None if it is not understood."""
    found = re.search(r'version "(?:1\.)?(\d+)', told)
    return None if found is None else int(found[1])


def _java() -> str | None:
    """Return the program that Spark's start script would run."""
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        return str(Path(home) / "bin" / "java")
    return shutil.which("java")
