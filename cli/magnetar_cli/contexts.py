"""Contexts: clusters that a person works with, by name, kept in a file of theirs.

A context has addresses and names of files, and never a token itself. It counts as a whole: what it
leaves out is not taken from the environment, since a token for one cluster would then be shown to
another.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import click

from magnetar_cli.link_options import SETTINGS
from magnetar_core.config import InvalidConfig

DEFAULT_BROKER = "127.0.0.1:6650"
FILE_VARIABLE = "MAGNETAR_CONTEXTS_FILE"


@dataclass(frozen=True, slots=True)
class Context:
    """A cluster, and how to talk to it.

    Attributes:
        broker: its brokers, with commas between them.
        links: the options of the links that are not left out. Keys are names as in SETTINGS.
    """

    broker: str
    links: Mapping[str, str]


@dataclass(slots=True)
class Contexts:
    """All contexts of a person.

    Attributes:
        current: the name of the one that counts where none is named; empty: none does.
    """

    by_name: dict[str, Context] = field(default_factory=dict)
    current: str = ""

    def of(self, name: str) -> Context:
        """Return a context by its name.

        Raises:
            InvalidConfig: there is none of that name.
        """
        found = self.by_name.get(name)
        if found is None:
            names = ", ".join(sorted(self.by_name)) or "none yet"
            raise InvalidConfig(f"there is no context {name!r}; there are: {names}")
        return found


def contexts_file(environ: Mapping[str, str]) -> Path:
    """Return the file that the contexts are kept in."""
    if named := environ.get(FILE_VARIABLE):
        return Path(named)
    home = environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(home) / "magnetar" / "contexts.json"


def read(file: Path) -> Contexts:
    """Read the contexts; none, if there is no file.

    Raises:
        InvalidConfig: the file is damaged, or cannot be read.
    """
    try:
        stored = json.loads(file.read_text())
        return Contexts(
            {
                name: Context(_text(each["broker"]), _links(each.get("links", {})))
                for name, each in stored["contexts"].items()
            },
            _text(stored.get("current", "")),
        )
    except FileNotFoundError:
        return Contexts()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidConfig(
            f"{file} is not a file of contexts ({error}): correct it, or remove it and set the"
            " contexts again"
        ) from None


def write(file: Path, contexts: Contexts) -> None:
    """Write the contexts whole or not at all, readable for their owner alone.

    Raises:
        InvalidConfig: the file cannot be written.
    """
    stored = {
        "current": contexts.current,
        "contexts": {
            name: {"broker": each.broker, "links": dict(each.links)}
            for name, each in sorted(contexts.by_name.items())
        },
    }
    part = file.with_name(f"{file.name}.{os.getpid()}.part")
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w") as content:
            content.write(json.dumps(stored, indent=2) + "\n")
        part.replace(file)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise InvalidConfig(f"{file} cannot be written: {error}") from None


def chosen_broker() -> str:
    """Return the brokers that the call names, and put the context's links into the environment.

    A call names them by --broker, by --context, or by their variables; if it does not, the current
    context counts, or the default.

    Raises:
        InvalidConfig: there is no such context, or their file is damaged.
    """
    root = click.get_current_context().find_root()
    if root.obj is None:
        # A job that spark-submit runs: there are no options before the command.
        return DEFAULT_BROKER
    if root.params.get("context") is None and _is_given(root, "broker"):
        return str(root.obj)
    contexts = read(contexts_file(os.environ))
    name = root.params.get("context") or contexts.current
    if not name:
        return str(root.obj)
    context = contexts.of(name)
    for parameter, variable in SETTINGS.items():
        if root.params.get(parameter) is None:
            if parameter in context.links:
                os.environ[variable] = context.links[parameter]
            else:
                os.environ.pop(variable, None)
    return context.broker


def _is_given(root: click.Context, name: str) -> bool:
    return root.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT


def require_one(root: click.Context) -> None:
    """Check that the call does not name two clusters.

    Raises:
        UsageError: it has --context and --broker.
    """
    line = click.core.ParameterSource.COMMANDLINE
    if root.get_parameter_source("broker") is line and root.get_parameter_source("context") is line:
        raise click.UsageError("name a context or a broker: --context has brokers of its own")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a text")
    return value


def _links(stored: Mapping[str, object]) -> dict[str, str]:
    unknown = [name for name in stored if name not in SETTINGS]
    if unknown:
        raise ValueError(f"{', '.join(unknown)} is not known")
    return {name: _text(value) for name, value in stored.items()}
