"""`magnetar storage`: decisions about damaged stores."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from magnetar_cli.cluster.options import etcd_options
from magnetar_cli.confirmation import confirm, yes_option


@click.group()
def storage() -> None:
    """Repair the store of a stopped server."""


@storage.command(name="accept-loss")
@click.argument("place", metavar="PLACE")
@click.option("--dry-run", is_flag=True, help="Print what is missing, and change nothing.")
@click.option(
    "--everything", is_flag=True, help="Accept that the whole store of this server is lost."
)
@yes_option
@etcd_options
def accept_loss(
    place: str, dry_run: bool, everything: bool, yes: bool, etcd: str | None, cluster_id: str
) -> None:
    """Let a server start without its latest changes, which are lost. Stop the server first.

    PLACE is the data directory of a server, or the address of its store in an object store, as
    s3://BUCKET/PREFIX/brokers/broker-0. The lost changes were acknowledged: messages, acks and
    decisions may be among them, and transactions may be torn. After that, a broker opens a higher
    ledger id, and a coordinator takes a higher incarnation. Damaged files and objects are kept in
    PLACE/kept-1. If a file of values is missing, its messages answer DataLoss from then on.

    --etcd and --cluster-id are for stores whose servers have etcd, which knows how much is missing.
    """
    is_directory = "://" not in place
    if is_directory and not Path(place).is_dir():
        raise click.BadParameter(f"there is no directory {place!r}", param_hint="PLACE")
    if dry_run and everything:
        # A store that is lost as a whole has nothing to compare with.
        print("with --everything, all that this server has stored would be given up")
        return
    if not dry_run:
        what = "all that this server has stored" if everything else "the changes that are missing"
        confirm(f"Give up {what}, for ever? --dry-run shows what is missing.", yes=yes)
    if not is_directory:
        asyncio.run(_accept_in_object_store(place, dry_run, everything, etcd, cluster_id))
    else:
        _accept_in_directory(place, dry_run, everything)


def _accept_in_directory(directory: str, dry_run: bool, everything: bool) -> None:
    from magnetar_storage.offline import accepted_loss

    if everything:
        accepted_loss.accept_loss_of_everything(directory)
        print(_EVERYTHING)
    elif _says_what_is_missing(accepted_loss.lost_from(directory)) and not dry_run:
        kept = accepted_loss.accept_loss(directory)
        if kept is None:
            print(_VALUES_GIVEN_UP)
        else:
            print(_GIVEN_UP.format(f"; the files are kept in {kept}"))


async def _accept_in_object_store(
    place: str, dry_run: bool, everything: bool, etcd: str | None, cluster_id: str
) -> None:
    from magnetar_cli.servers.open_store import needing_packages
    from magnetar_storage.object_store.url import ObjectStoreUrl

    with needing_packages():
        from magnetar_cli.stored_marks import StoredMarks
        from magnetar_storage.offline import slate_accepted_loss as accepted_loss
    url, marks = ObjectStoreUrl.parse(place), StoredMarks(etcd, cluster_id)
    try:
        mark_place = await marks.place_of(url)
        if everything:
            await accepted_loss.accept_loss_of_everything(url, mark_place)
            print(_EVERYTHING)
        elif _says_what_is_missing(await accepted_loss.lost_from(url, mark_place)) and not dry_run:
            kept = await accepted_loss.accept_loss(url, mark_place)
            where = f"; its objects are kept in {kept}" if kept is not None else ""
            print(_GIVEN_UP.format(where))
    finally:
        await marks.close()


_EVERYTHING = "all that the store before this one had is given up"
_GIVEN_UP = "given up, with all that came behind it{}"
_VALUES_GIVEN_UP = (
    "given up; start the server, and let readers go on with `magnetar topics skip-damaged`, which"
    " says how much is lost of each topic"
)


def _says_what_is_missing(reason: str | None) -> bool:
    print(reason or "nothing is missing: start the server")
    return reason is not None
