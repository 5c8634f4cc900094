"""Members of a standalone cluster: its data directory keeps their numbers and the cluster's id."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path
from random import Random
from typing import Any

from magnetar_core.config import InvalidConfig, join_address
from magnetar_core.membership.membership import CoordinatorMember, Member, Membership
from magnetar_core.process.durable_files import write_whole

MEMBERS_FILE = "members.json"
CLUSTER_ID_FILE = "cluster-id"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Numbers of servers; `version` is raised whenever one changes."""

    version: int = 1
    brokers: int = 1
    coordinators: int = 1


def standalone_members(
    data_dir: Path,
    host: str,
    broker_ports: list[int],
    coordinator_ports: list[int],
    *,
    store: str | None = None,
    kafka_ports: Sequence[int] = (),
) -> Membership:
    """Return the list of members, and note in the data directory how many there are.

    Args:
        store: the address of an object store that has the rows; then the cluster's id follows from
            it, so that the data directory may be lost.
        kafka_ports: of brokers, for Kafka's clients; empty: the list does not name them.
    Raises:
        InvalidConfig: the directory cannot be used, or it has more servers than are started.
    """
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        known = _known(data_dir)
        cluster_id = _cluster_id(data_dir, store)
        counts = _grown(known, len(broker_ports), len(coordinator_ports), data_dir)
        if counts != known:
            write_whole(data_dir / MEMBERS_FILE, json.dumps(asdict(counts)))
    except OSError as error:
        raise InvalidConfig(
            f"the data directory {data_dir} cannot be used: {error.strerror}; choose another"
        ) from error
    return Membership(
        cluster_id=cluster_id,
        version=counts.version,
        brokers=tuple(
            Member(
                name=f"broker-{number}",
                address=_reached_at(host, port),
                kafka_address=_reached_at(host, kafka_port) if kafka_port else "",
            )
            for number, (port, kafka_port) in enumerate(
                zip_longest(broker_ports, kafka_ports, fillvalue=0)
            )
        ),
        coordinators=tuple(
            CoordinatorMember(
                name=f"coordinator-{tcid}", address=_reached_at(host, port), tcid=tcid
            )
            for tcid, port in enumerate(coordinator_ports)
        ),
        stable_addresses=False,
    )


def broker_directory(data_dir: Path, number: int) -> Path:
    """Return a broker's directory. The first was alone once, and its directory has no number."""
    return data_dir / (f"broker-{number}" if number else "broker")


def coordinator_directory(data_dir: Path, tcid: int) -> Path:
    """Return a coordinator's directory."""
    return data_dir / f"coordinator-{tcid}"


def _grown(known: Counts | None, brokers: int, coordinators: int, data_dir: Path) -> Counts:
    if known is None:
        return Counts(brokers=brokers, coordinators=coordinators)
    if brokers < known.brokers or coordinators < known.coordinators:
        raise InvalidConfig(
            f"{data_dir} has the data of {known.brokers} brokers and {known.coordinators}"
            f" coordinators, and none can be left out: start with --brokers"
            f" {max(brokers, known.brokers)} --coordinators"
            f" {max(coordinators, known.coordinators)}, or choose another data directory"
        )
    if (brokers, coordinators) == (known.brokers, known.coordinators):
        return known
    return Counts(version=known.version + 1, brokers=brokers, coordinators=coordinators)


def _known(data_dir: Path) -> Counts | None:
    """Return the counts that the directory remembers; None when it is new."""
    file = data_dir / MEMBERS_FILE
    try:
        text = file.read_text()
    except FileNotFoundError:
        return None
    try:
        content: dict[str, Any] = json.loads(text)
        counts = Counts(**content)
        valid = all(type(one) is int and one > 0 for one in content.values())
    except (ValueError, TypeError):
        valid = False
    if not valid:
        raise InvalidConfig(
            f"{file} is damaged; write into it how many servers there are, as"
            f" {json.dumps(asdict(Counts()))}, with a version above those in the errors of servers"
        )
    return counts


def _cluster_id(data_dir: Path, store: str | None) -> str:
    """Made with the data directory, so that a client of another one is told apart."""
    file = data_dir / CLUSTER_ID_FILE
    if store is not None:
        number = hashlib.sha256(store.encode()).hexdigest()[:16]
    else:
        number = f"{Random().getrandbits(64):016x}"
    if not file.exists():
        # Durably: stores remember it, too.
        write_whole(file, f"standalone-{number}\n")
    return file.read_text().strip()


def _reached_at(host: str, port: int) -> str:
    """Return the host where clients on this machine reach a server that listens on `host`."""
    return join_address({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port)
