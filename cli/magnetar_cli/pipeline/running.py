"""Options and Spark session of the commands of all jobs.

Spark is imported when a job runs, and not before.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from magnetar_cli.commands.cut import token_of
from magnetar_cli.contexts import chosen_broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Without these there are no jobs, or not all of them: by package, the extra that brings it.
PACKAGES = {"pyspark": "spark", "pyarrow": "spark", "numpy": "spark", "pyiceberg": "tables"}


def job_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of every job, and pass servers as a tuple of addresses."""

    @functools.wraps(function)
    def run(broker: str | None, **options: Any) -> Any:
        given = broker or chosen_broker()
        servers = tuple(one.strip() for one in given.split(",") if one.strip())
        return function(servers=servers, **options)

    found: Callable[..., Any] = click.option(
        "--master",
        metavar="URL",
        help="Where Spark runs.  [default: as spark-submit says, or local[*,4]]",
    )(run)
    return click.option(
        "--broker",
        metavar="HOST:PORT",
        help="The brokers, with commas between them: `magnetar --broker` for spark-submit.",
    )(found)


def at_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --at: the token of a cut, as it is or as @FILE, or "now"."""

    def token(_: click.Context, __: click.Parameter, text: str | None) -> str | None:
        return token_of(text)

    found: Callable[..., Any] = click.option(
        "--at",
        metavar="TOKEN",
        callback=token,
        help="One moment over all partitions: the token of `magnetar cut`, @FILE with it, or now.",
    )(function)
    return found


@contextmanager
def spark_needed() -> Iterator[None]:
    """Report a missing Spark or Iceberg, around imports of magnetar_spark."""
    try:
        yield
    except ModuleNotFoundError as error:
        extra = PACKAGES.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        needed = "tables need Iceberg" if extra == "tables" else "jobs need Spark"
        raise click.ClickException(
            f"no module {error.name}: {needed}: pip install 'magnetar[{extra}]'"
        ) from None


@contextmanager
def failures_told() -> Iterator[None]:
    """Print the message of a job that fails, and no traceback."""
    from magnetar_spark.errors import OptionError
    from magnetar_spark.jobs.failures import JobError

    try:
        yield
    except (JobError, OptionError) as error:
        raise click.ClickException(str(error)) from error


def job_session(name: str, master: str | None, servers: tuple[str, ...]) -> SparkSession:
    """Start Spark, which takes seconds, after a broker has answered.

    Raises:
        LinkClosed: no broker answers.
    """
    from magnetar_spark.jobs.spark_session import JavaMissing, find_broker, spark_session

    find_broker(servers)
    try:
        return spark_session(f"pipeline {name}", master)
    except JavaMissing as error:
        raise click.ClickException(str(error)) from None
