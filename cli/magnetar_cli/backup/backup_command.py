"""`magnetar backup`: the command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from magnetar_cli.types import json_option

if TYPE_CHECKING:
    from magnetar import Client


@click.command()
@click.argument("directory", type=click.Path(path_type=Path))
@json_option
def backup(directory: Path, as_json: bool) -> None:
    """Make a backup of all running brokers and coordinators.

    DIRECTORY is made, with a file for each server. All servers are held at one moment, for about as
    long as a write takes, so that the backup is a moment of the whole cluster: every transaction is
    in it as a whole, or not at all. Then their rows are read while they work. docs/operations.md
    has a schedule.
    """
    from datetime import UTC, datetime
    from random import SystemRandom

    from magnetar_cli.backup.files import Contents
    from magnetar_cli.backup.making import Target, make_backup
    from magnetar_cli.link_options import new_transport
    from magnetar_cli.output import print_json
    from magnetar_cli.progress import RowsRead
    from magnetar_cli.with_client import with_client
    from magnetar_core.version import VERSION

    done = 0

    async def work(client: Client) -> Contents:
        info = await client.admin.cluster_info()
        targets = [
            *(
                Target("broker", one.name, place, one.address)
                for place, one in enumerate(info.brokers)
            ),
            *(
                Target("coordinator", one.name, one.tcid or 0, one.address)
                for one in info.coordinators
            ),
        ]
        now = datetime.now(UTC).isoformat(timespec="seconds")
        contents = Contents(info.cluster_id, now, VERSION, 0)
        transport = new_transport()
        try:
            await make_backup(transport, targets, directory, contents, SystemRandom(), count)
        finally:
            await transport.close()
        return contents

    with RowsRead(shown=not as_json) as shown:

        def count(row_count: int) -> None:
            nonlocal done
            done += row_count
            shown.show("backup", done)

        contents = with_client(work)
    if as_json:
        print_json(contents)
        return
    click.echo(
        f"{directory}: {contents.row_count:,} rows of {len(contents.servers)} servers, which were"
        f" held for {contents.held_ms} ms"
    )
