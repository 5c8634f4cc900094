"""Members of the cluster: a list with a version and a hash.

Data directories keep the hash, and each handshake exchanges it, so that members or clients with
different lists refuse each other. The hash depends on the content alone, not on the form in which
the list was written. The order of brokers is part of the content: the broker at position N keeps
shard N.
Source: docs/design/0008-cluster.md, Placement.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from magnetar_core.config import PREFIX, InvalidConfig, split_address
from magnetar_core.ids import TCID_MAX
from magnetar_core.invariants import BrokenInvariant
from magnetar_core.membership.placement import SHARDS_MAX

FILE_VARIABLE = f"{PREFIX}CLUSTER_FILE"
BROKERS_VARIABLE = f"{PREFIX}BROKERS"
COORDINATORS_VARIABLE = f"{PREFIX}COORDINATORS"
VERSION_VARIABLE = f"{PREFIX}CLUSTER_VERSION"
ID_VARIABLE = f"{PREFIX}CLUSTER_ID"
STABLE_VARIABLE = f"{PREFIX}STABLE_ADDRESSES"
EXTERNAL_VARIABLE = f"{PREFIX}EXTERNAL_ADDRESSES"
KAFKA_VARIABLE = f"{PREFIX}KAFKA_ADDRESSES"
KAFKA_EXTERNAL_VARIABLE = f"{PREFIX}KAFKA_EXTERNAL_ADDRESSES"

AnyMember = TypeVar("AnyMember", bound="Member")

_EXAMPLE = "write it as NAME=HOST:PORT, several with commas between"


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A server of the cluster, with the address at which other members and clients reach it.

    Attributes:
        external_address: where clients outside of the members' network reach it, through a
            published port or a gateway; empty: at `address` too.
        kafka_address, kafka_external_address: the same of a broker's port for Kafka's clients;
            empty: they do not reach it.
    """

    name: str
    address: str
    external_address: str = ""
    kafka_address: str = ""
    kafka_external_address: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorMember(Member):
    """A transaction coordinator. Its TCID is part of every TxnID that it issues."""

    tcid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """The list of members. The first broker keeps the cluster's metadata.

    Attributes:
        brokers: in the order of their shards. New brokers come at the end, with a higher version;
            none is ever removed or moved, since its partitions lie on its disk.
        version: the administrator raises it with each change of the list.
        stable_addresses: False where ports are chosen anew with each start: the hash then covers
            names only.
    """

    cluster_id: str = "magnetar"
    version: int = 1
    brokers: tuple[Member, ...]
    coordinators: tuple[CoordinatorMember, ...]
    stable_addresses: bool = True

    def __post_init__(self) -> None:
        if self.version < 1:
            raise InvalidConfig(f"the cluster's version is {self.version}; count it from 1")
        if not self.cluster_id:
            raise InvalidConfig("the cluster's id is empty; give it a name of its own")
        if not self.brokers:
            raise InvalidConfig("the cluster has no broker; name at least one")
        if len(self.brokers) > SHARDS_MAX:
            raise InvalidConfig(
                f"the cluster has {len(self.brokers)} brokers, and topic ids name {SHARDS_MAX} at"
                " most; take the last ones off the list"
            )
        _require_unique("name", (one.name for one in (*self.brokers, *self.coordinators)))
        _require_unique("address", (one.address for one in (*self.brokers, *self.coordinators)))
        _require_unique("tcid", (one.tcid for one in self.coordinators))
        external = (one.external_address for one in (*self.brokers, *self.coordinators))
        _require_unique("external address", (one for one in external if one))
        for kind in ("kafka_address", "kafka_external_address"):
            told = [getattr(one, kind) for one in self.brokers if getattr(one, kind)]
            _require_unique(kind, told)
            for address in told:
                if split_address(address)[1] == 0:
                    raise InvalidConfig(f"{kind} {address} has port 0; clients need the real one")
        for one in (*self.brokers, *self.coordinators):
            if not one.name:
                raise InvalidConfig(f"the member at {one.address} has no name; give it one")
            if split_address(one.address)[1] == 0:
                raise InvalidConfig(f"{one.name} has port 0; a member needs a port of its own")
            if one.external_address:
                split_address(one.external_address)
        for coordinator in self.coordinators:
            if not 0 <= coordinator.tcid <= TCID_MAX:
                raise InvalidConfig(
                    f"{coordinator.name} has tcid {coordinator.tcid}; "
                    f"choose one from 0 to {TCID_MAX} and never change it"
                )

    @property
    def hash(self) -> str:
        """Hash of the list; the same in all processes, on all machines, in all versions of Python.

        External addresses are left out: servers do not use them, and they may change at any time.
        """
        with_address = self.stable_addresses
        content = {
            "cluster_id": self.cluster_id,
            "version": self.version,
            # The first broker keeps the metadata, so its name is part of the content.
            "metadata": self.brokers[0].name,
            "brokers": [
                [broker.name, broker.address if with_address else ""] for broker in self.brokers
            ],
            "coordinators": sorted(
                [one.tcid, one.name, one.address if with_address else ""]
                for one in self.coordinators
            ),
        }
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def settings(self) -> dict[str, Any]:
        """Return the settings of each server that name the list itself."""
        return {
            "cluster_id": self.cluster_id,
            "membership_version": self.version,
            "cluster_hash": self.hash,
        }

    def broker(self, name: str) -> Member:
        """Return the broker of this name.

        Raises:
            InvalidConfig: no broker has the name.
        """
        return _named(name, self.brokers, "broker")

    def coordinator(self, name: str) -> CoordinatorMember:
        """Return the coordinator of this name.

        Raises:
            InvalidConfig: no coordinator has the name.
        """
        return _named(name, self.coordinators, "coordinator")


