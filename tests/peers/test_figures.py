"""Figures of the comparison with peers: rounds of a line, and what a table says of them."""

from __future__ import annotations

import io

from benchmarks.peers.figures import Figure, from_json, gathered, parsed, to_json
from benchmarks.peers.report import table
from rich.console import Console
from tests.peers.figures import figure

SAID = {
    "event": "result",
    "variant": "one transaction hangs",
    "count": 50,
    "expected": 100,
    "arrived": 99,
    "seconds": 0.5,
    "client_cpu_s": 0.75,
    "latencies_ms": {"send": {"p50": 1, "p99": 2, "p99.9": 3, "count": 50}},
}


def test_what_a_client_says_becomes_a_figure() -> None:
    found = parsed(
        SAID,
        system="pulsar",
        durability="os",
        row="hanging",
        variant="",
        way="Java",
        scale=None,
        server_cpu_s=2.0,
        memory_bytes=1 << 20,
        others_cpus=0.5,
    )
    assert found.variant == "one transaction hangs"
    assert found.latencies_ms == {"send": {"p50": 1.0, "p99": 2.0, "p99.9": 3.0}}
    assert found.per_s == 100
    assert not found.is_whole


def test_processor_time_is_told_for_a_million() -> None:
    found = figure(count=500)
    assert found.server_cpu_s_per_million == 1_000
    assert found.client_cpu_s_per_million == 500
    assert found.memory_mib == 3


def test_rounds_of_a_line_are_gathered_and_variants_stay_together() -> None:
    """All systems of a variant follow each other, although the systems took turns."""
    figures = [
        figure(system=system, variant=variant, seconds=seconds)
        for seconds in (1.0, 2.0, 4.0)
        for system in ("magnetar", "kafka")
        for variant in ("100 B", "1024 B")
    ]
    lines = gathered(figures)
    assert [(line.first.variant, line.first.system) for line in lines] == [
        ("100 B", "magnetar"),
        ("100 B", "kafka"),
        ("1024 B", "magnetar"),
        ("1024 B", "kafka"),
    ]
    assert [len(line.rounds) for line in lines] == [3, 3, 3, 3]
    assert lines[0].median("per_s") == 500
    assert lines[0].best_per_s() == 1_000


def test_a_latency_is_the_median_of_its_rounds() -> None:
    (line,) = gathered([figure(p50_ms=one) for one in (1.0, 7.0, 3.0)])
    assert line.latency_names() == ["commit()"]
    assert line.latency_ms("commit()", "p50") == 3.0


def test_json_brings_every_round_back() -> None:
    figures = [figure(p50_ms=2.0), figure(system="magnetar", scale=16)]
    assert from_json(to_json(figures)) == figures


def test_the_table_shows_rows_where_a_peer_wins_and_counts_that_are_wrong() -> None:
    shown = _shown(
        [
            figure(system="magnetar", seconds=2.0, arrived=990),
            figure(system="kafka", durability="os", seconds=1.0),
        ]
    )
    ours, theirs = shown.splitlines()[1:]
    assert "Magnetar" in ours
    assert "500" in ours
    assert "of 1,000 messages, 990 arrived" in ours
    assert "Kafka" in theirs
    assert "left to the OS" in theirs
    assert "1,000" in theirs
    assert "arrived" not in theirs


def test_a_restart_has_no_rate() -> None:
    shown = _shown([figure(row="restart", count=1, seconds=0.5, p50_ms=500.0)])
    assert "500.00" in shown
    assert " 2 " not in shown


def _shown(figures: list[Figure]) -> str:
    console = Console(file=io.StringIO(), width=1_000)
    console.print(table(figures))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()
