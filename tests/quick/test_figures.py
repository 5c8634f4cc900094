"""Costs are adjusted to the machine's speed, and ratios are of the same round."""

from __future__ import annotations

import pytest
from benchmarks.quick.figures import (
    ALL,
    CALIBRATION_REFERENCE_S,
    PROCESSES,
    RATIO_MEASURES,
    RATIOS,
    Key,
    rows_of,
)
from benchmarks.quick.work import WORKLOADS
from tests.quick.figures import measured


def test_a_machine_of_half_the_speed_has_the_same_costs() -> None:
    fast = measured(cpu_s=(0.3, 0.2, 0.1), calibration_s=CALIBRATION_REFERENCE_S)
    slow = measured(cpu_s=(0.6, 0.4, 0.2), calibration_s=2 * CALIBRATION_REFERENCE_S)
    assert fast.costs_us == pytest.approx((3.0, 2.0, 1.0))
    assert slow.costs_us == pytest.approx(fast.costs_us)


def test_a_change_that_doubles_the_work_doubles_the_cost() -> None:
    before, after = measured(cpu_s=(0.3, 0.2, 0.0)), measured(cpu_s=(0.6, 0.2, 0.0))
    assert after.costs_us[0] == pytest.approx(2 * before.costs_us[0])
    assert after.costs_us[1] == pytest.approx(before.costs_us[1])


def test_rows_have_a_value_for_each_round() -> None:
    rows = rows_of([[measured(cpu_s=(0.3, 0.2, 0.0))], [measured(cpu_s=(0.4, 0.2, 0.1))]])
    assert [key.measure for key in rows] == [*PROCESSES, ALL]
    assert rows[Key("produce-100", "client")] == pytest.approx((3.0, 4.0))
    assert rows[Key("produce-100", "coordinator")] == pytest.approx((0.0, 1.0))
    assert rows[Key("produce-100", ALL)] == pytest.approx((5.0, 7.0))


def test_ratios_compare_workloads_of_the_same_round() -> None:
    """Each round is as fast as it is: the ratio does not see it."""
    rounds = [
        [
            measured("commits-100", cpu_s=(0.4 * slow, 0.2 * slow, 0.0), elapsed_s=2.0 * slow),
            measured("produce-100", cpu_s=(0.2 * slow, 0.1 * slow, 0.0), elapsed_s=0.5 * slow),
        ]
        for slow in (1, 3)
    ]
    rows = rows_of(rounds)
    name = "commits-100 / produce-100"
    assert rows[Key(name, "processor time")] == pytest.approx((2.0, 2.0))
    assert rows[Key(name, "elapsed time")] == pytest.approx((4.0, 4.0))


def test_a_ratio_is_by_what_each_message_takes() -> None:
    rows = rows_of(
        [
            [
                measured("transactions-1", cpu_s=(0.1, 0.1, 0.1), count=100),
                measured("transactions-64", cpu_s=(0.1, 0.1, 0.1), count=400),
            ]
        ]
    )
    name = "transactions-64 / transactions-1"
    assert rows[Key(name, "processor time")] == pytest.approx((0.25,))


def test_a_ratio_takes_both_workloads() -> None:
    rows = rows_of([[measured("commits-100")]])
    assert {key.workload for key in rows} == {"commits-100"}


def test_ratios_are_of_workloads_that_there_are() -> None:
    assert {name for pair in RATIOS for name in pair} <= {*WORKLOADS}


def test_ratios_come_after_what_they_compare() -> None:
    rows = rows_of([[measured("commits-100"), measured("produce-100")]])
    assert [key.measure for key in rows][-len(RATIO_MEASURES) :] == [*RATIO_MEASURES]
