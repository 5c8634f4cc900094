"""Rows of a cluster's directory in etcd: their keys, their contents, and the view that they make.

Pure. Contents are JSON objects (unknown fields are ignored) or a member's name.
Source: docs/design/0009-owners.md, The directory.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from magnetar_cluster.directory.view import (
    KINDS,
    Format,
    Member,
    MemberName,
    ShardName,
    ShardOwner,
    View,
)
from magnetar_cluster.etcd_wire import kv_pb2 as kv

_NUMBER = re.compile(rb"0|[1-9][0-9]{0,3}")


class DamagedRow(ValueError):
    """A row that no member wrote, or that was damaged since; its text says what is wrong."""


class Keys:
    """Keys of a cluster's rows.

    Args:
        cluster: id of the cluster, without a slash.
    """

    def __init__(self, cluster: str) -> None:
        if not cluster or "/" in cluster:
            raise ValueError(
                f"{cluster!r} is not a valid cluster id: it must be non-empty and contain no slash"
            )
        self.prefix = f"/magnetar/{cluster}/".encode()
        # The first key after the rows that make a view. Marks come after it: they change each
        # second, and members need not be told of that.
        self.end = self.prefix + b"written/"
        self.format = self.prefix + b"format"
        # Changes with each drain and pin, so that a late copy of an older one has no effect.
        self.wishes = self.prefix + b"wishes"

    def member(self, name: MemberName) -> bytes:
        """Return the key of a member."""
        return self._of("members", name.kind, _named(name.name))

    def owner(self, shard: ShardName) -> bytes:
        """Return the key of a shard's ownership."""
        return self._of("owners", shard.kind, str(shard.number))

    def draining(self, name: MemberName) -> bytes:
        """Return the key of a member that should give up its shards."""
        return self._of("draining", name.kind, _named(name.name))

    def written(self, shard: ShardName) -> bytes:
        """Return the key of a shard's durable mark."""
        return self._of("written", shard.kind, str(shard.number))

    def pin(self, shard: ShardName) -> bytes:
        """Return the key of a shard's pin."""
        return self._of("pins", shard.kind, str(shard.number))

    def _of(self, table: str, kind: str, rest: str) -> bytes:
        if kind not in KINDS:
            raise ValueError(f"{kind!r} is not a kind of server: {', '.join(KINDS)}")
        return self.prefix + f"{table}/{kind}/{rest}".encode()


class Rows:
    """All rows of a cluster, as they were read and as they change."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._members: dict[MemberName, Member] = {}
        self._owners: dict[ShardName, ShardOwner] = {}
        self._draining: set[MemberName] = set()
        self._pins: dict[ShardName, str] = {}

    def put(self, row: kv.KeyValue) -> None:
        """Take in a row that is new or was changed.

        Raises:
            DamagedRow: the row cannot be read; its previous content is forgotten.
        """
        self.delete(row.key)
        table, kind, rest = self._split(row.key)
        match table:
            case "members":
                _need_lease(row)
                self._members[_member_name(kind, rest)] = read_member(row.value)
            case "owners":
                _need_lease(row)
                if row.version != 1:
                    raise DamagedRow("an ownership was overwritten")
                owner = ShardOwner(_text(row.value), row.create_revision)
                self._owners[_shard_name(kind, rest)] = owner
            case "draining":
                self._draining.add(_member_name(kind, rest))
            case "pins":
                self._pins[_shard_name(kind, rest)] = _text(row.value)

    def delete(self, key: bytes) -> None:
        """Forget a row."""
        try:
            table, kind, rest = self._split(key)
            match table:
                case "members":
                    self._members.pop(_member_name(kind, rest), None)
                case "owners":
                    self._owners.pop(_shard_name(kind, rest), None)
                case "draining":
                    self._draining.discard(_member_name(kind, rest))
                case "pins":
                    self._pins.pop(_shard_name(kind, rest), None)
        except DamagedRow:
            pass  # It was left out, too.

    def view(self, revision: int) -> View:
        """Return the view that the rows describe; later changes do not touch it."""
        return View(
            revision=revision,
            members=dict(self._members),
            shard_owners=dict(self._owners),
            draining=frozenset(self._draining),
            pins=dict(self._pins),
        )

    def _split(self, key: bytes) -> tuple[str, str, bytes]:
        """Return table, kind and the rest of a key; of a row that is in no view, empty ones."""
        if key in (self._keys.format, self._keys.wishes):
            return "", "", b""
        table, slash, rest = key.removeprefix(self._keys.prefix).partition(b"/")
        if not slash or table not in (b"members", b"owners", b"draining", b"pins"):
            raise DamagedRow("no such row is known")
        kind, _, name = rest.partition(b"/")
        if kind.decode(errors="replace") not in KINDS:
            raise DamagedRow("no such kind of server is known")
        return table.decode(), kind.decode(), name


def write_member(member: Member) -> bytes:
    """Return the content of a member's row."""
    return _json(
        {
            "address": member.address,
            "external_address": member.external_address,
            "kafka_address": member.kafka_address,
            "kafka_external_address": member.kafka_external_address,
            "version": member.version,
            "leaving": member.leaving,
            "refused": member.refused,
        }
    )


