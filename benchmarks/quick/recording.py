"""A client process with servers of its own does a workload, and py-spy looks at all three.

`python -m benchmarks.quick.recording`, which `profiles.py` starts. It prints, for each process,
which part of its processor time its first thread took, as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click
import psutil

from benchmarks.peers.processes import ended_by_signals
from benchmarks.quick.figures import PROCESSES
from benchmarks.quick.round import until_idle
from benchmarks.quick.work import WORKLOADS
from benchmarks.runner import run
from benchmarks.servers import Servers, started

SAMPLES_PER_S = 200
END_WITHIN_S = 60.0


def stacks_file(directory: Path, name: str, process: str) -> Path:
    """Return the file for the stacks of a process of a workload."""
    return directory / f"{name}-{process}.txt"


async def record(
    profiler: str, servers: Servers, name: str, directory: Path, share: float
) -> dict[str, float]:
    """Do a workload, and write the stacks of each process.

    Returns: for each process the part of its processor time that its first thread took.
    """
    workload = WORKLOADS[name]
    pids = dict(
        zip(PROCESSES, (os.getpid(), servers.broker_pid, servers.coordinator_pid), strict=True)
    )
    async with await servers.connect() as client:
        work = await workload.begin(client, workload.part(share))
        await until_idle(servers)
        with ExitStack() as stack:
            for process, pid in pids.items():
                file = stacks_file(directory, name, process)
                stack.enter_context(_recording(profiler, pid, file))
            before_s = {process: _threads_s(pid) for process, pid in pids.items()}
            await work()
            after_s = {process: _threads_s(pid) for process, pid in pids.items()}
    return {process: _part(before_s[process], after_s[process]) for process in pids}


@contextmanager
def _recording(profiler: str, pid: int, file: Path) -> Iterator[None]:
    """Sample a process for the time of the block."""
    process = subprocess.Popen(
        [
            *(profiler, "record", "--pid", str(pid), "--output", str(file)),
            *("--format", "raw", "--rate", str(SAMPLES_PER_S), "--nolineno"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            if "Sampling process" in line:
                break
        else:
            raise SystemExit(
                "py-spy could not look at another process; on Linux it has to be root's, or "
                f"kernel.yama.ptrace_scope has to be 0:\n{said}"
            )
        yield
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=END_WITHIN_S)


def _threads_s(pid: int) -> tuple[float, float]:
    """Processor time of the first thread, which runs the event loop, and of all."""
    found = {one.id: one.user_time + one.system_time for one in psutil.Process(pid).threads()}
    return found.get(pid, 0.0), sum(found.values())


def _part(before_s: tuple[float, float], after_s: tuple[float, float]) -> float:
    first_s, all_s = (now_s - then_s for then_s, now_s in zip(before_s, after_s, strict=True))
    return first_s / all_s if all_s > 0 else 1.0


@click.command()
@click.argument("name", type=click.Choice(list(WORKLOADS)))
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option("--profiler", required=True, help="The program.")
@click.option("--share", type=float, default=1.0)
@click.option("--data-dir", type=click.Path(path_type=Path))
def main(name: str, directory: Path, profiler: str, share: float, data_dir: Path | None) -> None:
    with ended_by_signals(), started(data_dir) as servers:
        print(json.dumps(run(record(profiler, servers, name, directory, share))), flush=True)


if __name__ == "__main__":
    main()
