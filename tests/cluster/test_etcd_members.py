"""Members of etcd that differ are told from a fault of those who use them: tests/etcd_server.py."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import pytest_runtest_makereport
from tests.etcd_server import EtcdServer, differing, positions, started


def status(*members: tuple[int, int]) -> str:
    """What etcdctl prints of members, by their applied entries and revisions."""
    return json.dumps(
        [
            {
                "Endpoint": f"m{number}",
                "Status": {"header": {"revision": revision}, "raftAppliedIndex": applied},
            }
            for number, (applied, revision) in enumerate(members)
        ]
    )


def test_members_that_agree() -> None:
    assert differing(positions(status((533, 522), (533, 522), (533, 522)))) == ""


def test_members_that_differ() -> None:
    """As three members of 3.5.1 did, one of which was killed while rows were written."""
    differences = differing(positions(status((533, 521), (533, 522), (533, 522))))
    assert "at entry 533" in differences
    assert "m0 has revision 521, m1 has revision 522" in differences


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdServer]:
    yield from started(tmp_path)


@pytest.mark.parametrize("differ", [True, False])
def test_a_test_that_fails_beside_members_that_differ_shows_nothing(
    etcd: EtcdServer, tmp_path: Path, request: pytest.FixtureRequest, differ: bool
) -> None:
    if differ:
        make_differ(etcd, tmp_path / "rows")
    call = pytest.CallInfo.from_call(lambda: pytest.fail("planted"), "call")
    report = judged(request.node, call)
    if not differ:
        assert (report.outcome, hasattr(report, "wasxfail")) == ("failed", False)
        return
    assert report.outcome == "skipped"
    assert f"{etcd.members[0].endpoint} has revision 1," in report.wasxfail
    # What comes next has members that agree.
    etcd.control("put", "a", "1")
    assert etcd.agree() == ""


def test_members_that_are_looked_at_while_rows_are_written_do_not_differ(
    etcd: EtcdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look is at three members in turn, and at each of them at two moments."""
    looks = iter(
        [
            ((7, 3), (7, 3), (8, 4)),
            ((8, 3), (8, 4), (8, 4)),
            ((8, 4), (8, 4), (8, 4)),
            ((8, 4), (8, 4), (8, 4)),
        ]
    )
    monkeypatch.setattr(etcd, "_positions", lambda: positions(status(*next(looks))))
    assert etcd.agree() == ""


def test_members_that_tell_nothing_excuse_nothing(
    etcd: EtcdServer, request: pytest.FixtureRequest
) -> None:
    first = etcd.members[0]
    first.kill()
    first.rows.write_bytes(b"not what it wrote")
    call = pytest.CallInfo.from_call(lambda: pytest.fail("planted"), "call")
    report = judged(request.node, call)
    assert (report.outcome, hasattr(report, "wasxfail")) == ("failed", False)


def judged(item: pytest.Item, call: pytest.CallInfo[None]) -> pytest.TestReport:
    """What the hook of all tests makes of one that failed."""
    hook = pytest_runtest_makereport(item, call)
    next(hook)
    with pytest.raises(StopIteration) as result:
        hook.send(pytest.TestReport.from_item_and_call(item, call))
    report = result.value.value
    assert isinstance(report, pytest.TestReport)
    return report


def make_differ(etcd: EtcdServer, rows: Path) -> None:
    """Give the first member rows of an earlier life, in which it had read more and written less."""
    first = etcd.members[0]
    for _ in range(30):
        etcd.control("lease", "grant", "600")
    etcd.kill()
    shutil.copy(first.rows, rows)
    for member in etcd.members:
        member.forget()
    etcd.start()
    for number in range(5):
        etcd.control("put", "a", str(number))
    first.kill()
    shutil.copy(rows, first.rows)
    first.start()
