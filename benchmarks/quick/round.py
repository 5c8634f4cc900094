"""A round: a client process with servers of its own does workloads, and measures each of them.

`python -m benchmarks.quick.round`, which `run_round` starts.
"""

from __future__ import annotations

import asyncio
import gc
import json
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import click

from benchmarks.peers.processes import ended_by_signals
from benchmarks.quick import calibration
from benchmarks.quick.child import ChildFailed, lines_of
from benchmarks.quick.figures import Measured
from benchmarks.quick.work import WORKLOADS
from benchmarks.runner import run
from benchmarks.servers import Servers, started
from magnetar import Client

# A workload takes a second or two. This only ends a round that hangs.
WORKLOAD_WITHIN_S = 300.0
# Servers are idle that need less than this part of a processor for such a moment.
IDLE_PART = 0.04
IDLE_S = 0.05
IDLE_WITHIN_S = 5.0


def run_round(
    names: Sequence[str],
    *,
    share: float,
    data_dir: Path | None,
    on_measured: Callable[[Measured], None],
) -> list[Measured]:
    """Run workloads in a process of their own, and return what it measured.

    Args:
        names: of the workloads.
        share: of each one's amount of work.
        data_dir: where the servers' directory is made.
        on_measured: called for each workload as soon as it is done.
    Raises:
        ChildFailed: they did not all finish.
    """
    arguments = ["--share", str(share), *names]
    if data_dir is not None:
        arguments += ["--data-dir", str(data_dir.absolute())]
    found: list[Measured] = []
    # Closed at once, whatever ends the loop: it holds servers and a client.
    with closing(lines_of("benchmarks.quick.round", *arguments)) as lines:
        for line in lines:
            found.append(from_line(line))
            on_measured(found[-1])
    if [one.workload for one in found] != list(names):
        raise ChildFailed(f"a round ended after {len(found)} of {len(names)} workloads")
    return found


def to_line(measured: Measured) -> str:
    return json.dumps(asdict(measured))


def from_line(line: str) -> Measured:
    told = json.loads(line)
    return Measured(**{**told, "cpu_s": tuple(told["cpu_s"])})


async def measure(client: Client, servers: Servers, name: str, *, share: float) -> Measured:
    """Do a workload, and return its figures."""
    workload = WORKLOADS[name]
    work = await workload.begin(client, workload.part(share))
    await until_idle(servers)
    gc.collect()
    before_s = calibration.pass_s()
    cpu_then_s, began_s = servers.cpu_s(), time.perf_counter()
    count = await work()
    elapsed_s = time.perf_counter() - began_s
    client_s = servers.cpu_s()[0] - cpu_then_s[0]
    # What servers have put off is work for this workload too.
    await until_idle(servers)
    servers_s = [
        now_s - then_s for now_s, then_s in zip(servers.cpu_s()[1:], cpu_then_s[1:], strict=True)
    ]
    return Measured(
        workload=name,
        count=count,
        elapsed_s=elapsed_s,
        cpu_s=(client_s, *servers_s),
        calibration_s=(before_s + calibration.pass_s()) / 2,
    )


async def until_idle(servers: Servers) -> None:
    """Wait until the servers have nothing more to do, or do not come to rest."""
    deadline_s = time.perf_counter() + IDLE_WITHIN_S
    used_s = sum(servers.cpu_s()[1:])
    while time.perf_counter() < deadline_s:
        await asyncio.sleep(IDLE_S)
        before_s, used_s = used_s, sum(servers.cpu_s()[1:])
        if used_s - before_s < IDLE_PART * IDLE_S:
            return


async def _measure_all(servers: Servers, names: Sequence[str], share: float) -> None:
    async with await servers.connect() as client:
        for name in names:
            async with asyncio.timeout(WORKLOAD_WITHIN_S):
                measured = await measure(client, servers, name, share=share)
            print(to_line(measured), flush=True)


@click.command()
@click.argument("names", type=click.Choice(list(WORKLOADS)), nargs=-1)
@click.option("--share", type=float, default=1.0)
@click.option("--data-dir", type=click.Path(path_type=Path))
def main(names: tuple[str, ...], share: float, data_dir: Path | None) -> None:
    with ended_by_signals(), started(data_dir) as servers:
        run(_measure_all(servers, names, share))


if __name__ == "__main__":
    main()
