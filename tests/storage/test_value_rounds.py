"""When files of values are looked at, with a clock that the test sets."""

from __future__ import annotations

import pytest

from magnetar_storage.rocksdb import value_rounds
from magnetar_storage.rocksdb.value_rounds import ValueRounds, is_to_move


def looked_at(rounds: ValueRounds, now_seconds: float, whole: list[int]) -> list[int]:
    """The files of a round that takes no time."""
    files: list[int] = []
    while (file := rounds.begin_file(now_seconds, whole)) is not None:
        files.append(file)
        rounds.end_file(now_seconds)
    return files


def test_a_store_is_looked_at_once_after_it_was_opened() -> None:
    rounds = ValueRounds()
    assert looked_at(rounds, 0.0, [3, 1, 2]) == [1, 2, 3]
    assert looked_at(rounds, 1e9, [1, 2, 3]) == []


def test_a_round_begins_when_rows_were_deleted_and_not_too_soon() -> None:
    rounds = ValueRounds()
    looked_at(rounds, 0.0, [1])
    rounds.note_deleted()
    assert looked_at(rounds, value_rounds.ROUND_INTERVAL_SECONDS - 1, [1]) == []
    assert looked_at(rounds, value_rounds.ROUND_INTERVAL_SECONDS, [1]) == [1]
    assert looked_at(rounds, 1e9, [1]) == []


def test_rows_that_are_deleted_during_a_round_begin_another() -> None:
    rounds = ValueRounds()
    assert rounds.begin_file(0.0, [1]) == 1
    rounds.note_deleted()
    rounds.end_file(0.0)
    assert looked_at(rounds, 100.0, [1]) == [1]


def test_without_whole_files_nothing_is_forgotten() -> None:
    rounds = ValueRounds()
    assert looked_at(rounds, 0.0, []) == []
    assert looked_at(rounds, 0.0, [1]) == [1]


def test_rounds_take_a_share_of_the_time() -> None:
    rounds = ValueRounds()
    assert rounds.begin_file(0.0, [1]) == 1
    rounds.end_file(100.0)
    rounds.note_deleted()
    pause = 100.0 / value_rounds.ROUNDS_SHARE_MAX
    assert looked_at(rounds, 99.0 + pause, [1]) == []
    assert looked_at(rounds, 100.0 + pause, [1]) == [1]


def test_values_are_looked_at_a_few_at_a_time() -> None:
    rounds = ValueRounds()
    assert rounds.values_due(5.0) == 0
    assert rounds.values_due(5.0 + value_rounds.PAUSE_SECONDS / 2) == 0
    assert rounds.values_due(5.05) == pytest.approx(125, abs=1)
    assert rounds.values_due(1e6) == value_rounds.VALUES_AT_ONCE_MAX


@pytest.mark.parametrize(("live", "moves"), [(0, True), (49, True), (50, False), (100, False)])
def test_less_than_half_is_moved(live: int, moves: bool) -> None:
    assert is_to_move(live, 100) is moves
