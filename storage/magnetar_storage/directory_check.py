"""Whether a data directory still holds all that was synced. Looked at before RocksDB opens it.

Only a torn tail is tolerated: the last group, cut off by a loss of power before it was synced, and
so never acknowledged. RocksDB goes further: it takes a log that is damaged in its middle, or gone,
for one that ended there, and removes what lies behind.

What is held against what: each log against its checksums; the sequence numbers of the logs, which
have no gaps; the newest log and the manifest against the mark of what was synced. RocksDB itself
compares the other logs with its manifest, which lists them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from magnetar_storage import synced_mark
from magnetar_storage.log_format import Walk, read_edit, sequences_of_batch, walk
from magnetar_storage.store import StoreDamaged
from magnetar_storage.store_files import (
    LOG,
    OPTIONS,
    current_manifest,
    holds_store,
    log_path,
    numbered,
)
from magnetar_storage.synced_mark import Synced

# In the options of a store whose logs are listed: such a store has a mark as well.
TRACKED: Final = "track_and_verify_wals_in_manifest=true"


@dataclass(frozen=True, slots=True)
class Log:
    """One write-ahead log, as far as it can be read.

    Attributes:
        follows: its first record is the next after the last one of the logs before it.
    """

    number: int
    path: Path
    walk: Walk
    follows: bool
    damage: str | None


def check_directory(directory: str) -> Synced | None:
    """Compare a directory with what was synced there. Changes nothing.

    Returns:
        The newest mark of a store that has one.
    Raises:
        StoreDamaged: something that was synced is missing.
    """
    if not holds_store(directory):
        return None
    mark = synced_mark.read_mark(directory)
    number, manifest = current_manifest(directory)
    if mark is None and _is_tracked(directory):
        raise StoreDamaged(f"the file {synced_mark.FILE} is missing, which says what was synced")
    min_log = _check_manifest(number, manifest, mark or Synced())
    for log in read_logs(directory, mark or Synced(), min_log):
        if log.damage is not None:
            raise StoreDamaged(log.damage)
    _check_newest_log(directory, mark or Synced(), min_log)
    return mark


def read_logs(directory: str, mark: Synced, min_log: int) -> list[Log]:
    """Every write-ahead log, oldest first, each with the first damage that is found in it."""
    logs: list[Log] = []
    last: int | None = None
    torn: Path | None = None
    for number, path in numbered(directory, LOG):
        walked = walk(path.read_bytes())
        damage: str | None = None
        follows = True
        for first, batch_last in map(sequences_of_batch, walked.heads):
            if last is not None and first > last + 1:
                follows = False
                where = f"before {path.name}" if torn is None else f"at the end of {torn.name}"
                damage = damage or f"{first - last - 1} changes are missing {where}"
            last = max(last or 0, batch_last)
        if damage is None and walked.goes_on:
            damage = f"{path.name} is damaged at byte {walked.damaged_at}, and goes on behind it"
        is_marked = number == mark.log and number >= min_log
        if damage is None and is_marked and walked.end < mark.log_bytes:
            damage = (
                f"{path.name} can be read up to byte {walked.end}, and was synced up to byte"
                f" {mark.log_bytes}"
            )
        torn = path if walked.damaged_at is not None else None
        logs.append(Log(number, path, walked, follows, damage))
    return logs


def _check_manifest(number: int, path: Path, mark: Synced) -> int:
    """Returns the number of the oldest log that is needed."""
    walked = walk(path.read_bytes())
    if number < mark.manifest:
        raise StoreDamaged(f"CURRENT names {path.name}, but number {mark.manifest} was in use")
    if walked.goes_on:
        raise StoreDamaged(f"{path.name} is damaged at byte {walked.damaged_at}")
    if number == mark.manifest and walked.end < mark.manifest_bytes:
        raise StoreDamaged(
            f"{path.name} can be read up to byte {walked.end}, and was synced up to byte"
            f" {mark.manifest_bytes}"
        )
    kept = (read_edit(head).min_log_to_keep for head in walked.heads)
    return max((one for one in kept if one is not None), default=0)


def _check_newest_log(directory: str, mark: Synced, min_log: int) -> None:
    if mark.log < min_log or not mark.log_bytes:
        return
    path = log_path(directory, mark.log)
    if not path.exists():
        raise StoreDamaged(f"{path.name} is missing, which was synced up to byte {mark.log_bytes}")


def _is_tracked(directory: str) -> bool:
    options = numbered(directory, OPTIONS)
    return bool(options) and TRACKED in options[-1][1].read_text(errors="replace")
