"""docs/spark.md, One moment: jobs in a real session, while money moves between two topics."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.conftest import ROOT
from tests.spark.cut_world import Bank
from tests.system.processes import Servers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.chaos

ROUNDS = 3
AMOUNTS = "cast(cast(value as string) as bigint) as amount"


@pytest.fixture
def bank(spark: SparkSession, servers: Servers) -> Iterator[Bank]:
    made = Bank(servers.address)
    yield made
    made.close()


def frame(spark: SparkSession, bank: Bank, **options: Any) -> DataFrame:
    return spark.read.format("magnetar").options(**bank.options(**options)).load()


def total(rows: DataFrame) -> tuple[int, int]:
    """How many rows there are, and the sum of their amounts."""
    found = rows.selectExpr(AMOUNTS).selectExpr("count(*)", "coalesce(sum(amount), 0)").first()
    assert found is not None
    return found[0], found[1]


def test_sums_never_change_while_money_moves(spark: SparkSession, bank: Bank) -> None:
    with bank.busy():
        for _ in range(ROUNDS):
            bank.wait_for_more()
            answered = bank.transfers
            rows = frame(spark, bank, cut="now", minPartitions=3)
            count, amount = total(rows)
            assert amount == 0
            assert count >= 2 * answered
            # Whatever is asked of it, it is the same moment.
            bank.wait_for_more()
            assert rows.count() == count
            halves = rows.selectExpr("topic", AMOUNTS).groupBy("topic").sum("amount").collect()
            assert sum(one[1] for one in halves) == 0


def test_a_task_that_is_tried_again_reads_the_same_rows(
    spark: SparkSession, bank: Bank, tmp_path: Path
) -> None:
    for _ in range(20):
        bank.transfer()
    failed = tmp_path / "failed"

    def once(rows: Iterable[Any]) -> Iterator[bytes]:
        read = [bytes(row.value) for row in rows]
        try:
            failed.mkdir()
        except FileExistsError:
            yield from read
        else:
            raise RuntimeError("a task that fails when it has read")

    with bank.busy():
        read = frame(spark, bank, cut="now").rdd.mapPartitions(once).collect()
    assert failed.exists()
    assert len(read) >= 40
    assert sum(int(one) for one in read) == 0


def test_a_view_of_sql_is_at_one_moment(spark: SparkSession, bank: Bank) -> None:
    bank.transfer()
    options = ", ".join(f"'{name}' '{text}'" for name, text in bank.options(cut="now").items())
    spark.sql(f"CREATE TEMPORARY VIEW accounts USING magnetar OPTIONS ({options})")
    try:
        for _ in range(2):
            assert spark.sql("SELECT count(*) FROM accounts").first() == (2,)
            bank.transfer()
    finally:
        spark.catalog.dropTempView("accounts")


def test_the_examples_of_the_page(spark: SparkSession, bank: Bank) -> None:
    page = (ROOT / "docs" / "spark.md").read_text()
    section = re.findall(r"\n## One moment\n(.*?)\n## ", page, re.DOTALL)[0]
    programs = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    from magnetar import blocking

    bank.transfer(1)
    earlier = str(bank.cut())
    names: dict[str, Any] = {
        "spark": spark,
        "blocking": blocking,
        "servers": {"magnetar.bootstrap.servers": bank.address},
    }
    bank.transfer(2)
    with bank.busy():
        for program in programs:
            bank.wait_for_more()
            assert "127.0.0.1:6650" in program or "spark.read" in program or "since=" in program
            exec(program.replace("127.0.0.1:6650", bank.address), names)
        assert total(names["accounts"])[1] == 0
        current, savings = total(names["current"]), total(names["savings"])
        assert current[0] == savings[0] > 2
        assert current[1] + savings[1] == 0
        # All but what the first transfer has taken.
        changes = names["read_at"]("current", since=earlier)
        assert total(changes) == (current[0] - 1, current[1] + 1)
        assert total(names["changes"]) == (0, 0)


def test_what_is_refused_is_told_by_the_query(spark: SparkSession, bank: Bank) -> None:
    token = str(bank.client.cut("current"))
    with pytest.raises(Exception, match="the cut has no topic 'savings'"):
        frame(spark, bank, cut=token).count()
    with pytest.raises(Exception, match="startingOffsets and cut contradict each other"):
        frame(spark, bank, cut=token, startingOffsets="earliest").count()
