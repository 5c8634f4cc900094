"""The console that runs beside servers: options, packages, and its command line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

import click

from magnetar_cli.servers.options import PORT

# Packages of the extra `console`.
PACKAGES = ("jinja2", "starlette", "uvicorn")
# The same as in magnetar_console.settings, which is not imported for the help.
DEFAULT_PORT = 8650

console_option = click.option(
    "--console",
    "with_console",
    is_flag=True,
    help="Also run a console for browsers, and print its address; it can only look.",
)
console_port_option = click.option(
    "--console-port",
    type=PORT,
    help=f"The port of the console.  [default: {DEFAULT_PORT}]",
)

_schema_option = click.option(
    "--schema",
    "schemas",
    metavar="TOPIC=FILE",
    multiple=True,
    help="In the console, show the values of a topic by a schema of Avro (.avsc); several topics"
    " are allowed.",
)
_framing_option = click.option(
    "--framing",
    type=click.Choice(["none", "confluent"]),
    default="none",
    show_default=True,
    help="These values begin with the number of their writer's schema, which is then NUMBER.avsc"
    " beside the schema.",
)


def value_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that say how the console shows values."""
    return _schema_option(_framing_option(command))


def value_arguments(schemas: Sequence[str], framing: str, *, with_console: bool) -> list[str]:
    """Return the same options for a console that another process supervises.

    The schemas are read here once: a console that dies of them would be started again and again.

    Raises:
        click.UsageError: there is no console.
        InvalidConfig: an option or a file is malformed.
    """
    if not schemas:
        return []
    if not with_console:
        raise click.UsageError("--schema is for the console: add --console")
    from magnetar_console.looks.schema_files import shows_of

    shows_of(schemas, framed=framing == "confluent")
    return [*(word for one in schemas for word in ("--schema", one)), "--framing", framing]


def require_console(packages: Sequence[str] = PACKAGES) -> None:
    """Check that packages of the console are installed. Raises: click.ClickException."""
    for name in packages:
        if find_spec(name) is None:
            raise click.ClickException(
                f"no module {name}: the console needs more packages:"
                " pip install 'magnetar[console]'"
            )


def console_arguments(brokers: Sequence[str], port: int, values: Sequence[str] = ()) -> list[str]:
    """Return the command line of a console that another process supervises.

    Args:
        brokers: addresses of the cluster.
        port: the port to listen on; 0: the system chooses.
        values: from value_arguments.
    """
    return ["--broker", ",".join(brokers), "console", "--port", str(port), *values, "--supervised"]
