"""Links of all pages lead somewhere, and what the code says of pages is there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

import magnetar

ROOT = Path(__file__).parents[2]
_LINK = re.compile(r"(?<!\!)\[[^\]]*\]\(([^)\s]+)\)|\!\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
_HEADING = re.compile(r"^#+ +(.+?) *#*$", re.MULTILINE)
_PAGE = re.compile(r"\b((?:docs|deploy|benchmarks|tests|examples)/[\w/.-]*\w\.md)\b")
_FILE = re.compile(r"`((?:[\w.-]+/)+[\w-]+\.(?:py|proto|yaml|toml|sh))`")
_SECTIONS = re.compile(r"\b(docs/[\w/-]+\.md), ([A-Z][^;.:,()\n]+)")


def tracked(*patterns: str) -> list[str]:
    found = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [one for one in found.stdout.splitlines() if (ROOT / one).is_file()]


def anchor(heading: str) -> str:
    """The part of a link that leads to a heading, as GitHub makes it."""
    plain = re.sub(r"[`*_]|\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def anchors(page: Path) -> set[str]:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    return {anchor(heading) for heading in _HEADING.findall(text)}


def broken_links(page: Path) -> list[str]:
    broken = []
    for link in _LINK.finditer(_CODE.sub("", page.read_text())):
        target = link[1] or link[2]
        if re.match(r"[a-z]+:", target):
            continue
        name, _, place = target.partition("#")
        found = page if not name else page.parent / name
        if not found.exists() or (place and place not in anchors(found)):
            broken.append(target)
    return broken


@pytest.mark.parametrize("page", tracked("*.md"))
def test_links_of_a_page_lead_somewhere(page: str) -> None:
    assert broken_links(ROOT / page) == []


def test_a_broken_link_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A page\n[here](#a-page) [there](other.md) [nowhere](#b-page) `[code](no.md)`"
        " [far](https://example.org/x)\n"
    )
    assert broken_links(page) == ["other.md", "#b-page"]


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text()
    missing = [
        page
        for page in tracked("docs/*.md", "docs/**/*.md")
        if page != "docs/index.md" and f"({page.removeprefix('docs/')})" not in index
    ]
    assert missing == []


def test_pages_that_the_code_names_are_there() -> None:
    missing = [
        f"{source}: {name}"
        for source in tracked("*.py", "*.proto", "*.toml", "*.md", "*.yaml", "Makefile")
        for name in _PAGE.findall((ROOT / source).read_text())
        if source != "tests/docs/test_links.py" and not (ROOT / name).exists()
    ]
    assert missing == []


def test_files_that_pages_name_are_there() -> None:
    """A file is named by its path, as `broker/magnetar_broker/broker.py`, or shortened by "…"."""
    missing = [
        f"{page}: {name}"
        for page in tracked("*.md")
        for name in _FILE.findall((ROOT / page).read_text())
        if not (ROOT / name).exists() and not ((ROOT / page).parent / name).exists()
    ]
    assert missing == []


def test_every_public_name_is_in_the_reference() -> None:
    reference = "".join((ROOT / page).read_text() for page in tracked("docs/api/*.md"))
    listed = re.findall(r"^\.\. auto\w+:: magnetar\.(\w+)$", reference, re.MULTILINE)
    assert sorted({*listed} - {"blocking", "dual_write"}) == sorted(magnetar.__all__)


def test_sections_that_the_code_names_are_there() -> None:
    """A source names sections, as in "Source: docs/design/0001-protocol.md, Low watermark"."""
    missing = []
    for source in tracked("*.py", "*.proto"):
        if source == "tests/docs/test_links.py":
            continue
        for name, sections in _SECTIONS.findall((ROOT / source).read_text()):
            text = (ROOT / name).read_text() if (ROOT / name).exists() else ""
            headings = _HEADING.findall(text)
            missing += [
                f"{source}: {name}, {section}"
                for section in re.split(r" and (?=[A-Z])", sections.strip())
                if not any(heading.startswith(section) for heading in headings)
            ]
    assert missing == []
