"""Check that a data directory still holds all synced data, before RocksDB opens it.

Only a torn tail is tolerated: a power loss cut off the last group before it was synced, so no
client was told that it is durable. A value that the disk does not return does not count as a torn
tail: it may be whole. RocksDB tolerates more: it takes a log that is damaged in its middle, or
missing, for a log that ended there, and removes the rest.

The check compares each log with its checksums; the sequence numbers of the logs, which have no
gaps; the newest log and the manifest with the mark of synced data; and the other logs with the
manifest, which lists them. Values in files of their own are compared with the changes that may not
be synced, and the sizes of these files with the rows that list them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from magnetar_storage.data_dir import synced_mark, unsynced_note
from magnetar_storage.data_dir.log_format import (
    Walk,
    read_edit,
    sequences_of_batch,
    values_of_batch,
    walk,
)
from magnetar_storage.data_dir.store_files import (
    LOG,
    VALUES,
    current_manifest,
    holds_store,
    log_path,
    numbered,
    values_path,
)
from magnetar_storage.data_dir.synced_mark import Synced
from magnetar_storage.data_dir.value_files import ValueFiles
from magnetar_storage.data_dir.value_pointer import pointer_of
from magnetar_storage.store import StoreDamaged, StoreFailed, ValuesMissing


@dataclass(frozen=True, slots=True)
class Damage:
    """The first place from which on changes are missing.

    Attributes:
        number: number of the log that holds the changes, or would hold them.
        kept_bytes: bytes of that log before the damage.
        missing_from: the log, and the byte in it, from which on something is missing.
        is_torn: only the last change is not whole, which was never synced.
    """

    reason: str
    number: int
    kept_bytes: int
    missing_from: tuple[int, int]
    is_torn: bool = False

    def is_of_synced(self, needed: Needed, mark: Synced) -> bool:
        """Return whether anything is missing that was synced, as far as that is known."""
        if self.missing_from[0] in needed.listed:
            return True
        return self.missing_from < (mark.log, mark.log_bytes)


@dataclass(frozen=True, slots=True)
class Checked:
    """A directory that has all that was synced.

    Attributes:
        mark: the newest mark; None: there is no store yet.
        torn: the last change, if it is not whole: its log is to be cut before it is replayed.
    """

    mark: Synced | None = None
    torn: Damage | None = None


def check_directory(directory: str) -> Checked:
    """Compare a directory with its mark of synced data. Changes nothing.

    Raises:
        StoreDamaged: data is missing that was synced, or that the machine had until now.
        StoreFailed: as damage_in_logs().
    """
    if not holds_store(directory):
        return Checked()
    number, manifest = current_manifest(directory)
    mark = synced_mark.read_mark(directory)
    damage = damage_in_logs(directory, check_manifest(number, manifest, mark), mark)
    if damage is not None:
        # Only a loss of power takes something that was written; a kill does not.
        may_be_lost = damage.is_torn and not unsynced_note.machine_stayed_up(directory)
        if not may_be_lost:
            raise StoreDamaged(damage.reason, may_be_accepted=True)
    return Checked(mark, damage)


@dataclass(frozen=True, slots=True)
class Needed:
    """The write-ahead logs that a manifest names.

    Attributes:
        first: logs with a lower number are no longer needed.
        listed: logs that were closed and synced.
    """

    first: int
    listed: frozenset[int]


def check_manifest(number: int, path: Path, mark: Synced | None) -> Needed:
    """Read which logs are needed from a manifest.

    Raises:
        StoreDamaged: the manifest is not whole.
    """
    walked = walk(path.read_bytes(), trusts_lengths=mark is not None)
    if mark is not None and number < mark.manifest:
        raise StoreDamaged(f"CURRENT names {path.name}, but number {mark.manifest} was in use")
    if walked.goes_on:
        raise StoreDamaged(f"{path.name} is damaged at byte {walked.damaged_at}")
    if mark is not None and number == mark.manifest and walked.end < mark.manifest_bytes:
        raise StoreDamaged(
            f"{path.name} can be read up to byte {walked.end}, and was synced up to byte"
            f" {mark.manifest_bytes}"
        )
    edits = [read_edit(head) for head in walked.heads]
    first = max((one.min_log_to_keep or 0 for one in edits), default=0)
    first_listed = max([first, *(one.deleted_before for one in edits)])
    listed = frozenset(one for edit in edits for one in edit.added_logs if one >= first_listed)
    return Needed(first, listed)


def damage_in_logs(directory: str, needed: Needed, mark: Synced | None) -> Damage | None:
    """Return the first damage in the write-ahead logs; None: they are whole.

    Raises:
        StoreFailed: the disk does not return a value that a change points to.
    """
    logs = dict(numbered(directory, LOG))
    expected = set(needed.listed)
    if mark is not None and mark.log >= needed.first and mark.log_bytes:
        expected.add(mark.log)
    last: int | None = None
    torn: Path | None = None
    before: tuple[int, int] | None = None
    numbers = sorted(expected | logs.keys())
    for number in numbers:
        name = log_path(directory, number).name
        if number not in logs:
            return Damage(f"{name} is missing, which was synced", number, 0, (number, 0))
        is_last = number == numbers[-1]
        unsynced_from = _unsynced_from(number, mark, is_last=is_last)
        # Where no mark says what was synced, what follows a damage is all that tells it from a
        # torn tail.
        walked = walk(
            logs[number].read_bytes(), whole_from=unsynced_from, trusts_lengths=mark is not None
        )
        for first, batch_last in map(sequences_of_batch, walked.heads):
            if last is not None and first > last + 1:
                where = f"before {name}" if torn is None else f"at the end of {torn.name}"
                reason = f"{first - last - 1} changes are missing {where}"
                return Damage(reason, number, 0, before or (number, 0))
            last = max(last or 0, batch_last)
        # All changes that can be read come before a damage of the log.
        without = _without_values(directory, walked, unsynced_from)
        if without is not None:
            start = walked.starts[without]
            is_at_end = is_last and without == len(walked.starts) - 1 and not walked.goes_on
            return Damage(
                f"{name} has a change at byte {start} whose values are missing",
                number,
                start,
                (number, start),
                is_torn=is_at_end,
            )
        if walked.goes_on:
            reason = f"{name} is damaged at byte {walked.damaged_at}, but has more data after it"
            return Damage(reason, number, walked.end, (number, walked.end))
        synced_bytes = mark.log_bytes if mark is not None and number == mark.log else 0
        if number in expected and walked.end < synced_bytes:
            reason = f"{name} can be read up to byte {walked.end}, and was synced up to byte"
            place = number, walked.end
            return Damage(f"{reason} {synced_bytes}", number, walked.end, place)
        before = number, walked.end
        torn = logs[number] if walked.damaged_at is not None else None
    return None


def _unsynced_from(number: int, mark: Synced | None, *, is_last: bool) -> int | None:
    """Return from where on a log has changes that may not be synced; None: it has none."""
    if mark is None or number < mark.log:
        return None
    if not mark.log:
        # Nothing was synced since the store was made, or made whole again.
        return 0 if is_last else None
    return mark.log_bytes if number == mark.log else 0


def _without_values(directory: str, walked: Walk, unsynced_from: int | None) -> int | None:
    """Return the place of the first unsynced change whose values are not whole.

    A loss of power may keep a change and take its values, for they are in another file.
    """
    if unsynced_from is None:
        return None
    files = ValueFiles(directory, {})
    try:
        for place, record in enumerate(walked.heads):
            if walked.starts[place] >= unsynced_from and not _has_values(files, record):
                return place
    except OSError as error:
        raise StoreFailed(
            f"{directory}: a value cannot be read: {error}; nothing was changed: start again, and"
            " if that fails as well, check the disk"
        ) from error
    finally:
        files.close()
    return None


def _has_values(files: ValueFiles, record: bytes) -> bool:
    """Return whether all values are whole to which a change points.

    Raises:
        OSError: the disk does not say.
    """
    return all(map(files.has, filter(None, map(pointer_of, values_of_batch(record)))))


def check_values(directory: str, listed: Mapping[int, int], mark: Synced) -> dict[int, int]:
    """Compare the files of values with the rows that list them.

    Args:
        listed: sizes by number; 0 for the file that grows.
    Returns:
        The sizes of all of them.
    Raises:
        ValuesMissing: one of them is missing, or lost its end.
    """
    found = {number: path.stat().st_size for number, path in numbered(directory, VALUES)}
    for number, size in listed.items():
        name = values_path(directory, number).name
        if number not in found:
            raise ValuesMissing(f"{name} is missing, which has values of rows")
        wanted = size
        if number == mark.values:
            wanted = max(size, mark.values_bytes)
        if found[number] < wanted:
            raise ValuesMissing(f"{name} has {found[number]} bytes, and had {wanted}")
    return {number: size or found[number] for number, size in listed.items()}
