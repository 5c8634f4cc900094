"""Holds what commands print with --json to their schemas."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator

from magnetar_cli.commands.json_shapes.installed import installed_shapes
from magnetar_cli.json_schema import schema_of

# Lines of messages have no schema: docs/command_line.md describes them.
WITHOUT_SCHEMA = frozenset({"consume", "produce"})


def read_json(command: str, text: str | bytes) -> Any:
    """Read the output of a command, and check it against the schema of the command."""
    value = json.loads(text)
    _validator(command).validate(value)
    return value


def command_of(arguments: Sequence[str]) -> str:
    """Return the command of a command line without options before it."""
    path = " ".join(arguments[:2])
    return path if path in installed_shapes()[0] else arguments[0]


@cache
def _validator(command: str) -> Draft202012Validator:
    schema = schema_of(installed_shapes()[0][command])
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)
