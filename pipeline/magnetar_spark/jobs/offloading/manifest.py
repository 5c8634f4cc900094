"""The manifest of an offload, which lists the files that count. Pure.

Each manifest is the whole state of its directory, and has a number; the highest number counts. A
file that is in no manifest was left by a run that did not finish.
Source: docs/pipeline.md, Offload.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import google_crc32c

from magnetar_spark.offsets import Places
from magnetar_spark.planning import Range, split

FORMAT = "magnetar-offload"
FORMAT_VERSION = 1

# Readers of Parquet pass over names that begin so.
HIDDEN = "_magnetar"
_MANIFEST = re.compile(r"manifest-(\d{10})\.json")
_FILE = re.compile(r"\d{20}-\d{20}-[0-9a-f]{8}\.parquet")
_PARTITION = re.compile(r"partition=(\d{1,9})")


class ManifestError(ValueError):
    """The text is not a manifest, has another format, or is damaged. The message has no subject."""


@dataclass(frozen=True)
class OffloadFile:
    """A file with the messages of a partition from `first_offset` to before `end_offset`.

    Attributes:
        name: the name in the partition's directory; names have the order of offsets.
        row_count: how many messages; a message in parts has several offsets and a single row.
    """

    name: str
    first_offset: int
    end_offset: int
    row_count: int
    byte_count: int


@dataclass(frozen=True)
class OffloadPartition:
    """Offloaded part of a partition.

    Attributes:
        ledger_id: raised when the partition is restored, since its offsets are others then.
        first_offset: where the offload begins; retention had removed earlier messages.
        end_offset: the first offset that is not offloaded.
        settled_offset: the end of the last run that finished.
        losses: offsets that were gone before they could be offloaded: the first, and behind the
            last.
    """

    partition: int
    ledger_id: int
    first_offset: int
    end_offset: int
    settled_offset: int
    files: tuple[OffloadFile, ...] = ()
    losses: tuple[tuple[int, int], ...] = ()

    @property
    def row_count(self) -> int:
        """Number of offloaded messages."""
        return sum(one.row_count for one in self.files)

    @property
    def lost(self) -> int:
        """Number of offsets that were lost."""
        return sum(end - first for first, end in self.losses)


@dataclass(frozen=True)
class Manifest:
    """The state of an offload.

    Attributes:
        number: raised by each change.
        offload_id: made with the first manifest, and never changed.
        run: the token of the run that wrote the manifest.
        written_at_ms: when it was written, in milliseconds since the Unix epoch.
        settled_at_ms: when the last run that finished wrote its last manifest; 0: no run has
            finished.
        unfinished: transactions that may lie before the settled offset in some partitions, and
            behind it in others.
    """

    number: int
    offload_id: str
    run: str
    cluster_id: str
    topic: str
    topic_id: int
    written_at_ms: int
    settled_at_ms: int
    unfinished: tuple[str, ...]
    partitions: tuple[OffloadPartition, ...]

    def ends(self) -> dict[int, int]:
        """The end offset of each partition."""
        return {one.partition: one.end_offset for one in self.partitions}

    def settled(self) -> dict[int, int]:
        """The settled offset of each partition."""
        return {one.partition: one.settled_offset for one in self.partitions}

    def firsts(self) -> dict[int, int]:
        """The first offset of each partition."""
        return {one.partition: one.first_offset for one in self.partitions}

    def with_ends(self, ends: dict[int, int]) -> Manifest:
        """Return the same manifest with other ends."""
        return replace(
            self,
            partitions=tuple(
                replace(one, end_offset=ends.get(one.partition, one.end_offset))
                for one in self.partitions
            ),
        )

    def with_added(
        self, files: dict[int, list[OffloadFile]], losses: dict[int, list[tuple[int, int]]]
    ) -> Manifest:
        """Return the same manifest with more files and losses, behind those that it has."""
        return replace(
            self,
            partitions=tuple(
                replace(
                    one,
                    files=one.files + tuple(files.get(one.partition, ())),
                    losses=_joined([*one.losses, *losses.get(one.partition, ())]),
                )
                for one in self.partitions
            ),
        )

    def with_settled(self, unfinished: Sequence[str], now_ms: int) -> Manifest:
        """Return the same manifest for a run that has finished."""
        return replace(
            self,
            settled_at_ms=now_ms,
            unfinished=tuple(unfinished),
            partitions=tuple(
                replace(one, settled_offset=one.end_offset) for one in self.partitions
            ),
        )


def _joined(losses: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Join losses that are adjacent."""
    joined: list[tuple[int, int]] = []
    for first, end in losses:
        if joined and joined[-1][1] == first:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((first, end))
    return tuple(joined)


def manifest_name(number: int) -> str:
    """Return the file name of a manifest."""
    return f"manifest-{number:010}.json"


def manifest_number(name: str) -> int | None:
    """Return the number in the name of a manifest; None for other names."""
    found = _MANIFEST.fullmatch(name)
    return None if found is None else int(found[1])


def partition_directory(partition: int) -> str:
    """Return the name of a partition's directory."""
    return f"partition={partition}"


