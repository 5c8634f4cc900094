"""The program `magnetar`. It imports the module of a command only when it runs that command."""

from __future__ import annotations

import ast
import inspect
import logging
import os
import re
import signal
import sys
import textwrap
import traceback
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import click

from magnetar_cli import standard_streams
from magnetar_cli.contexts import DEFAULT_BROKER, require_one
from magnetar_cli.event_loop import status_of_signal
from magnetar_cli.habits import with_advice
from magnetar_cli.link_options import link_options, note_links
from magnetar_core.config import PREFIX
from magnetar_core.version import VERSION

# "module:attribute" below this package.
_COMMANDS = {
    "standalone": "servers.standalone:standalone",
    "broker": "servers.broker:broker",
    "coordinator": "servers.coordinator:coordinator",
    "cluster": "cluster:cluster",
    "health": "commands.health:health",
    "topics": "commands.topics:topics",
    "subscriptions": "commands.subscriptions:subscriptions",
    "groups": "commands.groups:groups",
    "produce": "commands.produce:produce",
    "consume": "commands.consume:consume",
    "cut": "commands.cut:cut",
    "peek": "commands.peek:peek",
    "transactions": "commands.transactions:transactions",
    "top": "commands.top:top",
    "console": "commands.console:console",
    "pipeline": "pipeline:pipeline",
    "check": "check:check",
    "backup": "backup.backup_command:backup",
    "restore": "backup.restore_command:restore",
    "storage": "commands.storage:storage",
    "context": "commands.context:context",
    "log-level": "commands.log_level:log_level",
    "config": "commands.configuration:config",
    "access": "commands.access:access",
    "completion": "commands.completion:completion",
    "json-schema": "commands.json_schema:json_schema",
}

PROGRAM = "magnetar"
COMPLETION_VARIABLE = "_MAGNETAR_COMPLETE"
# The numbers of errors.STATUS_OF_KIND; written here, so that the help imports none of the protocol.
EXIT_STATUS = (
    "Exit status: 0 done; 1 correct the call or the configuration; 2 wrong usage; 10 ask again"
    " later; 11 the outcome is unknown, ask for it; 12 it is over, begin it anew; 13 it is done"
    " already; 14 a newer instance took over, stop this one; 15 a limit is reached, back off;"
    " 16 data is lost, an administrator decides; 17 a bug; 130 ended by Ctrl-C, 143 by SIGTERM."
    " docs/errors.md says more."
)


# Help texts of commands where Python was told to drop docstrings (`python -OO`).
# Click makes them of docstrings. Without any, `--help` would name commands and say of none what
# it does; the sources that are installed still have them.

DOCSTRINGS_ARE_DROPPED = sys.flags.optimize >= 2


# Variables that Kubernetes gives to each pod for each Service of its namespace.
# A Service called `magnetar` makes MAGNETAR_PORT=tcp://10.96.0.7:6650 and others of that name,
# which look like settings. `enableServiceLinks: false` in a pod leaves them out.
# Source: Kubernetes, Accessing the Service, Environment variables.

_LINK = re.compile(r"(tcp|udp|sctp)://\S+:\d+", re.IGNORECASE)
_PORT = "_PORT"


def service_links(environ: Mapping[str, str]) -> list[str]:
    """Return the names of all variables that come from Services whose names look like ours."""
    services = [
        name.removesuffix(_PORT)
        for name, text in environ.items()
        if name.startswith(PREFIX) and name.endswith(_PORT) and _LINK.fullmatch(text.strip())
    ]
    made = re.compile(r"(?:_SERVICE_(?:HOST|PORT(?:_\w+)?)|_PORT(?:_\d+_[A-Z]+(?:_\w+)?)?)")
    return [
        name
        for name in environ
        if any(
            name.startswith(service) and made.fullmatch(name[len(service) :])
            for service in services
        )
    ]


def with_help(command: click.Command) -> click.Command:
    """The same command; it and those below it have their help texts again."""
    if DOCSTRINGS_ARE_DROPPED:
        _restore(command)
    return command


def _restore(command: click.Command) -> None:
    if command.help is None and command.callback is not None:
        command.help = help_in_source(inspect.unwrap(command.callback))
    if isinstance(command, click.Group):
        for one in command.commands.values():
            _restore(one)


