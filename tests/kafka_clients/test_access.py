"""Identities, rights and quotas of Kafka's clients."""

from __future__ import annotations

import asyncio
import json
import shutil
import ssl
from pathlib import Path
from typing import Any

import pytest
from tests.access.table import PRINCIPALS, give_roles
from tests.access.world import write_access
from tests.certificates import Authority
from tests.kafka_clients.access_table import BEFORE, REFUSALS, TABLE, codes_of
from tests.kafka_clients.harness import (
    KafkaClient,
    KafkaWorld,
    batch,
    fetch,
    fetched,
    produce,
    produced,
    run,
)
from tests.tokens import Maker, jwks
from tests.waiting import until

from magnetar_core.config import ListenConfig
from magnetar_core.gates.access_file import AccessConfig
from magnetar_core.wire import topic_pb2
from magnetar_kafka.error_codes import ErrorCode
from magnetar_kafka.wire import apis

MAKER = Maker()
# The clock of the worlds stands at the beginning of the epoch.
LASTS_S = 1_000
WRITER = """
[[roles.writer]]
topic = "t"
allow = ["READ", "WRITE"]
"""


def asking_for_tokens(tmp_path: Path, **more: Any) -> ListenConfig:
    keys = tmp_path / "keys.json"
    keys.write_text(jwks(MAKER))
    return ListenConfig(token_keys_file=str(keys), **more)


def token(world: KafkaWorld, name: str, *, lasts_s: float = LASTS_S) -> str:
    return MAKER.token(name, exp=world.clock.wall_ms() / 1_000 + lasts_s)


async def handshake(client: KafkaClient, mechanism: str) -> dict[str, Any]:
    return await client.ask(apis.SASL_HANDSHAKE, {"mechanism": mechanism})


async def authenticate(client: KafkaClient, message: bytes) -> dict[str, Any]:
    return await client.ask(apis.SASL_AUTHENTICATE, {"auth_bytes": message})


async def let_in(world: KafkaWorld, name: str, **more: Any) -> KafkaClient:
    client = await world.connect(**more)
    assert (await handshake(client, "PLAIN"))["error_code"] == ErrorCode.NONE
    shown = b"\0anything\0" + token(world, name).encode()
    answer = await authenticate(client, shown)
    assert answer["error_code"] == ErrorCode.NONE, answer
    return client


def test_the_table_has_every_request() -> None:
    assert {api for api, _, _ in TABLE} | BEFORE == set(apis.APIS)


@pytest.mark.parametrize("principal", PRINCIPALS)
def test_every_request_by_every_role(principal: str, tmp_path: Path) -> None:
    wrong: list[str] = []

    async def scenario(world: KafkaWorld) -> None:
        for topic in ("topic-a", "topic-z"):
            await world.client.ask(topic_pb2.CommandCreateTopic(topic=topic))
        client = await let_in(world, principal)
        for api, body, allowed in TABLE:
            for version in range(api.first, api.last + 1):
                if body.get("resources") and version < api.last:
                    continue
                if api in (apis.DELETE_TOPICS, apis.FIND_COORDINATOR) and version < api.last:
                    continue
                if body.get("enable2_pc") and version < api.last:
                    continue
                if api is apis.METADATA and version == 0 and body["topics"] is None:
                    continue
                codes = codes_of(await client.ask(api, body, version))
                if bool(codes & REFUSALS) is (principal in allowed):
                    wrong.append(f"{api.name} {version}: {codes}")

    run(
        scenario,
        listen=asking_for_tokens(tmp_path),
        access=give_roles(tmp_path / "access.toml", {}),
    )
    assert wrong == []


