"""A home for Spark in which its Python library is no archive."""

from __future__ import annotations

import os
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from magnetar_spark.jobs.spark_home import HOME, home_without_archive


@pytest.mark.chaos
def test_sparks_processes_find_the_compiled_library(spark: SparkSession) -> None:
    def where(_: int) -> tuple[str, str]:
        import pyspark

        return pyspark.__file__, pyspark.__cached__  # type: ignore[attr-defined]  # Not in stubs.

    assert "spark-home" in os.environ[HOME]
    (found,) = spark.sparkContext.parallelize([0], 1).map(where).collect()
    cached = pyspark.__cached__  # type: ignore[attr-defined]  # Not in stubs.
    assert found == (pyspark.__file__, cached)


def test_a_home_that_somebody_chose_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOME, "/opt/spark")
    assert home_without_archive(tmp_path) == {}
    assert list(tmp_path.iterdir()) == []
    monkeypatch.delenv(HOME)
    home = home_without_archive(tmp_path)
    assert home == home_without_archive(tmp_path)
    assert (Path(home[HOME]) / "bin" / "spark-submit").is_file()
