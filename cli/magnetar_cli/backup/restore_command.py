"""`magnetar restore`: the command."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from magnetar_cli.backup.files import Contents, ServerFile
    from magnetar_cli.backup.restoring import Progress


@click.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    help="Where to make the data directories: broker, broker-1, coordinator-0, ...",
)
@click.option(
    "--store",
    metavar="URL",
    help="The address below which to make the stores, as servers get it with --store.",
)
@click.option(
    "--server",
    "names",
    multiple=True,
    metavar="NAME",
    help="Only the store of this server, in the same restore as all others: see --restored-at.",
)
@click.option(
    "--restored-at",
    type=click.IntRange(1),
    metavar="SECONDS",
    help="The moment of the restore, in seconds since 1970: the same for all servers, when they are"
    " restored one by one.  [default: now]",
)
@click.option(
    "--keep-two-phase",
    is_flag=True,
    help="Leave transactions of two-phase commit open: what they wrote after the backup is lost.",
)
@click.option("--verify", is_flag=True, help="Only read the backup, and say whether it is whole.")
def restore(
    directory: Path,
    data_dir: Path | None,
    store: str | None,
    names: tuple[str, ...],
    restored_at: int | None,
    keep_two_phase: bool,
    verify: bool,
) -> None:
    """Make new stores from a backup, for servers that are not running.

    DIRECTORY is what `magnetar backup` made. All servers have to be restored from the same backup.
    Everything that came after it is lost, and nothing is torn: transactions that were open are
    aborted. Ledger ids, incarnations and all other ids are higher than those that were ever given
    out. Start the servers as usual, with the same number of brokers and coordinators.
    """
    import time

    from magnetar_cli.backup import restoring
    from magnetar_cli.backup.files import read_contents
    from magnetar_cli.progress import JobProgress
    from magnetar_core.config import InvalidConfig

    contents = read_contents(directory)
    known = [server.member for server in contents.servers]
    unknown = set(names) - set(known)
    if unknown:
        raise InvalidConfig(f"the backup has no {', '.join(sorted(unknown))}: {', '.join(known)}")
    chosen = [server for server in contents.servers if not names or server.member in names]
    total = sum(one.rows for one in chosen)
    done = 0
    with JobProgress("verified" if verify else "restored", "rows") as shown:

        def progress(row_count: int) -> None:
            nonlocal done
            done += row_count
            shown.show(done, total)

        if verify:
            restoring.verify(directory, contents, progress)
        elif (data_dir is None) == (store is None):
            raise InvalidConfig("name --data-dir or --store: where to make the stores")
        else:
            places = _restore(
                directory,
                chosen,
                data_dir,
                store,
                restored_at or int(time.time()),
                keep_two_phase,
                progress,
            )
    if verify:
        click.echo(f"whole: {_what(contents)}")
        return
    click.echo(f"restored: {_what(contents)}")
    for one, place in zip(chosen, places, strict=True):
        click.echo(f"  {one.member}: {place}")


def _what(contents: Contents) -> str:
    return (
        f"{contents.row_count:,} rows of {len(contents.servers)} servers of cluster"
        f" {contents.cluster_id or 'without an id'}, as they were at {contents.made_at}"
    )


def _restore(
    directory: Path,
    chosen: list[ServerFile],
    data_dir: Path | None,
    store: str | None,
    restored_at_s: int,
    keep_two_phase: bool,
    progress: Progress,
) -> list[str]:
    from magnetar_cli.backup import restoring
    from magnetar_coordinator.metadata.records import Restored
    from magnetar_storage.object_store.url import ObjectStoreUrl

    open_ones = Restored.KEEP_TWO_PHASE if keep_two_phase else Restored.ABORT_ALL
    rows = [restoring.RestoredRows(one, restored_at_s, open_ones) for one in chosen]

    async def to_directories(targets: list[Path]) -> None:
        for one, target, each in zip(chosen, targets, rows, strict=True):
            await restoring.restore_to_directory(directory, one, target, each, progress)

    async def to_object_store(prefix: ObjectStoreUrl) -> list[str]:
        return [
            str(await restoring.restore_to_object_store(directory, one, prefix, each, progress))
            for one, each in zip(chosen, rows, strict=True)
        ]

    if data_dir is not None:
        targets = [restoring.directory_of(one, data_dir) for one in chosen]
        restoring.check_targets(targets)
        asyncio.run(to_directories(targets))
        return [str(one) for one in targets]
    return asyncio.run(to_object_store(ObjectStoreUrl.parse(str(store))))
