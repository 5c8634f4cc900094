"""docs/pipeline.md: jobs over two topics that see one moment, while money moves between them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from tests.spark.cut_world import TOPICS, Bank, Row, values, with_ends_of
from tests.spark.offloads import read_files
from tests.system.processes import Servers

from magnetar_cli.program import cli
from magnetar_spark.clients import close_all

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from magnetar_spark.jobs.auditing import audit as auditing

pytestmark = pytest.mark.chaos


@pytest.fixture
def bank(spark: SparkSession, servers: Servers) -> Iterator[Bank]:
    made = Bank(servers.address)
    yield made
    made.close()
    close_all()


def audited(spark: SparkSession, bank: Bank, at: str, *topics: str) -> auditing.Report:
    from magnetar_spark.jobs.auditing.audit import Request, audit

    report = audit(spark, Request((bank.address,), topics, unique="txn_id", at=at))
    assert report.is_clean, report.findings
    return report


def test_an_audit_counts_what_a_cut_has(spark: SparkSession, bank: Bank) -> None:
    """No topic has two messages of a transaction, so nothing shares its TxnID."""
    bank.transfer()
    early = bank.cut()
    with bank.busy():
        bank.wait_for_more(3)
        answered = bank.transfers
        now = audited(spark, bank, "now")
        assert now.messages == 2 * now.transactions >= 2 * answered
        # The same moment again, which names its topics.
        again = audited(spark, bank, now.cut)
        assert (again.messages, again.topics, again.cut) == (now.messages, 2, now.cut)
    torn = with_ends_of(early, bank.cut())
    one = audited(spark, bank, torn)
    assert (one.messages, one.transactions) == (2, 1)
    one = audited(spark, bank, torn, "savings")
    assert (one.messages, one.transactions, one.topics) == (1, 1, 1)


def offloaded(bank: Bank, directory: Path, token: str) -> list[Row]:
    """What the files have of a cut: all but what the manifest calls unfinished."""
    rows: list[Row] = []
    for topic in TOPICS:
        done = CliRunner().invoke(
            cli,
            [
                *("--broker", bank.address, "pipeline", "offload"),
                *(topic, str(directory / topic), "--at", token),
            ],
        )
        assert done.exit_code == 0, (done.output, done.exception)
        manifest = max((directory / topic / "_magnetar").glob("manifest-*.json"))
        unfinished = json.loads(manifest.read_text())["unfinished"]
        rows += [
            (topic, one.partition, one.offset, one.value)
            for one in read_files(directory / topic)
            if one.txn_id not in unfinished
        ]
    return rows


def test_offloads_at_one_token_have_one_moment(
    spark: SparkSession, bank: Bank, tmp_path: Path
) -> None:
    for _ in range(3):
        bank.transfer()
    early = bank.cut()
    for _ in range(3):
        bank.transfer(5)
    token = tmp_path / "token"
    token.write_text(with_ends_of(early, bank.cut()))
    bank.transfer(7)
    found = offloaded(bank, tmp_path, f"@{token}")
    assert values(found) == [-1] * 3 + [1] * 3
    assert sorted(found) == sorted(bank.read(cut=token.read_text()))
    # What is not in the cut is in the files, and the next run goes on behind it.
    assert {int(one.value) for one in read_files(tmp_path / "savings")} == {1, 5}
    token.write_text(str(bank.cut()))
    found = offloaded(bank, tmp_path, f"@{token}")
    assert values(found) == [-7] + [-5] * 3 + [-1] * 3 + [1] * 3 + [5] * 3 + [7]
