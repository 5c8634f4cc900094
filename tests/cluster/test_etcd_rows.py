"""Rows of etcd: what is damaged or foreign is left out, and spoils nothing else."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace

import pytest
from tests.cluster.directories import MEMBER, S0, A, run_in_time

from magnetar_cluster.directory.view import Format, MemberName, ShardName, ShardOwner, View
from magnetar_cluster.etcd.etcd_directory import EtcdDirectory
from magnetar_cluster.etcd.etcd_rows import (
    DamagedRow,
    Keys,
    Rows,
    read_format,
    read_member,
    write_format,
    write_member,
)
from magnetar_cluster.etcd.etcd_settings import EtcdSettings
from magnetar_cluster.etcd_wire import kv_pb2 as kv

KEYS = Keys("c")


def row(key: str, value: bytes = b"a", *, lease: int = 5, version: int = 1) -> kv.KeyValue:
    return kv.KeyValue(
        key=b"/magnetar/c/" + key.encode(),
        value=value,
        create_revision=7,
        mod_revision=6 + version,
        version=version,
        lease=lease,
    )


def sound() -> Rows:
    rows = Rows(KEYS)
    rows.put(row("members/broker/a", write_member(MEMBER)))
    rows.put(row("owners/broker/0"))
    rows.put(row("draining/broker/a", b"draining", lease=0))
    rows.put(row("pins/broker/0", lease=0))
    return rows


def changed(content: bytes, **fields: object) -> bytes:
    return json.dumps({**json.loads(content), **fields}).encode()


def member_with(**fields: object) -> bytes:
    return changed(write_member(MEMBER), **fields)


SOUND = View(
    revision=9,
    members={A: MEMBER},
    shard_owners={S0: ShardOwner("a", 7)},
    draining=frozenset({A}),
    pins={S0: "a"},
)


def test_rows_make_a_view() -> None:
    rows = sound()
    rows.put(row("format", write_format(Format(broker_shards=1, coordinator_shards=1))))
    rows.put(row("wishes", b""))
    assert rows.view(9) == SOUND
    for key in ("members/broker/a", "owners/broker/0", "draining/broker/a", "pins/broker/0"):
        rows.delete(row(key).key)
    assert rows.view(9) == View(revision=9)


@pytest.mark.parametrize(
    "damaged",
    [
        row("other"),
        row("others/broker/0"),
        row("owners/broker"),
        row("owners/broker/"),
        row("owners/broker/x"),
        row("owners/broker/-1"),
        row("owners/broker/01"),
        row("owners/broker/10000"),
        row("owners/broker/\u0661"),
        row("owners/broker/1/2"),
        row("owners/prophet/0"),
        row("owners//0"),
        row("owners/broker/1", b""),
        row("owners/broker/1", b"\xff"),
        row("owners/broker/1", lease=0),
        row("owners/broker/1", version=2),
        row("members/broker/", write_member(MEMBER)),
        row("members/broker/b", b""),
        row("members/broker/b", b"{"),
        row("members/broker/b", b"[" * 100_000),
        row("members/broker/b", b"[]"),
        row("members/broker/b", b"{}"),
        row("members/broker/b", member_with(address="")),
        row("members/broker/b", member_with(address=1)),
        row("members/broker/b", member_with(version=1)),
        row("members/broker/b", member_with(external_address=None)),
        row("members/broker/b", member_with(kafka_address=None)),
        row("members/broker/b", member_with(kafka_external_address=7)),
        row("members/broker/b", member_with(leaving=1)),
        row("members/broker/b", member_with(refused=7)),
        row("members/broker/b", member_with(refused=["7"])),
        row("members/broker/b", member_with(refused=[True])),
        row("members/broker/b", write_member(MEMBER), lease=0),
        row("pins/broker/1", b""),
        row("draining/prophet/a"),
    ],
    ids=lambda one: f"{one.key.decode()}={one.value[:20]!r}",
)
@pytest.mark.usefixtures("full_stack")
def test_a_damaged_row_is_left_out(damaged: kv.KeyValue) -> None:
    rows = sound()
    with pytest.raises(DamagedRow):
        rows.put(damaged)
    rows.delete(damaged.key)
    assert rows.view(9) == SOUND


def test_a_row_that_becomes_damaged_says_nothing_any_more() -> None:
    """An ownership that somebody wrote over is nobody's, and no member's who believes in it."""
    rows = sound()
    for damaged in (
        row("owners/broker/0", b"b", version=2),
        row("members/broker/a", b"x"),
        row("pins/broker/0", b""),
    ):
        with pytest.raises(DamagedRow):
            rows.put(damaged)
    assert rows.view(9) == View(revision=9, draining=frozenset({A}))


def test_later_versions_may_say_more() -> None:
    assert read_member(write_member(MEMBER)) == MEMBER
    assert read_member(member_with(rack={})) == MEMBER
    refusing = replace(MEMBER, refused=(0, 7))
    assert read_member(write_member(refusing)) == refusing
    form = Format(broker_shards=8, coordinator_shards=2)
    assert read_format(write_format(form)) == form
    assert read_format(changed(write_format(form), rack={})) == form
    assert read_format(write_format(replace(form, token="7f"))).token == "7f"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b'{"broker_shards":8,"coordinator_shards":1}',
        b'{"broker_shards":8,"token":"t"}',
        b'{"broker_shards":0,"coordinator_shards":1,"token":"t"}',
        b'{"broker_shards":true,"coordinator_shards":1,"token":"t"}',
        b'{"broker_shards":"8","coordinator_shards":1,"token":"t"}',
        b'{"broker_shards":8,"coordinator_shards":1,"token":7}',
    ],
)
def test_a_damaged_format_is_none(content: bytes) -> None:
    with pytest.raises(DamagedRow):
        read_format(content)


def test_rows_of_a_cluster_lie_between_its_prefix_and_its_end() -> None:
    for key in (KEYS.format, KEYS.wishes, KEYS.member(MemberName("broker", "\U0010ffff"))):
        assert KEYS.prefix <= key < KEYS.end
    for other in ("c0", "c-", "b", "d", "cc"):
        assert not KEYS.prefix <= Keys(other).format < KEYS.end


@pytest.mark.parametrize("cluster", ["", "a/b", "/"])
def test_an_id_of_a_cluster_is_one_part_of_a_key(cluster: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(cluster))):
        Keys(cluster)


def test_keys_of_what_nobody_reads_are_refused() -> None:
    with pytest.raises(ValueError, match="prophet"):
        KEYS.owner(ShardName("prophet", 0))
    with pytest.raises(ValueError, match="needs a name"):
        KEYS.member(MemberName("broker", ""))


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"endpoints": ()}, "at least one"),
        ({"endpoints": ("etcd",)}, "HOST:PORT"),
        ({"endpoints": ("http://etcd:2379",)}, "HOST:PORT"),
        ({"endpoints": (":2379",)}, "HOST:PORT"),
        ({"endpoint_timeout_ms": 0}, "endpoint_timeout_ms"),
        ({"endpoint_timeout_ms": 3_000}, "call_timeout_ms"),
        ({"silence_ms_max": 0}, "silence_ms_max"),
        ({"password": "secret"}, "needs a user"),
        ({"ca_certificates": b"x"}, "without TLS"),
        ({"tls": True, "certificate": b"x"}, "private key"),
    ],
)
def test_settings_fit_together(wrong: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        EtcdSettings(**{"endpoints": ("etcd:2379", "[::1]:2379"), **wrong})  # type: ignore[arg-type]


def test_secrets_are_not_shown() -> None:
    shown = repr(
        EtcdSettings(
            endpoints=("etcd:1",),
            user="u",
            password="hush",
            tls=True,
            certificate=b"c",
            private_key=b"hush",
        )
    )
    assert "hush" not in shown


def test_askers_begin_at_different_endpoints() -> None:
    """A whole cluster at one member of etcd would load it for all."""

    async def test() -> None:
        settings = EtcdSettings(endpoints=("etcd-0:1", "etcd-1:1", "etcd-2:1"))
        firsts: Counter[str] = Counter()
        for number in range(60):
            directory = EtcdDirectory(settings, "c", f"member-{number}")
            firsts[directory._client.endpoint] += 1
            await directory.close()
        assert min(firsts[endpoint] for endpoint in settings.endpoints) >= 10

    run_in_time(test())
