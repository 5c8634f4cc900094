"""A client program: what it is told, and what it says.

It is told its task by arguments of the form name=value. It prints an object of JSON in a line for
each event: the beginning and the end of each round, and the result once it has counted what
arrived. "kill" asks for the server's death, and is answered by a line; "back" says that the server
has confirmed something since.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Timer
from typing import IO, Any

from benchmarks.peers.fetch import ROOT
from benchmarks.peers.sampler import Sampled, Sampler
from benchmarks.peers.system import Running


class ClientFailed(Exception):
    """A client ended with an error, which it has printed, or hung."""


def conversation(
    command: Sequence[str],
    running: Running,
    settings: Mapping[str, object],
    patience_s: float,
) -> Generator[tuple[dict[str, Any], Sampled], None, None]:
    """Run a client; yield the result of each round, and what was seen of the servers meanwhile.

    Raises:
        ClientFailed: it ended with an error or without a result, or did not end in time.
    """
    arguments = [f"{name}={text}" for name, text in settings.items()]
    with _client([*command, *arguments], patience_s) as client:
        sampler: Sampler | None = None
        sampled: Sampled | None = None
        killed_s = back_s = 0.0
        results = 0
        assert client.stdin is not None
        try:
            for said in _lines(client):
                match said["event"]:
                    case "begin":
                        sampler = Sampler(running.pids, (client.pid, os.getpid()))
                    case "end" if sampler is not None:
                        sampled = sampler.end()
                    case "kill":
                        killed_s = time.perf_counter()
                        running.kill()
                        client.stdin.write("killed\n")
                        client.stdin.flush()
                    case "back":
                        back_s = time.perf_counter() - killed_s
                    case "result" if sampled is not None:
                        results += 1
                        yield _with_restart(said, back_s), sampled
                    case event:
                        raise ClientFailed(f"{event} came out of turn")
        finally:
            if sampler is not None:
                sampler.stop()
    if not results:
        raise ClientFailed("a client ended without a result")


def _with_restart(said: dict[str, Any], back_s: float) -> dict[str, Any]:
    """Add the time since a kill to a client's figures: only this process knows it."""
    if not back_s:
        return said
    timed = dict.fromkeys(("p50", "p99", "p99.9"), back_s * 1_000)
    return {**said, "seconds": back_s, "latencies_ms": {"kill to first produce": timed}}


@contextmanager
def _client(command: Sequence[str], patience_s: float) -> Iterator[subprocess.Popen[str]]:
    """A client program that is gone at the end of the block."""
    client = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        start_new_session=True,
    )
    # Without it our reading of what it says would never end.
    patience = Timer(patience_s, client.kill)
    patience.start()
    try:
        yield client
        if client.wait() != 0:
            raise ClientFailed(f"a client ended with status {client.returncode}")
    finally:
        patience.cancel()
        client.kill()
        client.wait()
        for stream in (client.stdin, client.stdout):
            if stream is not None:
                stream.close()


def _lines(client: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    """Each event; other lines, which libraries print, go to standard error."""
    output: IO[str] | None = client.stdout
    assert output is not None
    for line in output:
        if line.startswith('{"event"'):
            yield json.loads(line)
        else:
            print(line, end="", file=sys.stderr)
