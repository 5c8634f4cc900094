"""Seeds from the environment, and failures as text."""

from __future__ import annotations

import os
import tempfile
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple


class Failure(NamedTuple):
    """What was wrong with a run, in one line and in all."""

    headline: str
    traceback: str

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Raises: KeyboardInterrupt, if it is one: nothing is wrong then but that it is to end."""
        if isinstance(error, KeyboardInterrupt):
            raise error
        headline = f"{type(error).__name__}: {error}".splitlines()[0]
        return cls(headline, "".join(traceback.format_exception(error)))


def is_crash_at_once(failure: str | None, counts: Mapping[str, int]) -> bool:
    """Whether a run ended before anybody had done anything, and not by what a checker said.

    Of a bug that was put into the code on purpose, when every run does so: it is no subtle one,
    or the code has changed under it.
    """
    return failure is not None and not failure.startswith("Violation") and not any(counts.values())


def seeds_from_env(name: str, *, count: int) -> list[int]:
    """Seeds named by an environment variable, as in "4471", "0-9999" or "1,5,10-20".

    Args:
        count: without the variable, so many seeds from 0 on.
    """
    text = os.environ.get(name, "").strip()
    return parse_seeds(text) if text else list(range(count))


def parse_seeds(text: str) -> list[int]:
    seeds: list[int] = []
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        seeds.extend(range(int(first), int(last or first) + 1))
    return seeds


def trace_path(seed: object) -> Path:
    """Where the readable trace of a replay goes."""
    named = os.environ.get("SIM_TRACE")
    if named:
        return Path(named)
    folder = Path(tempfile.gettempdir()) / "magnetar-simulation"
    folder.mkdir(exist_ok=True)
    return folder / f"{seed}.trace"
