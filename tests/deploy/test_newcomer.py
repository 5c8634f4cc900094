"""The newcomer's way: pages about Spark, followed to the letter in a new environment."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.deploy.wheels import ROOT, Install
from tests.pages.pages import follow, skip_without_programs

pytestmark = pytest.mark.soak


def test_the_pages_about_spark(install: Install, tmp_path: Path) -> None:
    assert "`pip install 'magnetar[server,spark]'`" in (ROOT / "docs" / "spark.md").read_text()
    programs = install("[server,spark,tables]")
    for page in ("docs/spark.md", "docs/pipeline.md"):
        skip_without_programs(page)
        directory = tmp_path / Path(page).stem
        directory.mkdir()
        follow(page, directory, programs)
