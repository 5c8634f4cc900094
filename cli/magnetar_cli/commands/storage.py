"""`magnetar storage`: decisions about damaged data directories."""

from __future__ import annotations

from pathlib import Path

import click


@click.group()
def storage() -> None:
    """Repair the data directory of a stopped server."""


@storage.command(name="accept-loss")
@click.argument("data_dir", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--dry-run", is_flag=True, help="Print what is missing, and change nothing.")
@click.option(
    "--everything", is_flag=True, help="Accept that the whole store of this server is lost."
)
def accept_loss(data_dir: Path, dry_run: bool, everything: bool) -> None:
    """Let a server start without its latest changes, which are lost.

    DATA_DIR is the data directory of the server. The lost changes were acknowledged: messages, acks
    and decisions may be among them, and transactions may be torn. After that, a broker opens a
    higher ledger id, and a coordinator takes a higher incarnation. The damaged files are kept in
    DATA_DIR/kept-1.
    """
    from magnetar_storage import accepted_loss

    if everything:
        accepted_loss.accept_loss_of_everything(str(data_dir))
        print("all that the store before this one had is given up")
        return
    reason = accepted_loss.lost_from(str(data_dir))
    if reason is None:
        print("nothing is missing: start the server")
        return
    print(reason)
    if dry_run:
        return
    kept = accepted_loss.accept_loss(str(data_dir))
    print(f"given up, with all that came behind it; the files are kept in {kept}")
