"""What the commands of all jobs share: their options, and Spark itself.

Spark is imported when a job runs, and not before. A job is also a program of its own, for
spark-submit: it then gets its options from here too.
"""

from __future__ import annotations

import functools
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import click

# A server may be on its way up, but a person should hear soon that there is none.
FIND_ATTEMPTS = 5
FIND_PERIOD_S = 0.2
FIND_TIMEOUT_S = 5.0


def job_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options of every job, and servers as a tuple of addresses."""

    @functools.wraps(function)
    def run(broker: str | None, **options: Any) -> Any:
        given = broker or click.get_current_context().find_root().obj or _default_broker()
        servers = tuple(one.strip() for one in given.split(",") if one.strip())
        return function(servers=servers, **options)

    found: Callable[..., Any] = click.option(
        "--master",
        metavar="URL",
        help="Where Spark runs.  [default: what spark-submit says, or local[*,4]]",
    )(run)
    return click.option(
        "--broker",
        metavar="HOST:PORT",
        help="As `magnetar --broker`, for spark-submit; several with commas between them.",
    )(found)


def _default_broker() -> str:
    from magnetar.cli import DEFAULT_BROKER

    return DEFAULT_BROKER


def _find_broker(servers: tuple[str, ...]) -> None:
    from magnetar_core.config import split_address
    from magnetar_core.transport import LinkClosed

    for _ in range(FIND_ATTEMPTS):
        for address in servers:
            try:
                socket.create_connection(split_address(address), timeout=FIND_TIMEOUT_S).close()
                return
            except OSError:
                threading.Event().wait(FIND_PERIOD_S)
    raise LinkClosed(f"no broker answers at {' or '.join(servers)}")


def job(module: str) -> Any:
    """A module of magnetar_spark, which needs Spark.

    By its name: the Spark package stands above the client.
    """
    try:
        return import_module(f"magnetar_spark.{module}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in (
            "pyspark",
            "pyarrow",
            "numpy",
        ):
            raise
        raise click.ClickException(
            f"no module {error.name}: jobs need Spark: pip install 'magnetar[spark]'"
        ) from None


@contextmanager
def failures_told() -> Iterator[None]:
    """What a job says of its failure is what the program says."""
    try:
        yield
    except (job("jobs.failures").JobError, job("errors").OptionError) as error:
        raise click.ClickException(str(error)) from error


def job_session(name: str, master: str | None, servers: tuple[str, ...]) -> Any:
    """Spark, once a broker has been seen: it takes seconds to start.

    Raises:
        LinkClosed: no broker answers.
    """
    sessions = job("jobs.session")
    _find_broker(servers)
    try:
        return sessions.session(f"pipeline {name}", master)
    except sessions.JavaMissing as error:
        raise click.ClickException(str(error)) from None


def run_alone(name: str) -> None:
    """Run a job as a program of its own, with errors as one line too."""
    from magnetar.cli import cli

    # Options of the program, as --debug, are not asked for there.
    cli(args=["pipeline", name, *sys.argv[1:]], prog_name="magnetar")
