"""Programs of users, which run as processes of their own until they end by themselves."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import NamedTuple

from magnetar import blocking

# A program that takes longer hangs: no verdict depends on it otherwise.
PATIENCE_S = 120.0

BEGIN = """
import asyncio, atexit, contextlib, gc, os, sys, threading, warnings
import magnetar
from magnetar import blocking
ADDRESS, TOPIC = sys.argv[1:3]
"""


class Ended(NamedTuple):
    """The end of a program: its status and output."""

    status: int
    out: str
    err: str


@dataclass
class Scene:
    """Servers, and programs that use them.

    Attributes:
        address: where the broker is.
    """

    address: str

    def __post_init__(self) -> None:
        self._numbers = itertools.count()

    def topic(self, partitions: int = 1) -> str:
        """Make a topic, and return its name."""
        # Workers of the test run share no servers, but a name tells whose it is.
        name = f"t-{os.getpid()}-{next(self._numbers)}"
        with blocking.connect(self.address) as client:
            client.admin.topics.create(name, partitions=partitions)
        return name

    def run(self, program: str, topic: str, *flags: str, first: str = "") -> Ended:
        """Run a program to its end. It finds ADDRESS and TOPIC, and magnetar is imported.

        Args:
            flags: of the interpreter.
            first: what comes before the imports.

        Raises:
            subprocess.TimeoutExpired: it hangs.
        """
        done = subprocess.run(
            [sys.executable, *flags, "-c", first + BEGIN + program, self.address, topic],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    def stored(self, topic: str) -> list[bytes]:
        """Return the values of all messages of a topic of one partition."""
        with blocking.connect(self.address) as client:
            return [one.value for one in client.read(topic, 0)]
