"""Real servers for each test, and figures that are printed at the end of the run."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.histories import check_history, settings_in
from tests.system.processes import OWNERS_VARIABLE, Servers

Figure = Callable[[str, str], None]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    missing = [
        name
        for name in ("magnetar_broker.broker", "magnetar_coordinator.coordinator")
        if importlib.util.find_spec(name) is None
    ]
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.chaos)
            if missing:
                item.add_marker(pytest.mark.skip(reason=f"{missing} are not there"))


@pytest.fixture
def servers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Servers]:
    """Servers whose history is judged when they have stopped."""
    if os.environ.get(OWNERS_VARIABLE):
        if request.node.get_closest_marker("keeps_shards"):
            pytest.skip(f"{OWNERS_VARIABLE} has shards move, and this test needs them to stay")
        from tests.system.moving_servers import MovingServers

        running: Servers = MovingServers(tmp_path, settings_in(tmp_path))
    else:
        running = Servers(tmp_path, settings_in(tmp_path))
    running.start()
    yield running
    running.stop()
    check_history(tmp_path)


@pytest.fixture
def figure(record_property: Callable[[str, object], None]) -> Figure:
    """Records what was measured, for the summary and for the JUnit report."""
    return record_property


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    lines = [
        f"{report.nodeid.rpartition('::')[2]}: {name}: {text}"
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "call"
        for name, text in report.user_properties
        if "tests/system/" in report.nodeid
    ]
    if lines:
        terminalreporter.section("measured")
        for line in lines:
            terminalreporter.write_line(line)
