"""Names of topics in arguments and options, which shells complete."""

from __future__ import annotations

from collections.abc import Sequence

import click
from click.shell_completion import CompletionItem

from magnetar_cli.link_options import note_links
from magnetar_cli.with_client import with_client

# A shell waits for it.
COMPLETION_TIMEOUT_MS = 1_000


class TopicName(click.ParamType[str]):
    """The name of a topic that exists. The shell completes it with those that the broker has."""

    name = "topic"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the names that begin so; none if no broker tells them."""
        try:
            names = _topic_names(ctx.find_root())
        except Exception:
            # A shell asks while a line is being typed: nothing may be printed there.
            names = ()
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def _topic_names(root: click.Context) -> Sequence[str]:
    """Return the names of all topics.

    Args:
        root: the options before the command, which does not run.
    """
    note_links(root.params)
    root.obj = root.params["broker"]
    with root.scope():
        found = with_client(
            lambda client: client.admin.topics.list(),
            operation_timeout_ms=COMPLETION_TIMEOUT_MS,
        )
    return sorted(one.topic for one in found)
