"""Wildcards of a shell in names: `*`, `?` and `[...]`, for a whole name, case-sensitive. Pure.

Regular expressions are not allowed: a client's expression could keep the process busy for ever.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable
from functools import lru_cache

# How many compiled patterns are kept.
_PATTERNS_MAX = 1_000


def matcher(pattern: str) -> Callable[[str], bool]:
    """Return a function that tests names; an empty pattern matches the empty name alone."""
    match = _compiled(pattern).match
    return lambda name: match(name) is not None


@lru_cache(_PATTERNS_MAX)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(pattern))
