"""`magnetar storage`: decisions about data directories that are damaged."""

from __future__ import annotations

from pathlib import Path

import click


@click.group()
def storage() -> None:
    """Decide about a data directory that is damaged. Its server must not run."""


@storage.command(name="accept-loss")
@click.argument("data_dir", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--dry-run", is_flag=True, help="Only say what is missing.")
@click.option(
    "--everything", is_flag=True, help="This empty store takes the place of one that is gone."
)
def accept_loss(data_dir: Path, dry_run: bool, everything: bool) -> None:
    """Go on without what DATA_DIR, of one server, lost of its newest changes.

    They were acknowledged: messages, acks and decisions may be among them, and transactions that
    they were part of may be torn apart. A broker then opens a higher ledger id, a coordinator takes
    a higher incarnation. The files are kept as they were found, in DATA_DIR/kept-1.
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