def help_in_source(function: object) -> str | None:
    """The docstring that stands in a function's source; None: there is none, or no source."""
    try:
        source = inspect.getsource(function)  # type: ignore[arg-type]
        found = ast.parse(textwrap.dedent(source)).body
    except (OSError, SyntaxError):
        return None
    match found:
        case [ast.FunctionDef() | ast.AsyncFunctionDef() as definition]:
            return ast.get_docstring(definition)
    # From Python 3.13 on, what exec() made is taken for a part of the program of `python -c`.
    return None


class LazyGroup(click.Group):
    """A group that knows its commands by name, and prints errors as a single line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of a command."""
        target = _COMMANDS.get(cmd_name)
        if target is None:
            return None
        module, _, attribute = target.partition(":")
        found = getattr(import_module(f"magnetar_cli.{module}"), attribute)
        assert isinstance(found, click.Command)
        return with_help(found)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command, and end the process with its exit status. Every command ends here."""
        if not standalone_mode or COMPLETION_VARIABLE in os.environ:
            return super().main(args, prog_name, complete_var, standalone_mode, **extra)
        given = sys.argv[1:] if args is None else list(args)
        _leave_out_service_links()
        status = self._run(given, prog_name, extra)
        try:
            sys.stdout.flush()
        except OSError as error:
            status = status or _print_error(error)
            standard_streams.discard_output()
        sys.exit(status)

    def _run(self, args: list[str], prog_name: str | None, extra: dict[str, Any]) -> int:
        """Run a command, and return its exit status. Its error is printed as a single line."""
        debug = False
        try:
            with self.make_context(prog_name or PROGRAM, args, **extra) as context:
                debug = context.params["debug"]
                self.invoke(context)
            return 0
        except click.exceptions.Exit as end:
            return end.exit_code
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else int(end.code is not None)
        except KeyboardInterrupt:
            return status_of_signal(signal.SIGINT)
        except click.Abort:
            click.echo("Aborted!", err=True)
            return 1
        except Exception as error:
            if debug and not isinstance(error, click.ClickException):
                traceback.print_exc()
            return _print_error(error)


def _leave_out_service_links() -> None:
    links = service_links(os.environ)
    for name in links:
        del os.environ[name]
    if links:
        click.echo(
            f"Warning: {min(links, key=len)} and {len(links) - 1} more variables come from a"
            " Service of Kubernetes. They are not settings, and are left out: set"
            " enableServiceLinks: false in the pod",
            err=True,
        )


def _print_error(error: Exception) -> int:
    """Print an error as a single line, and return its exit status."""
    if standard_streams.reader_is_gone(error):
        return 0  # It had enough.
    if isinstance(error, click.ClickException):
        failure = with_advice(error)
    else:
        from magnetar_cli.errors import explain

        failure = explain(error)
    failure.show()
    return failure.exit_code


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=EXIT_STATUS,
)
@click.option(
    "--broker",
    default=DEFAULT_BROKER,
    envvar="MAGNETAR_BROKER",
    show_default=True,
    metavar="HOST:PORT,...",
    help="A broker of the cluster, or several: the first that answers is used."
    "  [env: MAGNETAR_BROKER]",
)
@click.option(
    "--context",
    envvar="MAGNETAR_CONTEXT",
    metavar="NAME",
    help="The cluster that `magnetar context set` has named so.  [env: MAGNETAR_CONTEXT]",
)
@link_options
@click.option("--debug", is_flag=True, help="Show tracebacks, and the log of the client.")
@click.version_option(VERSION, prog_name=PROGRAM)
@click.pass_context
def cli(
    ctx: click.Context,
    /,
    broker: str,
    context: str | None,
    debug: bool,
    **links: str | bool | None,
) -> None:
    """Magnetar is a transactional log broker. Open transactions never delay other readers.

    `magnetar standalone` starts one here; everything else talks to a broker.
    """
    require_one(ctx)
    ctx.obj = broker
    note_links(links)
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    if debug:
        from magnetar_core.process.observability import set_up_logging

        set_up_logging(level="debug", log_format="text")
        for name in ("grpc", "py4j"):
            logging.getLogger(name).setLevel(logging.INFO)


with_help(cli)
