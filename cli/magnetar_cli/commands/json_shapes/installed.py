"""Finds the type of what a command prints with `--json`."""

from __future__ import annotations

from importlib import import_module
from typing import Any

# Modules with shapes of commands, and what has to be installed for them.
_MODULES = {"of_clients": "cli", "of_servers": "server", "of_jobs": "tables"}


def installed_shapes(wanted: str = "") -> tuple[dict[str, Any], list[str]]:
    """Return the shapes of the commands that can run here, and the extras that others need.

    Args:
        wanted: a command. Modules behind that of its shape are not imported: those of Spark take
            seconds.
    """
    shapes: dict[str, Any] = {}
    missing: list[str] = []
    for module, extra in _MODULES.items():
        if wanted in shapes:
            break
        try:
            shapes |= import_module(f"magnetar_cli.commands.json_shapes.{module}").SHAPES
        except ModuleNotFoundError:
            missing.append(extra)
    return shapes, missing
