"""`magnetar pipeline tables`: Iceberg tables of topics, all at one moment, each message once."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyiceberg.exceptions import CommitStateUnknownException
from pyspark.sql import DataFrame, SparkSession
from tests.json_output import read_json
from tests.spark.conftest import ROOT, environment_of_a_user
from tests.spark.orders_world import order
from tests.spark.tables_world import Killed, World, failing_catalog, raising
from tests.spark.test_payloads import ORDER as AVRO_ORDER
from tests.spark.test_payloads import RECORD, compiled, saved, written
from tests.waiting import wait_until

from magnetar_cli.program import cli
from magnetar_spark.errors import OptionError
from magnetar_spark.jobs.iceberg.catalogs import CatalogChoice, open_catalog
from magnetar_spark.jobs.iceberg.table import TablesFailed
from magnetar_spark.jobs.iceberg.tasks import Written
from magnetar_spark.jobs.spark_session import BYTES_PER_BATCH, DECODING_SETTINGS

pytestmark = pytest.mark.chaos


@pytest.fixture(scope="module")
def world(
    spark: SparkSession, pandas: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    with World.of_a_file(spark, tmp_path_factory) as made:
        yield made


def test_each_committed_message_is_a_row_once(world: World) -> None:
    name = world.topic(*(order(one, tags=["hot"]) for one in range(20)))
    aborted = world.client.begin_transaction()
    with world.client.create_producer(name) as producer:
        producer.send(order(99), partition=0, txn=aborted)
        aborted.abort()
    report = world.run(name)
    assert (report.read, report.bad, report.tables[0].new_rows) == (20, 0, 20)
    first = world.rows(name)[0]
    time = first.pop("_timestamp")
    assert time.year >= 2026
    assert first == {
        **{"id": 0, "item": "tea 0", "amount": 2.5, "tags": ["hot"]},
        **{"_partition": 0, "_offset": 0, "_txn_id": None, "_key": b"key 0"},
        "_event_time": first["_event_time"],
        "_headers": [{"key": "from", "value": b"shop"}],
    }
    assert first["_event_time"].timestamp() == 1.0
    assert world.ids(name) == [*range(20)]
    # The next run has what has come since, and one without anything new changes nothing.
    world.send(name, map(order, range(20, 25)))
    assert world.run(name).tables[0].new_rows == 5
    again = world.run(name)
    assert (again.read, again.tables[0].snapshot_id) == (0, None)
    assert world.ids(name) == [*range(25)]
    assert len(world.cuts(name)) == 2


def test_tables_have_the_same_cuts_and_no_half_of_a_transaction(world: World) -> None:
    names = [world.topic(), world.topic()]
    producers = [world.client.create_producer(name) for name in names]
    for number in range(3):
        for _ in range(2):
            with world.client.transaction() as txn:
                for sign, producer in zip((1, -1), producers, strict=True):
                    producer.send(order(sign * (number + 1)), txn=txn)
        report = world.run(*names)
        assert report.tag in world.cuts(names[0], *names)
    # Nothing has come to the second topic: its table has the cut all the same.
    world.send(names[0], [order(0)])
    world.run(*names)
    for producer in producers:
        producer.close()
    cuts = world.cuts(names[0], *names)
    assert cuts == world.cuts(names[1], *names)
    assert len(cuts) == 4
    for tag in cuts:
        one, other = (world.ids(name, *names, tag=tag) for name in names)
        assert sum(one) + sum(other) == 0


def test_a_token_says_where_tables_are_to_be(world: World) -> None:
    name = world.topic(order(0))
    early = str(world.client.cut(name))
    world.send(name, [order(1)])
    late = str(world.client.cut(name))
    world.send(name, [order(2)])
    assert world.run(name, at=early).cut == early
    assert world.ids(name) == [0]
    world.run(name, at=late)
    assert world.ids(name) == [0, 1]
    assert world.run(name, at=late).read == 0
    with pytest.raises(TablesFailed, match="has a later cut"):
        world.run(name, at=early)


def test_a_record_without_fields_is_a_boolean(world: World, tmp_path: Path) -> None:
    source = """
    syntax = "proto3";
    import "google/protobuf/empty.proto";
    message Event {
      message Left { google.protobuf.Empty why = 1; }
      int64 id = 1;
      google.protobuf.Empty joined = 2;
      Left left = 3;
      repeated google.protobuf.Empty several = 4;
      map<string, google.protobuf.Empty> names = 5;
    }
    """
    schema = compiled(tmp_path, source)
    with_all = b"\x08\x01\x12\x00\x1a\x02\x0a\x00\x22\x00\x22\x00\x2a\x05\x0a\x01k\x12\x00"
    name = world.topic(with_all, b"\xff", b"\x08\x03\x1a\x00")
    given = {"payload_format": "protobuf", "schema_path": str(schema), "keeps_bad": True}
    assert world.run(name, **given).bad == 1
    rows = [{column: one[column] for column in FIELDS} for one in world.rows(name)]
    assert rows == [
        {
            **{"id": 1, "joined": True, "left": {"why": True}, "several": [True, True]},
            "names": [("k", True)],
        },
        {"id": 3, "joined": None, "left": {"why": None}, "several": [], "names": []},
    ]


FIELDS = ("id", "joined", "left", "several", "names")


def test_columns_have_the_values_as_they_are(world: World, tmp_path: Path) -> None:
    schema = tmp_path / "values.ddl"
    schema.write_text(
        "at TIMESTAMP, local TIMESTAMP_NTZ, day DATE, price DECIMAL(38, 18), code VARCHAR(3),"
        " raw BINARY, more STRING, inner STRUCT<at: TIMESTAMP NOT NULL>"
    )
    sound = (
        b'{"at": "2024-02-29T23:59:59.123456Z", "local": "2024-02-29T23:59:59.123456",'
        b' "day": "2024-02-29", "price": 0.000000000000000001, "code": "tea", "raw": "/wE=",'
        b' "more": {"a": 1.10}, "inner": {"at": "1969-12-31T23:59:59.999999Z"}}'
    )
    bad = [b'{"at": 1700000000000}', b'{"code": "cake"}', b'{"inner": {}}']
    name = world.topic(sound, *bad)
    assert world.run(name, schema_path=str(schema), keeps_bad=True).bad == 3
    (row,) = world.rows(name)
    local = datetime(2024, 2, 29, 23, 59, 59, 123456)
    assert {name: text for name, text in row.items() if not name.startswith("_")} == {
        **{"at": local.replace(tzinfo=UTC), "local": local, "day": local.date()},
        **{"price": Decimal("1E-18"), "code": "tea", "raw": b"\xff\x01"},
        "more": '{"a": 1.10}',
        "inner": {"at": datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)},
    }
    found = world.rows(f"{name}_bad", name)
    assert sorted(one["_value"] for one in found) == sorted(bad)


def test_the_program_of_the_page(world: World, tmp_path: Path) -> None:
    """docs/pipeline.md, Tables: it reads the table that the command has made."""
    page = (ROOT / "docs" / "pipeline.md").read_text()
    programs = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (program,) = (one for one in programs if "load_catalog" in one)
    name = world.topic(order(7))
    world.run(name, catalog=CatalogChoice(warehouse=str(tmp_path / "tables")))
    done = subprocess.run(
        [sys.executable, "-c", program.replace("magnetar.orders", f"magnetar.{name}")],
        cwd=tmp_path,
        env=environment_of_a_user(pandas=True),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "tea 7" in done.stdout


BAD = (b"tea", b'{"item": "no id"}')


def test_the_first_bad_value_ends_a_job_that_has_no_place_for_it(world: World) -> None:
    name = world.topic(order(0), *BAD)
    with pytest.raises(TablesFailed, match=r"2 of 3 values .* --keep-bad"):
        world.run(name)
    assert world.rows(name) == []
    files = [*Path(world.warehouse(name)).rglob("*.parquet")]
    assert files == []
    report = world.run(name, keeps_bad=True)
    assert (report.read, report.bad) == (3, 2)
    assert world.ids(name) == [0]
    found = world.rows(f"{name}_bad", name)
    assert [(one["_value"], one["_key"]) for one in found] == [
        (BAD[1], b"key 2"),
        (BAD[0], b"key 1"),
    ]
    assert found[0]["_reason"] == "no id"
    # There is a place now, which needs no word.
    world.send(name, [b"cake"])
    report = world.run(name)
    assert report.is_all_bad
    assert len(world.rows(f"{name}_bad", name)) == 3


def test_a_place_for_bad_values_may_come_later(world: World) -> None:
    name = world.topic(order(0))
    world.run(name)
    world.send(name, [*BAD, order(1)])
    report = world.run(name, keeps_bad=True)
    # It does not look at what the other table has: nothing of that was bad.
    assert (report.read, report.bad) == (3, 2)
    assert world.ids(name) == [0, 1]
    assert len(world.rows(f"{name}_bad", name)) == 2


def test_a_table_of_nothing_but_bad_values_is_a_mistake(world: World) -> None:
    name, good = world.topic(*BAD), world.topic(order(0))
    with pytest.raises(TablesFailed, match=r"none of the first 2 values .* json of this schema"):
        world.run(good, name, keeps_bad=True)
    # Nothing of the run counts, also where it was right.
    assert world.rows(good) == []
    assert world.run(good, name, keeps_bad=True, accepts_all_bad=True).bad == 2


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("commit", range(4))
def test_a_run_that_is_killed_at_a_commit_is_finished_by_the_next(
    world: World, when: str, commit: int
) -> None:
    names = [world.topic(order(0)), world.topic(order(0))]
    world.run(*names, keeps_bad=True)
    for name in names:
        world.send(name, [order(1), b"tea"])
    with killed_at(commit, when), pytest.raises(Killed):
        world.run(*names)
    for name in names:
        world.send(name, [order(2), b"cake"])
    world.run(*names)
    for name in names:
        assert world.ids(name, *names) == [0, 1, 2]
        bad = world.rows(f"{name}_bad", *names)
        assert sorted(one["_value"] for one in bad) == [b"cake", b"tea"]
    # The cut of the run that was killed is in all tables, or in none.
    told = [world.cuts(table, *names) for name in names for table in (name, f"{name}_bad")]
    assert all(one == told[0] for one in told)
    # The first commit is of the tables' first run; one that no commit got through has left nothing.
    assert len(told[0]) == (2 if (commit, when) == (0, "before") else 3)


def killed_at(commit: int, when: str) -> AbstractContextManager[None]:
    return failing_catalog(commit, **{when: raising(Killed())})


def test_a_first_run_that_is_killed_is_finished_by_the_next(world: World) -> None:
    names = [world.topic(order(0), b"tea"), world.topic(order(0))]
    for commit in range(3):
        with killed_at(commit, "after"), pytest.raises(Killed):
            world.run(*names, keeps_bad=True)
    world.run(*names)
    for name in names:
        assert world.ids(name, *names) == [0]
    assert len(world.rows(f"{names[0]}_bad", *names)) == 1


def test_an_answer_that_is_lost_is_looked_up(world: World) -> None:
    name = world.topic(order(0))
    lost = raising(CommitStateUnknownException("the connection was reset"))
    with (
        failing_catalog(0, before=lost),
        pytest.raises(TablesFailed, match=r"was not changed, or .* reset"),
    ):
        world.run(name)
    with failing_catalog(0, after=lost):
        assert world.run(name).tables[0].new_rows == 1
    assert world.run(name).read == 0
    assert world.ids(name) == [0]


def test_of_two_runs_at_once_one_fails(world: World) -> None:
    name = world.topic(order(0))
    world.run(name)
    world.send(name, [order(1)])

    def other() -> None:
        with patch("magnetar_spark.jobs.iceberg.tables.open_catalog", open_catalog):
            world.run(name)

    with (
        failing_catalog(0, before=other),
        pytest.raises(TablesFailed, match="has changed"),
    ):
        world.run(name)
    assert world.ids(name) == [0, 1]


def test_a_table_that_is_rolled_back_gets_its_rows_again(world: World) -> None:
    name = world.topic(order(0))
    world.run(name)
    world.send(name, [order(1)])
    world.run(name)
    table = world.table(name)
    first = table.snapshots()[0].snapshot_id
    table.manage_snapshots().rollback_to_snapshot(first).commit()
    assert world.ids(name) == [0]
    assert world.run(name).tables[0].new_rows == 1
    assert world.ids(name) == [0, 1]


def test_rows_that_others_delete_stay_deleted(world: World) -> None:
    name = world.topic(*map(order, range(4)))
    world.run(name)
    world.table(name).delete("id < 4")
    world.send(name, [order(4)])
    world.run(name)
    assert world.ids(name) == [4]


def test_columns_may_be_added(world: World, tmp_path: Path) -> None:
    name = world.topic(order(0))
    world.run(name)
    wider = tmp_path / "wider.ddl"
    wider.write_text("id BIGINT, item STRING, amount DOUBLE, tags ARRAY<STRING>, size INT")
    world.send(name, [order(1, size=7)])
    world.run(name, schema_path=str(wider))
    assert [(one["id"], one["size"]) for one in world.rows(name)] == [(0, None), (1, 7)]
    with pytest.raises(OptionError, match="a column size, and the schema has none"):
        world.run(name)
    narrow = tmp_path / "other.ddl"
    narrow.write_text("id STRING, item STRING, amount DOUBLE, tags ARRAY<STRING>, size INT")
    with pytest.raises(OptionError, match="id as long, and the schema as string"):
        world.run(name, schema_path=str(narrow))


def test_small_files_are_written_together(world: World) -> None:
    name = world.topic()
    joined = 0
    for number in range(9):
        world.send(name, [order(2 * number), order(2 * number + 1)])
        if number == 4:
            # Files from before a column have it too then.
            with world.table(name).update_schema() as update:
                update.rename_column("tags", "labels")
            world.schema.with_name("labels.ddl").write_text(
                "id BIGINT NOT NULL, item STRING, amount DOUBLE, labels ARRAY<STRING>"
            )
        schema = world.schema if number < 4 else world.schema.with_name("labels.ddl")
        joined += world.run(name, schema_path=str(schema)).tables[0].joined_files
    files = [one.file for one in world.table(name).scan().plan_files()]
    assert joined > 8
    assert len(files) < 8
    assert sum(file.record_count for file in files) == 18
    assert world.ids(name) == [*range(18)]
    # At each cut there is what there was.
    cuts = world.cuts(name)
    assert [len(world.ids(name, tag=tag)) for tag in cuts] == [*range(2, 20, 2)]


def test_a_table_may_have_no_partitions(world: World) -> None:
    name = world.topic(order(0))
    world.run(name)
    with world.table(name).update_spec() as spec:
        spec.remove_field("_timestamp_day")
    for number in range(1, 6):
        world.send(name, [order(number)])
        world.run(name)
    assert world.ids(name) == [*range(6)]


def test_the_token_of_many_partitions_is_in_a_file(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("magnetar_spark.jobs.iceberg.table.TOKEN_LENGTH_MAX", 10)
    name = world.topic(order(0))
    report = world.run(name)
    world.send(name, [order(1)])
    assert world.run(name).tables[0].new_rows == 1
    assert world.ids(name) == [0, 1]
    summary = world.table(name).snapshots()[0].summary
    assert summary is not None
    location = summary.additional_properties["magnetar.cut-file"]
    assert Path(location.removeprefix("file://")).read_text() == report.cut
    for file in (Path(world.warehouse(name)) / "magnetar" / name / "metadata").glob("cut-*"):
        file.unlink()
    with pytest.raises(TablesFailed, match=r"the cut of magnetar\..* is not at"):
        world.run(name)


def test_a_run_that_slept_does_not_take_the_table_back(world: World) -> None:
    """Another run goes on from its commit while it sleeps. Then it joins the files of both."""
    name = world.topic()
    for number in range(3):
        world.send(name, [order(number)])
        world.run(name, file_bytes=1)
    world.send(name, [order(3)])

    def other() -> None:
        world.send(name, [order(4)])
        with patch("magnetar_spark.jobs.iceberg.tables.open_catalog", open_catalog):
            world.run(name, file_bytes=1)

    with failing_catalog(0, after=other):
        assert world.run(name).tables[0].joined_files == 5
    assert world.run(name).read == 0
    assert world.ids(name) == [*range(5)]


def test_tables_of_others_are_left_alone(world: World) -> None:
    name, other = world.topic(order(0)), world.topic(order(0))
    world.run(name)
    catalog = CatalogChoice(warehouse=world.warehouse(name))
    world.catalog(name).rename_table(("magnetar", name), ("magnetar", other))
    with pytest.raises(TablesFailed, match="was not made for records of the topic"):
        world.run(other, catalog=catalog)
    assert world.run(other, catalog=catalog, namespace="of.others").tables[0].new_rows == 1


def test_a_topic_that_was_made_anew_is_refused(world: World) -> None:
    name = world.topic(order(0))
    world.run(name)
    world.client.admin.topics.delete(name)
    world.client.admin.topics.create(name, partitions=2)
    world.send(name, [order(1)])
    with pytest.raises(TablesFailed, match=r"deleted and created again.*another --namespace"):
        world.run(name)
    assert world.ids(name) == [0]


def test_messages_that_have_gone_before_they_were_rows_are_told(world: World) -> None:
    name, admin = "aging", world.client.admin.topics
    admin.create(name, retention_bytes=200_000, retain_unconsumed=False)
    large = order(0, note="x" * 50_000)

    def first_offset() -> int:
        return admin.list_offsets(name).partitions[0].first_offset

    with world.client.create_producer(name) as producer:
        producer.send(large)
        world.run(name)
        for _ in range(9):
            producer.send(large)
        wait_until(lambda: first_offset() > 1)
        with pytest.raises(TablesFailed, match=r"since a table's cut cannot be read.*--namespace"):
            world.run(name)
    assert len(world.rows(name)) == 1
    assert world.run(name, namespace="again").tables[0].new_rows > 1


def test_large_messages_go_to_workers_a_few_at_a_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By their number alone, ten thousand messages of a megabyte would go there together."""
    sizes: list[int] = []

    def size(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"size": [batch.nbytes]})

    def measured(messages: DataFrame, *_: object, **__: object) -> Written:
        sizes.extend(one[0] for one in messages.mapInArrow(size, "size BIGINT").collect())
        return Written()

    monkeypatch.setattr("magnetar_spark.jobs.iceberg.tables.write_messages", measured)
    monkeypatch.setitem(DECODING_SETTINGS, BYTES_PER_BATCH, str(1 << 20))
    world.run(world.topic(*(order(one, item="x" * 100_000) for one in range(40))))
    assert sum(sizes) > 4_000_000
    assert max(sizes) < 2 << 20