def load(environ: Mapping[str, str], file: str | Path | None = None) -> Membership | None:
    """Read the cluster file, or the environment variables; None when neither is given.

    Raises:
        InvalidConfig: the source cannot be read, or its content is wrong.
    """
    path = file or environ.get(FILE_VARIABLE)
    if path:
        return from_file(path)
    if BROKERS_VARIABLE in environ or COORDINATORS_VARIABLE in environ:
        return from_environment(environ)
    return None


def from_file(path: str | Path) -> Membership:
    """Read a cluster file.

    Raises:
        InvalidConfig: the file cannot be read, or its content is wrong.
    """
    try:
        text = Path(path).read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"the cluster file {path} cannot be read: {error}") from error
    try:
        return from_toml(text)
    except InvalidConfig as error:
        raise InvalidConfig(f"in the cluster file {path}: {error}") from None


def from_toml(text: str) -> Membership:
    """Parse the text of a cluster file.

        cluster_id = "orders"
        version = 1

        [[brokers]]
        name = "broker-0"
        address = "10.0.0.1:6650"
        external_address = "broker.example.org:6650"  # for clients elsewhere; may be left out
        kafka_address = "10.0.0.1:9092"  # for Kafka's clients; may be left out

        [[coordinators]]
        name = "coordinator-0"
        address = "10.0.0.1:6651"
        tcid = 0

    Raises:
        InvalidConfig: not TOML, or a field is missing, unknown or of the wrong type.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidConfig(f"not TOML: {error}") from error
    _check_table(document, {"brokers": list, "coordinators": list}, _OPTIONAL, "the file")
    brokers = [_member(one, "brokers") for one in document["brokers"]]
    coordinators = [_coordinator(one) for one in document["coordinators"]]
    return Membership(
        cluster_id=document.get("cluster_id", "magnetar"),
        version=document.get("version", 1),
        brokers=tuple(brokers),
        coordinators=tuple(coordinators),
    )


def from_environment(environ: Mapping[str, str]) -> Membership:
    """Read MAGNETAR_BROKERS and MAGNETAR_COORDINATORS, as NAME=HOST:PORT,NAME=HOST:PORT.

    A coordinator's TCID is its position in the list, from 0: add new coordinators at the end.
    MAGNETAR_EXTERNAL_ADDRESSES has the same form, for any of these members, and
    MAGNETAR_KAFKA_ADDRESSES and MAGNETAR_KAFKA_EXTERNAL_ADDRESSES for brokers.

    Raises:
        InvalidConfig: MAGNETAR_BROKERS or MAGNETAR_COORDINATORS is missing, or a variable is
            malformed.
    """
    version = environ.get(VERSION_VARIABLE, "1")
    if not version.isascii() or not version.isdigit():
        raise InvalidConfig(f"{VERSION_VARIABLE} is {version!r}; make it a whole number from 1")
    brokers = _pairs(environ, BROKERS_VARIABLE)
    coordinators = _pairs(environ, COORDINATORS_VARIABLE)
    known = [name for name, _ in (*brokers, *coordinators)]
    external = _addresses_of(environ, EXTERNAL_VARIABLE, known)
    broker_names = [name for name, _ in brokers]
    kafka = _addresses_of(environ, KAFKA_VARIABLE, broker_names)
    kafka_external = _addresses_of(environ, KAFKA_EXTERNAL_VARIABLE, broker_names)
    return Membership(
        cluster_id=environ.get(ID_VARIABLE, "magnetar"),
        version=int(version),
        brokers=tuple(
            Member(
                name=name,
                address=address,
                external_address=external.get(name, ""),
                kafka_address=kafka.get(name, ""),
                kafka_external_address=kafka_external.get(name, ""),
            )
            for name, address in brokers
        ),
        coordinators=tuple(
            CoordinatorMember(
                name=name, address=address, external_address=external.get(name, ""), tcid=tcid
            )
            for tcid, (name, address) in enumerate(coordinators)
        ),
        stable_addresses=environ.get(STABLE_VARIABLE) != "0",
    )


def to_environment(membership: Membership) -> dict[str, str]:
    """Return the variables from which `from_environment` reads the same list, with TCIDs from 0."""
    if [one.tcid for one in membership.coordinators] != list(range(len(membership.coordinators))):
        raise BrokenInvariant("TCIDs count from 0 in the environment")
    members = (*membership.brokers, *membership.coordinators)
    addresses = {
        EXTERNAL_VARIABLE: _told(members, "external_address"),
        KAFKA_VARIABLE: _told(members, "kafka_address"),
        KAFKA_EXTERNAL_VARIABLE: _told(members, "kafka_external_address"),
    }
    return {
        **{variable: text for variable, text in addresses.items() if text},
        ID_VARIABLE: membership.cluster_id,
        VERSION_VARIABLE: str(membership.version),
        BROKERS_VARIABLE: ",".join(
            f"{broker.name}={broker.address}" for broker in membership.brokers
        ),
        COORDINATORS_VARIABLE: ",".join(
            f"{one.name}={one.address}" for one in membership.coordinators
        ),
        STABLE_VARIABLE: "1" if membership.stable_addresses else "0",
    }


def _told(members: Iterable[Member], field: str) -> str:
    return ",".join(f"{one.name}={getattr(one, field)}" for one in members if getattr(one, field))


def _addresses_of(
    environ: Mapping[str, str], variable: str, known: Iterable[str]
) -> dict[str, str]:
    """Return the addresses in a variable, by names of members; none if it is not set."""
    if variable not in environ:
        return {}
    found = dict(_pairs(environ, variable))
    for name in found:
        if name not in known:
            raise InvalidConfig(
                f"{variable} has {name!r}, which is not a member; the members are {_listed(known)}"
            )
    return found


_OPTIONAL: dict[str, type] = {"cluster_id": str, "version": int}
_OPTIONAL_OF_MEMBER: dict[str, type] = {"external_address": str}
_OPTIONAL_OF_BROKER: dict[str, type] = {
    **_OPTIONAL_OF_MEMBER,
    "kafka_address": str,
    "kafka_external_address": str,
}


def _member(table: Any, place: str) -> Member:
    _check_table(table, {"name": str, "address": str}, _OPTIONAL_OF_BROKER, place)
    return Member(
        name=table["name"],
        address=table["address"],
        external_address=table.get("external_address", ""),
        kafka_address=table.get("kafka_address", ""),
        kafka_external_address=table.get("kafka_external_address", ""),
    )


def _coordinator(table: Any) -> CoordinatorMember:
    required = {"name": str, "address": str, "tcid": int}
    _check_table(table, required, _OPTIONAL_OF_MEMBER, "coordinators")
    return CoordinatorMember(
        name=table["name"],
        address=table["address"],
        external_address=table.get("external_address", ""),
        tcid=table["tcid"],
    )


def _check_table(
    table: Any, required: Mapping[str, type], optional: Mapping[str, type], place: str
) -> None:
    known = {**required, **optional}
    if not isinstance(table, dict):
        raise InvalidConfig(f"{place} must be written as [[{place}]] tables with {_listed(known)}")
    for name, value in table.items():
        if name not in known:
            raise InvalidConfig(f"{place} has {name!r}; known are {_listed(known)}")
        if not isinstance(value, known[name]) or isinstance(value, bool):
            raise InvalidConfig(f"{name!r} in {place} must be of type {known[name].__name__}")
    for name in required:
        if name not in table:
            raise InvalidConfig(f"{place} lacks {name!r}; add it")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)


def _pairs(environ: Mapping[str, str], variable: str) -> list[tuple[str, str]]:
    text = environ.get(variable, "")
    if not text.strip():
        raise InvalidConfig(f"{variable} is not set; {_EXAMPLE}")
    pairs = []
    for part in text.split(","):
        name, equals, address = part.strip().partition("=")
        if not equals:
            raise InvalidConfig(f"{variable} has {part!r}; {_EXAMPLE}")
        pairs.append((name.strip(), address.strip()))
    return pairs


def _named(name: str, members: tuple[AnyMember, ...], kind: str) -> AnyMember:
    for one in members:
        if one.name == name:
            return one
    known = _listed(member.name for member in members) or "none"
    raise InvalidConfig(f"the cluster has no {kind} {name!r} (it has: {known}); correct the name")


def _require_unique(what: str, values: Iterable[object]) -> None:
    seen = set()
    for value in values:
        if value in seen:
            raise InvalidConfig(f"two members have the {what} {value!r}; make them differ")
        seen.add(value)
