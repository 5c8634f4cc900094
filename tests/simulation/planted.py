"""Planted bugs: is the simulation worth anything? Each is in the real code for one run only.

They are named mutants (`tests/mutants/catalogue`). `python -m tests.simulation.run --planted NAME`
counts the long seeds until one is found.
"""

from __future__ import annotations

from functools import partial

from tests.mutants.planting import planted
from tests.simulation.planting import Plant

PLANTED: dict[str, Plant] = {
    name: partial(planted, name)
    for name in (
        "decision-told-before-durable",
        "watermark-not-stored",
        "surplus-sends-kept",
        "ack-check-skipped",
        "counter-not-stored",
        "floor-past-pending",
        "expiry-of-committing",
        "deduplication-off-after-restart",
        "never-expires-is-at-once",
        "keep-uses-current-pair",
        "committed-name-not-stored",
        "identity-not-stored",
        "complete-always-commits",
        "copies-take-over",
        "nothing-passed-on",
        "zombie-acks-taken",
        "earlier-generations-ignored",
        "first-awaited-only",
        "generation-not-stored",
        "aborted-come-last",
        "keys-move-at-once",
        "pending-acks-hold-no-key",
        "keys-of-pending-acks-not-learned",
        "held-never-asked",
        "made-up-taken",
    )
}
