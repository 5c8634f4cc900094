"""Errors of the source and the sink. Spark shows their text, so each says what to do."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from magnetar_core.errors import DataLoss, Gone, MagnetarError, OutOfRange, TopicNotFound

# Spark's own switch: its workers look for it when they tell the JVM what was raised, and exit then.
_HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"


class OptionError(ValueError):
    """The source or the sink does not take an option, a column or a mode. Nothing was done."""


class SinkError(RuntimeError):
    """A batch cannot be committed. Nothing of it counts; restart the query to try again."""


class OffsetsLost(RuntimeError):
    """Offsets to be read no longer exist. Nothing was skipped."""


# Errors of a broker for messages that cannot be read, now or later.
UNREADABLE = (DataLoss, Gone, OutOfRange, TopicNotFound)


@contextmanager
def said_first() -> Iterator[None]:
    """Let Spark show the error first, and not the traceback of its worker.

    It is meant for functions that Spark calls in a separate process, which ends with the error.
    Other errors keep their traceback.
    """
    try:
        yield
    except (OptionError, SinkError, OffsetsLost, MagnetarError):
        os.environ[_HIDE_TRACEBACK] = "1"
        raise
