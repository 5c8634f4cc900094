"""`magnetar context`: clusters by name, so that each command need not say how to reach them."""

from __future__ import annotations

import os
from pathlib import Path

import click

from magnetar_cli.contexts import Context, Contexts, contexts_file, read, write
from magnetar_cli.link_options import SETTINGS, link_options
from magnetar_cli.output import print_json, print_table
from magnetar_cli.types import json_option


class ContextName(click.ParamType[str]):
    """The name of a context that exists. The shell completes it."""

    name = "name"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        """Return the names that begin so; none if they cannot be read."""
        try:
            names = sorted(read(contexts_file(os.environ)).by_name)
        except Exception:
            # A shell asks while a line is being typed: nothing may be printed there.
            names = []
        return [
            click.shell_completion.CompletionItem(each)
            for each in names
            if each.startswith(incomplete)
        ]


@click.group()
def context() -> None:
    """Name clusters, and choose the one that commands talk to.

        magnetar context set staging --broker 10.0.0.7:6650 --token-file ~/staging.jwt
        magnetar context use staging
        magnetar topics list

    A context has addresses and names of files, and never a token. `--context NAME` before a
    command, or MAGNETAR_CONTEXT, chooses another one; so do --broker and MAGNETAR_BROKER.
    """


@context.command(name="set")
@click.argument("name", type=ContextName())
@click.option("--broker", required=True, metavar="HOST:PORT,...", help="Brokers of the cluster.")
@link_options
def set_context(name: str, broker: str, **links: str | bool | None) -> None:
    """Set the context NAME, whole: it has what this call says, and nothing else.

    The first context becomes the current one.
    """
    from magnetar_cli.with_client import broker_addresses

    broker_addresses(broker)
    if not name or name != name.strip():
        raise click.BadParameter("give a text without spaces around it", param_hint="NAME")
    file = contexts_file(os.environ)
    contexts = read(file)
    contexts.by_name[name] = Context(broker, _kept(links))
    contexts.current = contexts.current or name
    write(file, contexts)
    click.echo(f"the context {name} is set{_current_mark(contexts, name)}")


@context.command()
@click.argument("name", type=ContextName())
def use(name: str) -> None:
    """Make the context NAME the current one."""
    file = contexts_file(os.environ)
    contexts = read(file)
    contexts.of(name)
    contexts.current = name
    write(file, contexts)
    click.echo(f"the current context is {name}")


@context.command(name="list")
@json_option
def list_contexts(as_json: bool) -> None:
    """List the contexts."""
    contexts = read(contexts_file(os.environ))
    if as_json:
        print_json(
            [
                {"name": name, "is_current": name == contexts.current, "broker": each.broker}
                | {setting: each.links.get(setting) for setting in SETTINGS}
                for name, each in sorted(contexts.by_name.items())
            ]
        )
        return
    print_table(
        ("NAME", "CURRENT", "BROKER", "TLS", "TOKEN FILE"),
        [
            (
                name,
                "yes" if name == contexts.current else "-",
                each.broker,
                "yes" if {"tls", "tls_ca_file"} & set(each.links) else "no",
                each.links.get("token_file", "-"),
            )
            for name, each in sorted(contexts.by_name.items())
        ],
        empty="no contexts: magnetar context set NAME --broker HOST:PORT",
    )


@context.command()
@click.argument("name", type=ContextName())
def remove(name: str) -> None:
    """Remove the context NAME. Nothing changes in the cluster."""
    file = contexts_file(os.environ)
    contexts = read(file)
    contexts.of(name)
    del contexts.by_name[name]
    if contexts.current == name:
        contexts.current = ""
    write(file, contexts)
    click.echo(f"the context {name} is removed")


def _kept(links: dict[str, str | bool | None]) -> dict[str, str]:
    """Return the options that a context keeps: names of files as absolute paths."""
    kept: dict[str, str] = {}
    for name, value in links.items():
        if value is True:
            kept[name] = "1"
        elif isinstance(value, str):
            kept[name] = (
                str(Path(value).expanduser().absolute()) if name.endswith("_file") else value
            )
    return kept


def _current_mark(contexts: Contexts, name: str) -> str:
    return ", and it is the current one" if contexts.current == name else ""
