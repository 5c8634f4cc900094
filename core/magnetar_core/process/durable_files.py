"""Durable files: after a crash a file is whole, with its old content or with the new one."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(file: Path, text: str) -> None:
    """Write a file whole or not at all, and durably."""
    part = file.with_name(f"{file.name}.part")
    with part.open("w") as content:
        content.write(text)
        content.flush()
        os.fsync(content.fileno())
    part.replace(file)
    sync(file.parent)


def sync(path: Path) -> None:
    """Make durable what a file holds, or which files a directory has and how they are named."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
