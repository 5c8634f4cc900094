"""What is refused before anything is written: other engines, other objects, other object stores."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import obstore
import pytest
from tests.object_server import ObjectServer, environment
from tests.storage.slate_stores import directory_of, new_prefix, place_in_bucket
from tests.waiting import PATIENCE_S

from magnetar_cli.check.places import stores_at
from magnetar_core.config import InvalidConfig
from magnetar_storage.object_store.check import check_object_store
from magnetar_storage.object_store.url import ObjectStoreUrl, check_endpoint
from magnetar_storage.rocksdb.engine import RocksStore
from magnetar_storage.slatedb.engine import SlateStore
from magnetar_storage.slatedb.read_only import open_slate_reader
from magnetar_storage.store_stamp import STAMP, stamp_of


def check(url: ObjectStoreUrl, engine: str = "slatedb") -> None:
    # What is refused is not waited out.
    asyncio.run(asyncio.wait_for(check_object_store(url, engine=engine), PATIENCE_S))


async def opened_and_closed(url: ObjectStoreUrl) -> None:
    await (await SlateStore.open(url, ("rows",))).close()


@pytest.mark.parametrize("place", ["directory", "s3"])
def test_an_object_store_that_keeps_conditions_is_accepted_at_every_start(
    place: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = directory_of(tmp_path) if place == "directory" else place_in_bucket(request)
    check(url)
    check(url)
    with pytest.raises(InvalidConfig, match="made by the engine 'slatedb'"):
        check(url, "another")


@pytest.mark.parametrize(
    ("stamp", "reason"),
    [
        (b"", "cannot be read"),
        (b'{"engine": "slatedb"}', "cannot be read"),
        (b"[]", "cannot be read"),
        (b'{"engine": "slatedb", "format": 2}', "has format 2"),
        (stamp_of("other"), "made by the engine 'other'"),
    ],
)
def test_a_stamp_that_is_not_ours_is_left_alone(tmp_path: Path, stamp: bytes, reason: str) -> None:
    url = directory_of(tmp_path)
    Path(url.directory).mkdir()
    Path(url.directory, STAMP).write_bytes(stamp)
    with pytest.raises(InvalidConfig, match=reason):
        asyncio.run(SlateStore.open(url, ("rows",)))
    assert Path(url.directory, STAMP).read_bytes() == stamp
    assert [one.name for one in Path(url.directory).iterdir()] == [STAMP]


def test_a_directory_of_rocksdb_is_no_place_for_slatedb(tmp_path: Path) -> None:
    url = directory_of(tmp_path)
    asyncio.run(RocksStore.open(url.directory, ("rows",)).close())
    before = sorted(one.name for one in Path(url.directory).iterdir())
    with pytest.raises(InvalidConfig, match="made by the engine 'rocksdb'"):
        asyncio.run(SlateStore.open(url, ("rows",)))
    assert sorted(one.name for one in Path(url.directory).iterdir()) == before
    asyncio.run(RocksStore.open(url.directory, ("rows",)).close())


def test_a_directory_of_slatedb_is_no_place_for_rocksdb(tmp_path: Path) -> None:
    url = directory_of(tmp_path)
    asyncio.run(opened_and_closed(url))
    before = sorted(one.name for one in Path(url.directory).iterdir())
    with pytest.raises(InvalidConfig, match="made by the engine 'slatedb'"):
        RocksStore.open(url.directory, ("rows",))
    assert sorted(one.name for one in Path(url.directory).iterdir()) == before
    asyncio.run(opened_and_closed(url))


def test_a_prefix_with_other_objects_is_refused(
    request: pytest.FixtureRequest, object_server: ObjectServer
) -> None:
    url = place_in_bucket(request)
    obstore.put(object_server.objects(url.path), "somebody's/report.csv", b"1,2")
    with pytest.raises(InvalidConfig, match=r"somebody's/report\.csv"):
        check(url)


def test_wrong_credentials_are_told_at_once_and_not_repeated(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SlateDB alone would ask for ever, in silence."""
    url = place_in_bucket(request)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-the-secret")
    with pytest.raises(InvalidConfig, match="refuses what a store") as raised:
        check(url)
    assert "not-the-secret" not in str(raised.value)