def partition_of(directory: str) -> int | None:
    """Return the partition of a directory's name; None for other names."""
    found = _PARTITION.fullmatch(directory)
    return None if found is None else int(found[1])


def file_name(first_offset: int, end_offset: int, run: str) -> str:
    """Return the name of a file: first and last offset, and the run."""
    return f"{first_offset:020}-{end_offset - 1:020}-{run[:8]}.parquet"


def is_file_name(name: str) -> bool:
    """Whether an offload may have written a file of this name."""
    return _FILE.fullmatch(name) is not None


def to_bytes(manifest: Manifest) -> bytes:
    """Return the JSON of a manifest."""
    body = {"format": FORMAT, "format_version": FORMAT_VERSION, **asdict(manifest)}
    return json.dumps({**body, "crc32c": _checksum(body)}, indent=1).encode()


def from_bytes(data: bytes) -> Manifest:
    """Read a manifest.

    Raises:
        ManifestError: it is not a manifest, or is damaged.
    """
    try:
        body = json.loads(data)
    except ValueError as error:
        raise ManifestError("is damaged: it is not JSON") from error
    if not isinstance(body, dict) or body.get("format") != FORMAT:
        raise ManifestError("is not the manifest of an offload")
    if body.get("format_version") != FORMAT_VERSION:
        raise ManifestError(
            f"has format version {body.get('format_version')!r}, and this program knows"
            f" {FORMAT_VERSION}: use the one that wrote it, or a later one"
        )
    if body.pop("crc32c", None) != _checksum(body):
        raise ManifestError("is damaged: its checksum does not fit")
    try:
        manifest = _decoded(body)
        _check(manifest)
    except (KeyError, TypeError, ValueError) as error:
        raise ManifestError(f"is damaged: {error}") from error
    return manifest


def _checksum(body: dict[str, Any]) -> str:
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return f"{google_crc32c.value(text.encode()):08x}"


def _decoded(body: dict[str, Any]) -> Manifest:
    fields = {name: given for name, given in body.items() if not name.startswith("format")}
    partitions = [
        OffloadPartition(
            **{
                **one,
                "files": tuple(OffloadFile(**file) for file in one["files"]),
                "losses": tuple((first, end) for first, end in one["losses"]),
            }
        )
        for one in body["partitions"]
    ]
    return Manifest(
        **{**fields, "unfinished": tuple(body["unfinished"]), "partitions": tuple(partitions)}
    )


def _check(manifest: Manifest) -> None:
    for number, one in enumerate(manifest.partitions):
        if one.partition != number:
            raise ValueError(f"partition {number} is missing")
        at = one.first_offset
        for file in one.files:
            if not (at <= file.first_offset < file.end_offset and is_file_name(file.name)):
                raise ValueError(f"file {file.name!r} is out of place")
            at = file.end_offset
        if not (at <= one.end_offset and one.first_offset <= one.settled_offset <= one.end_offset):
            raise ValueError(f"the ends of partition {number} do not fit")


def portions(
    topic: str,
    topic_id: int,
    begin: dict[int, int],
    end: dict[int, int],
    *,
    rows_per_file: int,
    files_per_portion: int,
    tasks_min: int,
) -> Iterator[list[Range]]:
    """Return the ranges to offload: one for each file, in portions that are committed separately.

    All partitions proceed side by side, so that a portion keeps as many tasks busy as possible.

    Args:
        topic: the topic's name.
        topic_id: the topic's id.
        begin: where each partition begins.
        end: where each partition ends.
        rows_per_file: how many messages a file has at most.
        files_per_portion: how many files a portion has.
        tasks_min: split the ranges of a portion until there are this many, if it has enough
            offsets.
    """
    at = dict(begin)
    while True:
        ranges: list[Range] = []
        while len(ranges) < files_per_portion:
            behind = [one for one in sorted(end) if at[one] < end[one]]
            if not behind:
                break
            for partition in behind[: files_per_portion - len(ranges)]:
                stop = min(end[partition], at[partition] + rows_per_file)
                ranges.append(Range(topic, topic_id, partition, at[partition], stop))
                at[partition] = stop
        if not ranges:
            return
        ranges.sort(key=lambda one: (one.partition, one.start))
        yield split(ranges, tasks_min)


def without(ranges: Sequence[Range], losses: dict[int, list[tuple[int, int]]]) -> list[Range]:
    """Return the rest of ranges, in order.

    Args:
        ranges: the ranges.
        losses: what to leave out, by partition: the first offset, and the offset behind the last.
    """
    left: list[Range] = []
    for one in ranges:
        at = one.start
        for first, end in sorted(losses.get(one.partition, ())):
            if first < one.end and end > at:
                if at < first:
                    left.append(replace(one, start=at, end=first))
                at = max(at, end)
        if at < one.end:
            left.append(replace(one, start=at))
    return left


def places_of(offsets: dict[int, int]) -> Places:
    """Return offsets in the form that `planning` takes, which has several topics."""
    return {"": offsets}
