"""The searches in the models: configurations, situations that have to arise, planted mistakes.

There is a file for each module of spec/. A run has values for the constants of its module, and the
invariant or the property that TLC has to find violated. It is empty where nothing is planted. A
situation is named by the formula that says that it never arises.

A planted mistake violates nothing, `watermark_covers_applied_ends`: a run shows this, and
docs/design/0022-model.md says why.
"""

from __future__ import annotations

from tests.spec.runs import commit, cuts, disaster, groups, identity, owners
from tests.spec.runs.run import Run

RUNS: tuple[Run, ...] = (
    *commit.RUNS,
    *identity.RUNS,
    *owners.RUNS,
    *disaster.RUNS,
    *groups.RUNS,
    *cuts.RUNS,
)