def test_a_list_hides_topics_that_may_not_be_described(tmp_path: Path) -> None:
    async def scenario(world: KafkaWorld) -> None:
        await world.client.ask(topic_pb2.CommandCreateTopic(topic="secret"))
        client = await let_in(world, "alice")
        answer = await client.ask(apis.METADATA, {"topics": None})
        assert [one["name"] for one in answer["topics"]] == ["t"]
        named = {"topics": [{"name": name} for name in ("secret", "none")]}
        answer = await client.ask(apis.METADATA, named)
        # A topic that is there looks like one that is not.
        assert {one["error_code"] for one in answer["topics"]} == {
            ErrorCode.TOPIC_AUTHORIZATION_FAILED
        }

    run(
        scenario,
        listen=asking_for_tokens(tmp_path),
        access=write_access(tmp_path / "access.toml", {"alice": ["writer"]}, WRITER),
    )


def test_a_question_creates_a_topic_only_for_those_who_may(tmp_path: Path) -> None:
    roles = """
    [[roles.reader]]
    topic = "*"
    allow = ["READ"]
    [[roles.maker]]
    topic = "made-*"
    allow = ["READ", "CREATE"]
    """

    async def scenario(world: KafkaWorld) -> None:
        question = {"topics": [{"name": "made-1"}], "allow_auto_topic_creation": True}
        reader, maker = await let_in(world, "reader"), await let_in(world, "maker")
        (topic,) = (await reader.ask(apis.METADATA, question))["topics"]
        assert topic["error_code"] == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert world.broker.topics.lookup("made-1") is None
        (topic,) = (await maker.ask(apis.METADATA, question))["topics"]
        assert topic["error_code"] == ErrorCode.NONE
        assert len(topic["partitions"]) == 3
        (topic,) = (await reader.ask(apis.METADATA, question))["topics"]
        assert topic["error_code"] == ErrorCode.NONE

    run(
        scenario,
        {"kafka_auto_create_topics": True, "kafka_topic_partitions": 3},
        listen=asking_for_tokens(tmp_path),
        access=write_access(
            tmp_path / "access.toml", {"reader": ["reader"], "maker": ["maker"]}, roles
        ),
    )


def test_nothing_is_answered_before_a_token_but_how_to_show_one(tmp_path: Path) -> None:
    async def scenario(world: KafkaWorld) -> None:
        for api, body, _ in TABLE:
            client = await world.connect()
            client.tell(api, body)
            if api.is_for_strangers:
                assert (await client.answer())["error_code"] == ErrorCode.NONE
            else:
                assert await client.is_closed()
        # A frame that is too large for a token.
        client = await world.connect()
        client.send_bytes(b"\x00\x01\x00\x01" + b"\x00\x24\x00\x00" + bytes(4))
        assert await client.is_closed()
        assert world.metric("connections_closed_total", reason="malformed") == 1
        assert world.metric("requests_total", api="Metadata", error="NONE") == 0

    run(scenario, listen=asking_for_tokens(tmp_path))


def test_a_stranger_that_says_nothing_is_cut_off(tmp_path: Path) -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await world.connect()
        assert await client.is_closed()
        assert world.metric("connections_closed_total", reason="unauthenticated") == 1
        other = await let_in(world, "alice")
        assert (await other.ask(apis.METADATA, {"topics": None}))["topics"]

    run(scenario, listen=asking_for_tokens(tmp_path, handshake_timeout_ms=200))


@pytest.mark.parametrize(
    ("mechanism", "message"),
    [
        ("PLAIN", b"\0user\0TOKEN"),
        ("PLAIN", b"user\0user\0TOKEN"),
        ("OAUTHBEARER", b"n,,\x01auth=Bearer TOKEN\x01\x01"),
        ("OAUTHBEARER", b"n,,\x01host=h\x01auth=bearer TOKEN\x01\x01"),
    ],
)
def test_a_token_lets_in(mechanism: str, message: bytes, tmp_path: Path) -> None:
    async def scenario(world: KafkaWorld) -> None:
        for version in range(apis.SASL_AUTHENTICATE.last + 1):
            client = await world.connect()
            found = await handshake(client, mechanism)
            assert found["mechanisms"] == ["OAUTHBEARER", "PLAIN"]
            shown = message.replace(b"TOKEN", token(world, "alice").encode())
            answer = await client.ask(apis.SASL_AUTHENTICATE, {"auth_bytes": shown}, version)
            assert answer["error_code"] == ErrorCode.NONE, answer
            if version:
                assert LASTS_S * 900 < answer["session_lifetime"] <= LASTS_S * 1_000
            assert produced(await client.ask(apis.PRODUCE, produce(batch(b"a")))) == [
                (ErrorCode.NONE, version)
            ]

    run(scenario, listen=asking_for_tokens(tmp_path))


