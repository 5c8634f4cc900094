"""The fenced blocks of a page, and what each of them is."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
RUN = frozenset({"console", "python", "sh", "sql"})
PARSED = frozenset({"json", "toml", "yaml"})
# Read by people, or by the program that makes HTML.
SHOWN = frozenset({"mermaid", "proto", "text", "{eval-rst}"})
# They are files if they say so.
FILES = PARSED | {"python", "text"}
_FENCE = re.compile(r"^( *)```([^\n]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# ([\w.-]+)\n")
_LIST_ITEM = re.compile(r" *([-*]|\d+\.) ")


@dataclass(frozen=True)
class Block:
    """A block between fences.

    Attributes:
        page: the page, from the root of the repository.
        line: the line of the page with which its text begins.
    """

    page: str
    line: int
    language: str
    text: str

    @property
    def file(self) -> str | None:
        """The file that this block is, if its first line is a comment with a name alone."""
        found = _FILE.match(self.text)
        return found[1] if found and self.language in FILES else None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: str, text: str) -> Iterator[Block]:
    for found in _FENCE.finditer(text):
        line = text.count("\n", 0, found.start(3)) + 1
        yield Block(page, line, found[2].strip(), textwrap.dedent(found[3]))


def blocks_of(page: str) -> list[Block]:
    return list(blocks(page, (ROOT / page).read_text()))


def indented_blocks(text: str) -> list[int]:
    """Return the lines at which blocks begin that have no fence and so no language."""
    lines = _FENCE.sub(lambda found: "\n" * found[0].count("\n"), text).splitlines()
    found = []
    in_list = False
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.startswith(" "):
            in_list = _LIST_ITEM.match(line) is not None
        elif line.startswith("    ") and not in_list and not lines[number - 2].strip():
            found.append(number)
    return found


def commands(block: Block) -> Iterator[tuple[str, list[str]]]:
    """Commands of a console, and the lines that each one prints."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        found = re.match(r"(?:[^\n]*\\\n)*[^\n]*\n", part)
        assert found, block
        printed = part[found.end() :].rstrip()
        yield found[0].rstrip(), [line.rstrip() for line in printed.splitlines()]