def test_values_in_avro_with_all_their_types(world: World, tmp_path: Path) -> None:
    path = saved(tmp_path, "order.avsc", AVRO_ORDER)
    name = world.topic(written(AVRO_ORDER, RECORD))
    world.run(name, payload_format="avro", schema_path=str(path))
    row = world.rows(name)[0]
    for column, value in RECORD.items():
        found = row[column]
        assert (dict(found) if isinstance(value, dict) and isinstance(found, list) else found) == (
            value
        ), column


def test_the_command_line(world: World, tmp_path: Path) -> None:
    name = world.topic(order(0), b"tea")
    given = [
        *("--broker", world.address, "pipeline", "tables", name),
        *("--warehouse", world.warehouse(name), "--format", "json"),
        *("--schema", str(world.schema)),
    ]
    failed = CliRunner().invoke(cli, given)
    assert failed.exit_code == 1
    assert "With --keep-bad they go to a table of their own" in failed.stderr
    made = CliRunner().invoke(cli, [*given, "--keep-bad", "--json"])
    assert made.exit_code == 0, made.output
    assert [one["new_rows"] for one in read_json("pipeline tables", made.stdout)["tables"]] == [
        1,
        1,
    ]
    world.send(name, [b"tea"])
    all_bad = CliRunner().invoke(cli, given)
    assert all_bad.exit_code == 3
    assert f"magnetar.{name}_bad" in all_bad.stdout
    elsewhere = [*given[:6], str(world.schema), *given[7:]]
    assert "orders.ddl cannot be opened" in CliRunner().invoke(cli, elsewhere).stderr
    for wrong, words in (
        (["--catalog", "none"], "name one of them"),
        (["--catalog-property", "uri"], "'uri' is not NAME=TEXT"),
        (["--at", "tea"], "--at"),
    ):
        refused = CliRunner().invoke(cli, [*given, *wrong])
        assert refused.exit_code in (1, 2)
        assert words in refused.stderr
    nowhere = CliRunner().invoke(cli, [*given[:5], "--format", "text", "--catalog", "none"])
    assert "the catalog 'none' cannot be opened" in nowhere.stderr
