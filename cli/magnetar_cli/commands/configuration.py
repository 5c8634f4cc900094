"""`magnetar config`: shows the settings of servers, and where each setting comes from."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

import click

from magnetar_cli.servers.options import SECTIONS, all_settings
from magnetar_cli.types import json_option


@click.group(name="config")
def config() -> None:
    """Show the settings of servers."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of a server.

    Attributes:
        origin: where its value comes from.
    """

    section: str
    setting: str
    value: object
    origin: str


@config.command()
@click.option(
    "--config",
    "config_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    envvar="MAGNETAR_CONFIG_FILE",
    help="The configuration file of the server.",
)
@click.option("--changed", is_flag=True, help="Only settings that are not the default.")
@click.option("--toml", "as_toml", is_flag=True, help="Print a configuration file.")
@json_option
def show(config_file: Path | None, changed: bool, as_toml: bool, as_json: bool) -> None:
    """Show the settings that a server started here would use.

    docs/configuration.md says what each setting means. Flags of a server win over all of these.
    """
    from magnetar_cli.output import print_json, print_table

    found = [one for one in _settings(config_file) if not changed or one.origin != "default"]
    if as_toml:
        _print_toml(found)
    elif as_json:
        print_json(found)
    else:
        print_table(
            ("SECTION", "SETTING", "VALUE", "FROM"),
            [(one.section, one.setting, _shown(one.value), one.origin) for one in found],
            empty="everything is as by default",
        )


def _settings(config_file: Path | None) -> list[Setting]:
    from magnetar_core.process.settings import Sources, names_of, resolve, unknown_variables

    sources = Sources.load(os.environ, SECTIONS, config_file)
    found: list[Setting] = []
    for section in SECTIONS:
        kinds = all_settings(section)
        for kind in kinds:
            resolved = resolve(kind, section, sources, beside=kinds)
            found += [
                Setting(section, name, getattr(resolved.settings, name), resolved.origins[name])
                for name in names_of(kind)
            ]
    every = [one for section in SECTIONS for one in all_settings(section)]
    for complaint in unknown_variables(every, os.environ):
        click.echo(f"warning: {complaint}", err=True)
    return found


def _shown(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "none"}[value]
    return f"{value:,}" if isinstance(value, int) else str(value)


def _print_toml(found: list[Setting]) -> None:
    section = ""
    for one in found:
        if one.section != section:
            print(f"[{one.section}]" if not section else f"\n[{one.section}]")
            section = one.section
        line = f"{one.setting} = {json.dumps(one.value) if one.value is not None else ''}"
        # What is a default stays one, also when a later version has another.
        print(line if one.origin != "default" else f"# {line}".rstrip())
