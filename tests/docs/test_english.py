"""Sentences of sources and pages are plain English: subject, verb, and nouns to search for.

The lint reads the docstrings, comments and other texts of Python sources, and the prose of pages.
It checks every file that `NOT_YET` does not name, so that new folders are checked from their first
day. Do not add a folder there: find out what the sentence means, and write that. Identifiers, and
texts between backquotes, are not prose.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import PurePosixPath
from typing import NamedTuple

import pytest
from blocking_facade import FOLDER, MODULES

from .test_links import ROOT, tracked

# Folders and files with sentences that are not plain yet.
NOT_YET = (
    "docs/testing.md",
    "tests/broker",
    "tests/cli",
    "tests/client",
    "tests/cluster",
    "tests/coordinator",
    "tests/core",
    # It quotes the patterns.
    "tests/docs/test_english.py",
    "tests/mutants",
    "tests/namespaces",
    "tests/simulation",
    "tests/spark",
    "tests/storage",
    "tests/system",
)
# Generated from sources that are checked, or by tools of others.
NOT_OURS = ("_pb2.py", *(f"{FOLDER}/{name}.py" for name in MODULES))

_BE = r"(?:is|are|was|were|be|been|being)"


class Pattern(NamedTuple):
    """A turn of phrase that slows a reader down.

    Attributes:
        regex: finds it in a text whose lines are joined by spaces.
        advice: how to say it instead.
    """

    regex: re.Pattern[str]
    advice: str


def pattern(regex: str, advice: str) -> Pattern:
    return Pattern(re.compile(regex), advice)


IN_PROSE = {
    "is no": pattern(
        rf"(?<!there )(?<!There )\b{_BE} no"
        r" (?!longer\b|more\b|less\b|fewer\b|later\b|earlier\b)[A-Za-z]",
        'negate the verb: "is not a"',
    ),
    "is none": pattern(
        rf"(?<!there )(?<!There )\b{_BE} (?:none(?! of\b)|nobody|nobody's)\b", "say what is missing"
    ),
    "no more": pattern(r"\bno more\b(?! than\b)", '"no longer"'),
    "any more": pattern(r"\bany ?more\b(?! than\b)", '"no longer"'),
    "nobody": pattern(r"\b[Nn]obody\b", "name the clients, members, callers or readers"),
    "somebody": pattern(r"\b(?:[Ss]ome|[Aa]ny)body\b", "name the client, member, caller or reader"),
    "everybody": pattern(r"\b[Ee]very ?body\b", '"all clients", "each member"'),
    "whoever": pattern(r"\b[Ww]ho(?:m|s)?(?:so)?ever\b", "name the client, member or caller"),
    "whom": pattern(r"\b[Ww]hom\b", "name who it is"),
    "of before": pattern(r"\bof (?:before|after|now|then|once)\b", '"previous", "current"'),
    "by half": pattern(r"\bby hal(?:f|ves)\b", '"partly"'),
    "wants": pattern(r"\b[Ww]ant(?:s|ed|ing)?\b", '"needs", "asks for", or the action'),
    "wish": pattern(r"\b[Ww]ish(?:es|ed)?\b", '"desired", "asked for"'),
    "comes about": pattern(r"\bc(?:om(?:e|es|ing)|ame) about\b", '"succeeds", "is made"'),
    "goes on behind": pattern(r"\bgo(?:es|ing)? on (?:behind|there)\b", '"continues after"'),
    "hears": pattern(
        r"\b[Hh]ears?\b|\b[Hh]ear(?:d|ing) (?:of|nothing)\b", '"learns", "is told", "receives"'
    ),
    "shall": pattern(r"\bshall\b", '"must", "should", or the present tense'),
    "Who as a subject": pattern(
        r"(?:^|[.:;] )Who\b|\b(?:for|of|by|with|than|after|before) who\b", "name who it is"
    ),
    "What as a subject": pattern(
        r"[.:;] What (?!is\b|are\b|if\b|for\b|to\b|not\b)[a-z][^.:;?]*[.:;]", "begin with a noun"
    ),
    "of what": pattern(
        r"\b(?:all|one|some|parts?|none|much|any|each|most|half|rest|nothing|something|copy)"
        r" of what\b",
        "name the things",
    ),
    "what all": pattern(r"\bwhat (?:all|else|one|alone)\b|\ball else\b", '"everything else"'),
    "One that": pattern(
        r"(?:^|[.:;] )One (?:that|which|who|whose|with|without|of)\b(?! the\b| several\b)",
        "name the thing",
    ),
    "Those that": pattern(
        r"(?:^|[.:;] )(?:Those|That) (?:that|which|who|whose|of)\b", "name the things"
    ),
    "knows no": pattern(
        r"\b(?:knows?|knew|sees?|saw|holds?|held) no"
        r" (?!longer\b|more\b|less\b|one\b)[a-z]",
        'negate the verb: "does not know a"',
    ),
    "makes no sense": pattern(r"\b(?:makes?|made) no (?:sense|difference)\b", "say what is wrong"),
    "says nothing": pattern(
        r"\b(?:says?|knows?|knew|asks?|tells?|told) nothing\b", "negate the verb"
    ),
    "stands still": pattern(r"\b(?:stands?|stood|standing) still\b", '"is stopped", "hangs"'),
    "lies there": pattern(
        r"\b(?:lies?|lay|lying) (?:there|behind)\b", '"is", "is stored", "comes after"'
    ),
    "in vain": pattern(r"\b(?:in vain|for nothing)\b", '"without effect"'),
    "thereby": pattern(
        r"\b(?:there|where|here)(?:by|in|of|to|upon)\b|\b(?:lest|albeit|henceforth)\b",
        "a whole clause",
    ),
    "of its own accord": pattern(r"\bof (?:its|their) own accord\b", '"without being asked"'),
    "all the same": pattern(r"\ball the same\b|\bnone the (?:less|worse)\b", '"still"'),
}
AT_THE_START_OF_A_DOCSTRING = {
    "no subject": pattern(
        r"^(?:Of|What|Who|Whom|Whose|Where|As|So|That|Those|Which|How|Not|Nor|Because|By|Than)\b",
        "begin with a verb or a noun",
    ),
    "does what": pattern(
        r"^(?:Abort|Accept|Add|Commit|Convert|Count|Deliver|Do|Drop|End|Fail|Finish|Forget|Give|Handle"
        r"|Keep|Let|Note|Print|Put|Read|Refuse|Remove|Restore|Return|Send|Take|Write|Yield) what\b",
        "name the thing after the verb",
    ),
}


class Text(NamedTuple):
    """A docstring, a comment, another text of a source, or a paragraph of a page.

    Attributes:
        lines: the prose of each line.
        first: number of the first line, from 1.
    """

    lines: list[str]
    first: int
    is_docstring: bool = False


class Finding(NamedTuple):
    """A pattern that was found."""

    line: int
    name: str
    advice: str
    excerpt: str


# Names of arguments and attributes in a docstring.
_ITEM = re.compile(r"^ +[a-z_*]\w*(?:, [a-z_*]\w*)*: ")


def find(text: Text) -> Iterator[Finding]:
    starts, joined = [], ""
    for line in text.lines:
        starts.append(len(joined))
        joined += _ITEM.sub("", line).strip() + " "
    joined = re.sub(r"`[^`]*`", lambda quoted: "X" * len(quoted[0]), joined)
    patterns = IN_PROSE | AT_THE_START_OF_A_DOCSTRING if text.is_docstring else IN_PROSE
    for name, (regex, advice) in patterns.items():
        for found in regex.finditer(joined):
            number = text.first + bisect_right(starts, found.start()) - 1
            excerpt = joined[max(0, found.start() - 30) : found.end() + 30]
            yield Finding(number, name, advice, excerpt.strip())


def texts_of_source(source: str) -> Iterator[Text]:
    tree = ast.parse(source)
    docstrings, parts = set(), set()
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str())):
                docstrings.add(id(node.value))
            case ast.JoinedStr():
                yield Text([_shown(node)], node.lineno)
                parts |= {id(part) for part in ast.walk(node)}
            case ast.Constant(value=str() as value) if id(node) in docstrings:
                yield Text(value.splitlines(), node.lineno, is_docstring=True)
            case ast.Constant(value=str() as value) if id(node) not in parts and " " in value:
                yield Text(value.splitlines(), node.lineno)
    yield from _comments(source)


def _shown(node: ast.JoinedStr) -> str:
    return "".join(
        str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values
    )


def _comments(source: str) -> Iterator[Text]:
    lines: list[str] = []
    first = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        number = token.start[0]
        if lines and number != first + len(lines):
            yield Text(lines, first)
            lines = []
        if not lines:
            first = number
        lines.append(token.string.lstrip("#: "))
    if lines:
        yield Text(lines, first)


def texts_of_page(page: str) -> Iterator[Text]:
    """Split a page into paragraphs, without its programs; each row of a table is one."""
    prose = re.sub(r"```.*?```", lambda block: "\n" * block[0].count("\n"), page, flags=re.DOTALL)
    lines: list[str] = []
    first = 0
    for number, line in enumerate([*prose.splitlines(), ""], 1):
        if lines and (not line.strip() or re.match(r"\s*(?:[-*|#]|\d+\.) ?", line)):
            yield Text(lines, first)
            lines = []
        if line.strip():
            if not lines:
                first = number
            lines.append(line)


@cache
def findings(name: str) -> list[Finding]:
    content = (ROOT / name).read_text()
    texts = texts_of_page(content) if name.endswith(".md") else texts_of_source(content)
    return sorted({found for text in texts for found in find(text)})


def is_in(name: str, places: tuple[str, ...]) -> bool:
    return any(name == place or name.startswith(f"{place}/") for place in places)


def rooms() -> dict[str, list[str]]:
    """Files to check, by folder."""
    found = defaultdict(list)
    for name in tracked("*.py", "*.md"):
        if not any(part in name for part in NOT_OURS) and not is_in(name, NOT_YET):
            found[str(PurePosixPath(name).parent)].append(name)
    return dict(found)


@pytest.mark.parametrize(("room", "names"), rooms().items(), ids=rooms())
def test_sentences_of_a_room_are_plain(room: str, names: list[str]) -> None:
    wrong = [
        f'{name}:{found.line}: "{found.name}": write {found.advice}: ...{found.excerpt}...'
        for name in names
        for found in findings(name)
    ]
    assert not wrong, "\n".join(["", *wrong])


@pytest.mark.parametrize("place", NOT_YET)
def test_a_place_that_is_plain_by_now_leaves_the_list(place: str) -> None:
    assert any(findings(name) for name in tracked("*.py", "*.md") if is_in(name, (place,)))


SOURCE = '''"""What a module does."""

# A comment that goes on for
# nobody.
raise ValueError(f"{name} is no number")


def find() -> None:
    """Return a value.

    Args:
        wish: identifiers are not prose, and neither is `nobody`.
    """
'''
PAGE = """# A page

It tells
whoever reads it.

```sh
echo nobody
```

- There is no limit, and no longer a wait.
- It wants more.
"""


def test_docstrings_comments_texts_and_pages_are_read() -> None:
    def found(texts: Iterator[Text]) -> set[tuple[int, str]]:
        return {(one.line, one.name) for text in texts for one in find(text)}

    assert found(texts_of_source(SOURCE)) == {(1, "no subject"), (4, "nobody"), (5, "is no")}
    assert found(texts_of_page(PAGE)) == {(4, "whoever"), (11, "wants")}
