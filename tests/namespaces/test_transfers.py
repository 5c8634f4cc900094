"""The cluster of deploy/compose/compose.yaml, with faults of all kinds, under transfers.

Each service runs in a network namespace of its own. A checker judges the history that the clients
have recorded, and finds each way in which the same history is then damaged on purpose.
"""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from math import inf
from pathlib import Path
from random import Random

import pytest
from tests.namespaces.checker import Violation, check
from tests.namespaces.cut_damages import CUT_DAMAGES
from tests.namespaces.damages import DAMAGES, Damage
from tests.namespaces.records import Record
from tests.namespaces.run import missing, run

from magnetar_cli.check.history.judging import Verdict

# To repeat a run: its faults, and what each client does. Times differ a little.
SEED_VARIABLE = "NAMESPACES_SEED"
ENDING_S_MAX = 5.0
DAMAGES_FOUND_MIN = 5
CUT_DAMAGES_FOUND_MIN = 3
# On machines of all kinds; a run that does nothing proves nothing.
COMMITS_MIN = 20
CUTS_MIN = 20

Figure = Callable[[str, object], None]


@pytest.mark.parametrize(
    ("seconds", "pause_s", "ending_s_max"),
    [
        # With little work for the processors, which other tests use: they make it slow, not wrong.
        pytest.param(120.0, 1.0, inf, id="two-minutes"),
        pytest.param(600.0, 0.2, ENDING_S_MAX, id="ten-minutes", marks=pytest.mark.soak),
    ],
)
def test_transfers_hold_what_is_promised_while_everything_fails_in_turn(
    tmp_path: Path,
    record_property: Figure,
    seconds: float,
    pause_s: float,
    ending_s_max: float,
) -> None:
    reason = missing()
    if reason:
        pytest.skip(reason)
    # It takes longer than a test that hangs.
    faulthandler.cancel_dump_traceback_later()
    seed = int(os.environ.get(SEED_VARIABLE) or (1 if seconds < 600 else os.getpid()))
    print(f"{SEED_VARIABLE}={seed}, records in {tmp_path}")
    recorded = run(tmp_path, seed=seed, seconds=seconds, pause_s=pause_s)
    report = recorded.report
    assert recorded.history.verdict is Verdict.ACCEPTED, recorded.history
    summary = check(recorded.records)
    for name, figure in {**asdict(report), **asdict(summary)}.items():
        record_property(name, figure)
        print(f"{name}: {figure}")
    assert summary.counts["commit: ok"] >= COMMITS_MIN, "the tellers got on"
    # Without a limit: they have ended, at some time.
    assert report.longest_ending_s < ending_s_max
    assert report.settled_s < ending_s_max

    assert summary.counts["cuts"] >= CUTS_MIN

    assert _found(DAMAGES, recorded.records, Random(seed)) >= DAMAGES_FOUND_MIN
    assert _found(CUT_DAMAGES, recorded.records, Random(seed)) >= CUT_DAMAGES_FOUND_MIN


def _found(damages: Sequence[Damage], records: Sequence[Record], random: Random) -> int:
    """Do each damage that can be done, which the checker has to find; returns how many."""
    found = 0
    for damage in damages:
        damaged = damage(records, random)
        if damaged is not None:
            with pytest.raises(Violation):
                check(damaged)
            found += 1
    return found
