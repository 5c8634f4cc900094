"""The wiretap of keys finds planted bugs without a look into the dispatcher."""

from __future__ import annotations

import re
from contextlib import nullcontext

import pytest
from tests.simulation.key_order import KeyOrder
from tests.simulation.planted import PLANTED
from tests.simulation.planting import replaced
from tests.simulation.short.runner import run_history

pytestmark = pytest.mark.sim


@pytest.mark.parametrize(
    ("planted", "scenario", "said"),
    [
        ("keys-move-at-once", "crowd", "and .* has"),
        ("pending-acks-hold-no-key", "crowd", "is pending with"),
        ("keys-of-pending-acks-not-learned", "keys held", "is pending with"),
    ],
)
def test_a_key_with_two_consumers_is_seen_on_the_wire(
    planted: str, scenario: str, said: str
) -> None:
    with PLANTED[planted](), replaced(KeyOrder, "watching", lambda self: nullcontext()):
        failures = (run_history(seed, scenario, checks_servers=False).failure for seed in range(60))
        said_so = re.compile(rf"invariant q: .* {said}")
        assert any(failure is not None and said_so.search(failure) for failure in failures)
