"""`magnetar top`: what happens in a cluster, live, in a terminal."""

from __future__ import annotations

import getpass
import os
import sys
from typing import Final

import click

from magnetar_cli.servers.console_options import require_console
from magnetar_cli.types import Duration

# Packages of the extra `console` that draw on a terminal.
PACKAGES: Final = ("textual",)
INTERVAL_MS_MIN: Final = 200
# Types of terminals that cannot move their cursor.
DUMB: Final = ("", "dumb", "unknown")
ALTERNATIVE: Final = "magnetar transactions list"


@click.command()
@click.option(
    "--interval",
    "interval_ms",
    type=Duration(),
    default="1s",
    show_default=True,
    metavar="DURATION",
    help="How often to ask the cluster, such as 5s.",
)
@click.option(
    "--allow-actions",
    is_flag=True,
    help="Let keys abort transactions and drain servers, as far as the servers let you.",
)
def top(interval_ms: int, allow_actions: bool) -> None:
    """Show in this terminal what happens in the cluster, live.

    It shows open transactions and whose they are, those that ended last, topics, subscriptions,
    groups, servers and shards, with your own rights. Enter shows all about a row, what is missing
    first; / filters, s and r sort, Space pauses, ? shows all keys, and q ends it. If a server is
    away, it says so, and how old the rows are.

    It needs a terminal of 80 columns, and no colours: NO_COLOR switches them off. For a pipe there
    is `magnetar transactions list`.
    """
    require_terminal()
    require_console(PACKAGES)
    if interval_ms < INTERVAL_MS_MIN:
        raise click.BadParameter(
            f"at least {INTERVAL_MS_MIN}ms: every look costs the servers something",
            param_hint="--interval",
        )
    from magnetar_cli import event_loop
    from magnetar_cli.link_options import new_transport
    from magnetar_cli.with_client import broker_addresses
    from magnetar_console.terminal.running import show
    from magnetar_core.clock import SystemClock

    # Files that cannot be read are told before the screen is drawn on.
    new_transport()
    done = event_loop.run(
        show(
            broker_addresses(),
            new_transport,
            SystemClock(),
            viewer=f"{_user()} at a terminal",
            allow_actions=allow_actions,
            period_s=interval_ms / 1_000,
        )
    )
    for one in done:
        print(one)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "somebody"


def require_terminal() -> None:
    """Check that a screen can be drawn. Raises: click.UsageError."""
    if not sys.stdin.isatty() or not sys.stdout.isatty():
        raise click.UsageError(
            f"top is for a terminal; in a pipe or a file, use `{ALTERNATIVE}`, with --json for"
            " programs"
        )
    if not sys.stderr.isatty():
        raise click.UsageError("top draws by standard error, too: leave out 2>")
    if os.environ.get("TERM", "") in DUMB:
        raise click.UsageError(
            "this terminal (TERM=dumb) cannot draw a screen: use"
            f" `{ALTERNATIVE} --watch`, which prints lines"
        )
    if click.get_current_context().find_root().params["debug"]:
        raise click.UsageError(
            "--debug would write over the screen: leave it out, or use"
            " `magnetar --debug transactions list`"
        )
