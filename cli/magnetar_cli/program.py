"""The program `magnetar`. It imports the module of a command only when it runs that command."""

from __future__ import annotations

import logging
import os
from importlib import import_module

import click

from magnetar_cli.help_texts import with_help
from magnetar_cli.link_options import link_options, note_links
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
    "pipeline": "pipeline:pipeline",
    "check": "check:check",
    "backup": "backup.backup_command:backup",
    "restore": "backup.restore_command:restore",
    "storage": "commands.storage:storage",
    "log-level": "commands.log_level:log_level",
    "config": "commands.configuration:config",
    "access": "commands.access:access",
    "demo": "demo:demo",
}

DEFAULT_BROKER = "127.0.0.1:6650"
# The numbers of errors.STATUS_OF_KIND; written here, so that the help imports none of the protocol.
EXIT_STATUS = (
    "Exit status: 0 done; 1 correct the call or the configuration; 2 wrong usage; 10 ask again"
    " later; 11 the outcome is unknown, ask for it; 12 it is over, begin it anew; 13 it is done"
    " already; 14 a newer instance took over, stop this one; 15 a limit is reached, back off;"
    " 16 data is lost, an administrator decides; 17 a bug. docs/errors.md says more."
)


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

    def invoke(self, ctx: click.Context) -> object:
        """Run a command, and print its error as a single line."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            if ctx.params.get("debug"):
                raise
            from magnetar_cli.errors import explain

            raise explain(error) from None


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
@link_options
@click.option("--debug", is_flag=True, help="Show tracebacks, and the log of the client.")
@click.version_option(VERSION, prog_name="magnetar")
@click.pass_context
def cli(ctx: click.Context, /, broker: str, debug: bool, **links: str | bool | None) -> None:
    """Magnetar is a transactional log broker whose open transactions delay nobody.

    `magnetar standalone` starts one here; everything else talks to a broker.
    """
    ctx.obj = broker
    note_links(links)
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    if debug:
        from magnetar_core.observability import set_up_logging

        set_up_logging(level="debug", log_format="text")
        for name in ("grpc", "py4j"):
            logging.getLogger(name).setLevel(logging.INFO)


with_help(cli)
