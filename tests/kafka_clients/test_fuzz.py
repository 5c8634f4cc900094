"""Mutations of good requests at a real server: it goes on, and does not grow."""

from __future__ import annotations

from pathlib import Path

from tests.kafka_clients import fuzz


def test_requests_of_strangers_do_no_harm(tmp_path: Path) -> None:
    fuzz.run(tmp_path, seed=3, count=5_000)
