"""Eight workers on sixteen partitions, which are killed, paused, added, removed."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest
from tests.system.conftest import Figure
from tests.system.crew import Crew, story
from tests.system.processes import Servers
from tests.system.programs import run

import magnetar

SEED = int(os.environ.get("SEED", "447"))


def tell(servers: Servers, directory: Path, figure: Figure, messages: int, faults: int) -> None:
    random = Random(SEED)
    crew = Crew(servers, directory, random)

    async def program() -> None:
        async with await magnetar.connect(servers.address) as client:
            told = await story(client, crew, messages=messages, faults=faults, random=random)
            figure("crew", ", ".join(f"{name} {value}" for name, value in told.items()))

    try:
        run(program(), timeout_s=120 + 10 * faults)
    finally:
        crew.kill_all()


def test_each_input_counts_once_and_in_order_whatever_happens_to_the_workers(
    servers: Servers, tmp_path: Path, figure: Figure
) -> None:
    tell(servers, tmp_path, figure, messages=100_000, faults=10)


@pytest.mark.soak
def test_a_million_messages_and_a_hundred_faults(
    servers: Servers, tmp_path: Path, figure: Figure
) -> None:
    tell(servers, tmp_path, figure, messages=1_000_000, faults=100)
