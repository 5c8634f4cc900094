"""`magnetar pipeline transform`: a query turns a topic into another, exactly once."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession
from tests.json_output import read_json
from tests.spark.orders_world import OrdersWorld, order
from tests.spark.test_payloads import ORDER as AVRO_ORDER
from tests.spark.test_payloads import PROTO, RECORD, compiled, new_order, saved, written
from tests.waiting import wait_until

from magnetar import Message
from magnetar_cli.program import cli
from magnetar_spark.errors import OptionError
from magnetar_spark.jobs.transforming.checkpoint import CheckpointRefused
from magnetar_spark.jobs.transforming.transform import Report, Request, TransformFailed, transform

pytestmark = pytest.mark.chaos


class World(OrdersWorld):
    """Inputs, outputs and topics for errors."""

    def topics(self, *values: bytes) -> str:
        """Make an input with these values, an output and a topic for errors."""
        name = self.new_name()
        for topic in (name, f"{name}-out", f"{name}-bad"):
            self.client.admin.topics.create(topic, partitions=2)
        self.send(name, values)
        return name

    def request(self, name: str, **changed: Any) -> Request:
        return Request(
            **{
                "servers": (self.address,),
                "input": name,
                "output": f"{name}-out",
                "error_topic": f"{name}-bad",
                "checkpoint": str(self.directory / f"{name}.checkpoint"),
                "payload_format": "json",
                "schema_path": str(self.schema),
                **changed,
            }
        )

    def run(self, name: str, **changed: Any) -> Report:
        stop = threading.Event()
        request = self.request(name, **changed)
        return transform(self.spark, request, stop=stop, on_batch=lambda _: None)

    def read(self, topic: str) -> list[Message]:
        found = [one for partition in range(2) for one in self.client.read(topic, partition)]
        return sorted(found, key=lambda one: one.event_time_ms or 0)

    def output(self, name: str) -> list[Any]:
        return [json.loads(one.value) for one in self.read(f"{name}-out")]


@pytest.fixture(scope="module")
def world(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with World.of_a_file(spark, tmp_path_factory) as made:
        yield made


def test_each_row_becomes_a_message_once(world: World) -> None:
    name = world.topics(*map(order, range(20)))
    sql = """SELECT _message, id, upper(item) AS item, amount * 2 AS twice
        FROM input WHERE id % 2 = 0"""
    assert world.run(name, sql=sql, offsets_per_batch_max=6).written == 10
    assert world.output(name) == [
        {"id": number, "item": f"TEA {number}", "twice": 5.0} for number in range(0, 20, 2)
    ]
    first = world.read(f"{name}-out")[0]
    assert (first.key, first.properties, first.event_time_ms) == (
        *(b"key 0", {"from": "shop"}),
        1_000,
    )
    # The next run has what has come since, and nothing else.
    assert world.run(name, sql=sql) == Report()
    world.send(name, [order(20), order(21)])
    assert world.run(name, sql=sql) == Report(batches=1, read=2, written=1)
    assert len(world.output(name)) == 11


def test_a_row_may_become_several_messages_with_other_keys(world: World) -> None:
    name = world.topics(order(1, tags=["hot", "new"]), order(2, tags=[]), order(3))
    sql = """SELECT tag AS _key, timestamp_millis(5) AS _event_time, id
        FROM input LATERAL VIEW explode(tags) AS tag"""
    assert world.run(name, sql=sql) == Report(batches=1, read=3, written=2)
    found = world.read(f"{name}-out")
    assert sorted((one.key, one.value, one.event_time_ms) for one in found) == [
        (b"hot", b'{"id":1}', 5),
        (b"new", b'{"id":1}', 5),
    ]


def test_a_value_may_be_made_by_hand(world: World) -> None:
    name = world.topics(b"tea", b"\xff\xfe", b"cake")
    sql = "SELECT _message, concat(text, '!') AS _value FROM input"
    report = world.run(name, sql=sql, payload_format="text", schema_path=None)
    assert report == Report(batches=1, read=3, written=2, bad=1)
    assert [one.value for one in world.read(f"{name}-out")] == [b"tea!", b"cake!"]
    (bad,) = world.read(f"{name}-bad")
    assert (bad.value, bad.properties["magnetar.reason"]) == (b"\xff\xfe", "not UTF-8")


NOT_ORDERS = [
    *(b"", b"null", b"[]", b"7", b'"tea"', b'{"id": 1', b"\xff{}", b'{"id": 1}{"id": 2}'),
    *(b'{"id": 1},{"id": 2}', b'{"id": 1}] tea', b'{"id": 1}} tea', b'{"id": 1} tea'),
    *(b'{"id": "one"}', b'{"id": 1.5}', b'{"id": 9223372036854775808}', b'{"item": "tea"}'),
    *(b'{"id": 1, "amount": "much"}', b'{"id": 1, "tags": {"a": "b"}}', b'{"id": null}'),
]


def test_what_is_no_order_goes_elsewhere(world: World) -> None:
    # It ignores fields that the schema does not have, whatever their names.
    name = world.topics(order(0, **{"@corrupt": "tea"}), *NOT_ORDERS)
    count = len(NOT_ORDERS)
    assert world.run(name) == Report(batches=1, read=count + 1, written=1, bad=count)
    assert [one["id"] for one in world.output(name)] == [0]
    found = world.read(f"{name}-bad")
    assert [one.value for one in found] == NOT_ORDERS
    assert [one.key for one in found] == [b"key %d" % number for number in range(1, count + 1)]
    assert {one.properties["from"] for one in found} == {"shop"}
    places = [one.properties["magnetar.source"] for one in found]
    assert places == [f"{name}/{number % 2}/{number // 2}" for number in range(1, count + 1)]
    assert found[-1].properties["magnetar.reason"] == "no id"


def test_without_a_topic_for_them_the_first_one_ends_the_job(world: World) -> None:
    name = world.topics(order(0), b"tea", order(2))
    with pytest.raises(TransformFailed, match=f"1 of 3 values .* {name}/1/0: not a JSON object"):
        world.run(name, error_topic=None)
    assert world.output(name) == []


def test_a_job_in_which_every_value_is_bad_fails_and_writes_nothing(world: World) -> None:
    name = world.topics(*[b"order %d" % number for number in range(50)])
    with pytest.raises(TransformFailed, match="none of the first 50 values can be decoded"):
        world.run(name)
    assert world.read(f"{name}-bad") == []
    # With its own format the same checkpoint goes on.
    assert world.run(name, payload_format="text", schema_path=None).written == 50


def test_bad_values_alone_are_an_exit_status(world: World) -> None:
    name = world.topics(b"tea", b"cake")
    given = [
        *("--broker", world.address, "pipeline", "transform", name, f"{name}-out"),
        *("--format", "json", "--schema", str(world.directory / "orders.ddl"), "--json"),
        *("--errors", f"{name}-bad", "--checkpoint", str(world.directory / name)),
    ]
    done = CliRunner().invoke(cli, given)
    assert done.exit_code == 1
    assert "with --accept-all-bad they go to" in done.stderr
    done = CliRunner().invoke(cli, [*given, "--accept-all-bad"])
    assert done.exit_code == 3
    assert "no value could be decoded" in done.stderr
    assert read_json("pipeline transform", done.stdout)["bad"] == 2
    assert len(world.read(f"{name}-bad")) == 2


@pytest.mark.parametrize(
    ("sql", "complaint"),
    [
        ("SELECT sum(amount) AS total FROM input", "AGGREGATE"),
        ("SELECT a.id FROM input a JOIN input b ON a.id = b.id", "JOIN"),
        ("SELECT id, row_number() OVER (ORDER BY id) AS n FROM input", "WINDOW"),
        ("SELECT id FROM input ORDER BY id", "SORT"),
        ("SELECT DISTINCT id FROM input", "DISTINCT"),
        ("SELECT id FROM input LIMIT 3", "LIMIT"),
        ("SELECT id FROM input WHERE id = (SELECT max(id) FROM input)", "a query within it"),
        ("SELECT id, rand() AS r FROM input", "other rows whenever it runs"),
        ("SELECT nothing FROM input", "nothing"),
        ("SELEKT", "SELEKT"),
        ("SELECT id FROM orders", "orders"),
        ("DROP TABLE input", "DROP"),
        ("SELECT id, 'x' AS _value FROM input", "the whole value, and fields beside it: id"),
        ("SELECT _message FROM input", "no field"),
        ("SELECT id AS _key, id FROM input", "_key is bigint: cast it to binary or string"),
        ("SELECT id, item AS ID FROM input", "twice"),
        ("SELECT struct(id, id) AS both FROM input", r"both\.id twice"),
        ("SELECT map(DATE'2024-02-29', id) AS days FROM input", "the type date, which are not"),
        ("SELECT array(map(X'ff', id)) AS it FROM input", r"it\.element has keys of the type bin"),
    ],
)
def test_a_query_is_checked_before_anything_is_read(world: World, sql: str, complaint: str) -> None:
    name = world.topics()
    with pytest.raises(OptionError, match=complaint):
        world.run(name, sql=sql)
    assert not Path(world.request(name).checkpoint).exists()


# Each as it is and as it comes out, if it is not as it was.
VALUES: list[tuple[str, str, str | None]] = [
    ("a BIGINT", "9007199254740993", None),
    ("b DECIMAL(38, 18)", "0.000000000000000001", "1E-18"),
    ("c DECIMAL(10, 2)", "1.10", None),
    ("d DOUBLE", '"NaN"', None),
    ("e STRING", '"é\\u0000😀"', None),
    ("f STRING", "1.10", '"1.10"'),
    ("g STRING", '{"x" : [1e2]}', '"{\\"x\\" : [1e2]}"'),
    ("h VARCHAR(3)", '"tea"', None),
    ("i CHAR(5)", '"tea"', None),
    ("j BINARY", '"/wE="', None),
    ("k DATE", '"2024-02-29"', None),
    ("l TIMESTAMP", '"2024-02-29T23:59:59.123456+05:30"', '"2024-02-29T18:29:59.123456Z"'),
    ("m TIMESTAMP", '"2024-02-29 23:59:59.12"', '"2024-02-29T23:59:59.120Z"'),
    ("n TIMESTAMP_NTZ", '"0001-01-01T00:00:00.000001"', None),
    ("o ARRAY<STRUCT<t: TIMESTAMP NOT NULL>>", '[{"t":"1969-12-31T23:59:59.999999Z"},null]', None),
    ("p MAP<STRING, TIMESTAMP_NTZ>", '{"x.y":"2024-02-29T23:59:59.000001"}', None),
    ("q FLOAT", "0.1", None),
    ("r BOOLEAN", "null", None),
    ("s STRUCT<t: STRING, u: ARRAY<DECIMAL(3, 1)>>", '{"t":null,"u":[1.5]}', None),
]


def test_what_goes_in_comes_out(world: World, tmp_path: Path) -> None:
    schema = tmp_path / "values.ddl"
    # With the mark that some editors put before a text.
    schema.write_text(", ".join(kind for kind, _, _ in VALUES), encoding="utf-8-sig")
    names = [kind.partition(" ")[0] for kind, _, _ in VALUES]
    members = [f'"{name}": {text}' for name, (_, text, _) in zip(names, VALUES, strict=True)]
    name = world.topics(f"{{{', '.join(members)}}}".encode())
    assert world.run(name, schema_path=str(schema)) == Report(batches=1, read=1, written=1)
    (found,) = world.read(f"{name}-out")
    written = [
        f'"{name}":{text if same is None else same}'
        for name, (_, text, same) in zip(names, VALUES, strict=True)
    ]
    assert found.value.decode() == f"{{{','.join(written)}}}"


@pytest.mark.parametrize("payload_format", ["avro", "protobuf"])
def test_other_formats_are_decoded_in_tasks(
    world: World, tmp_path: Path, payload_format: str
) -> None:
    if payload_format == "avro":
        schema = saved(tmp_path, "one.avsc", AVRO_ORDER)
        sound = written(AVRO_ORDER, {**RECORD, "token": UUID(int=7)})
        names = "id, price, day, at, state, tags, counts, buyer"
        wanted: dict[str, Any] = {
            **{"id": 7, "price": 2.5, "day": "2026-11-24", "at": "2026-11-24T12:00:00.000Z"},
            **{"state": "PAID", "tags": ["hot"], "counts": {"cups": 2}, "buyer": {"name": "Ada"}},
        }
    else:
        schema = compiled(tmp_path, PROTO)
        message = new_order(schema)
        message.id, message.large = 7, 1 << 63
        message.lines.add(item="tea", cups=2)
        message.by_name["first"].cups = 1
        message.at.FromJsonString("2026-11-24T12:00:00Z")
        sound = message.SerializeToString()
        names = "id, note, large, state, lines, by_name, at"
        wanted = {
            **{"id": 7, "note": None, "large": 1 << 63, "state": "NEW"},
            "lines": [{"item": "tea", "cups": 2}],
            **{"by_name": {"first": {"item": "", "cups": 1}}, "at": "2026-11-24T12:00:00.000Z"},
        }
    name = world.topics(sound, b"\xff", sound)
    report = world.run(
        name,
        sql=f"SELECT {names} FROM input",
        payload_format=payload_format,
        schema_path=str(schema),
    )
    assert report == Report(batches=1, read=3, written=2, bad=1)
    assert world.output(name) == [wanted, wanted]
    assert [one.value for one in world.read(f"{name}-bad")] == [b"\xff"]


def test_a_batch_that_comes_again_is_written_once(world: World) -> None:
    name = world.topics(*map(order, range(6)), b"tea")
    assert world.run(name).written == 6
    forget_last_batch(world, name)
    assert world.run(name).read == 7
    assert (len(world.output(name)), len(world.read(f"{name}-bad"))) == (6, 1)
    forget_last_batch(world, name)
    with pytest.raises(TransformFailed, match="committed with other rows"):
        world.run(name, sql="SELECT id FROM input")
    world.run(name, sql="SELECT id FROM input", accepts_committed=True)
    assert (len(world.output(name)), len(world.read(f"{name}-bad"))) == (6, 1)


def forget_last_batch(world: World, name: str) -> None:
    """As if the driver had died when the batch was committed, and Spark had not noted it yet."""
    commits = Path(world.request(name).checkpoint) / "commits"
    last = max(int(one.name) for one in commits.iterdir() if one.name.isdecimal())
    for one in (commits / str(last), commits / f".{last}.crc"):
        one.unlink()


def test_it_follows_until_it_is_told_to_stop(world: World) -> None:
    name = world.topics(order(0))
    stop = threading.Event()
    reports: list[Report] = []
    with ThreadPoolExecutor(1) as pool:
        request = world.request(name, interval_ms=100)
        following = pool.submit(transform, world.spark, request, stop=stop, on_batch=reports.append)
        try:
            for number in range(1, 4):
                wait_until(lambda: len(world.output(name)) == number or following.done(), 60)  # noqa: B023
                world.send(name, [order(number)])
        finally:
            stop.set()
        written = following.result().written
    # The last batch may be committed, and not be counted yet.
    assert 2 <= written <= len(world.output(name))
    assert reports[-1].written == written
    # What the last run left, if anything, is for the next one.
    world.run(name)
    assert sorted(one["id"] for one in world.output(name)) == [0, 1, 2, 3]


def test_a_row_that_the_query_cannot_do_ends_the_job(world: World) -> None:
    name = world.topics(order(0), order(1, item="7"))
    sql = "SELECT id, CAST(item AS INT) AS number FROM input"
    with pytest.raises(TransformFailed, match="CAST_INVALID_INPUT"):
        world.run(name, sql=sql)
    assert world.output(name) == []
    world.run(name, sql=sql.replace("CAST", "try_cast"))
    found = sorted(world.output(name), key=lambda one: one["id"])
    assert found == [{"id": 0, "number": None}, {"id": 1, "number": 7}]


def test_a_text_that_is_not_utf8_ends_the_job(world: World) -> None:
    name = world.topics(order(0, item="/w=="))
    sql = "SELECT array(CAST(unbase64(item) AS STRING)) AS texts FROM input"
    with pytest.raises(TransformFailed, match="INVALID_UTF8_STRING"):
        world.run(name, sql=sql)
    assert world.output(name) == []


def test_two_jobs_write_to_one_topic(world: World) -> None:
    one, two = world.topics(order(1)), world.topics(order(2))
    world.run(one)
    assert world.run(two, output=f"{one}-out").written == 1
    assert sorted(each["id"] for each in world.output(one)) == [1, 2]


def test_keys_keep_their_order(world: World) -> None:
    name = world.topics()
    with world.client.create_producer(name) as producer:
        for number in range(60):
            producer.enqueue(order(number), b"key %d" % (number % 4))
    world.run(name, offsets_per_batch_max=14)
    found = [one for partition in range(2) for one in world.client.read(f"{name}-out", partition)]
    for key in range(4):
        ids = [json.loads(one.value)["id"] for one in found if one.key == b"key %d" % key]
        assert ids == list(range(key, 60, 4))


def test_lost_messages_end_the_job_unless_that_is_accepted(world: World) -> None:
    name = world.topics(*map(order, range(4)))
    world.run(name)
    world.send(name, map(order, range(4, 8)))
    world.client.admin.topics.delete(name)
    world.client.admin.topics.create(name, partitions=2)
    world.send(name, [order(8), order(9)])
    with pytest.raises(TransformFailed, match="OffsetsLost"):
        world.run(name)
    world.run(name, accepts_loss=True)
    assert sorted(one["id"] for one in world.output(name)) == [0, 1, 2, 3, 8, 9]


def test_a_checkpoint_belongs_to_its_topics(world: World) -> None:
    name, other = world.topics(order(0)), world.topics(order(1))
    checkpoint = world.request(name).checkpoint
    world.run(name)
    with pytest.raises(CheckpointRefused, match=f"begun with .* INPUT {name}"):
        world.run(other, checkpoint=checkpoint)
    with pytest.raises(OptionError, match="would read what it writes"):
        world.run(name, output=name)


def test_a_record_may_not_have_the_names_of_messages(world: World, tmp_path: Path) -> None:
    schema = tmp_path / "orders.ddl"
    schema.write_text("id BIGINT, _Key STRING")
    with pytest.raises(OptionError, match="'_key', which is the message's name here"):
        world.run(world.topics(), schema_path=str(schema))