@pytest.mark.parametrize(
    ("mechanism", "message"),
    [
        ("PLAIN", b"\0user\0OTHER"),
        ("PLAIN", b"\0user\0"),
        ("PLAIN", b"admin\0user\0TOKEN"),
        ("PLAIN", b"user\0TOKEN"),
        ("PLAIN", b"\xff\0a\0b"),
        ("PLAIN", b""),
        ("OAUTHBEARER", b"n,,\x01auth=Bearer OTHER\x01\x01"),
        ("OAUTHBEARER", b"n,,\x01auth=Basic TOKEN\x01\x01"),
        ("OAUTHBEARER", b"n,a=admin,\x01auth=Bearer TOKEN\x01\x01"),
        ("OAUTHBEARER", b"p=tls-unique,,\x01auth=Bearer TOKEN\x01\x01"),
        ("OAUTHBEARER", b"n,,\x01auth=Bearer TOKEN"),
        ("OAUTHBEARER", b"\0user\0TOKEN"),
    ],
)
def test_what_does_not_let_in_ends_the_connection(
    mechanism: str, message: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    secrets: list[str] = []

    async def scenario(world: KafkaWorld) -> None:
        good, other = token(world, "alice"), Maker().token("alice")
        secrets.extend((good, other))
        shown = message.replace(b"TOKEN", good.encode()).replace(b"OTHER", other.encode())
        client = await world.connect()
        await handshake(client, mechanism)
        answer = await authenticate(client, shown)
        assert answer["error_code"] == ErrorCode.SASL_AUTHENTICATION_FAILED
        secrets.append(answer["error_message"])
        assert await client.is_closed()

    run(scenario, listen=asking_for_tokens(tmp_path))
    good, other, told = secrets
    for secret in (good, other, good.split(".")[1]):
        assert secret not in caplog.text
        assert secret not in told


def test_mechanisms_and_their_order(tmp_path: Path) -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await world.connect()
        answer = await handshake(client, "SCRAM-SHA-256")
        assert answer["error_code"] == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert await client.is_closed()
        client = await world.connect()
        answer = await authenticate(client, b"\0user\0" + token(world, "alice").encode())
        assert answer["error_code"] == ErrorCode.ILLEGAL_SASL_STATE
        assert await client.is_closed()

    run(scenario, listen=asking_for_tokens(tmp_path))


def test_a_server_without_tokens_has_no_mechanism() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await world.connect()
        answer = await handshake(client, "PLAIN")
        assert answer["error_code"] == ErrorCode.UNSUPPORTED_SASL_MECHANISM

    run(scenario)


def test_a_connection_ends_with_its_token_unless_it_shows_another(tmp_path: Path) -> None:
    async def scenario(world: KafkaWorld) -> None:
        stays, goes = await let_in(world, "alice"), await let_in(world, "alice")
        await handshake(stays, "PLAIN")
        shown = b"\0a\0" + token(world, "alice", lasts_s=5 * LASTS_S).encode()
        assert (await authenticate(stays, shown))["error_code"] == ErrorCode.NONE
        # A fetch that waits does not keep it.
        goes.tell(apis.FETCH, fetch(max_wait=50_000, min_bytes=1))
        await until(lambda: world.metric("parked_fetches"))
        world.clock.advance(2 * LASTS_S * 1_000)
        assert await goes.is_closed()
        assert (await stays.ask(apis.METADATA, {"topics": None}))["topics"]
        await handshake(stays, "PLAIN")
        shown = b"\0a\0" + token(world, "bob").encode()
        answer = await authenticate(stays, shown)
        assert answer["error_code"] == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert await stays.is_closed()

    run(scenario, listen=asking_for_tokens(tmp_path))


def test_a_right_that_is_withdrawn_is_gone_with_the_next_request(tmp_path: Path) -> None:
    file = tmp_path / "access.toml"

    async def scenario(world: KafkaWorld) -> None:
        client = await let_in(world, "alice")
        assert produced(await client.ask(apis.PRODUCE, produce(batch(b"a"))))[0][1] == 0
        client.tell(apis.FETCH, fetch(1, max_wait=50_000, min_bytes=1))
        await until(lambda: world.metric("parked_fetches"))
        write_access(file, {"alice": []}, WRITER)
        # The file is looked at once a second.
        world.clock.advance(2_000)
        other = await let_in(world, "alice")
        ((code, _),) = produced(await other.ask(apis.PRODUCE, produce(batch(b"b"))))
        assert code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        partition = world.broker.topics.get("t").hosted[0]
        world.broker.local_access.append_records(partition, batch(b"secret"), 1, 0)
        (part,) = fetched(await client.answer())
        assert part["error_code"] == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert not part["records"]

    run(
        scenario,
        listen=asking_for_tokens(tmp_path),
        access=write_access(file, {"alice": ["writer"]}, WRITER),
    )


def test_changes_of_topics_are_in_the_audit_log(tmp_path: Path) -> None:
    audit = tmp_path / "audit.log"

    async def scenario(world: KafkaWorld) -> None:
        for name in ("manager", "reader"):
            client = await let_in(world, name)
            for api, body, _ in TABLE:
                if api in (apis.CREATE_TOPICS, apis.DELETE_TOPICS, apis.CREATE_PARTITIONS):
                    await client.ask(api, body)

    access = give_roles(tmp_path / "access.toml", {})
    run(
        scenario,
        listen=asking_for_tokens(tmp_path),
        access=AccessConfig(access_file=access.access_file, audit_file=str(audit)),
    )
    lines = [json.loads(one) for one in audit.read_text().splitlines()]
    found = [(one["principal"], one["action"], one["outcome"]) for one in lines]
    assert ("manager", "create_topic", "DONE") in found
    assert ("manager", "alter_topic", "DONE") in found
    assert ("manager", "delete_topic", "TOPIC_NOT_FOUND") in found
    assert ("reader", "delete_topic", "AUTHORIZATION_FAILED") in found
    assert {one["origin"] for one in lines} == {"127.0.0.1"}


def test_requests_beyond_the_quota_are_carried_out_and_wait(tmp_path: Path) -> None:
    file = tmp_path / "access.toml"
    access = write_access(
        file, {"alice": ["admin"]}, '[quotas]\n"alice" = { requests_per_second = 2 }\n'
    )

    async def scenario(world: KafkaWorld) -> None:
        client = await let_in(world, "alice")
        topic = {"name": "made", "num_partitions": 1, "replication_factor": 1}
        body = {"topics": [topic], "timeout": 1_000}
        told = [
            (await client.ask(apis.METADATA, {"topics": None}))["throttle_time"],
            (await client.ask(apis.METADATA, {"topics": None}))["throttle_time"],
        ]
        assert told[0] == 0
        answer = await client.ask(apis.CREATE_TOPICS, body)
        (row,) = answer["topics"]
        assert row["error_code"] == ErrorCode.NONE
        assert answer["throttle_time"] > told[1]
        # Nothing of it is read, though the client asks at once.
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        again = await client.ask(apis.API_VERSIONS, {})
        assert again["api_keys"]
        assert loop.time() - began_s >= answer["throttle_time"] / 1_000 * 0.9
        # Another principal does not wait.
        other = await let_in(world, "bob")
        assert (await other.ask(apis.METADATA, {"topics": None}))["throttle_time"] == 0

    run(scenario, listen=asking_for_tokens(tmp_path), access=access)


def test_connections_of_a_principal_are_bounded(tmp_path: Path) -> None:
    file = tmp_path / "access.toml"
    access = write_access(
        file, {"alice": ["admin"]}, '[quotas]\n"alice" = { connections_max = 2 }\n'
    )

    async def scenario(world: KafkaWorld) -> None:
        first, _ = await let_in(world, "alice"), await let_in(world, "alice")
        client = await world.connect()
        await handshake(client, "PLAIN")
        answer = await authenticate(client, b"\0a\0" + token(world, "alice").encode())
        assert answer["error_code"] == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert "connections_max" in answer["error_message"]
        assert await client.is_closed()
        first.close()
        await until(lambda: world.metric("connections") == 1)
        await let_in(world, "alice")
        await let_in(world, "bob")

    run(scenario, listen=asking_for_tokens(tmp_path), access=access)


def tls_of(authority: Authority, name: str = "") -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.ca_file)
    if name:
        pair = authority.sign(name)
        context.load_cert_chain(pair.certificate_file, pair.key_file)
    return context