HTTP = "http://127.0.0.1:1"


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({"AWS_ENDPOINT_URL": HTTP}, "AWS_ENDPOINT_URL begins with http://"),
        ({"AWS_ENDPOINT_URL": HTTP.upper()}, "set AWS_ALLOW_HTTP=true"),
        ({"AWS_ENDPOINT_URL": HTTP, "AWS_ALLOW_HTTP": "false"}, "set AWS_ALLOW_HTTP=true"),
        ({"AWS_ENDPOINT": HTTP}, "AWS_ENDPOINT begins with http://"),
        ({"AWS_ENDPOINT_URL": "https://a", "AWS_ENDPOINT_URL_S3": HTTP}, "AWS_ENDPOINT_URL_S3"),
        # obstore ends in a panic with some of these.
        ({"AWS_ENDPOINT_URL": "", "AWS_ALLOW_HTTP": "true"}, "is not the address"),
        ({"AWS_ENDPOINT_URL": "a:8333", "AWS_ALLOW_HTTP": "true"}, "is not the address"),
        ({"AWS_ENDPOINT_URL": "127.0.0.1:8333", "AWS_ALLOW_HTTP": "true"}, "is not the address"),
        ({"AWS_ENDPOINT_URL": "ftp://a", "AWS_ALLOW_HTTP": "true"}, "is not the address"),
        ({"AWS_ENDPOINT_URL": "https://", "AWS_ALLOW_HTTP": "true"}, "is not the address"),
        ({"AWS_ENDPOINT_URL": "https://a:99999", "AWS_ALLOW_HTTP": "true"}, "is not the address"),
        ({"AWS_ENDPOINT_URL": f" {HTTP}", "AWS_ALLOW_HTTP": "true"}, "is not the address"),
    ],
)
def test_an_address_to_which_no_request_can_be_sent_is_refused(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], told: str
) -> None:
    """The server asked for ever, and logged that the object store does not answer."""
    for name in ("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ALLOW_HTTP"):
        monkeypatch.delenv(name, raising=False)
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    url = ObjectStoreUrl.parse("s3://bucket/prefix")
    with pytest.raises(InvalidConfig, match=told):
        check(url)
    with pytest.raises(InvalidConfig, match=told):
        stores_at(str(url))
    with pytest.raises(InvalidConfig, match=told):
        asyncio.run(open_slate_reader(url))


@pytest.mark.parametrize("allowed", ["true", "1", "YES"])
def test_requests_without_tls_can_be_allowed(allowed: str) -> None:
    url = ObjectStoreUrl.parse("s3://bucket/prefix")
    check_endpoint(url, {"AWS_ENDPOINT_URL": HTTP, "AWS_ALLOW_HTTP": allowed})
    check_endpoint(url, {"AWS_ENDPOINT_URL": "https://[::1]:8333/"})
    check_endpoint(url, {})
    check_endpoint(ObjectStoreUrl.parse("file:///tmp/a"), {"AWS_ENDPOINT_URL": HTTP})


def test_a_bucket_that_is_not_there_is_told_at_once(request: pytest.FixtureRequest) -> None:
    place_in_bucket(request)
    with pytest.raises(InvalidConfig, match="check that the bucket exists"):
        check(ObjectStoreUrl.parse("s3://nowhere/prefix"))


def test_variables_of_other_programs_do_not_change_the_place(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, object_server: ObjectServer
) -> None:
    url = place_in_bucket(request)
    for name in ("BUCKET", "Region", "ENDPOINT", "TOKEN", "ACCESS_KEY_ID", "SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "somewhere-else")
    asyncio.run(opened_and_closed(url))
    names = [one["path"] for one in obstore.list(object_server.objects(url.path)).collect()]
    assert any(name.startswith("manifest/") for name in names)


class Careless(BaseHTTPRequestHandler):
    """An S3 server that accepts conditions, and ignores them, or some of them."""

    objects: dict[str, bytes]
    ignored: set[str]

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        refused = ("If-None-Match" in self.headers and self.path in self.objects) or (
            "If-Match" in self.headers
        )
        if refused and not any(name in self.headers for name in self.ignored):
            self._answer(412)
            return
        self.objects[self.path] = body
        self._answer(200)

    def do_GET(self) -> None:
        if "list-type" in self.path:
            self._answer(200, b"<ListBucketResult></ListBucketResult>")
        elif self.path in self.objects:
            self._answer(200, self.objects[self.path])
        else:
            self._answer(404)

    def _answer(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", '"1"')
        self.send_header("Last-Modified", "Wed, 01 Jan 2025 00:00:00 GMT")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def careless_server(*ignored: str) -> Iterator[int]:
    handler = type("Server", (Careless,), {"objects": {}, "ignored": set(ignored)})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("ignored", ["If-None-Match", "If-Match"])
def test_an_object_store_that_ignores_conditions_is_refused_at_every_start(
    ignored: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with careless_server(ignored) as port:
        for name, value in environment(port).items():
            monkeypatch.setenv(name, value)
        url = new_prefix()
        for _ in range(2):
            with pytest.raises(InvalidConfig, match=rf"conditions of writes \({ignored}\)"):
                check(url)


def test_the_server_of_the_test_above_would_do_if_it_ignored_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with careless_server() as port:
        for name, value in environment(port).items():
            monkeypatch.setenv(name, value)
        check(new_prefix())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "bucket/prefix",
        "http://bucket/prefix",
        "s3://",
        "s3:///prefix",
        "s3://bucket/a//b",
        "s3://bucket/../b",
        "s3://bucket/spa ce",
        "s3://bucket/prefix?region=eu",
        "s3://bucket/prefix#part",
        "file://host/directory",
        "file:///",
    ],
)
def test_other_addresses_are_refused(text: str) -> None:
    with pytest.raises(InvalidConfig):
        ObjectStoreUrl.parse(text)


def test_credentials_in_an_address_are_refused_and_not_repeated() -> None:
    with pytest.raises(InvalidConfig) as raised:
        ObjectStoreUrl.parse("s3://key:secret@bucket/prefix")
    assert "secret@" not in str(raised.value)


@pytest.mark.parametrize(
    "text",
    ["s3://bucket/prefix", "s3://bucket", "file:///tmp/some_where/store-1", "s3://a.b-c/x=1"],
)
def test_an_address_is_shown_as_it_was_written(text: str) -> None:
    url = ObjectStoreUrl.parse(text)
    assert str(url) == text
    assert str(url.below("brokers", "broker-0")) == f"{text}/brokers/broker-0"
