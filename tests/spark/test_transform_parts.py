"""The transform's pure parts: progress, errors in a single line, the owner of a checkpoint."""

from __future__ import annotations

import json

import pytest

from magnetar_spark.jobs.failures import LENGTH_MAX, one_line
from magnetar_spark.jobs.transforming.checkpoint import (
    CheckpointRefused,
    batch_watermark_of,
    check_settings,
)
from magnetar_spark.jobs.transforming.progress import Summary, batch_of

PROGRESS = {
    "batchId": 3,
    "durationMs": {"triggerExecution": 1_500},
    "eventTime": {"watermark": "2013-01-02T00:00:00.000Z"},
    "stateOperators": [{"numRowsDroppedByWatermark": 2}],
    "sources": [
        {
            "endOffset": {"flights": {"0": 5, "1": 7}, "@magnetar": {"topics": {"flights": 1}}},
            "latestOffset": {"flights": {"0": 9, "1": 7, "2": 4}, "@magnetar": {}},
        }
    ],
    "observedMetrics": {"rows": {"rows": 12, "malformed": 1}, "windows": {"windows": 4}},
}


def test_a_batch_of_sparks_progress() -> None:
    one = batch_of(PROGRESS, late=None)
    assert (one.number, one.rows, one.malformed, one.windows) == (3, 12, 1, 4)
    assert (one.late, one.late_groups, one.elapsed_s) == (None, 2, 1.5)
    assert one.behind == 4 + 4
    assert one.watermark.startswith("2013-01-02")


def test_a_batch_that_observed_nothing() -> None:
    one = batch_of({"batchId": 0, "sources": [{"endOffset": None, "latestOffset": None}]}, late=0)
    assert (one.rows, one.windows, one.late, one.behind) == (0, 0, 0, 0)


def test_a_sum_of_late_rows_is_known_only_when_all_are() -> None:
    known, unknown = batch_of(PROGRESS, late=5), batch_of(PROGRESS, late=None)
    assert Summary().plus(known).plus(known) == Summary(2, 24, 2, 8, 10, 4)
    assert Summary().plus(known).plus(unknown).late is None


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "[STREAM_FAILED] Query terminated with exception:\n"
            "pyspark.errors.exceptions.base.PySparkRuntimeError: [X] failed to write:\n"
            "Traceback (most recent call last):\n"
            '  File "sink.py", line 3, in write\n'
            "magnetar_core.errors.SequenceTooOld: 3 comes before 4\n"
            "magnetar_spark.errors.SinkError: the checkpoint is   older\n"
            "\tat org.apache.spark.Some.thing(Some.scala:1)\n"
            "Caused by: java.lang.RuntimeException: magnetar is not named\n",
            "SinkError: the checkpoint is older",
        ),
        (
            "An exception was thrown\nTraceback (most recent call last):\n"
            "tests.spark.faults.Planted: on purpose\n",
            "Planted: on purpose",
        ),
        (
            "[X] Failed to create a writer: magnetar_spark.errors.OptionError: unknown 'a'\n",
            "OptionError: unknown 'a'",
        ),
        ("[A_CLASS] what Spark says\n  at a.b(c.scala:1)\n", "[A_CLASS] what Spark says"),
        ("", "it failed without a word"),
    ],
)
def test_an_error_is_one_line(text: str, line: str) -> None:
    assert one_line(text) == line


def test_a_long_error_is_cut() -> None:
    assert len(one_line("x" * 10_000)) == LENGTH_MAX


def test_a_checkpoint_is_of_the_same_settings_only() -> None:
    settings = {"job": "transform", "--window": "60000ms", "--late-topic": None}
    text = json.dumps(settings)
    check_settings("/c", text, settings)
    with pytest.raises(CheckpointRefused, match="begun with --window 60000ms: go on so"):
        check_settings("/c", text, settings | {"--window": "1ms"})
    with pytest.raises(CheckpointRefused, match="begun with --late-topic left out"):
        check_settings("/c", text, settings | {"--late-topic": "late"})
    with pytest.raises(CheckpointRefused, match="is damaged"):
        check_settings("/c", "{", settings)


def test_the_watermark_stands_in_the_second_line() -> None:
    assert (
        batch_watermark_of('v1\n{"batchWatermarkMs":1383692340000,"conf":{}}\n{"a":1}')
        == 1383692340000
    )
