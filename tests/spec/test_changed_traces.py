"""All recorded histories are behaviours of the model, and changed ones are refused at the change.

The follower is asked about the same changes. So neither can come to know less than the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.spec.changes import CHANGES
from tests.spec.following import follow
from tests.spec.plays import PLANS
from tests.spec.sensitivity import (
    BOTH,
    DIFFERENCES,
    Verdict,
    is_explained,
    refused_by_follower,
    verdicts,
)
from tests.spec.traces import translate


@pytest.fixture(scope="module")
def judged(tlc: Path, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, list[Verdict]]:
    return {
        name: verdicts(tlc, plan.record(), tmp_path_factory.mktemp("changed"))
        for name, plan in PLANS.items()
    }


@pytest.mark.parametrize("name", PLANS)
def test_a_recorded_history_is_a_behaviour_of_the_model(
    tlc: Path, tmp_path: Path, name: str
) -> None:
    recorded = PLANS[name].record()
    found = follow(tlc, translate(recorded), tmp_path)
    assert found.refused is None, found.output
    assert not found.violated, found.output
    assert refused_by_follower(recorded) is None


def test_tlc_and_the_follower_refuse_the_same_events(judged: Mapping[str, list[Verdict]]) -> None:
    found = [(name, one) for name, all_of_it in judged.items() for one in all_of_it]
    assert [one for one in found if not is_explained(one[1])] == []
    # Nothing is refused before it is changed.
    assert [one for one in found if one[1].tlc is not None and one[1].tlc < one[1].place] == []


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_refused(judged: Mapping[str, list[Verdict]], change: str) -> None:
    found = [one for all_of_it in judged.values() for one in all_of_it if one.change == change]
    agreements = {one.agreement for one in found}
    difference = DIFFERENCES.get(change)
    if difference is None or not difference.always:
        assert BOTH in agreements
    else:
        assert BOTH not in agreements
        assert agreements & difference.agreements


def test_no_difference_is_explained_that_there_is_not(
    judged: Mapping[str, list[Verdict]],
) -> None:
    found = {(one.change, one.agreement) for all_of_it in judged.values() for one in all_of_it}
    told = {(change, one) for change, known in DIFFERENCES.items() for one in known.agreements}
    assert told <= found
