"""All pages: their commands and programs run as they stand there, and a second time."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.pages.blocks import PARSED, ROOT, RUN, SHOWN, Block, blocks, blocks_of, indented_blocks
from tests.pages.following import following
from tests.pages.pages import (
    NEEDS,
    NOT_RUN,
    PAGES,
    Needs,
    follow,
    reason_not_run,
    skip_without_programs,
    to_run,
)


def test_at_most_ten_kinds_of_blocks_are_not_run() -> None:
    assert len(NOT_RUN) <= 10
    found = {
        reason_not_run(block)
        for page in PAGES
        for block in blocks_of(page)
        if block.language in RUN
    }
    assert set(NOT_RUN.values()) <= found, "a reason that no block has"
    assert set(NEEDS) <= {page for page in PAGES if to_run(page)}


@pytest.mark.parametrize("page", PAGES)
def test_a_file_of_a_page_is_used_there(page: str) -> None:
    found = to_run(page)
    for block in found:
        used = [one for one in found if one.file is None and str(block.file) in one.text]
        assert block.file is None or used, f"{block}: nothing on the page uses this file"


@pytest.mark.parametrize("page", PAGES)
def test_each_block_says_what_it_is(page: str) -> None:
    assert indented_blocks((ROOT / page).read_text()) == [], "put these blocks between fences"
    for block in blocks_of(page):
        assert block.language in RUN | PARSED | SHOWN, f"{block}: {block.language!r}"
        if block.language in PARSED:
            parse(block)
        if block.language == "console":
            assert block.text.startswith("$ "), f"{block}: a console begins with a command"


def parse(block: Block) -> Any:
    parsers = {"json": json.loads, "toml": tomllib.loads, "yaml": yaml.safe_load}
    return parsers[block.language](block.text)


def _cases() -> list[Any]:
    return [
        pytest.param(page, id=page, marks=NEEDS.get(page, Needs()).marks)
        for page in PAGES
        if any(block.file is None for block in to_run(page))
    ]


@pytest.mark.parametrize("page", _cases())
def test_a_page_can_be_followed_twice(page: str, tmp_path: Path) -> None:
    skip_without_programs(page)
    follow(page, tmp_path)


def test_a_block_without_a_language_is_noticed() -> None:
    text = "\n```\nmagnetar health\n```\n"
    (block,) = blocks("page.md", text)
    assert (block.line, block.language) == (3, "")
    assert indented_blocks("text:\n\n    magnetar health\n") == [3]
    assert indented_blocks("- item\n\n    of the list\n") == []
    assert indented_blocks("\n```python\nif True:\n\n    pass\n```\n") == []


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("sh", "false\ntrue\n"),
        ("sh", "false | true\n"),
        ("python", "raise SystemExit(1)\n"),
        ("console", "$ false\n"),
        ("console", "$ echo 1\n2\n"),
    ],
)
def test_a_block_that_fails_is_noticed(language: str, text: str, tmp_path: Path) -> None:
    with following(tmp_path) as reader:
        reader.run(Block("page.md", 1, "sh", "true\nfalse || true\n"), compare=True)
        with pytest.raises(AssertionError):
            reader.run(Block("page.md", 1, language, text), compare=True)
