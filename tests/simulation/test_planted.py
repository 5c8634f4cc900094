"""A planted bug is found by a checker; a plant that breaks the code is told apart."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.simulation.planted import PLANTED, PROFILE_OF
from tests.simulation.run import first_found
from tests.simulation.seeds import is_crash_at_once
from tests.simulation.short.catalogue import PROFILES
from tests.simulation.short.runner import run_history

PASSES = (None, False)
FOUND = ("Violation: invariant 1", False)
CRASH = ("AttributeError: no such thing", True)


@pytest.mark.parametrize(
    ("results", "after", "at_once"),
    [
        ([FOUND, PASSES], 1, False),
        ([PASSES, PASSES, FOUND, PASSES], 3, False),
        ([CRASH, CRASH, CRASH, CRASH], 3, True),
        # Others do not: some bugs end a server in few seeds only.
        ([CRASH, PASSES], 2, False),
        ([CRASH, FOUND], 2, False),
        ([PASSES, CRASH, CRASH], 2, False),
    ],
)
def test_the_first_failure_is_found(
    results: list[tuple[str | None, bool]], after: int, at_once: bool
) -> None:
    found, count = first_found(iter(results))
    assert found is not None
    assert count == after
    assert found.at_once is at_once


def test_nothing_is_found_where_nothing_fails() -> None:
    assert first_found(iter([PASSES])) == (None, 1)


def test_a_crash_at_once_is_no_finding_of_a_checker() -> None:
    assert is_crash_at_once("TypeError: none", Counter())
    assert not is_crash_at_once("TypeError: none", Counter({"transactions": 1}))
    assert not is_crash_at_once("Violation: invariant 8", Counter())
    assert not is_crash_at_once(None, Counter())


def test_each_planted_bug_has_a_profile() -> None:
    assert set(PROFILE_OF.values()) <= set(PROFILES)


@pytest.mark.sim
@pytest.mark.parametrize(
    ("name", "finding"),
    [
        # A worker got a message that a loss of power would have taken back.
        ("dispatched-before-sync", "is shown, and no disk has it"),
        # Some commands of a run fail, and the server goes on where it has to end.
        ("half-applied-goes-on", "failed, and took effect"),
        ("memory-without-rows", "failed, and took effect"),
        # The last answer of a run needs more than the others do.
        ("run-of-answers-before-durable", "is durable before it is told"),
        ("run-parked-at-its-weakest", "are durable"),
        # Two transactions were open where a member took over, and the first one ended.
        ("first-awaited-only", "is read in generation"),
        # A copy has to be late; the follower sees it at once.
        ("old-watermark-taken", "is covered, and stays so"),
    ],
)
def test_what_takes_a_rare_moment_is_found_soon(name: str, finding: str) -> None:
    with PLANTED[name]():
        failures = (
            run_history(seed, PROFILE_OF[name], checks_servers=False).failure for seed in range(40)
        )
        found = next((failure for failure in failures if failure is not None), "")
    assert finding in found