def test_tls_with_certificates_that_change(tmp_path: Path) -> None:
    authority, stranger = Authority(tmp_path / "a"), Authority(tmp_path / "b")
    server = authority.sign("server")
    listen = ListenConfig(
        tls_certificate_file=server.certificate_file,
        tls_key_file=server.key_file,
        tls_client_ca_file=authority.ca_file,
    )

    async def scenario(world: KafkaWorld) -> None:
        client = await world.connect(tls_of(authority, "alice"))
        ((code, _),) = produced(await client.ask(apis.PRODUCE, produce(batch(b"a"))))
        assert code == ErrorCode.NONE
        nobody = await world.connect(tls_of(authority, "nobody"))
        ((code, _),) = produced(await nobody.ask(apis.PRODUCE, produce(batch(b"a"))))
        assert code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        plain = await world.connect()
        plain.tell(apis.API_VERSIONS, {})
        assert await plain.is_closed()
        for context in (tls_of(authority), _without_check(stranger, "alice")):
            with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
                await _versions(world, context)
        assert world.metric("connections_closed_total", reason="tls") == 3
        # The server's certificate and its authority are replaced, as files.
        renewed = stranger.sign("server")
        for new, old in (
            (renewed.certificate_file, server.certificate_file),
            (renewed.key_file, server.key_file),
            (stranger.ca_file, authority.ca_file),
        ):
            shutil.copyfile(new, old)
        later = await world.connect(tls_of(stranger, "alice"))
        ((code, _),) = produced(await later.ask(apis.PRODUCE, produce(batch(b"a"))))
        assert code == ErrorCode.NONE
        # A connection that is open stays.
        assert (await client.ask(apis.METADATA, {"topics": None}))["topics"]

    run(
        scenario,
        listen=listen,
        access=write_access(tmp_path / "access.toml", {"alice": ["writer"]}, WRITER),
    )


async def _versions(world: KafkaWorld, context: ssl.SSLContext) -> dict[str, Any]:
    client = await world.connect(context)
    return await client.ask(apis.API_VERSIONS, {})


def _without_check(authority: Authority, name: str) -> ssl.SSLContext:
    context = tls_of(authority, name)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def test_a_token_counts_more_than_a_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "a")
    server = authority.sign("server")
    listen = asking_for_tokens(
        tmp_path,
        tls_certificate_file=server.certificate_file,
        tls_key_file=server.key_file,
        tls_client_ca_file=authority.ca_file,
    )

    async def scenario(world: KafkaWorld) -> None:
        machine = await world.connect(tls_of(authority, "machine"))
        ((code, _),) = produced(await machine.ask(apis.PRODUCE, produce(batch(b"a"))))
        assert code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        client = await let_in(world, "alice", tls=tls_of(authority, "machine"))
        ((code, _),) = produced(await client.ask(apis.PRODUCE, produce(batch(b"a"))))
        assert code == ErrorCode.NONE

    run(
        scenario,
        listen=listen,
        access=write_access(tmp_path / "access.toml", {"alice": ["writer"]}, WRITER),
    )
