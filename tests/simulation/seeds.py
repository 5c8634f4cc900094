"""Which seeds to run: from the environment, so that a failure is replayed by naming it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


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


def how_to_replay(seed: int, family: str | None = None) -> str:
    if family is not None:
        return (
            f"replay with: python -m tests.simulation.run --trace --family {family} --seeds {seed}"
        )
    command = f"python -m tests.simulation.run --trace --seeds {seed}"
    return f"replay with: make sim SEED={seed}   or: {command}"
