"""The sequence of manifests of a directory, and the files beside them.

A run begins by writing a manifest. Each further manifest has the next number, which only a single
run can take. So of two runs that know the same state only one goes on, and a run adds or removes
files only while its manifest is the last. Files of a later run have other names, and are in
manifests that an earlier run can no longer write.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from magnetar_spark.jobs.failures import JobError
from magnetar_spark.jobs.offloading.directory import AlreadyThere, Directory, DirectoryError
from magnetar_spark.jobs.offloading.manifest import (
    HIDDEN,
    Manifest,
    ManifestError,
    from_bytes,
    is_file_name,
    manifest_name,
    manifest_number,
    partition_directory,
    partition_of,
    to_bytes,
)

# A reader that has just learned of one still finds it.
MANIFESTS_KEPT = 10
_STAGING = "staging-"
# Of manifests; see Directory.write_new.
_PARTS = ".manifest-"
_RESTORES = "restores"
_TRIES = 5


class OffloadError(JobError):
    """An offload or a restore cannot go on. Earlier results still count."""


class NumberTaken(OffloadError):
    """A manifest of this number exists. No effect."""


def staging_of(run: str) -> str:
    """Return the staging directory of a run."""
    return f"{HIDDEN}/{_STAGING}{run}"


class OffloadLog:
    """The manifests of a directory, as a run sees them."""

    def __init__(self, directory: Directory) -> None:
        self.directory = directory

    def latest(self) -> Manifest | None:
        """Return the manifest that counts.

        Raises:
            OffloadError: it is damaged, or belongs to something else.
        """
        for _ in range(_TRIES):
            number = self._highest()
            if number is None:
                return None
            try:
                data = self.directory.read(f"{HIDDEN}/{manifest_name(number)}")
            except DirectoryError:
                if self._highest() == number:
                    raise
                continue  # Later ones have come, and it was removed.
            try:
                return from_bytes(data)
            except ManifestError as error:
                raise OffloadError(
                    f"{self.directory.path(HIDDEN)}/{manifest_name(number)} {error}. Nothing was"
                    " changed"
                ) from error
        raise OffloadError(f"{self.directory.url} is written too fast to be read: try again")

    def _highest(self) -> int | None:
        numbers = self._numbers()
        return max(numbers) if numbers else None

    def _numbers(self) -> list[int]:
        found = (manifest_number(one.name) for one in self.directory.entries(HIDDEN) or ())
        return [one for one in found if one is not None]

    def add(self, manifest: Manifest) -> None:
        """Write a manifest, which counts from now on.

        Raises:
            NumberTaken: another run has begun meanwhile. No effect.
            OffloadError: another run has begun after this manifest, and continues from it.
        """
        self.directory.make(HIDDEN)
        name = manifest_name(manifest.number)
        try:
            self.directory.write_new(f"{HIDDEN}/{name}", to_bytes(manifest), manifest.run)
        except AlreadyThere as error:
            raise NumberTaken(self._overtaken()) from error
        self.check_last(manifest)
        for number in self._numbers():
            if number <= manifest.number - MANIFESTS_KEPT:
                self.directory.remove(f"{HIDDEN}/{manifest_name(number)}")

    def check_last(self, manifest: Manifest) -> None:
        """Check that no other run has begun.

        Raises:
            OffloadError: another run has begun.
        """
        if self._highest() != manifest.number:
            raise OffloadError(self._overtaken())

    def _overtaken(self) -> str:
        return (
            f"another offload writes into {self.directory.url}, and has taken over: this one ends"
        )

    def check_files(self, manifest: Manifest) -> list[str]:
        """Check that all files exist that count.

        Returns:
            The files that do not count, which an earlier run has left.
        Raises:
            OffloadError: a file is missing or has another size, or there is a file that no offload
                writes, and that readers of the directory would take for messages.
        """
        root = self.directory.entries() or []
        left: list[str] = []
        foreign = [one.name for one in root if one.name.endswith(".parquet")]
        known = {one.partition: one for one in manifest.partitions}
        numbers = {partition_of(one.name) for one in root if one.is_directory} - {None}
        for number in sorted({*known, *(one for one in numbers if one is not None)}):
            name = partition_directory(number)
            sizes = {one.name: one.byte_count for one in self.directory.entries(name) or ()}
            for file in known[number].files if number in known else ():
                size = sizes.pop(file.name, None)
                if size != file.byte_count:
                    raise OffloadError(
                        f"{self.directory.path(name)}/{file.name} "
                        + ("is missing" if size is None else f"has {size} bytes")
                        + f", and the manifest says {file.byte_count} bytes: put it back. Nothing"
                        " was changed"
                    )
            ours = [one for one in sizes if is_file_name(one)]
            left += [f"{name}/{one}" for one in ours]
            foreign += [f"{name}/{one}" for one in sizes.keys() - ours if one.endswith(".parquet")]
        if foreign:
            raise OffloadError(
                f"{self.directory.path(min(foreign))} is not of this offload, and readers would"
                " take it for messages: move it away. Nothing was changed"
            )
        return left

    def left_behind(self) -> list[str]:
        """Return staging directories, and manifests that were not written completely."""
        return [
            f"{HIDDEN}/{one.name}"
            for one in self.directory.entries(HIDDEN) or ()
            if one.name.startswith((_STAGING, _PARTS))
        ]

    def check_new(self) -> None:
        """Check that the directory is empty.

        Raises:
            OffloadError: the directory has other files.
        """
        others = [
            one.name
            for one in self.directory.entries() or ()
            if not one.name.startswith(("_", "."))
        ]
        if others:
            raise OffloadError(
                f"{self.directory.url} has {others[0]!r} and no manifest: choose another directory,"
                " which may be new"
            )

    def remove(self, names: Iterable[str]) -> None:
        """Remove files or directories."""
        for name in names:
            self.directory.remove(name)


class RestoreLog:
    """Beginnings and ends of a restore's batches, each written before the batch runs.

    It never changes. It lies beside the manifests, with a directory for each topic that is written.
    """

    def __init__(self, directory: Directory, cluster_id: str, topic_id: int) -> None:
        self._directory = directory
        self._path = f"{HIDDEN}/{_RESTORES}/{quote(cluster_id, safe='')}-{topic_id}"

    def _name(self, number: int) -> str:
        return f"{self._path}/batch-{number:010}.json"

    def read(self, number: int) -> dict[str, Any] | None:
        """Return a batch as it was written; None if it was not written.

        Raises:
            OffloadError: the file is damaged.
        """
        entries = self._directory.entries(self._path) or ()
        name = self._name(number)
        if name.rpartition("/")[2] not in {entry.name for entry in entries}:
            return None
        try:
            found = json.loads(self._directory.read(name))
        except ValueError as error:
            raise OffloadError(f"{self._directory.path(name)} is damaged: {error}") from error
        if not isinstance(found, dict):
            raise OffloadError(f"{self._directory.path(name)} is damaged: not an object")
        return found

    def write(self, number: int, batch: dict[str, Any], token: str) -> dict[str, Any]:
        """Write a batch, and return the batch that counts: another run may have been first."""
        self._directory.make(self._path)
        try:
            self._directory.write_new(self._name(number), json.dumps(batch).encode(), token)
        except AlreadyThere:
            pass
        found = self.read(number)
        assert found is not None
        return found
