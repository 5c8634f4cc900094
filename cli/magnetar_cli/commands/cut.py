"""`magnetar cut`: takes a consistent cut of topics, and prints its token."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from magnetar_cli.topic_name import TopicName
from magnetar_cli.types import Duration

if TYPE_CHECKING:
    from magnetar import Client, Cut


@click.command()
@click.argument("topics", type=TopicName(), nargs=-1, required=True, metavar="TOPIC...")
@click.option(
    "--timeout",
    "timeout_ms",
    type=Duration(),
    default="60s",
    show_default=True,
    help="How long to wait for commits that are decided and not finished.",
)
def cut(topics: tuple[str, ...], timeout_ms: int) -> None:
    """Take one moment over all partitions of TOPICs, and print its token.

    Every transaction is in it as a whole, or not at all. No client waits while it is taken. The
    token names it until retention removes some of its messages: `magnetar consume TOPIC --at
    TOKEN`.
    """
    from magnetar_cli.with_client import with_client

    async def take(client: Client) -> Cut:
        return await client.cut(topics, timeout_s=timeout_ms / 1_000)

    print(with_client(take))


def token_of(text: str | None) -> str | None:
    """Return the token that an option gives, as it is or as @FILE; None: there is none.

    Raises:
        click.BadParameter: the file cannot be read.
    """
    if text is None or not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text("utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{text[1:]} cannot be read as a token: {error}") from None
