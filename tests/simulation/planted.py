"""Planted bugs: is the simulation worth anything? Each is in the real code for one run only.

They are named mutants (`tests/mutants/catalogue`). `python -m tests.simulation --planted NAME`
counts the histories of its profile until one finds it.
"""

from __future__ import annotations

from functools import partial

from tests.mutants.planting import planted
from tests.simulation.planting import Plant

# Of which histories a few find each, in five seconds of processor time.
PROFILE_OF = {
    "decision-told-before-durable": "any",
    "counter-not-stored": "any",
    "half-applied-goes-on": "mixed runs",
    "memory-without-rows": "mixed runs",
    "run-of-answers-before-durable": "mixed runs",
    "run-parked-at-its-weakest": "mixed runs",
    "transactional-send-unsynced": "mixed runs",
    "dispatched-before-sync": "workers",
    "watermark-not-stored": "rule c",
    "deduplication-off-after-restart": "rule e",
    "held-never-asked": "rule f",
    "made-up-taken": "rule f",
    "surplus-sends-kept": "rule g",
    "ack-check-skipped": "rule i",
    "old-watermark-taken": "rule c",
    "floor-past-pending": "rule i",
    "expiry-of-committing": "rule k",
    "nothing-passed-on": "chains",
    "never-expires-is-at-once": "rule o",
    "keep-uses-current-pair": "rule o",
    "committed-name-not-stored": "rule o",
    "identity-not-stored": "rule o",
    "complete-always-commits": "rule o",
    "copies-take-over": "identities",
    "zombie-acks-taken": "rule p",
    "earlier-generations-ignored": "rule p",
    "generation-not-stored": "rule p",
    "aborted-come-last": "rule p",
    "first-awaited-only": "members by hand",
    "keys-move-at-once": "rule q",
    "pending-acks-hold-no-key": "crowd",
    "keys-of-pending-acks-not-learned": "keys held",
}
PLANTED: dict[str, Plant] = {name: partial(planted, name) for name in PROFILE_OF}
