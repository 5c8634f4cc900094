"""A shell's wildcards in names: `*`, `?` and `[...]`, for a whole name, in its own case. Pure.

No regular expressions: somebody else's can keep a process busy for ever.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable
from functools import lru_cache

# Patterns that are kept ready.
_PATTERNS_MAX = 1_000


def matcher(pattern: str) -> Callable[[str], bool]:
    """A test for names; an empty pattern fits the empty name alone."""
    match = _compiled(pattern).match
    return lambda name: match(name) is not None


@lru_cache(_PATTERNS_MAX)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(pattern))
