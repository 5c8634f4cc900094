"""What is pure about tables: columns, the cut of a table, and which files are written together."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import parquet_file_to_data_file
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyspark.sql.types import DataType, StructType

from magnetar import Cut
from magnetar_core.cuts.cuts import Cut as Taken
from magnetar_core.cuts.cuts import PartitionCut, TopicCut
from magnetar_spark.errors import OptionError
from magnetar_spark.jobs.iceberg.catalogs import CatalogChoice, open_catalog
from magnetar_spark.jobs.iceberg.columns import (
    bad_schema,
    check_change,
    day_of_storage,
    record_schema,
)
from magnetar_spark.jobs.iceberg.compaction import TOGETHER, StoredFile, groups
from magnetar_spark.jobs.iceberg.data_files import DataFileWriter, target_of
from magnetar_spark.jobs.iceberg.lineage import (
    CUT,
    CutForgotten,
    SnapshotFacts,
    goals,
    is_before,
    last_told,
    tag_of,
)

# Spark reads columns in SQL.
pytestmark = pytest.mark.usefixtures("spark")


def columns(ddl: str) -> Schema:
    kind = DataType.fromDDL(ddl)
    assert isinstance(kind, StructType)
    return record_schema(kind)


def test_each_type_has_a_column() -> None:
    schema = columns(
        "a BOOLEAN, b TINYINT, c SMALLINT, d INT, e BIGINT, f FLOAT, g DOUBLE, h DECIMAL(12, 3),"
        " i STRING, j STRUCT<>, k BINARY, l DATE, m TIMESTAMP, n TIMESTAMP_NTZ,"
        " o ARRAY<INT>, p MAP<STRING, STRUCT<q: INT>>"
    )
    types = {one.name: str(one.field_type) for one in schema.fields}
    assert [types[name] for name in "abcdefghijklmn"] == [
        *("boolean", "int", "int", "int", "long", "float", "double", "decimal(12, 3)"),
        *("string", "boolean", "binary", "date", "timestamptz", "timestamp"),
    ]
    assert types["o"] == "list<int>"
    assert "map<string, struct<" in types["p"]
    assert not any(one.required for one in schema.fields)
    assert [*types][-7:] == [
        *("_partition", "_offset", "_txn_id", "_timestamp", "_event_time", "_key", "_headers"),
    ]


@pytest.mark.parametrize(("ddl", "path"), [("a INTERVAL DAY", "a"), ("a STRUCT<b: VOID>", "a.b")])
def test_what_has_no_type_is_named(ddl: str, path: str) -> None:
    with pytest.raises(OptionError, match=f"no type for the column {path}:"):
        columns(ddl)


@pytest.mark.parametrize(
    ("before", "after", "is_changed"),
    [
        ("id INT", "id INT", False),
        ("id INT", "id INT, item STRING", True),
        ("id INT", "id BIGINT", True),
        ("id BIGINT", "id INT", False),
        ("a FLOAT", "a DOUBLE", True),
        ("a DECIMAL(9, 2)", "a DECIMAL(12, 2)", True),
        ("a STRUCT<b: INT>", "a STRUCT<b: INT, c: INT>", True),
        ("a ARRAY<INT>", "a ARRAY<BIGINT>", True),
        ("a MAP<STRING, INT>", "a MAP<STRING, BIGINT>", True),
        ("a INT, b INT", "b INT, a INT", False),
    ],
)
def test_tables_take_more_columns_and_wider_numbers(
    before: str, after: str, is_changed: bool
) -> None:
    assert check_change(columns(before), columns(after), "t") is is_changed


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("id INT, item STRING", "id INT", "a column item, and the schema has none"),
        ("id INT", "Id INT", "a column id, and the schema has none"),
        ("a STRUCT<b: INT, c: INT>", "a STRUCT<b: INT>", "a column a.c, and"),
        ("id INT", "id STRING", "id as int, and the schema as string"),
        ("a STRING", "a BINARY", "a as string, and the schema as binary"),
        ("a DECIMAL(9, 2)", "a DECIMAL(9, 3)", "a as decimal"),
        ("a ARRAY<INT>", "a ARRAY<STRING>", "a.element as int"),
        ("a MAP<STRING, INT>", "a MAP<STRING, DATE>", "a.value as int"),
        ("a ARRAY<INT>", "a INT", "a as list<int>"),
    ],
)
def test_other_changes_are_refused(before: str, after: str, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        check_change(columns(before), columns(after), "t")


NAMES = ["with space", "50%20off", "a#b", "x[1]", "{a,b}", "12:00", "größe", "a=b", "q?x", "a&b*"]


@pytest.mark.parametrize("name", NAMES)
def test_a_warehouse_is_where_it_is_named(tmp_path: Path, name: str) -> None:
    directory = tmp_path / name / "tables"
    choice = CatalogChoice(warehouse=str(directory))
    catalog = open_catalog(choice)
    catalog.create_namespace("shop")
    table = catalog.create_table(("shop", "orders"), columns("id BIGINT"))
    writer = DataFileWriter(target_of(table, 1 << 20), "one")
    nulls = {one.name: [None] for one in table.schema().as_arrow() if one.name != "_timestamp"}
    batch = pa.RecordBatch.from_pydict(
        {**nulls, "_timestamp": [datetime(2026, 11, 24, tzinfo=UTC)]}, table.schema().as_arrow()
    )
    writer.write(batch)
    (file,) = writer.finish()
    table.add_files([file.path])
    # Another process opens it by the same path.
    again = open_catalog(choice).load_table(("shop", "orders"))
    assert again.scan().to_arrow().num_rows == 1
    files = [one for one in tmp_path.rglob("*") if one.is_file()]
    assert {directory / "catalog.db"} < {*files}
    assert all(one.is_relative_to(directory) for one in files)


def cut(stamp: int, *topics: str) -> Cut:
    one = TopicCut(1, (PartitionCut(0, 0, stamp, stamp),))
    return Cut(Taken("", stamp, dict.fromkeys(topics or ("a", "b"), one)))


def test_the_last_snapshot_that_names_a_cut_counts() -> None:
    snapshots = {
        1: SnapshotFacts(None, {CUT: "first"}),
        2: SnapshotFacts(1, {CUT: "second"}),
        3: SnapshotFacts(2, {"operation": "replace"}),
    }
    assert last_told(snapshots, 3) == {CUT: "second"}
    # Somebody has rolled the table back.
    assert last_told(snapshots, 1) == {CUT: "first"}
    assert last_told(snapshots, None) is None


def test_a_cut_that_nobody_names_any_more_is_not_guessed() -> None:
    rewritten = SnapshotFacts(2, {"operation": "replace"})
    with pytest.raises(CutForgotten):
        last_told({3: rewritten}, 3)
    with pytest.raises(CutForgotten):
        last_told({3: SnapshotFacts(None, {"operation": "append"})}, 3)


def test_a_run_that_was_killed_is_finished_first() -> None:
    old, half, new = cut(10), cut(20), cut(30)
    assert goals([("a", None), ("b", None)], new) == [new]
    assert goals([("a", old), ("b", old)], new) == [new]
    assert goals([("a", half), ("b", old)], new) == [half, new]
    # A table that is new begins with the new cut: what the other has may have aged out.
    assert goals([("a", half), ("b", None)], new) == [new]
    # A cut of other topics says nothing of this table.
    assert goals([("a", cut(20, "a")), ("b", old)], new) == [new]


def test_a_table_goes_to_later_cuts_of_its_topic() -> None:
    assert is_before(cut(10), cut(20), "a")
    assert not is_before(cut(20), cut(20), "a")
    assert not is_before(cut(30), cut(20), "a")
    assert not is_before(cut(10), cut(20, "b"), "a")
    assert tag_of(cut(20)) == "cut-20"


FILES = st.lists(
    st.builds(
        StoredFile,
        path=st.uuids().map(str),
        partition=st.integers(0, 2),
        byte_count=st.integers(1, 1 << 30),
    ),
    max_size=60,
)


@given(FILES, st.integers(1 << 16, 1 << 28))
def test_files_are_written_together_where_that_is_worth_it(
    files: list[StoredFile], target: int
) -> None:
    chosen = groups(files, target)
    once = [one.path for group in chosen for one in group]
    assert len(set(once)) == len(once)
    for group in chosen:
        assert len(group) >= TOGETHER
        assert len({one.partition for one in group}) == 1
        assert sum(one.byte_count for one in group) <= target
        # Each byte gets into a file that is four times as large, unless they are tiny.
        smallest, largest = group[0].byte_count, group[-1].byte_count
        assert largest < max(4 * smallest, 1 << 20)
        assert largest * TOGETHER <= target


def test_many_small_commits_leave_few_files_and_write_little_again() -> None:
    target, files, written = 64 << 20, [], 0
    for number in range(2_000):
        files.append(StoredFile(f"{number}", 0, 100_000))
        for group in groups(files, target):
            size = sum(one.byte_count for one in group)
            written += size
            files = [file for file in files if file not in group]
            files.append(StoredFile(f"{number}+{group[0].path}", 0, size))
    assert len(files) < 30
    # 1 MiB, 4 and 16: three tiers, and those below the first of them.
    assert written < 6 * 2_000 * 100_000


@pytest.fixture
def table(tmp_path: Path) -> Table:
    catalog = open_catalog(CatalogChoice(warehouse=str(tmp_path)))
    catalog.create_namespace("n")
    schema = bad_schema()
    return catalog.create_table(("n", "t"), schema, partition_spec=day_of_storage(schema))


def test_files_have_a_day_each_and_the_size_that_is_asked_for(table: Table) -> None:
    writer = DataFileWriter(target_of(table, 1), "name")
    names = [one.name for one in table.schema().fields]

    def batch(days: list[int]) -> pa.RecordBatch:
        times = [datetime(2026, 1, day, 23, 59, 59, 999_999, tzinfo=UTC) for day in days]
        arrays = [
            pa.array(times, pa.timestamp("us", "UTC"))
            if name == "_timestamp"
            else pa.nulls(len(days), pa.null())
            for name in names
        ]
        return pa.RecordBatch.from_arrays(arrays, names)

    for days in ([1, 2, 1], [3, 4, 5, 6], [1]):
        writer.write(batch(days))
    files = writer.finish()
    assert sum(file.rows for file in files) == 8
    # It had four days open at most, so the first one was closed before it came again.
    assert len(files) == 7
    with table.transaction() as change, change.update_snapshot().fast_append() as append:
        for one in files:
            append.append_data_file(parquet_file_to_data_file(table.io, table.metadata, one.path))
    assert table.scan("_timestamp >= '2026-01-05T00:00:00+00:00'").to_arrow().num_rows == 2
    assert "_timestamp_day=2026-01-06" in {Path(file.path).parent.name for file in files}


def test_a_table_that_is_partitioned_otherwise_is_refused(table: Table) -> None:
    with table.update_spec() as spec:
        spec.add_identity("_partition")
    with pytest.raises(OptionError, match="partitioned by something else"):
        target_of(table, 1)
