"""A PostgreSQL server of our own, from the system's packages."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.waiting import wait_until


def postgresql_programs() -> Path | None:
    """Where initdb and postgres are; None where PostgreSQL is not installed."""
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return versions[-1].parent if versions else None


@contextmanager
def postgresql(programs: Path) -> Iterator[str]:
    """Run a server for the time of the block; yields its URL."""
    with TemporaryDirectory(prefix="magnetar-postgresql-") as directory:
        # It refuses to run as root.
        user = "postgres" if os.geteuid() == 0 else None
        if user is not None:
            shutil.chown(directory, user)
        data = f"{directory}/data"
        run = {"user": user, "stdout": subprocess.DEVNULL, "cwd": directory}
        subprocess.run(
            [programs / "initdb", "-D", data, "-U", "magnetar", "--no-sync", "-A", "trust"],
            check=True,
            **run,  # type: ignore[call-overload]
        )
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        server = subprocess.Popen(
            [
                *(programs / "postgres", "-D", data, "-p", str(port)),
                *("-h", "127.0.0.1", "-k", directory, "-c", "fsync=off"),
            ],
            stderr=subprocess.DEVNULL,
            **run,  # type: ignore[call-overload]
        )
        try:
            url = f"postgresql://magnetar@127.0.0.1:{port}/postgres"
            _until_ready(url)
            yield url
        finally:
            # A fast shutdown: SIGTERM would wait for every connection.
            server.send_signal(signal.SIGINT)
            server.wait(20)


def _until_ready(url: str) -> None:
    import psycopg

    def is_ready() -> bool:
        try:
            psycopg.connect(url).close()
        except psycopg.OperationalError:
            return False
        return True

    wait_until(is_ready)
