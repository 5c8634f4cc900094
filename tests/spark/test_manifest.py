"""The manifest of an offload: its content, its refusals, and the ranges that become files."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from magnetar_spark.jobs.offloading.manifest import (
    Manifest,
    ManifestError,
    OffloadFile,
    OffloadPartition,
    file_name,
    from_bytes,
    is_file_name,
    manifest_name,
    manifest_number,
    partition_of,
    portions,
    to_bytes,
    without,
)
from magnetar_spark.planning import Range

RUN = "0123456789abcdef" * 2


def a_file(first: int, end: int) -> OffloadFile:
    return OffloadFile(file_name(first, end, RUN), first, end, end - first, 100)


MANIFEST = Manifest(
    *(3, "offload", RUN, "cluster", "flights", 7, 1_700_000_000_000, 0, ("0:1:5",)),
    (
        OffloadPartition(0, 1, 5, 20, 20, (a_file(5, 10), a_file(10, 20))),
        OffloadPartition(1, 1, 0, 9, 4, (a_file(0, 2), a_file(4, 9)), ((2, 4),)),
    ),
)


def test_a_manifest_is_read_as_it_was_written() -> None:
    assert from_bytes(to_bytes(MANIFEST)) == MANIFEST
    assert json.loads(to_bytes(MANIFEST))["format"] == "magnetar-offload"
    assert (MANIFEST.firsts(), MANIFEST.ends(), MANIFEST.settled()) == (
        *({0: 5, 1: 0}, {0: 20, 1: 9}, {0: 20, 1: 4}),
    )


def test_every_changed_byte_is_noticed() -> None:
    data = to_bytes(MANIFEST)
    for at in range(0, len(data), 7):
        changed = bytearray(data)
        changed[at] ^= 1
        try:
            found = from_bytes(bytes(changed))
        except ManifestError:
            continue
        assert found == MANIFEST  # White space.
    for length in range(0, len(data), 50):
        with pytest.raises(ManifestError):
            from_bytes(data[:length])


def test_other_formats_and_versions_are_refused() -> None:
    with pytest.raises(ManifestError, match="not the manifest of an offload"):
        from_bytes(b'{"format": "delta"}')
    with pytest.raises(ManifestError, match="not the manifest of an offload"):
        from_bytes(b"[1]")
    body = json.loads(to_bytes(MANIFEST))
    with pytest.raises(ManifestError, match="has format version 2, and this program knows 1"):
        from_bytes(json.dumps({**body, "format_version": 2}).encode())


@pytest.mark.parametrize(
    "files", [(a_file(10, 20), a_file(5, 10)), (a_file(5, 11), a_file(10, 20)), (a_file(5, 21),)]
)
def test_files_out_of_place_are_refused(files: tuple[OffloadFile, ...]) -> None:
    changed = replace(MANIFEST.partitions[0], files=files)
    with pytest.raises(ManifestError, match="is damaged"):
        from_bytes(to_bytes(replace(MANIFEST, partitions=(changed, MANIFEST.partitions[1]))))


def test_losses_side_by_side_are_one() -> None:
    (one, other) = MANIFEST.with_added({}, {0: [(20, 22), (22, 25)], 1: [(9, 10)]}).partitions
    assert one.losses == ((20, 25),)
    assert other.losses == ((2, 4), (9, 10))


def test_names() -> None:
    assert file_name(5, 10, RUN) == "00000000000000000005-00000000000000000009-01234567.parquet"
    assert is_file_name(file_name(5, 10**19, RUN))
    assert not is_file_name("part-00000-x.snappy.parquet")
    assert manifest_number(manifest_name(12)) == 12
    assert manifest_number(".manifest-0000000012.json.abc") is None
    assert (partition_of("partition=10"), partition_of("partition=x")) == (10, None)


def ranges_of(portion: list[Range]) -> list[tuple[int, int, int]]:
    return [(one.partition, one.start, one.end) for one in portion]


def test_portions_go_through_all_partitions_side_by_side() -> None:
    found = list(
        portions(
            *("flights", 7, {0: 0, 1: 5, 2: 3}, {0: 25, 1: 12, 2: 3}),
            rows_per_file=10,
            files_per_portion=3,
            tasks_min=1,
        )
    )
    assert [ranges_of(one) for one in found] == [
        [(0, 0, 10), (0, 10, 20), (1, 5, 12)],
        [(0, 20, 25)],
    ]
    (cut,) = portions(
        *("flights", 7, {0: 0}, {0: 10}), rows_per_file=10, files_per_portion=3, tasks_min=4
    )
    assert [(one.start, one.end) for one in cut] == [(0, 2), (2, 5), (5, 7), (7, 10)]


def test_ranges_without_what_is_lost() -> None:
    wanted = [Range("t", 1, 0, 0, 10), Range("t", 1, 0, 10, 20), Range("t", 1, 1, 0, 5)]
    losses = {0: [(0, 2), (8, 12), (15, 16)], 1: [(0, 5)]}
    assert ranges_of(without(wanted, losses)) == [(0, 2, 8), (0, 12, 15), (0, 16, 20)]
    assert without(wanted, {}) == wanted
