"""The console beside the demo: its transactions, live in a browser."""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import click

from magnetar_cli.log_end import end_of_log
from magnetar_cli.servers.console_options import console_arguments
from magnetar_cli.servers.supervisor import PROGRAM
from magnetar_flights.demo.processes import stop


@asynccontextmanager
async def running_console(directory: Path, brokers: str) -> AsyncIterator[str]:
    """Run a console for browsers; yields its address.

    Args:
        brokers: addresses of the cluster, separated by commas.
    Raises:
        click.ClickException: it did not start; the message has the end of its log.
    """
    log = directory / "console.log"
    with log.open("ab") as file:
        process = await asyncio.create_subprocess_exec(
            *PROGRAM,
            *console_arguments(brokers.split(","), port=0),
            # Never written: its end tells the console that the demo has gone.
            stdin=PIPE,
            stdout=PIPE,
            stderr=file,
            start_new_session=True,
        )
    try:
        assert process.stdout is not None
        ready = await process.stdout.readline()
        if not ready:
            raise click.ClickException(f"the console did not start:\n{end_of_log(log)}")
        yield json.loads(ready)["address"]
    finally:
        await stop(process, lambda one: one.terminate())