def read_member(content: bytes) -> Member:
    """Read a member's row.

    Raises:
        DamagedRow: the row cannot be read.
    """
    found = _object(content)
    address, leaving, refused = (found.get(name) for name in ("address", "leaving", "refused"))
    names = ("external_address", "kafka_address", "kafka_external_address", "version")
    external_address, kafka_address, kafka_external_address, version = map(found.get, names)
    if not isinstance(address, str) or not address:
        raise DamagedRow("a member has no address")
    if not isinstance(leaving, bool):
        raise DamagedRow('a member\'s field "leaving" is not true or false')
    if not isinstance(external_address, str) or not isinstance(version, str):
        raise DamagedRow("a member's external address or version is not text")
    if not isinstance(kafka_address, str) or not isinstance(kafka_external_address, str):
        raise DamagedRow("a member's address for Kafka's clients is not text")
    if not isinstance(refused, list) or not all(type(one) is int for one in refused):
        raise DamagedRow('a member\'s field "refused" is not a list of numbers')
    return Member(
        address=address,
        external_address=external_address,
        kafka_address=kafka_address,
        kafka_external_address=kafka_external_address,
        version=version,
        leaving=leaving,
        refused=tuple(refused),
    )


def write_format(form: Format) -> bytes:
    """Return the content of the format's row."""
    return _json(
        {
            "broker_shards": form.broker_shards,
            "coordinator_shards": form.coordinator_shards,
            "token": form.token,
        }
    )


def read_format(content: bytes) -> Format:
    """Read the format's row.

    Raises:
        DamagedRow: the row cannot be read.
    """
    found = _object(content)
    brokers, coordinators = found.get("broker_shards"), found.get("coordinator_shards")
    for count in (brokers, coordinators):
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise DamagedRow(
                "format row: broker_shards and coordinator_shards must be positive integers"
            )
    assert isinstance(brokers, int)
    assert isinstance(coordinators, int)
    token = found.get("token")
    if not isinstance(token, str):
        raise DamagedRow("the token is not text")
    return Format(broker_shards=brokers, coordinator_shards=coordinators, token=token)


def _json(content: Mapping[str, object]) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()


def _object(content: bytes) -> dict[str, object]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        raise DamagedRow("the content is not JSON") from None
    if not isinstance(found, dict):
        raise DamagedRow("the content is not a JSON object")
    return found


def _need_lease(row: kv.KeyValue) -> None:
    """A row that no lease ends would outlive its member for ever."""
    if not row.lease:
        raise DamagedRow("the row is bound to no lease; delete it")


def _shard_name(kind: str, number: bytes) -> ShardName:
    if not _NUMBER.fullmatch(number):
        raise DamagedRow("the key has no number of a shard")
    return ShardName(kind, int(number))


def _member_name(kind: str, name: bytes) -> MemberName:
    return MemberName(kind, _text(name))


def _text(content: bytes) -> str:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise DamagedRow("a name is not UTF-8") from None
    if not text:
        raise DamagedRow("a name is empty")
    return text


def _named(name: str) -> str:
    if not name:
        raise ValueError("a member needs a name")
    return name
