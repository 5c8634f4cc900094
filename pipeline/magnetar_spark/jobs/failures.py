"""The error of a failed query in a single line, without the traces of two languages. Pure."""

from __future__ import annotations

import re

# What Spark writes before an exception of Python: where it is defined, and its name.
_RAISED = re.compile(r"^\s*(?:[A-Za-z_]\w*\.)+([A-Z]\w*): (.+)$")
_OURS = re.compile(r"(?:^|\s)magnetar\w*\.(?:\w+\.)*([A-Z]\w*): (.+)$")
_FRAME = re.compile(r"^\s+at \S+\(.*\)$")
# Spark's classes that wrap an error without its text.
_WRAPPERS = {"StreamingQueryException", "PythonException", "SparkException", "PySparkRuntimeError"}
LENGTH_MAX = 500


class JobError(RuntimeError):
    """A job cannot go on. Its text is a single line, and says what to do."""


def one_line(text: str) -> str:
    """Return the error of this package if there is one, or else the innermost message.

    Args:
        text: the text of an exception of Spark, traces included.
    """
    lines = [line for line in text.splitlines() if line.strip() and not _FRAME.match(line)]
    for pattern in (_OURS, _RAISED):
        for line in reversed(lines):
            found = pattern.search(line)
            if found is not None and found[1] not in _WRAPPERS:
                return _short(f"{found[1]}: {found[2]}")
    return _short(lines[0] if lines else "it failed without a word")


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= LENGTH_MAX else text[: LENGTH_MAX - 3] + "..."
