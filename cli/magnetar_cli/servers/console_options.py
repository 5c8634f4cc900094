"""The console that runs beside servers: options, packages, and its command line."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

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


def require_console(packages: Sequence[str] = PACKAGES) -> None:
    """Check that packages of the console are installed. Raises: click.ClickException."""
    for name in packages:
        if find_spec(name) is None:
            raise click.ClickException(
                f"no module {name}: the console needs more packages:"
                " pip install 'magnetar[console]'"
            )


def console_arguments(brokers: Sequence[str], port: int) -> list[str]:
    """Return the command line of a console that another process supervises.

    Args:
        brokers: addresses of the cluster.
        port: the port to listen on; 0: the system chooses.
    """
    return ["--broker", ",".join(brokers), "console", "--port", str(port), "--supervised"]
