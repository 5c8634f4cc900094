"""`magnetar json-schema`: prints the form of what a command prints with `--json`."""

from __future__ import annotations

import click


@click.command(name="json-schema")
@click.argument("command", nargs=-1, required=True, metavar="COMMAND...")
def json_schema(command: tuple[str, ...]) -> None:
    """Print the JSON schema of what COMMAND prints with --json.

    For example: magnetar json-schema topics list. Lines of messages are not described here, but in
    docs/command_line.md.
    """
    from magnetar_cli.commands.json_shapes.installed import installed_shapes
    from magnetar_cli.json_schema import DIALECT, schema_of
    from magnetar_cli.output import print_json

    path = " ".join(command)
    shapes, missing = installed_shapes(path)
    if path not in shapes:
        beside = f"; others need {', '.join(f'magnetar[{one}]' for one in missing)}"
        raise click.UsageError(
            f"there is no schema of {path!r}; there are: {', '.join(sorted(shapes))}"
            f"{beside if missing else ''}"
        )
    print_json({"$schema": DIALECT, **schema_of(shapes[path])})
