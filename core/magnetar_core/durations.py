"""Durations as people write them: 500ms, 1.5s, 15m, 12h, 7d. Pure."""

from __future__ import annotations

import re

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


def parse_duration_ms(text: str) -> int:
    """Parse a duration and return it in milliseconds.

    Raises:
        ValueError: the text is not a number with a unit; the message says what to write.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a duration; write 500ms, 30s, 15m, 12h or 7d")
    return round(float(match[1]) * _UNITS_MS[match[2]])
