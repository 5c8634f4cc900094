"""Help texts of commands where Python was told to drop docstrings (`python -OO`).

Click makes them of docstrings. Without any, `--help` would name commands and say of none what it
does; the sources that are installed still have them.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap

import click

DOCSTRINGS_ARE_DROPPED = sys.flags.optimize >= 2


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
