"""What goes wrong on Spark's side. Spark shows the text of an error, so each says what to do."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from magnetar_core.errors import MagnetarError

# Spark's own switch: its workers look for it when they tell the JVM what was raised, and exit then.
_HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"


class OptionError(ValueError):
    """An option, a column or a mode that this source or sink does not take. Nothing was done."""


class SinkError(RuntimeError):
    """A batch cannot be committed. Nothing of it counts; restart the query to do it again."""


class OffsetsLost(RuntimeError):
    """Offsets that are to be read are not there any more. Nothing was skipped."""


@contextmanager
def said_first() -> Iterator[None]:
    """Has Spark show what is wrong, instead of its worker's trace that ends with it.

    For what Spark calls in a process of its own, which ends with the error. What is not ours to say
    keeps its trace.
    """
    try:
        yield
    except (OptionError, SinkError, OffsetsLost, MagnetarError):
        os.environ[_HIDE_TRACEBACK] = "1"
        raise
